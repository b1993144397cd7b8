"""`mez subscribe` and `mez cameras --watch` on terminals of several widths, as people see them."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import mez
from tests.support import picture

MEZ = str(Path(sys.executable).parent / "mez")
ROWS = 24
CAMERAS = ("dock/cam1", "dock/a-camera-with-a-longer-name")


class Screen:
    """What a terminal of `columns` columns shows of what is written to it, and how much scrolled out."""

    def __init__(self, columns: int, rows: int = ROWS) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [""]
        self.row = self.column = 0
        self.redrawn = 0
        self.scrolled = 0

    def feed(self, text: str) -> None:
        """Take what a program wrote."""
        for part in re.findall(r"\x1b\[\d*[A-Za-z]|.", text, re.DOTALL):
            self._take(part)

    def _take(self, part: str) -> None:
        if part == "\r":
            self.column = 0
        elif part == "\n":
            self._down()
        elif part.startswith("\x1b["):
            count, command = int(part[2:-1] or 1), part[-1]
            if command == "A":
                self.row = max(self.row - count, 0)
                self.redrawn += 1
            elif command == "J":
                self.lines = [*self.lines[: self.row], self.lines[self.row][: self.column]]
            else:
                raise AssertionError(f"the test knows no {part!r}")
        else:
            if self.column == self.columns:
                self._down()
                self.column = 0
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + part + line[self.column + 1 :]
            self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")
        if len(self.lines) > self.rows:
            del self.lines[0]
            self.row -= 1
            self.scrolled += 1


@contextlib.contextmanager
def publishing(edge: mez.Edge) -> Iterator[None]:
    """Two cameras that publish fifty frames a second each."""
    over = threading.Event()

    def publish(name: str) -> None:
        with mez.publisher(name, edge=edge) as camera:
            while not over.wait(0.02):
                camera.send(picture(0))

    threads = [threading.Thread(target=publish, args=(name,)) for name in CAMERAS]
    for thread in threads:
        thread.start()
    try:
        while {camera.camera for camera in edge.cameras()} != set(CAMERAS):
            time.sleep(0.05)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def watch(words: list[str], columns: int, redraws: int = 6) -> Screen:
    """Run a command on a terminal until it has drawn so often, press Ctrl-C, and return what stands there."""
    screen = Screen(columns)
    pid, terminal = pty.fork()
    if pid == 0:
        # The command looks at its terminal first after it is as large as it is to be.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        os.execv(MEZ, [MEZ, *words])
    interrupted = False
    try:
        while True:
            drawn = screen.redrawn >= redraws and not interrupted
            ready = select.select([terminal], [], [], 0.2 if drawn else 30)[0]
            if drawn and not ready:
                # Now that all of it was read: Ctrl-C makes the terminal drop what was not.
                interrupted = True
                os.write(terminal, b"\x03")
                continue
            assert ready, f"nothing was drawn: {screen.lines}"
            try:
                screen.feed(os.read(terminal, 65536).decode())
            except OSError:
                # The other side of a terminal is closed.
                break
        _, status = os.waitpid(pid, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, screen.lines
    return screen


@pytest.mark.parametrize("command", ["subscribe", "cameras"])
def test_a_live_view_fits_the_terminal(edge: mez.Edge, command: str) -> None:
    """A head, a line for each camera, nothing twice, nothing cut off, and no rest of a line in the end."""
    words = {
        "subscribe": ["subscribe", "dock/*", "--latency-ms", "2000"],
        "cameras": ["cameras", "dock/*", "--watch"],
    }[command]
    heads = {}
    with publishing(edge):
        for columns in (80, 100, 140):
            screen = watch([*words, "--edge", f"unix://{edge.socket}"], columns)
            text = "\n".join(screen.lines)
            assert screen.scrolled == 0, text
            assert max(map(len, screen.lines)) <= columns, text
            assert "^C" not in text
            assert (screen.row, screen.column) == (len(screen.lines) - 1, 0), text
            assert screen.lines[-1] == "", text
            table = screen.lines[: 1 + len(CAMERAS)]
            assert [line.split()[0] for line in table] == ["CAMERA", *sorted(CAMERAS)], text
            assert not any("…" in line for line in table), text
            assert text.count("CAMERA ") == 1, text
            heads[columns] = re.split(r"  +", table[0])
    # A narrow column may stand where a more important one has no room.
    assert len(heads[80]) <= len(heads[100]) <= len(heads[140])
    assert len(heads[80]) < len(heads[140])
    important = {"subscribe": ["FPS", "AGE P50/P95", "SKIPPED"], "cameras": ["STATE", "PUBLISHES"]}[command]
    assert set(important) <= set(heads[80])


def test_more_cameras_than_rows_do_not_scroll(edge: mez.Edge) -> None:
    """The rest is counted."""
    with contextlib.ExitStack() as cameras:
        for number in range(ROWS + 6):
            cameras.enter_context(mez.publisher(f"dock/cam{number}", edge=edge))
        while len(edge.cameras()) < ROWS + 6:
            time.sleep(0.05)
        screen = watch(["cameras", "--watch", "--edge", f"unix://{edge.socket}"], 80, redraws=2)
    assert screen.scrolled == 0
    assert len(screen.lines) == ROWS
    assert re.match(r"… \d+ more lines", screen.lines[-2])


def test_columns_are_chosen_and_explained(edge: mez.Edge) -> None:
    """By name, in any width, and `--help` says what each shows."""
    with publishing(edge):
        words = ["cameras", "--edge", f"unix://{edge.socket}"]
        chosen = run(*words, "--columns", "camera,rtt,log")
        assert chosen.splitlines()[0].split() == ["CAMERA", "LOG", "RTT"]
        every = run(*words)
        assert "EDGE'S DISK" in every
        lines = [json.loads(line) for line in run(*words, "--json").splitlines()]
    assert [line["camera"] for line in lines] == sorted(CAMERAS)
    # What programs get has the names of Python.
    assert {field.name for field in fields(mez.CameraInfo)} <= set(lines[0])
    for command, column in (("cameras", "rtt"), ("subscribe", "crossed")):
        told = run(command, "--help")
        assert re.search(rf"- {column}: +\w+", told), told


def run(*words: str) -> str:
    """Run a command to its end, without a terminal."""
    return subprocess.run([MEZ, *words], check=True, capture_output=True, text=True).stdout
