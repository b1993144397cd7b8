"""A program whose camera gives no frames any more: the edge knows it is lost and why, not that it ended."""

import re
import runpy
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

import mez
from tests.support import camera_broker, deliver, picture
from tests.test_sources import publish, source_of, until

CHECKOUT = Path(__file__).parents[2]

Pull = Callable[[mez.Publisher], None]


def state_of(edge: mez.Edge) -> tuple[str, str]:
    """The state of the only camera's source, and the reason."""
    source = source_of(edge)
    return ("-", "") if source is None else (source.state, source.reason)


@pytest.mark.parametrize("separate", [False, True])
def test_a_camera_that_was_pulled_is_lost_until_it_gives_frames(
    edge: mez.Edge, tmp_path: Path, separate: bool
) -> None:
    """Frames take it back. The end of the program does not: it ends because the camera is lost."""
    socket = tmp_path / "camera.sock"
    with ExitStack() as stack:
        if separate:
            stack.enter_context(camera_broker("cam", edge, socket))
            camera = stack.enter_context(mez.publisher("cam", broker=f"unix://{socket}"))
        else:
            camera = stack.enter_context(mez.publisher("cam", edge=edge))
        frames = stack.enter_context(edge.subscribe("cam"))
        deliver(camera, frames)
        camera.lost("no picture\nfor 2 s")
        until(lambda: state_of(edge) == ("lost", "no picture for 2 s"), "it is lost")
        with pytest.raises(mez.WaitTimeoutError, match="the camera's source is lost: no picture for 2 s"):
            while True:
                frames.next(timeout=0.5)
        publish(camera)
        until(lambda: state_of(edge) == ("live", ""), "it is back")
        camera.lost("the cable")
        camera.close()
        until(lambda: state_of(edge) == ("lost", "the cable"), "closing takes nothing back")
        if not separate:
            until(lambda: not edge.cameras()[0].connected, "it is absent")
            assert state_of(edge) == ("lost", "the cable")
        with pytest.raises(mez.EndedError):
            camera.lost("too late")


def test_a_lost_camera_needs_a_reason(edge: mez.Edge) -> None:
    """One that people can read."""
    with mez.publisher("cam", edge=edge) as camera, pytest.raises(mez.ArgumentError, match="reason is empty"):
        camera.lost(" \n")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (OSError("the cable is out"), ("lost", "OSError: the cable is out")),
        (SystemExit("the camera gives no pictures"), ("lost", "the camera gives no pictures")),
        (SystemExit(3), ("lost", "the program ended with status 3")),
        (AssertionError(), ("lost", "AssertionError")),
        (SystemExit(), ("ended", "")),
        (SystemExit(0), ("ended", "")),
        (KeyboardInterrupt(), ("ended", "")),
    ],
)
def test_an_exception_says_why_a_source_is_lost(
    edge: mez.Edge, error: BaseException, wanted: tuple[str, str]
) -> None:
    """But who stops a program on purpose ends it in good order."""

    def program() -> None:
        with mez.publisher("cam", edge=edge) as camera:
            deliver(camera, frames)
            raise error

    with edge.subscribe("cam") as frames, pytest.raises(type(error)):
        program()
    until(lambda: state_of(edge) == wanted, f"it is {wanted}")


def test_what_no_picture_came_of_says_so(edge: mez.Edge) -> None:
    """A loop that does not look at what `read` says: `send` raises, and the edge knows why."""
    with edge.subscribe("cam") as frames, mez.publisher("cam", edge=edge) as camera:
        deliver(camera, frames)
        with pytest.raises(mez.ArgumentTypeError), camera:
            camera.send(None)  # type: ignore[arg-type]
    until(lambda: state_of(edge)[1].startswith("ArgumentTypeError: the image is None"), "it says why")


class PulledCamera:
    """What `cv2.VideoCapture` opens: it gives frames while somebody looks, and then no more."""

    frames = 0

    def __init__(self, source: object) -> None:
        self.source = source

    def read(self) -> tuple[bool, NDArray[np.uint8] | None]:
        """A picture; none once the cable is pulled."""
        if PulledCamera.frames == 0:
            return False, None
        PulledCamera.frames -= 1
        return True, picture(0)

    def get(self, _: int) -> float:
        """The frame rate."""
        return 100.0

    def isOpened(self) -> bool:  # noqa: N802, the name in OpenCV
        """Also once it was pulled."""
        return True

    def release(self) -> None:
        """Nothing to do."""


def documented(document: str) -> str:
    """The program of a document that publishes what OpenCV reads."""
    text = (CHECKOUT / document).read_text()
    (program,) = (
        found for found in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "cv2.Vid" in found
    )
    return str(program)


PROGRAMS = ("README.md", "docs/cookbook.md", "docs/python.md", "examples/camera.py")


@pytest.mark.parametrize("frames", [0, 5], ids=["never-there", "pulled"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_that_we_show_say_that_their_camera_is_gone(
    edge: mez.Edge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, frames: int
) -> None:
    """Each of them, also if there was no camera to begin with."""
    show(edge, monkeypatch, tmp_path, (program, "0"), frames)
    assert state_of(edge)[0] == "lost"
    assert "the camera gives no" in state_of(edge)[1]


def test_a_file_that_is_over_has_ended(
    edge: mez.Edge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That is no loss."""
    show(edge, monkeypatch, tmp_path, ("examples/camera.py", "yard.mp4"), 5)
    assert state_of(edge) == ("ended", "")


def show(
    edge: mez.Edge, monkeypatch: pytest.MonkeyPatch, folder: Path, program: tuple[str, str], frames: int
) -> None:
    """Run a program at an edge of this test to its end, with a camera that gives so many frames."""
    monkeypatch.setattr(PulledCamera, "frames", frames)
    cv2 = SimpleNamespace(VideoCapture=PulledCamera, CAP_PROP_FPS=5)
    monkeypatch.setitem(sys.modules, "cv2", cv2)
    publisher = mez.publisher

    def at_this_edge(camera: str, **_: object) -> mez.Publisher:
        made = publisher(camera, edge=edge)
        made.wait_connected(timeout=30)
        return made

    monkeypatch.setattr(mez, "publisher", at_this_edge)
    name, source = program
    monkeypatch.setattr(sys, "argv", [name, "dock/cam1", "--source", source])
    monkeypatch.chdir(folder)
    try:
        if name.endswith(".py"):
            runpy.run_path(str(CHECKOUT / name), run_name="__main__")
        else:
            exec(compile(documented(name), name, "exec"), {})
    except SystemExit:
        pass
    until(lambda: not edge.cameras()[0].connected, "it is over")
