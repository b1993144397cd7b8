"""The demo itself: real brokers, a real video, real failures."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import cv2
import pytest

CHECKOUT = Path(__file__).parents[2]
DEMO = [sys.executable, "-P", "-m", "mez", "demo"]

HANG_SECONDS = 90


@pytest.fixture(scope="module", autouse=True)
def video() -> None:
    """Fetch the video that the demo shows unless told otherwise."""
    fetched = subprocess.run([CHECKOUT / "tools/demo-video"], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"no video: {fetched.stderr.strip()}")


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Give the demo a folder for temporary files, by which its processes are known, and no settings."""
    # Short, because the path of a Unix socket must be.
    with tempfile.TemporaryDirectory(prefix="mez-test-", ignore_cleanup_errors=True) as folder:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MEZ_")}
        yield {**inherited, "TMPDIR": folder, "PYTHONUNBUFFERED": "1"}
        for pid in brokers(folder).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def brokers(folder: str) -> dict[str, int]:
    """Find the demo's processes: `edge`, cameras by their names, and what those started as `ffmpeg of …`."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            running = "\nState:\tZ" not in (path / "status").read_text()
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        # A leash shows the words of the command that it becomes.
        if not running or any(word.endswith("leash.py") for word in words):
            continue
        if any(word.startswith(folder) for word in words) and "mez" in words:
            after = words[words.index("mez") + 1 :]
            found["edge" if after[0] == "edge" else after[1]] = int(path.name)
        elif Path(words[0]).name == "ffmpeg":
            found[f"ffmpeg of {parent}"] = int(path.name)
    cameras = set(found.values())
    return {
        name: pid
        for name, pid in found.items()
        if not name.startswith("ffmpeg of ") or int(name.removeprefix("ffmpeg of ")) in cameras
    }


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait; fail if it takes so long that it never will be."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Tell whether no such process runs; one that only waits to be reaped does not."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


class Running:
    """A demo without a terminal, in the background; what it prints is read as it comes."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        self.folder = environment["TMPDIR"]
        self._process = subprocess.Popen(
            [*DEMO, "--out", f"{self.folder}/out", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def output(self) -> str:
        """What it has said so far."""
        return "".join(self.said)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def await_word(self, word: str) -> None:
        """Read on until a line with this word."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line)
            if word in line:
                return
        pytest.fail(f"ended without saying {word!r}:\n{self.output}")

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        assert self._process.stdout is not None
        self.said.extend(self._process.stdout)
        return self._process.wait(HANG_SECONDS)


def figures(environment: dict[str, str]) -> Any:  # noqa: ANN401 - what JSON holds
    """Read the figures that the demo wrote."""
    return json.loads(Path(environment["TMPDIR"], "demo.json").read_text())


def check_books(read: Any) -> None:  # noqa: ANN401 - what JSON holds
    """Recompute from the figures what the demo says of them."""
    assert read["balanced"], read
    assert read["published"] == read["delivered"] + sum(read["skipped"].values())
    assert read["corrupt"] == 0
    for name in ("published", "delivered", "detected_frames", "detections"):
        assert read[name] == sum(row[name] for row in read["per_camera"])
    assert 0 < read["latency_ms_p50"] <= read["latency_ms_p95"] <= read["latency_ms_p99"]


def test_frames_of_all_cameras_arrive_whole_and_people_are_found(environment: dict[str, str]) -> None:
    """A short demo from the first to the last: figures, pictures, and nobody left behind."""
    folder = environment["TMPDIR"]
    environment["MEZ_STATE"] = f"{folder}/state-of-the-host"
    with Running(environment, "--seconds", "6", "--cameras", "2", "--json", f"{folder}/demo.json") as demo:
        assert demo.end() == 0, demo.output
    read = figures(environment)
    check_books(read)
    assert read["cameras"] == 2
    assert [row["camera"] for row in read["per_camera"]] == ["dock/cam1", "dock/cam2"]
    # Six seconds of ten frames each; half of them would do on a machine that has other things to do.
    assert all(row["delivered"] >= 30 for row in read["per_camera"])
    assert all(row["epochs"] == 1 for row in read["per_camera"])
    assert read["restarts"] == read["problems"] == []
    assert read["detections"] >= read["detected_frames"] > 0
    assert read["replies"] + read["replies_lost"] <= read["detected_frames"]
    assert read["replies"] > 0
    assert read["edge_rss_mb"] > 0
    assert read["camera_rss_mb_max"] > 0
    assert "Every frame is accounted for, and nothing failed." in demo.output
    told = re.fullmatch(
        r"The cameras published ([\d.]+) MB; ([\d.]+) MB crossed the links \(([\d.]+) %\)\.",
        demo.output.splitlines()[-1],
    )
    assert told, demo.output
    published, crossed, share = (float(figure) for figure in told.groups())
    assert (published, crossed) == (
        round(read["published_bytes"] / 1e6, 1),
        round(read["link_bytes"] / 1e6, 1),
    )
    assert crossed > 0
    assert share == pytest.approx(100 * read["link_bytes"] / read["published_bytes"], abs=0.06)
    assert {f"dock/cam{number}" for number in (1, 2)} <= set(re.findall(r"dock/cam\d", demo.output))
    pictures = sorted(Path(folder, "out").glob("*.png"))
    assert 3 <= len(pictures) <= 5
    assert all(cv2.imread(str(picture)) is not None for picture in pictures)
    assert brokers(folder) == {}
    assert list(Path(folder).glob("mez-demo-*")) == [], "keys and logs were left behind"
    assert not Path(folder, "state-of-the-host").exists(), "the host's edge would list the demo's cameras"


MINE = """
def detect(image):
    assert image.shape[2] == 3, image.shape
    return [(8, 16, 40, 80, 0.9, "gate"), (8, 16, 40, 80, 0.4, "gate")]


def corners(image):
    return [(8, 16, 4, 8, 0.9)]


def clumsy(image):
    return image["boxes"]
"""


def test_the_demo_runs_on_a_detector_of_ones_own(environment: dict[str, str]) -> None:
    """A function of a file finds one box on each frame; a second one is not sure enough to count."""
    folder = environment["TMPDIR"]
    mine = Path(folder, "mine.py")
    mine.write_text(MINE)
    words = ["--seconds", "3", "--cameras", "1", "--json", f"{folder}/demo.json"]
    with Running(environment, *words, "--app", f"{mine}:detect") as demo:
        assert demo.end() == 0, demo.output
    read = figures(environment)
    check_books(read)
    assert read["parameters"]["app"] == "mine.py:detect"
    assert read["detections"] == read["detected_frames"] > 0
    assert Path(folder, "out", "contact-sheet.png").exists()


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("corners", ": box 0 is [8.0, 16.0, 4.0, 8.0]"),
        ("clumsy", "mine.py): only integers"),
    ],
)
def test_what_is_wrong_with_ones_own_detector_is_said_before_anything_runs(
    environment: dict[str, str], function: str, says: str
) -> None:
    """With the file and the line, and what the function has to return."""
    mine = Path(environment["TMPDIR"], "mine.py")
    mine.write_text(MINE)
    with Running(environment, "--cameras", "1", "--app", f"{mine}:{function}") as demo:
        assert demo.end() == 1, demo.output
    assert f"mez demo: the application mine.py:{function}" in demo.output
    assert says in demo.output
    assert "rows (left, top, right, bottom, score)" in demo.output
    assert "starting" not in demo.output


def test_killed_brokers_come_back_and_the_books_still_balance(environment: dict[str, str]) -> None:
    """First the edge, then a camera, both with `kill -9`."""
    folder = environment["TMPDIR"]
    with Running(environment, "--seconds", "14", "--cameras", "2", "--json", f"{folder}/demo.json") as demo:
        demo.await_word("delivered")
        before = brokers(folder)
        os.kill(before["edge"], signal.SIGKILL)
        until(lambda: brokers(folder).get("edge", before["edge"]) != before["edge"], "another edge")
        demo.await_word("delivered")
        demo.await_word("delivered")
        os.kill(before["dock/cam2"], signal.SIGKILL)
        assert demo.end() == 0, demo.output
    read = figures(environment)
    check_books(read)
    assert [(restart["process"], restart["cause"]) for restart in read["restarts"]] == [
        ("edge", "killed by SIGKILL"),
        ("dock/cam2", "killed by SIGKILL"),
    ]
    # The supervisor's own pause is a second of it.
    assert all(restart["resume_ms"] >= 1000 for restart in read["restarts"])
    assert [row["epochs"] for row in read["per_camera"]] == [1, 2]
    assert read["skipped"], "frames published while the edge was away must be explained as skipped"
    assert "edge was killed by SIGKILL; frames came again after" in demo.output
    assert brokers(folder) == {}


def test_ctrl_c_on_a_terminal_ends_with_a_summary(environment: dict[str, str]) -> None:
    """The table is drawn, Ctrl-C reaches the demo alone, and it stops everything in order."""
    folder = environment["TMPDIR"]
    pid, terminal = pty.fork()
    if pid == 0:
        words = [
            "--seconds",
            "600",
            "--cameras",
            "1",
            "--json",
            f"{folder}/demo.json",
            "--out",
            f"{folder}/out",
        ]
        os.execve(DEMO[0], [*DEMO, *words], {**environment, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"})
    seen = ""

    def read_on() -> bool:
        """Read what there is; tell whether there may be more."""
        nonlocal seen
        if not select.select([terminal], [], [], 0.1)[0]:
            return True
        try:
            seen += os.read(terminal, 65536).decode(errors="replace")
        except OSError:
            # The other side of a terminal is closed.
            return False
        return True

    try:
        until(lambda: not read_on() or re.search(r"dock/cam1 +\d+\.\d +\d+\.\d", seen) is not None, "a table")
        os.write(terminal, b"\x03")
        until(lambda: not read_on(), "the end")
        _, status = os.waitpid(pid, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, seen
    assert "Ended early." in seen
    assert "this application" in seen
    read = figures(environment)
    assert read["interrupted"]
    check_books(read)
    assert brokers(folder) == {}


def test_killed_demo_leaves_nobody_behind(environment: dict[str, str]) -> None:
    """Not even what its brokers started."""
    folder = environment["TMPDIR"]
    with Running(environment, "--cameras", "2") as demo:
        demo.await_word("delivered")
        running = brokers(folder)
        assert {"edge", "dock/cam1", "dock/cam2"} < set(running)
        assert sum(name.startswith("ffmpeg") for name in running) == 2
        demo.send(signal.SIGKILL)
        until(lambda: all(gone(pid) for pid in running.values()), "the end of all processes")


def test_file_that_is_no_video_ends_the_demo_with_the_reason(environment: dict[str, str]) -> None:
    """In the words of the camera broker, which knows."""
    folder = environment["TMPDIR"]
    text = Path(folder, "notes.avi")
    text.write_text("people, walking\n" * 100)
    with Running(environment, "--cameras", "2", "--video", str(text)) as demo:
        assert demo.end() == 1, demo.output
    assert "dock/cam1" in demo.output
    assert "notes.avi" in demo.output
    assert brokers(folder) == {}
