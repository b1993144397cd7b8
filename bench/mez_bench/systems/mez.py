"""Mez: publisher → camera broker → edge broker → subscriber, each a process, through the local sockets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mez._processes import run_to_end
from mez_bench.bursts import System
from mez_bench.children import Child, mez
from mez_bench.footage import FPS
from mez_bench.payload import HEIGHT, WIDTH
from mez_bench.run import Place, Run

CAMERA: Final = "bench/cam"

LOG_BYTES: Final = 48 << 20
"""Size of each broker's log: small, so that it is soon full and evicts frames."""

LOCAL: Final = "Unix socket and shared memory"


class Brokers:
    """An edge broker and one camera broker.

    Args:
        run: The run that they belong to, or a part of it.
        log_bytes: Memory budget of each broker.
        edge_words: More options of the edge. With `--store`, the store's key is created.
        host: The edge's address.
        within: Words before the command that run the edge on a host of `mez_bench.line`.
    """

    def __init__(
        self,
        run: Run | Place,
        log_bytes: int,
        name: str = "mez",
        edge_words: Sequence[str] = (),
        *,
        host: str = "127.0.0.1",
        within: Sequence[str] = (),
    ) -> None:
        self._run = run
        self._edge_words = edge_words
        self._log_bytes = log_bytes
        self.folder = run.folder / name
        self.folder.mkdir()
        self.keys = self.folder / "keys"
        run_to_end("mez keys init", mez("keys", "init", "--site", "bench", "--keys", str(self.keys)))
        # Applications get all rights: no experiment but that on rights measures grants.
        verbs = "watch,read,originals,reply,observe,profile"
        granted = mez("keys", "grant", "app/**", verbs, "**", "--keys", str(self.keys))
        run_to_end("mez keys grant", granted)
        if "--store" in edge_words:
            run_to_end("mez store key", mez("store", "key", "--keys", str(self.keys)))
        self._within = within
        self.link_address = self.grpc_address = f"{host}:0"
        self.start_edge()

    def start_edge(self) -> None:
        """Start the edge broker; after the first start, at the same addresses."""
        words = mez(
            *("edge", "--keys", str(self.keys), "--memory-bytes", f"{self._log_bytes}"),
            *("--listen", self.link_address, "--grpc", self.grpc_address, "--enrol", "off"),
            *("--socket", str(self.folder / "edge.sock")),
            *self._edge_words,
        )
        self.edge = self._run.children.start("edge", [*self._within, *words])
        said = dict(word.split("=", 1) for word in self.edge.ready().split())
        self.link_address, self.grpc_address = said["link"], said["grpc"]

    def dial(self, address: str, link: str = "quic") -> Child:
        """Start the camera broker, which dials this address over QUIC or TCP."""
        camera = self._run.children.start(
            "camera",
            mez(
                *("camera", CAMERA, "--edge", address, "--link", link, "--keys", str(self.keys)),
                *("--memory-bytes", f"{self._log_bytes}", "--socket", str(self.folder / "camera.sock")),
                *("--state", str(self.folder / "state")),
            ),
        )
        camera.ready()
        return camera

    def dial_with(
        self,
        address: str,
        source: str,
        link: str = "quic",
        name: str = "camera",
        *,
        camera: str = CAMERA,
        fps: float = FPS,
        socket: Path | None = None,
        words: Sequence[str] = (),
        within: Sequence[str] = (),
        wait: bool = True,
    ) -> Child:
        """Start a camera broker that plays a recording in a loop, and wait for its first frame.

        Args:
            address: The address that it dials.
            source: The recording.
            link: Transport of the link, `quic` or `tcp`.
            name: Its name in messages and logs.
            camera: The camera's name.
            fps: Frames per second.
            socket: Socket for applications on its own host; `None`: it has none.
            words: More options of the command.
            within: Words before the command that run it on another host.
            wait: Whether to wait here; otherwise the caller calls `Child.ready`.
        """
        command = mez(
            *("camera", camera, "--edge", address, "--link", link, "--keys", str(self.keys)),
            *("--memory-bytes", f"{self._log_bytes}", "--state", str(self.folder / "state")),
            *("--source", source, "--loop", "--fps", f"{fps:g}"),
            *(() if socket is None else ("--socket", str(socket))),
            *words,
        )
        child = self._run.children.start(name, [*within, *command])
        if wait:
            child.ready()
        return child

    @property
    def socket(self) -> str:
        """Where applications on this host reach the edge."""
        return f"unix://{self.folder / 'edge.sock'}"

    def publisher(self) -> Child:
        """Start a publisher."""
        child = self._run.children.start(
            "publisher",
            mez(
                *("measure", "publish", "--broker", f"unix://{self.folder / 'camera.sock'}"),
                *("--width", f"{WIDTH}", "--height", f"{HEIGHT}"),
            ),
        )
        child.ready()
        return child

    def publisher_within(
        self,
        address: str,
        link: str = "quic",
        *,
        size: tuple[int, int] = (WIDTH, HEIGHT),
        within: Sequence[str] = (),
    ) -> Child:
        """Start a publisher with the camera broker in its own process, which dials this address.

        Args:
            address: The address that it dials.
            link: Transport of the link, `quic` or `tcp`.
            size: Width and height of the payloads.
            within: Words before the command that run it on another host.
        """
        words = mez(
            *("measure", "publish-within", "--camera", CAMERA, "--edge", address, "--link", link),
            *("--keys", str(self.keys), "--memory-bytes", f"{self._log_bytes}"),
            *("--state", str(self.folder / "state")),
            *("--width", f"{size[0]}", "--height", f"{size[1]}"),
        )
        child = self._run.children.start("publisher", [*within, *words])
        child.ready()
        return child

    def subscriber(self, *words: str, name: str = "subscriber") -> Child:
        """Start a subscriber, by default through the edge's socket."""
        words = words or ("--edge", self.socket)
        child = self._run.children.start(name, mez("measure", "subscribe", "--pattern", CAMERA, *words))
        child.ready()
        return child


def start(run: Run) -> System:
    """Start Mez with its link over QUIC."""
    return _start(run, "mez", "quic", "QUIC, mutual TLS 1.3")


def start_tcp(run: Run) -> System:
    """Start Mez with its link over TCP."""
    return _start(run, "mez_tcp", "tcp", "TLS 1.3 over TCP, mutual")


def start_within(run: Run) -> System:
    """Start Mez with the camera broker in the publisher's process: as many hops as in peers without one."""
    return _start_within(run, "mez_within", "quic", "QUIC, mutual TLS 1.3")


def start_within_tcp(run: Run) -> System:
    """Start Mez with the camera broker in the publisher's process, with its link over TCP."""
    return _start_within(run, "mez_within_tcp", "tcp", "TLS 1.3 over TCP, mutual")


def _start_within(run: Run, name: str, link: str, details: str) -> System:
    brokers = Brokers(run, LOG_BYTES, name)
    return System(
        name=name,
        publisher=brokers.publisher_within(brokers.link_address, link),
        subscriber=brokers.subscriber(),
        brokers={"edge": brokers.edge},
        details={"link": details, "local": LOCAL, "log_bytes": f"{LOG_BYTES}"},
    )


def _start(run: Run, name: str, link: str, details: str) -> System:
    brokers = Brokers(run, LOG_BYTES, name)
    camera = brokers.dial(brokers.link_address, link)
    return System(
        name=name,
        publisher=brokers.publisher(),
        subscriber=brokers.subscriber(),
        brokers={"camera": camera, "edge": brokers.edge},
        details={"link": details, "local": LOCAL, "log_bytes": f"{LOG_BYTES}"},
    )
