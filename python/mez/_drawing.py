"""Draws boxes and their names into pictures, with OpenCV."""

from typing import TYPE_CHECKING, Final

from mez.errors import ImageError, MissingPackageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mez._detections import Detections

# BGR colours for kinds of objects. Colour-blind people can tell them apart too.
_COLOURS: Final = ((0, 159, 230), (233, 180, 86), (115, 158, 0), (66, 228, 240), (0, 94, 213))


def canvas(image: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """A copy of a picture, to draw into: uint8, shape (height, width, 3).

    Args:
        image: Of this shape; or grey, (height, width); or with alpha, (height, width, 4), which is dropped.

    Raises:
        ImageError: It is something else.
    """
    import numpy as np

    made = np.asarray(image)
    if made.ndim == 2:
        made = made[:, :, np.newaxis].repeat(3, axis=2)
    made = np.array(made[:, :, :3] if made.shape[2:] == (4,) else made, order="C")
    if made.dtype != np.uint8 or made.ndim != 3 or made.shape[2] != 3 or not made.size:
        raise ImageError(
            f"the picture to draw into has to be uint8 of shape (height, width, 3), "
            f"not {made.dtype} of shape {made.shape}"
        )
    return made


def with_boxes(image: "NDArray[np.uint8]", found: "Detections") -> "NDArray[np.uint8]":
    """A copy of a picture, with boxes and their names.

    Args:
        image: uint8, shape (height, width, 3), in the order blue, green, red.
        found: The boxes. If they have a size, they are stretched from it to the picture.

    Raises:
        ImageError: The picture is something else.
        MissingPackageError: OpenCV is not installed.
    """
    import numpy as np

    try:
        import cv2
    except ImportError as error:
        raise MissingPackageError(
            f"boxes are drawn by OpenCV ({error}); run: pip install 'mez[apps]'"
        ) from error
    made = canvas(image)
    high, wide = made.shape[:2]
    given_wide, given_high = found.size or (wide, high)
    scale = np.array([wide / given_wide, high / given_high] * 2)
    # Clipped, because coordinates far outside would overflow in OpenCV.
    corners = np.clip(found.xyxy * scale, -1, max(wide, high) + 1).round().astype(int).tolist()
    names = found.class_names or [""] * len(found)
    numbers = [-1] * len(found) if found.class_ids is None else found.class_ids.tolist()
    for place, (left, top, right, bottom) in enumerate(corners):
        # A class without a name is shown by its number. Each class keeps its colour.
        name = str(names[place]) or (str(numbers[place]) if numbers[place] >= 0 else "")
        kind = sum(name.encode()) if name else place
        colour = _COLOURS[kind % len(_COLOURS)]
        cv2.rectangle(made, (left, top), (right, bottom), colour, 2)
        score = np.nan if found.scores is None else float(found.scores[place])
        said = name if np.isnan(score) else f"{name} {score:.2f}".strip()
        at = (max(left, 0) + 2, max(top - 4, 12))
        cv2.putText(made, said, at, cv2.FONT_HERSHEY_SIMPLEX, 0.45, colour, 1, cv2.LINE_AA)
    return made
