"""A network camera for tests: it speaks RTSP (RFC 2326), and ffmpeg makes its video."""

import contextlib
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class _Session(socketserver.StreamRequestHandler):
    """One client: it is told of the video, and gets it inside the RTSP connection."""

    server: "_Camera"

    def handle(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as rtp, contextlib.suppress(OSError):
            rtp.bind(("127.0.0.1", 0))
            # When the video is over, the camera falls silent.
            rtp.settimeout(10)
            sdp = self.server.folder / f"{rtp.getsockname()[1]}.sdp"
            with subprocess.Popen(_ffmpeg(self.server.video, sdp, rtp.getsockname()[1])) as ffmpeg:
                try:
                    if self._is_asked_to_play(sdp):
                        while packet := rtp.recv(65536):
                            self.wfile.write(b"$\0" + len(packet).to_bytes(2) + packet)
                finally:
                    ffmpeg.kill()

    def _is_asked_to_play(self, sdp: Path) -> bool:
        """Answer what comes before."""
        while request := self._request():
            method, fields = request
            more, body = "Session: 1\r\n", ""
            if method == "OPTIONS":
                more = "Public: DESCRIBE, SETUP, PLAY, TEARDOWN\r\n"
            elif method == "DESCRIBE":
                more, body = "Content-Type: application/sdp\r\n", _whole(sdp)
            elif method == "SETUP":
                more += f"Transport: {fields['transport']}\r\n"
            elif method != "PLAY":
                return False
            head = f"RTSP/1.0 200 OK\r\nCSeq: {fields['cseq']}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
            self.wfile.write((head + body).encode())
            if method == "PLAY":
                return True
        return False

    def _request(self) -> tuple[str, dict[str, str]] | None:
        lines = []
        while line := self.rfile.readline().decode().strip():
            lines.append(line)
        if not lines:
            return None
        pairs = (line.partition(": ") for line in lines[1:])
        return lines[0].split()[0], {name.lower(): value for name, _, value in pairs}


class _Camera(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, folder: Path, video: Path) -> None:
        self.folder, self.video = folder, video
        super().__init__(("127.0.0.1", 0), _Session)


def _ffmpeg(video: Path, sdp: Path, port: int) -> list[str | Path]:
    """Sends a video as RTP packets at its own speed, and describes them."""
    words: list[str | Path] = ["ffmpeg", "-v", "error", "-nostdin", "-re", "-i", video, "-c:v", "libx264"]
    words += ["-preset", "ultrafast", "-tune", "zerolatency", "-g", "10", "-pix_fmt", "yuv420p"]
    words += ["-bsf:v", "dump_extra", "-f", "rtp", "-sdp_file", sdp, f"rtp://127.0.0.1:{port}"]
    return words


def _whole(sdp: Path) -> str:
    """The description, once ffmpeg has written it; ffmpeg writes a line of its own log above it."""
    for _ in range(1000):
        text = sdp.read_text() if sdp.exists() else ""
        if "a=fmtp" in text:
            return text[text.index("v=0") :].replace("\n", "\r\n").replace("\r\r", "\r")
        time.sleep(0.01)
    raise AssertionError("ffmpeg describes no video")


@contextmanager
def network_camera(folder: Path, video: Path) -> Iterator[str]:
    """The address of a camera that shows a video once to whoever connects."""
    with _Camera(folder, video) as camera:
        thread = threading.Thread(target=camera.serve_forever)
        thread.start()
        try:
            yield f"rtsp://127.0.0.1:{camera.server_address[1]}/stream"
        finally:
            camera.shutdown()
            thread.join()
