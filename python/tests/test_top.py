"""`mez top` against a real edge: a table for scripts, and a screen in a real pseudo-terminal."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

import mez
from mez.top import view
from tests.pages import MEZ, EdgeProcess, running, scene
from tests.pipelines import until
from tests.support import enrolled


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[EdgeProcess]:
    """An edge with a page, and a camera."""
    with (
        running(tmp_path) as edge,
        mez.publisher("hall/cam", edge=edge.address, keys=edge.keys, state=tmp_path / "cam") as camera,
    ):
        camera.wait_connected(timeout=30)
        camera.send(scene(1, 8)[0])
        yield edge


def words(edge: EdgeProcess, *more: str) -> list[str]:
    """The command."""
    return [MEZ, "top", "--edge", edge.socket, "--keys", str(edge.keys), *more]


@dataclass(frozen=True)
class Other:
    """Another site."""

    keys: Path


class Terminal:
    """A pseudo-terminal in which a command runs."""

    def __init__(self, command: list[str], columns: int) -> None:
        """Start it."""
        # The far side stays open here, so that what was written there can be read when the command has ended.
        self._near, self._far = pty.openpty()
        self.resize(columns)
        self.before = termios.tcgetattr(self._near)
        self.text = ""
        # A read may end in the middle of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.process = subprocess.Popen(command, stdin=self._far, stdout=self._far, stderr=self._far)

    def __enter__(self) -> Self:
        """It runs already."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._near)
        os.close(self._far)

    def resize(self, columns: int) -> None:
        """Make it so wide."""
        fcntl.ioctl(self._near, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._near, keys.encode())

    def wait(self, condition: Callable[[str], object]) -> None:
        """Read until the last picture is as wanted. How long it takes is not tested."""
        end = time.monotonic() + 60
        while not condition(self.text.rpartition("\x1b[H")[2]):
            assert time.monotonic() < end, self.text[-2000:]
            found, _, _ = select.select([self._near], [], [], 0.1)
            if found:
                self.text += self._decoder.decode(os.read(self._near, 65536))

    def rest(self) -> str:
        """All that comes until the command has ended."""
        self.process.wait(timeout=60)
        while select.select([self._near], [], [], 0)[0]:
            self.text += self._decoder.decode(os.read(self._near, 65536))
        return self.text

    def modes(self) -> list[object]:
        """How the terminal is set."""
        return termios.tcgetattr(self._near)


def test_once_prints_a_table_for_scripts(edge: EdgeProcess) -> None:
    """No escape codes; an edge that is away is an error."""
    told = ""

    def is_whole() -> bool:
        nonlocal told
        told = subprocess.run(words(edge, "--once"), check=True, capture_output=True, text=True).stdout
        return bool(re.search(r"^edge main of hall: ready, .*cameras 1/1", told))

    until(is_whole, bool, "the camera is connected")
    assert "\x1b" not in told
    titles, row = re.search(r"^(CAMERA.*)\n(hall/cam.*)$", told, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert titles.split()[:2] == ["CAMERA", "STATE"]
    assert row.split()[0] == "hall/cam"
    assert row.split()[1] in ("live", "connected")
    edge.stop()
    away = subprocess.run(words(edge, "--once"), check=False, capture_output=True, text=True)
    assert away.returncode == 1
    assert away.stderr.startswith("mez top: ")
    no_terminal = subprocess.run(words(edge), check=False, capture_output=True, text=True)
    assert "give --once" in no_terminal.stderr


def test_an_application_sees_what_it_was_granted(edge: EdgeProcess, tmp_path: Path) -> None:
    """Over the network, with its certificate; an edge of another site is refused."""
    keys = enrolled(edge, "app/viewer", tmp_path / "app").parent
    command = [MEZ, "top", "--once", "--web", edge.web, "--keys", str(keys)]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "observe" in refused.stderr
    grant = [MEZ, "keys", "grant", "app/viewer", "observe", "hall/*", "--keys", str(edge.keys)]
    subprocess.run(grant, check=True, capture_output=True)

    def is_granted() -> bool:
        told = subprocess.run(command, check=False, capture_output=True, text=True)
        return told.returncode == 0 and "hall/cam" in told.stdout

    until(is_granted, bool, "the edge has read the grant")
    subprocess.run(
        [MEZ, "keys", "init", "--site", "other", "--keys", str(tmp_path / "other")],
        check=True,
        capture_output=True,
    )
    enrolled(Other(tmp_path / "other"), "app/viewer", tmp_path / "stranger")
    command[-1] = str(tmp_path / "stranger")
    stranger = subprocess.run(command, check=False, capture_output=True, text=True)
    assert stranger.returncode == 1
    assert "does not belong to the site of these keys" in stranger.stderr


def test_a_terminal_shows_what_changes_and_is_given_back(edge: EdgeProcess) -> None:
    """It is resized, the edge goes and comes back, and Ctrl-C leaves the terminal as it was."""
    with Terminal(words(edge), 160) as terminal:
        terminal.wait(lambda text: "hall/cam" in text and "REASON" in text)
        terminal.resize(30)
        terminal.wait(lambda text: "hall/cam" in text and "REASON" not in text)
        picture = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.text.rpartition("\x1b[H")[2])
        assert max(map(len, picture.split("\r\n"))) <= 30
        edge.stop()
        terminal.resize(160)
        terminal.wait(lambda text: "no answer since" in text and "hall/cam" in text)
        edge.start()
        terminal.wait(lambda text: "no answer since" not in text and "hall/cam" in text)
        terminal.type("c")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.rest().endswith("\x1b[?25h\x1b[?1049l")
        assert terminal.process.returncode == 0
        assert terminal.modes() == terminal.before


def test_keys_that_come_at_once_all_count(edge: EdgeProcess) -> None:
    """Another order, and the end."""
    with Terminal(words(edge), 160) as terminal:
        terminal.wait(lambda text: "hall/cam" in text)
        terminal.type("cq")
        assert terminal.rest().endswith("\x1b[?25h\x1b[?1049l")
        assert terminal.process.returncode == 0
        assert terminal.modes() == terminal.before


def seen(name: str, age_ms: float | None, fps: float, state: str, link: float | None) -> dict[str, Any]:
    """A camera, as the edge tells it."""
    return {
        "name": name,
        "connected": True,
        "source": None,
        "newest": None if age_ms is None else {"age_ms": age_ms, "rung": "full"},
        "received_frames_per_second": fps,
        "crossed_bits_per_second": link,
        "link_bits_per_second": None,
        "contracts": [{"state": state, "reason": "", "latency_p95_ms": None, "latency_bound_ms": None}],
    }


@pytest.mark.parametrize(
    ("sort", "order"), [("name", "abc"), ("age", "cba"), ("fps", "bca"), ("contract", "cab"), ("link", "acb")]
)
def test_cameras_are_sorted(sort: str, order: str) -> None:
    """The oldest, fastest, least kept or busiest first; what is not known comes last."""
    site = {
        "site": "hall",
        "edge": "main",
        "ready": {"ok": True},
        "uptime_ms": 0,
        "certificates": [],
        "cameras": 3,
        "cameras_connected": 3,
        "applications": 0,
        "log_bytes": 0,
        "store_bytes": None,
    }
    cameras = [
        seen("b", 5.0, 30.0, "ok", None),
        seen("a", None, 1.0, "absent", 2e6),
        seen("c", 70.0, 5.0, "infeasible", 1e6),
    ]
    now = view.Snapshot(site, cameras, {"applications": [], "groups": []})
    told = view.lines(now, sort, None)
    assert [line[0] for line in told[3:]] == list(order)
    assert set(view.SORTS) == {"name", "age", "fps", "contract", "link"}


def test_names_of_others_command_no_terminal() -> None:
    """A name or a reason may have anything in it; wide characters take two columns."""
    assert view.plain("a\x1b[2Jb\nc\u202e\x9b") == "a?[2Jb?c??"
    assert view.cells_wide("门x") == 3
    assert view.cut("门门门", 4) == "门…"
    columns = (
        view.Column("NAME", 0, lambda row: str(row["name"])),
        view.Column("N", 1, lambda row: str(row["n"]), is_number=True),
        view.Column("WHY", 2, lambda row: str(row["why"])),
    )
    rows = [{"name": "dock", "n": 7, "why": "because"}]
    assert view.table(columns, rows, None) == ["NAME  N  WHY", "dock  7  because"]
    assert view.table(columns, rows, 9) == ["NAME  N", "dock  7"]
    assert view.table(columns, rows, 3) == ["NAME", "dock"]
