"""Converts the result of an engine to an answer, or refuses it with a reason."""

from typing import Any, Final

import numpy as np

from mez import _detections
from mez._detections import Detections
from mez.engine.engines import Image
from mez.engine.errors import AnswerRefusedError
from mez.errors import ArgumentError, ArgumentTypeError, MissingPackageError

DETECTIONS_MAX: Final = 1000
"""The most boxes that are drawn. More indicate a bug in the engine."""

_TAKEN: Final = "give uint8 pixels of the frame's size, or boxes"
# BGR colours for kinds of objects. Colour-blind people can tell them apart too.
_COLOURS: Final = ((0, 159, 230), (233, 180, 86), (115, 158, 0), (66, 228, 240), (0, 94, 213))


def picture(image: Image, result: object) -> Image:
    """Make a picture of the result of an engine.

    Args:
        image: The picture that the engine got: uint8, shape (height, width, 3), in the order blue, green,
            red.
        result: The result: pixels (uint8, the same height and width, with three channels or grey), or boxes
            as in `Frame.reply`. Boxes are drawn into a copy of `image`.

    Returns:
        The pixels: uint8, shape (height, width, 3), in the order blue, green, red.

    Raises:
        AnswerRefusedError: The result is neither pixels nor boxes. The message gives the reason.
        MissingPackageError: The result has boxes, and OpenCV is not installed.
    """
    if result is None:
        raise AnswerRefusedError(f"the engine returned nothing; {_TAKEN}")
    if getattr(result, "ndim", 0) == 3 or getattr(result, "dtype", None) == np.uint8:
        return _pixels(image, result)
    try:
        found = _detections.of(result)
    except (ArgumentError, ArgumentTypeError) as error:
        raise AnswerRefusedError(f"the engine returned invalid boxes: {error}") from error
    if found is None:
        shape = f" of shape {result.shape}" if isinstance(result, np.ndarray) else ""
        raise AnswerRefusedError(f"the engine returned {type(result).__name__}{shape}; {_TAKEN}")
    return _drawn(image, found)


def _pixels(image: Image, result: Any) -> Image:  # noqa: ANN401, an array of whatever package
    made = np.asarray(result)
    if made.dtype != np.uint8:
        wrong = f"pixels of type {made.dtype}"
        if np.issubdtype(made.dtype, np.floating) and not np.isfinite(made).all():
            wrong += ", not all of them finite,"
        raise AnswerRefusedError(f"the engine returned {wrong} instead of uint8; round them to 0 to 255")
    if made.shape not in (image.shape, image.shape[:2]):
        raise AnswerRefusedError(
            f"the engine returned the shape {made.shape} for {image.shape}; keep the size"
        )
    if made.ndim == 2:
        made = np.repeat(made[:, :, np.newaxis], 3, axis=2)
    return np.ascontiguousarray(made)


def _drawn(image: Image, found: Detections) -> Image:
    """A copy of a picture, with boxes and their names."""
    if len(found) > DETECTIONS_MAX:
        raise AnswerRefusedError(
            f"the engine returned {len(found)} boxes, more than {DETECTIONS_MAX}; return the highest scores"
        )
    try:
        import cv2
    except ImportError as error:
        raise MissingPackageError(
            f"boxes are drawn by OpenCV ({error}); run: pip install 'mez[apps]'"
        ) from error
    made = image.copy()
    high, wide = image.shape[:2]
    given_wide, given_high = found.size or (wide, high)
    scale = np.array([wide / given_wide, high / given_high] * 2)
    # Clipped, because coordinates far outside would overflow in OpenCV.
    corners = np.clip(found.xyxy * scale, -1, max(wide, high) + 1).round().astype(int).tolist()
    names = found.class_names or [""] * len(found)
    for place, (left, top, right, bottom) in enumerate(corners):
        name = str(names[place])
        kind = sum(name.encode()) if name else place
        colour = _COLOURS[kind % len(_COLOURS)]
        cv2.rectangle(made, (left, top), (right, bottom), colour, 2)
        score = np.nan if found.scores is None else float(found.scores[place])
        said = name if np.isnan(score) else f"{name} {score:.2f}".strip()
        at = (max(left, 0) + 2, max(top - 4, 12))
        cv2.putText(made, said, at, cv2.FONT_HERSHEY_SIMPLEX, 0.45, colour, 1, cv2.LINE_AA)
    return made
