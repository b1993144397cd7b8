"""Converts the result of an engine to an answer, or refuses it with a reason."""

from typing import Any, Final

import numpy as np

from mez import _detections
from mez._detections import Detections
from mez._drawing import with_boxes
from mez._overlay import Overlay
from mez.engine.engines import Image
from mez.engine.errors import AnswerRefusedError
from mez.errors import ArgumentError, ArgumentTypeError

DETECTIONS_MAX: Final = 1000
"""The most boxes that are drawn. More indicate a bug in the engine."""

_TAKEN: Final = "give uint8 pixels of the frame's size, boxes, or a mez.Overlay"


def picture(image: Image, result: object) -> Image:
    """Make a picture of the result of an engine.

    Args:
        image: The picture that the engine got: uint8, shape (height, width, 3), in the order blue, green,
            red.
        result: The result: pixels (uint8, the same height and width, with three channels or grey), boxes as
            in `Frame.reply`, or a `mez.Overlay`. Boxes and overlays are drawn into a copy of `image`.

    Returns:
        The pixels: uint8, shape (height, width, 3), in the order blue, green, red.

    Raises:
        AnswerRefusedError: The result is nothing of this. The message gives the reason.
        MissingPackageError: The result has boxes, and OpenCV is not installed.
    """
    made = answer(image, result)
    if isinstance(made, Detections):
        return with_boxes(image, made)
    if isinstance(made, Overlay):
        return made.over(image)
    return made


def answer(image: Image, result: object) -> Image | Detections | Overlay:
    """Check the result of an engine, and return what `Frame.answer` takes.

    Args:
        image: The picture that the engine got.
        result: The result, as for `picture`.

    Raises:
        AnswerRefusedError: As for `picture`.
    """
    if result is None:
        raise AnswerRefusedError(f"the engine returned nothing; {_TAKEN}")
    if isinstance(result, Overlay):
        return result
    if getattr(result, "ndim", 0) == 3 or getattr(result, "dtype", None) == np.uint8:
        return _pixels(image, result)
    try:
        found = _detections.of(result)
    except (ArgumentError, ArgumentTypeError) as error:
        raise AnswerRefusedError(f"the engine returned invalid boxes: {error}") from error
    if found is None:
        shape = f" of shape {result.shape}" if isinstance(result, np.ndarray) else ""
        raise AnswerRefusedError(f"the engine returned {type(result).__name__}{shape}; {_TAKEN}")
    if len(found) > DETECTIONS_MAX:
        raise AnswerRefusedError(
            f"the engine returned {len(found)} boxes, more than {DETECTIONS_MAX}; return the highest scores"
        )
    return found


def _pixels(image: Image, result: Any) -> Image:  # noqa: ANN401, an array of whatever package
    made = np.asarray(result)
    if made.dtype != np.uint8:
        wrong = f"pixels of type {made.dtype}"
        if np.issubdtype(made.dtype, np.floating) and not np.isfinite(made).all():
            wrong += ", not all of them finite,"
        raise AnswerRefusedError(f"the engine returned {wrong} instead of uint8; round them to 0 to 255")
    if made.shape[2:] == (4,):
        raise AnswerRefusedError(
            "the engine returned pixels with alpha; return mez.Overlay(pixels) to draw them over the frame"
        )
    if made.shape not in (image.shape, image.shape[:2]):
        raise AnswerRefusedError(
            f"the engine returned the shape {made.shape} for {image.shape}; keep the size"
        )
    if made.ndim == 2:
        made = np.repeat(made[:, :, np.newaxis], 3, axis=2)
    return np.ascontiguousarray(made)
