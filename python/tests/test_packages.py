"""What is said where packages are missing, or have become others."""

import importlib.util

import cv2
import pytest

from mez.apps import packages
from mez.profile import app as apps
from mez.profile.errors import AppError


def test_only_what_is_missing_is_named_with_a_version_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV without a bound would be one without the people detector."""
    assert packages.missing() is None
    there = importlib.util.find_spec

    def without(*names: str) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in names else there(name))

    without("rich")
    assert packages.missing() == "rich is not installed. Run: pip install rich"
    without("cv2", "matplotlib")
    assert packages.missing() == (
        "cv2, matplotlib are not installed. Run: pip install 'opencv-python-headless<5' matplotlib"
    )


def test_an_opencv_without_the_people_detector_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As OpenCV 5 is."""
    monkeypatch.delattr(cv2, "HOGDescriptor")
    with pytest.raises(
        AppError, match=r"has no people detector; run: pip install 'opencv-python-headless<5'"
    ):
        apps.load("pedestrian-hog")
