"""Pictures with alpha that a device draws over its frames."""

from typing import TYPE_CHECKING

from mez import _arguments as arguments
from mez import _native
from mez._drawing import canvas
from mez.errors import ImageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Overlay:
    """A picture with alpha, which the device draws over its frame. `Frame.answer` sends it.

    Where most of it is transparent, it has far fewer bytes than a picture of the frame.

    Attributes:
        pixels: uint8, shape (height, width, 4): blue, green, red and alpha. Alpha 0 shows the frame, 255
            hides it. Alpha is straight, not premultiplied. The size may differ from the frame's: the overlay
            is stretched over the whole frame.
    """

    __slots__ = ("pixels",)

    pixels: "NDArray[np.uint8]"

    def __init__(self, pixels: "NDArray[np.uint8]") -> None:
        """Take the pixels. They are not copied.

        Raises:
            ImageError: The pixels are not uint8 of the shape (height, width, 4).
            ArgumentTypeError: `pixels` is not an array.
        """
        shape, kind = getattr(pixels, "shape", None), getattr(pixels, "dtype", None)
        if shape is None or kind is None:
            what = f"pixels is of type {type(pixels).__name__}; give an array of shape (height, width, 4)"
            raise arguments.wrong_type("pixels", what)
        if kind != "uint8" or len(shape) != 3 or shape[2] != 4 or 0 in shape:
            raise ImageError(
                f"an overlay has uint8 pixels of shape (height, width, 4), not {kind} of shape {shape}"
            )
        self.pixels = pixels

    def over(self, image: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
        """Draw the overlay over a copy of a picture.

        Args:
            image: uint8, shape (height, width, 3), in the order blue, green, red.

        Raises:
            ImageError: `image` is not uint8 of shape (height, width, 3).
        """
        return drawn(self.pixels, image)

    def __repr__(self) -> str:
        height, width = self.pixels.shape[:2]
        return f"<Overlay {width}x{height}>"


def drawn(overlay: "bytes | NDArray[np.uint8]", image: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """A copy of a picture, with an overlay over it.

    Args:
        overlay: Its PNG, or its pixels.
        image: uint8, shape (height, width, 3), in the order blue, green, red.

    Raises:
        ImageError: The overlay is damaged, or the picture is something else.
    """
    made = canvas(image)
    _native.draw_overlay(overlay, made)
    return made
