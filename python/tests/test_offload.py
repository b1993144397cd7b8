"""Clients of engines: `mez.offload` and `mez offload`, with a real edge and real engines."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice, pairwise, repeat, takewhile
from pathlib import Path

import cv2
import numpy as np
import pytest

import mez
from mez.engine import EngineError
from mez.offloading import OffloadError, cameras_of
from mez.offloading.display import Window
from tests.offloads import engine, numbered, write_video
from tests.support import number_of, picture

# A loopback answers in milliseconds; a machine that is busy or frozen does not.
_LATE_MS = 20_000.0

_ENGINES = """\
import itertools, os, time
import mez, numpy

HOME = int(os.environ["ENGINES_HOME"])
frames = itertools.count()

def invert(image):
    return 255 - image

def fussy(image):
    if next(frames) % 2:
        raise ValueError("not this one")
    return image

def slower_at_home(image):
    if os.getpid() == HOME:
        time.sleep(0.5)
    return image

def nothing(image):
    return None

def in_place(image):
    image[:] = 0
    return image

def corner(image):
    high, wide = image.shape[:2]
    pixels = numpy.zeros((high, wide, 4), numpy.uint8)
    pixels[: high // 2] = (1, 2, 3, 255)
    return mez.Overlay(pixels)

def slow(image):
    time.sleep(1.5)
    return image

def hanging(image):
    time.sleep(3600)

def slow_in_the_dark(image):
    time.sleep(0 if image.mean() > 1 else 1.5)
    return image
"""


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of engines, which know whether they run in this process."""
    monkeypatch.setenv("ENGINES_HOME", str(os.getpid()))
    path = tmp_path / "engines.py"
    path.write_text(_ENGINES)
    return path


def _accounted(client: mez.Offload) -> None:
    """After the end, of a client without an edge: each frame was given, told of, or is one of a few.

    One waits, one is worked on, and one is made and waits for the loop.
    """
    counts = client.counts
    told = sum(counts.given.values()) + sum(counts.skipped.values())
    assert 0 <= counts.to_device - told <= 3
    assert counts.unanswered == counts.to_device - told


def test_pictures_come_back_from_an_engine_at_the_edge(edge: mez.Edge) -> None:
    """Each is made of its own frame, is newer than the one before, and says where its time went."""
    with (
        engine(edge, "noop", cameras_of("noop")),
        mez.offload(numbered(), "noop", edge=edge, fps=50, answer_ms=_LATE_MS) as client,
    ):
        answers = list(islice(client, 12))
        counts = client.counts
    for answer in answers:
        assert answer.made_at == "edge"
        assert answer.original is not None
        assert number_of(answer.original) == answer.number % 90
        assert np.abs(answer.image.astype(int) - answer.original).max() < 12
        assert list(answer.ms)[-5:] == ["arriving", "arrived", "taken", "decoded", "given"]
        assert answer.age_ms == answer.ms["given"]
        assert list(answer.ms.values()) == sorted(answer.ms.values())
    assert all(earlier.number < later.number for earlier, later in pairwise(answers))
    assert counts.given == {"edge": 12}
    assert counts.to_device == 0
    assert len(counts.ages_ms) == 12
    assert sum(counts.given.values()) + sum(counts.skipped.values()) <= counts.to_edge


def test_what_an_engine_does_not_draw_is_drawn_here(edge: mez.Edge, engines: Path) -> None:
    """Over the very frame that it was made of: the overlay shows the frame's own number below."""
    name = f"{engines}:corner"
    with (
        engine(edge, name, cameras_of(name), draw="device"),
        mez.offload(numbered(), name, edge=edge, fps=50, answer_ms=_LATE_MS) as client,
    ):
        answers = list(islice(client, 12))
    for answer in answers:
        assert answer.original is not None
        # Without loss, unlike a JPEG.
        half = answer.original.shape[0] // 2
        assert (answer.image[half:] == answer.original[half:]).all()
        assert (answer.image[:half] == (1, 2, 3)).all()


def test_two_clients_share_an_engine(edge: mez.Edge) -> None:
    """Each gets what was made of its own frames."""
    dark, bright = np.full((48, 64, 3), 40, np.uint8), np.full((48, 64, 3), 200, np.uint8)
    with (
        engine(edge, "noop", cameras_of("noop")),
        mez.offload(repeat(dark), "noop", edge=edge, fps=25, answer_ms=_LATE_MS) as one,
        mez.offload(repeat(bright), "noop", edge=edge, fps=25, answer_ms=_LATE_MS) as two,
    ):
        assert one.camera != two.camera
        for client, level in ((one, 40), (two, 200)):
            for answer in islice(client, 5):
                assert abs(float(answer.image.mean()) - level) < 3


def test_a_client_without_an_edge_computes_itself(engines: Path, edge: mez.Edge) -> None:
    """With `auto`, of which the edge never answers, as with `device`. The same engine, the same picture."""
    name = f"{engines}:invert"
    with (
        mez.offload(numbered(), name, edge=edge, where="auto", fps=50) as auto,
        mez.offload(numbered(), name, where="device", fps=50) as alone,
    ):
        assert alone.camera is None
        for client in (auto, alone):
            for answer in islice(client, 5):
                assert answer.made_at == "device"
                assert answer.frame is None
                assert answer.original is not None
                assert np.array_equal(answer.image, 255 - answer.original)
                assert list(answer.ms) == ["began", "made", "given"]
        assert auto.counts.to_edge > 0
        assert alone.counts.to_edge == 0
    _accounted(alone)


def test_auto_measures_both_sides(edge: mez.Edge) -> None:
    """Frames go to both to begin with; afterwards a few go besides."""
    with (
        engine(edge, "noop", cameras_of("noop")),
        mez.offload(numbered(), "noop", edge=edge, where="auto", fps=50, answer_ms=_LATE_MS) as client,
    ):
        last = -1
        for answer in client:
            assert answer.number > last
            last = answer.number
            counts = client.counts
            # What the edge answers is overtaken by what a no-op on the device has made long before.
            edge_answered = counts.given.get("edge", 0) + counts.skipped.get("repeated", 0)
            edge_answered += counts.skipped.get("overtaken", 0)
            if edge_answered >= 2 and counts.given.get("device", 0) >= 2:
                break
    assert client.counts.to_edge + client.counts.to_device > client.counts.captured


def test_frames_leave_an_engine_that_stops_and_come_back(edge: mez.Edge, engines: Path) -> None:
    """A process that is stopped says nothing: it still has its connection."""
    name = f"{engines}:slower_at_home"

    def until_three_from(side: str, client: mez.Offload) -> None:
        in_a_row = 0
        while in_a_row < 3:
            in_a_row = in_a_row + 1 if next(client).made_at == side else 0

    with (
        engine(edge, name, cameras_of(name)) as process,
        mez.offload(numbered(), name, edge=edge, where="auto", fps=25, answer_ms=_LATE_MS) as client,
    ):
        until_three_from("edge", client)
        process.send_signal(signal.SIGSTOP)
        until_three_from("device", client)
        process.send_signal(signal.SIGCONT)
        until_three_from("edge", client)


def test_an_engine_that_refuses_frames_does_not_end_the_work(engines: Path) -> None:
    """Of the device, too: each refusal is counted, and the next frame is tried."""
    with mez.offload(numbered(), f"{engines}:fussy", where="device", fps=100) as client:
        answers = list(islice(client, 10))
        assert len(answers) == 10
        assert client.counts.skipped["engine_refused"] > 0
    _accounted(client)
    with mez.offload(numbered(), f"{engines}:nothing", where="device", fps=100, seconds=0.3) as client:
        assert list(client) == []
        assert client.counts.skipped["engine_refused"] > 0


def test_a_refusal_at_the_edge_is_told(edge: mez.Edge, engines: Path) -> None:
    """Otherwise nobody could tell an engine that fails from one that is not there."""
    name = f"{engines}:nothing"
    with (
        engine(edge, name, cameras_of(name)),
        mez.offload(numbered(), name, edge=edge, fps=25, answer_ms=_LATE_MS) as client,
    ):
        for _ in range(1000):
            assert client.next(timeout=0.05) is None
            why = client.refusal()
            if why is not None:
                break
        assert why is not None
        assert "the engine returned nothing" in why
        assert client.counts.unanswered > 0


def test_the_end_of_a_source_ends_the_loop_and_a_loss_is_told(tmp_path: Path) -> None:
    """A file's end comes after its last answer; what a source raises is raised in the loop."""
    file = write_video(tmp_path / "short.avi", frames=6)
    with mez.offload(file, "noop", where="device") as client:
        answers = list(client)
    assert client.counts.captured == 6
    assert answers[-1].number == 5

    def lost() -> object:
        yield picture(1)
        raise OSError("unplugged")

    with (
        mez.offload(lost(), "noop", where="device") as client,  # type: ignore[arg-type]
        pytest.raises(OSError, match="unplugged"),
    ):
        list(client)


def test_an_engine_that_paints_in_place_changes_no_frame(engines: Path) -> None:
    """A frame may go to the edge as well, and is given out as it came."""
    with mez.offload(numbered(), f"{engines}:in_place", where="device", fps=50) as client:
        for answer in islice(client, 5):
            assert not answer.image.any()
            assert answer.original is not None
            assert number_of(answer.original) == answer.number % 90


def test_an_engine_on_the_device_that_hangs_does_not_hold_up_the_end(
    engines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, but not for ever."""
    monkeypatch.setattr("mez.offloading.client.ENGINE_HANGS_S", 0.5)
    with mez.offload(iter([picture(1)]), f"{engines}:hanging", where="device") as client:
        assert list(client) == []
        assert client.counts.unanswered == 1


def test_the_end_waits_for_an_answer_that_is_being_made(edge: mez.Edge, engines: Path) -> None:
    """On the device for as long as the engine works; of the edge for as long as answers may come."""
    with mez.offload(iter([picture(1)]), f"{engines}:slow", where="device") as client:
        assert len(list(client)) == 1
    name = f"{engines}:slow_in_the_dark"
    first = threading.Event()

    def until_the_first() -> Iterator[np.ndarray]:
        yield from takewhile(lambda _: not first.is_set(), numbered())
        yield np.zeros((48, 64, 3), np.uint8)

    with (
        engine(edge, name, cameras_of(name)),
        mez.offload(until_the_first(), name, edge=edge, fps=25, answer_ms=_LATE_MS) as client,
    ):
        next(client)
        first.set()
        *_, last = client
        assert last.number == client.counts.captured - 1
        assert not last.image.any()


def test_seconds_pass_also_while_a_source_gives_nothing() -> None:
    """A camera that hangs does not hold up the end."""
    over = threading.Event()

    def stuck() -> Iterator[np.ndarray]:
        yield picture(1)
        over.wait()

    with mez.offload(stuck(), "noop", where="device", seconds=0.3) as client:
        assert [answer.number for answer in client] == [0]
        over.set()


def test_a_source_is_let_go_of_when_the_client_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only once the client is forgotten: the next program wants the camera."""
    released = []

    class Capture:
        """A video that tells when it is let go of."""

        def __init__(self, path: str) -> None:
            self._of = opened(path)

        def release(self) -> None:
            released.append(self)

        def __getattr__(self, name: str) -> object:
            return getattr(self._of, name)

    opened = cv2.VideoCapture
    monkeypatch.setattr(cv2, "VideoCapture", Capture)
    file = write_video(tmp_path / "short.avi", frames=6)
    with mez.offload(file, "noop", where="device", loop=True) as client:
        next(client)
        assert not released
    assert len(released) == 1


def test_without_a_display_answers_are_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engines: Path
) -> None:
    """And it says so."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.chdir(tmp_path)
    with mez.offload(iter([picture(7)]), f"{engines}:invert", where="device", show=True) as client:
        assert client.display == "pictures in out/offload, one a second"
        [answer] = client
        assert list(answer.ms)[-1] == "displayed"
    [file] = Path("out/offload").iterdir()
    assert file.read_bytes().startswith(b"\xff\xd8")


def test_a_window_is_closed_only_if_it_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV with Qt raises on a window that is not there; a person may have closed it."""
    shown: list[str] = []

    def destroy(title: str) -> None:
        assert title in shown
        raise cv2.error("it was closed")

    monkeypatch.setattr(cv2, "imshow", lambda title, image: shown.append(title))
    monkeypatch.setattr(cv2, "waitKey", lambda ms: -1)
    monkeypatch.setattr(cv2, "getWindowProperty", lambda title, what: 0.0)
    monkeypatch.setattr(cv2, "destroyWindow", destroy)
    Window("never").close()
    window = Window("once")
    assert not window.show(0, picture(0))
    window.close()


def test_what_cannot_be_done_is_said_at_the_call(tmp_path: Path) -> None:
    """With the name of the argument, and before anything is published."""
    with pytest.raises(EngineError, match="there is no engine styl; give noop"):
        mez.offload(numbered(), "styl")
    with pytest.raises(EngineError, match=r"there is no file .*none\.py; give FILE"):
        mez.offload(numbered(), "none.py:paint", where="auto")
    with pytest.raises(OffloadError, match="no such file, camera or stream"):
        mez.offload(tmp_path / "none.mp4", "noop", where="device")
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(OffloadError, match="not a video that OpenCV reads"):
        mez.offload(tmp_path / "text.mp4", "noop", where="device")
    with pytest.raises(OffloadError, match="fps is 0"):
        mez.offload(numbered(), "noop", where="device", fps=0)
    with pytest.raises(mez.ArgumentError, match="where is 'moon'"):
        mez.offload(numbered(), "noop", where="moon")  # type: ignore[arg-type]
    with pytest.raises(mez.ArgumentError, match="explore_share is 2"):
        mez.offload(numbered(), "noop", where="auto", explore_share=2)


def test_the_command_tells_how_it_goes_and_ends_on_ctrl_c(edge: mez.Edge, tmp_path: Path) -> None:
    """With a summary; without answers it says what to start, and fails."""
    video = write_video(tmp_path / "street.avi")
    folder = tmp_path / "answers"
    words = [sys.executable, "-m", "mez", "offload", "--source", str(video), "--loop", "--json"]
    words += ["--engine", "noop", "--edge", edge.address, "--keys", str(edge.keys)]
    words += ["--pictures", str(folder), "--answer-ms", str(_LATE_MS)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = (json.loads(line) for line in process.stdout)
            assert f"pictures in {folder}" in next(said)["say"]
            # Nobody answers yet.
            hint = next(line["say"] for line in said if "say" in line)
            assert "mez engine run ENGINE --cameras 'offload/noop/*'" in hint
            with engine(edge, "noop", cameras_of("noop")):
                going = next(line["status"] for line in said if line["status"]["made_at_edge"] > 0)
                assert going["capture_to_display_ms_p50"] > 0
                process.send_signal(signal.SIGINT)
                *_, last = (line["status"] for line in said)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert last["given"]["edge"] > 0
    assert last["to_edge"] == last["captured"]
    assert list(folder.glob("answer-*.jpg"))


def test_the_command_refuses_an_engine_that_is_none(tmp_path: Path) -> None:
    """In one line, with exit status 1."""
    words = [sys.executable, "-m", "mez", "offload", "--source", "0", "--engine", "styl"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith("mez offload: there is no engine styl; give noop, boxes, style")
