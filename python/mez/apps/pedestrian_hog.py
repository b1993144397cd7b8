"""Finds pedestrians with OpenCV's HOG people detector: no model to download, and one slow core is enough.

It is the classical detector of Dalal and Triggs (2005): windows of 64 x 128 pixels, slid over the image at
several sizes, judged by a linear support vector machine. It finds people who stand or walk, upright and
mostly visible. It misses the second of two who walk close together, people who sit, and people lower than
about 70 pixels in a small frame.

The settings were chosen on OpenCV's `vtest.avi` (768 x 576, people 70 to 130 pixels high), for detections
that stay the same when the image hardly changes, because Mez compares detections between a frame and
smaller versions of it: one grey level of noise keeps 97 % of the boxes (strict F1). A frame takes 90 to
115 ms of one core.
"""

from functools import cache
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from mez.apps.boxes import Box, suppress

STRONG: Final = 0.7
"""The score (distance from the support vector machine's plane) from which a box counts as a person.

On `vtest.avi`, 97 of 100 such boxes are people; the others are far too large, over several people."""

WEAK: Final = 0.3
"""The score from which a box is kept. A box that falls below `STRONG` in a smaller frame is still kept."""

ANALYSIS_WIDTH_MAX: Final = 960
ANALYSIS_HEIGHT_MAX: Final = 720
"""Frames are scaled to fit into this before the search, which bounds the time that a frame takes."""

UPSCALE_MAX: Final = 1.25
"""Small frames are enlarged by this, so that people fill the window; 1.5 finds people in parked vans."""

PYRAMID_STEP: Final = 1.15
"""Ratio of the sizes searched; OpenCV's default, 1.05, takes 2.6 times as long and finds 6 % more."""

STRIDE_PIXELS: Final = (8, 8)
"""Step of the window: one cell of the histograms, the finest that windows can share."""

PADDING_PIXELS: Final = (8, 8)
"""Border added around the image, so that people at its edge are found."""

IOU_MAX: Final = 0.4
"""Boxes that overlap more are one person. OpenCV's own grouping averages boxes, so any noise moves them."""

_WINDOW_WIDTH: Final = 64
_WINDOW_HEIGHT: Final = 128


def detect(
    image: npt.NDArray[np.uint8], score_min: float = WEAK, camera_size: tuple[int, int] | None = None
) -> list[Box]:
    """Find pedestrians.

    Safe to call from several threads at once; releases the GIL while it works. OpenCV uses all processor
    cores unless `cv2.setNumThreads(1)` was called.

    Args:
        image: Pixels, uint8: shape (height, width, 3) in blue, green, red, or (height, width) in grey.
        score_min: Boxes below this score are left out. Default `WEAK`; `STRONG` for what counts as a person.
        camera_size: Width and height of the frames as they were published. Where `image` is a smaller form of
            such a frame, it is searched at the size at which that frame would be, because people have the
            same size in the scene. Default: `image` is as it was published.

    Returns:
        The boxes in pixels of `image`, surest first, within its borders. A box is the detector's window,
        about a quarter higher than the person and twice as wide. None where the image is too small for a
        person.

    Raises:
        ValueError: The array is not such an image.
    """
    height, width = _size(image)
    camera_width, camera_height = camera_size or (width, height)
    scale = min(UPSCALE_MAX, ANALYSIS_WIDTH_MAX / camera_width, ANALYSIS_HEIGHT_MAX / camera_height)
    analysed_width, analysed_height = round(camera_width * scale), round(camera_height * scale)
    if analysed_width < _WINDOW_WIDTH or analysed_height < _WINDOW_HEIGHT:
        # OpenCV 4.14 writes outside its buffers if the image is smaller than the window.
        return []
    analysed = cv2.resize(
        image,
        (analysed_width, analysed_height),
        interpolation=cv2.INTER_AREA if analysed_width < width else cv2.INTER_LINEAR,
    )
    windows, margins = _detector().detectMultiScale(
        analysed,
        hitThreshold=score_min,
        winStride=STRIDE_PIXELS,
        padding=PADDING_PIXELS,
        scale=PYRAMID_STEP,
        groupThreshold=0,
    )
    x_ratio, y_ratio = width / analysed_width, height / analysed_height
    found = [
        Box(float(x) * x_ratio, float(y) * y_ratio, float(w) * x_ratio, float(h) * y_ratio, float(margin))
        for (x, y, w, h), margin in zip(windows, margins, strict=True)
    ]
    return [box.clipped(width, height) for box in suppress(found, IOU_MAX)]


def _size(image: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Check that the array is an image, and return its height and width."""
    if image.dtype != np.uint8:
        raise ValueError(
            f"the image must be uint8 (0..255), not {image.dtype}; convert it with image.astype('uint8')"
        )
    grey = image.ndim == 2
    if not (grey or (image.ndim == 3 and image.shape[2] == 3)):
        raise ValueError(
            f"the image must have the shape (height, width, 3) or (height, width), not {image.shape}; "
            "drop an alpha channel with image[:, :, :3]"
        )
    if image.size == 0:
        raise ValueError(f"the image has no pixels: its shape is {image.shape}")
    return image.shape[0], image.shape[1]


@cache
def _detector() -> cv2.HOGDescriptor:
    """The detector. One is enough for the process, because a search does not change it."""
    detector = cv2.HOGDescriptor()
    detector.setSVMDetector(np.array(cv2.HOGDescriptor.getDefaultPeopleDetector(), dtype=np.float32))
    return detector
