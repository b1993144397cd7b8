"""Finds faces that look at the camera, with the cascade that OpenCV ships: no model to download.

It is the detector of Viola and Jones (2001): boosted features in windows of 24 x 24 pixels, slid over the
image at several sizes. It takes a few milliseconds a frame, finds upright frontal faces from about 30 pixels
on, and little else.
"""

from functools import cache
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from mez.apps.boxes import Box

STRONG: Final = 4.0
"""The score (sum of the last stage's votes) from which a box counts as a face.

It was chosen for few false faces; measure your own."""

WEAK: Final = 1.0
"""The score from which a box is kept."""

PYRAMID_STEP: Final = 1.1
"""Ratio of two sizes that are searched one after the other; OpenCV's default."""

NEIGHBOURS_MIN: Final = 3
"""Windows that must agree on a face; OpenCV's default."""

FACE_PIXELS_MIN: Final = 24
"""Smallest face that is searched for: the window of the cascade."""


def detect(image: npt.NDArray[np.uint8]) -> list[Box]:
    """Find faces.

    Args:
        image: Pixels, uint8: shape (height, width, 3) in blue, green, red, or (height, width) in grey.

    Returns:
        The boxes in pixels of `image`, surest first.
    """
    grey = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    if min(grey.shape[:2]) < FACE_PIXELS_MIN:
        return []
    found, _, votes = _cascade().detectMultiScale3(
        grey,
        scaleFactor=PYRAMID_STEP,
        minNeighbors=NEIGHBOURS_MIN,
        minSize=(FACE_PIXELS_MIN, FACE_PIXELS_MIN),
        outputRejectLevels=True,
    )
    boxes = [
        Box(float(x), float(y), float(width), float(height), float(vote), "face")
        for (x, y, width, height), vote in zip(found, np.ravel(votes), strict=True)
    ]
    return sorted((box for box in boxes if box.score >= WEAK), key=lambda box: -box.score)


@cache
def _cascade() -> cv2.CascadeClassifier:
    # The folder is in OpenCV's wheel. Some builds from source do not have it.
    folder = Path(cv2.__file__).parent / "data"
    return cv2.CascadeClassifier(str(folder / "haarcascade_frontalface_default.xml"))
