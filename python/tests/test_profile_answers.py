"""What applications answer a profile, and what it says of answers that mean nothing."""

from pathlib import Path

import cv2
import numpy as np
import pytest

import mez
from mez import _detections
from mez.apps.boxes import Box
from mez.profile import app as apps
from mez.profile.crew import Crew, Job
from mez.profile.errors import AppError, ProfileError
from mez.profile.make import make
from mez.profile.score import UndefinedAccuracyError
from tests.profiles import FRAMES, HEIGHT, WIDTH, Quiet, picture


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", r"raised RuntimeError on frame 0 as published \(line \d+ of .*\): no weights"),
        ("nan", "without a finite score"),
        ("outside", r"a box at \(10000, 0\) .* outside the image of 160x120"),
        ("shapes", r"returned \[\(1, 2, 3\)\] on frame"),
        ("none", "returned None on frame"),
        ("empty", "a box of 0 x 5 pixels"),
    ],
)
def test_an_application_that_answers_nonsense_is_named(
    video: Path, app_file: Path, tmp_path: Path, name: str, reason: str
) -> None:
    """With what it returned, on which frame, and what is expected."""
    with (
        Crew(Job((video,), f"{app_file}:{name}", None, None, tmp_path), 1) as crew,
        pytest.raises(AppError, match=reason) as caught,
    ):
        make(crew, [], Quiet(), FRAMES)
    assert f"squares.py:{name}" in str(caught.value)
    assert caught.value.remedy


def test_applications_that_do_not_exist_are_named(app_file: Path, tmp_path: Path) -> None:
    """Modules, functions, files and models."""
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    for spec, reason in [
        ("yolo", "--app takes pedestrian-hog, faces"),
        ("no_such_module:detect", "cannot be imported"),
        (f"{tmp_path}/no.py:detect", "no file"),
        (f"{tmp_path}/broken.py:detect", "nothing_of_that_name"),
        (f"{app_file}:missing", "no function missing"),
        (f"{app_file}:not_a_function", "no function not_a_function"),
    ]:
        with pytest.raises(AppError, match=reason):
            apps.load(spec)
    with pytest.raises(AppError, match="at most --strong"):
        apps.load("faces", strong=0.2, weak=0.4)


def test_boxes_come_in_many_forms(app_file: Path) -> None:
    """Tuples, arrays, dictionaries, objects; weak ones are left out, and all are in pixels of the camera."""
    app = apps.load(f"{app_file}:bright", strong=0.5, weak=0.3)
    image = np.zeros((60, 80, 3), dtype=np.uint8)
    forms = [
        [(1, 2, 11, 22, 0.9), (0, 0, 9, 9, 0.1)],
        ((1, 2, 11, 22, score) for score in (0.9, 0.1)),
        np.array([[1, 2, 11, 22, 0.9], [0, 0, 9, 9, 0.1]]),
        [{"x": 1, "y": 2, "width": 10, "height": 20, "score": score} for score in (0.9, 0.1)],
        [Box(1, 2, 10, 20, score) for score in (0.9, 0.1)],
        mez.Detections([(1, 2, 11, 22), (0, 0, 9, 9)], scores=[0.9, 0.1]),
    ]
    for form in forms:
        answering = apps.App("it", "", app.thresholds, lambda image, form=form: form, False)
        assert answering.find(image, (160, 120), "a frame") == [Box(2, 4, 20, 40, 0.9)]
    for kind, label in [(np.float32(3.0), "3"), (3, "3"), ("gate", "gate")]:
        labelled = apps.App(
            "it", "", app.thresholds, lambda image, kind=kind: [(1, 2, 11, 22, 0.9, kind)], False
        )
        assert labelled.find(image, (80, 60), "a frame")[0].label == label


def test_one_function_serves_profiles_and_replies(app_file: Path) -> None:
    """What is a box to one is the same box to the other: rows are corners everywhere."""
    image = picture(3)
    app = apps.load(f"{app_file}:bright")
    (box,) = app.find(image, (WIDTH, HEIGHT), "a frame")
    replied = _detections.of(app.function(image))
    assert replied is not None
    assert replied.xyxy.tolist() == [[box.x, box.y, box.x + box.width, box.y + box.height]]


def test_without_anything_to_find_there_is_no_accuracy(video: Path, app_file: Path, tmp_path: Path) -> None:
    """It is undefined, not perfect and not zero."""
    with (
        Crew(Job((video,), f"{app_file}:nothing", None, None, tmp_path), 1) as crew,
        pytest.raises(UndefinedAccuracyError, match="undefined"),
    ):
        make(crew, [], Quiet(), FRAMES)


def test_too_few_frames_are_refused(video: Path, app_file: Path, tmp_path: Path) -> None:
    """Those asked for, and those there are."""
    with (
        Crew(Job((video,), f"{app_file}:bright", None, None, tmp_path), 1) as crew,
        pytest.raises(ProfileError, match=r"12 frames are too few .* raise --frames"),
    ):
        make(crew, [], Quiet(), 12)
    short = tmp_path / "short"
    short.mkdir()
    cv2.imwrite(str(short / "0.png"), picture(0))
    with (
        Crew(Job((short,), f"{app_file}:bright", None, None, tmp_path), 1) as crew,
        pytest.raises(ProfileError, match="short is too short"),
    ):
        make(crew, [], Quiet(), 120)
