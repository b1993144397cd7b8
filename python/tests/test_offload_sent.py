"""The frames of a client of engines that wait for answers of the edge: how many, and for how long."""

import numpy as np
import numpy.typing as npt
import pytest

from mez._frame_id import FrameId
from mez.offloading import sent
from mez.offloading.sent import Sent


def _picture() -> npt.NDArray[np.uint8]:
    """1,000 bytes of pixels."""
    return np.zeros((10, 100), np.uint8)


def _filled(frames: int, answer_s: float = 0.2) -> Sent:
    """So many frames, 0.1 s apart."""
    filled = Sent(answer_s)
    for number in range(frames):
        filled.add(FrameId(1, number), number, _picture(), number / 10)
    return filled


def test_an_answer_forgets_its_frame_and_those_before_it() -> None:
    """No answer to them comes any more."""
    frames = _filled(5)
    found = frames.answered(FrameId(1, 2))
    assert found is not None
    assert found[0] == 2
    assert found[1] is not None
    assert frames.picture_bytes == 2_000
    assert frames.answered(FrameId(1, 1)) is None
    assert frames.answered(FrameId(1, 2)) is None
    assert frames.answered(FrameId(1, 4)) is not None
    assert frames.picture_bytes == 0


def test_pictures_are_bounded_by_bytes_and_an_answer_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a slow engine, which answers after many newer frames were sent."""
    monkeypatch.setattr(sent, "BYTES_MAX", 3_000)
    frames = _filled(200)
    assert frames.picture_bytes == 3_000
    assert frames.answered(FrameId(1, 20)) == (20, None)


def test_pictures_go_a_second_after_the_bound_of_their_answers() -> None:
    """Also if no frame goes to the edge any more."""
    frames = _filled(3)
    frames.drop_pictures(1.25)
    assert frames.picture_bytes == 2_000
    frames.drop_pictures(60.0)
    assert frames.picture_bytes == 0
    assert frames.answered(FrameId(1, 2)) == (2, None)


def test_numbers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine answers, for ever."""
    monkeypatch.setattr(sent, "NUMBERS_MAX", 10)
    frames = _filled(100)
    assert frames.answered(FrameId(1, 89)) is None
    assert frames.answered(FrameId(1, 90)) is not None
