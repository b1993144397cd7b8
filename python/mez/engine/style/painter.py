"""Paints pictures with a trained network."""

from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from mez.apps.onnx_network import OnnxError, described, load
from mez.engine.errors import EngineError
from mez.engine.style.network import STEP

SHIPPED: Final = Path(__file__).with_name("networks") / "swirls.onnx"
"""The style that comes with Mez. Its note is beside it."""

MARGIN: Final = 8
"""Width of a mirrored border, in pixels, which is added before painting and cut off afterwards.

The network itself pads with zeros, which would be visible as a frame around the picture.
"""

_BYTES: Final = "tensor(uint8)"


class Painter:
    """A style, loaded.

    Args:
        path: A file of `mez style train`.
        device: `"cpu"` or `"cuda"`.
        threads: Processor threads of one picture.

    Raises:
        EngineError: It is not such a file, or the device does not exist.
    """

    def __init__(self, path: Path = SHIPPED, device: str = "cpu", threads: int = 1) -> None:
        try:
            self._session = load(path, threads, device)
        except OnnxError as error:
            raise EngineError(f"style: {error}") from error
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        is_style = all(
            len(values) == 1
            and values[0].type == _BYTES
            and len(values[0].shape) == 4
            and values[0].shape[3] == 3
            for values in (inputs, outputs)
        )
        if not is_style:
            raise EngineError(
                f"{path} is not a style: it takes {described(inputs)} and returns {described(outputs)}; "
                "give a file of mez style train"
            )
        self._input: str = inputs[0].name

    def __call__(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Paint a picture.

        Args:
            image: BGR pixels of shape (height, width, 3), uint8.

        Returns:
            A new picture of the same shape.
        """
        high, wide = image.shape[:2]
        below, right = (MARGIN + -edge % STEP for edge in (high, wide))
        larger = cv2.copyMakeBorder(image, MARGIN, below, MARGIN, right, cv2.BORDER_REFLECT_101)
        (painted,) = self._session.run(None, {self._input: larger[np.newaxis]})
        made: npt.NDArray[np.uint8] = painted[0, MARGIN : MARGIN + high, MARGIN : MARGIN + wide]
        return np.ascontiguousarray(made)
