"""Finds objects of the 80 classes of COCO with NanoDet, whose network is in Mez: `networks/nanodet-416.onnx`.

It needs ONNX Runtime (`pip install 'mez[onnx]'`). A picture takes about 40 ms of one core. Small objects are
missed, because pictures are scaled to 416 pixels on the longer side.

A cell of the three grids (steps of 8, 16 and 32 pixels) has a score for each class, and 11 numbers for each
side of the box: their softmax is a distribution of the distance to that side, in steps (Li et al.,
Generalized Focal Loss, 2020).
"""

from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from mez.apps.boxes import Box, suppress
from mez.apps.onnx_network import OnnxError, session

NETWORK: Final = Path(__file__).with_name("networks") / "nanodet-416.onnx"
"""The network. Its licences are beside it."""

SCORE_MIN: Final = 0.5
"""The score from which an object counts as found."""

IOU_MAX: Final = 0.5
"""Boxes of one class that overlap by more than this are one object."""

SIDE: Final = 416
"""Pixels of each side of the network's input."""

STEPS: Final = (8, 16, 32)

LABELS: Final = tuple(NETWORK.with_name("coco.txt").read_text().splitlines())
"""The classes, in the network's order."""

_MEAN: Final = np.array([103.53, 116.28, 123.675], np.float32)
_DEVIATION: Final = np.array([57.375, 57.12, 58.395], np.float32)
_BINS: Final = 11
_CELLS: Final = sum((SIDE // step) ** 2 for step in STEPS)
_CANDIDATES_MAX: Final = 1000


class Detector:
    """The loaded network.

    Args:
        path: The `.onnx` file. Default: the one that comes with Mez.
        score_min: The score from which an object counts as found, 0 to 1.
        threads: Processor threads of one picture.
        device: `"cpu"` or `"cuda"`.

    Raises:
        OnnxError: It cannot be loaded, or is not a NanoDet of 416 pixels and 80 classes.
    """

    def __init__(
        self, path: Path = NETWORK, score_min: float = SCORE_MIN, threads: int = 1, device: str = "cpu"
    ) -> None:
        self._session = session(path, threads, device)
        self._score_min = score_min
        (input_of,) = self._session.get_inputs()
        self._input: str = input_of.name
        wanted = [[1, _CELLS, len(LABELS)], [1, _CELLS, 4 * _BINS]]
        shapes = [of.shape for of in self._session.get_outputs()]
        if input_of.shape[2:] != [SIDE, SIDE] or shapes != wanted:
            raise OnnxError(
                f"{path} returns {shapes} for {input_of.shape}; a NanoDet of {SIDE} pixels returns {wanted}; "
                "leave the path out to use the network that comes with Mez"
            )

    def detect(self, image: npt.NDArray[np.uint8]) -> list[Box]:
        """Find objects.

        Args:
            image: BGR pixels of shape (height, width, 3), uint8.

        Returns:
            The boxes in pixels of `image`, surest first, labelled with their class.
        """
        square, scale, left, top = fitted(image)
        scores, distances = self._session.run(None, {self._input: square})
        kinds = scores[0].argmax(axis=1)
        best = scores[0].max(axis=1)
        cells = np.argsort(-best, kind="stable")[:_CANDIDATES_MAX]
        cells = cells[best[cells] >= self._score_min]
        corners = _corners(distances[0][cells], cells)
        corners = (corners - np.array([left, top, left, top])) / scale
        found = [
            Box(
                float(x),
                float(y),
                float(right - x),
                float(bottom - y),
                float(best[cell]),
                LABELS[kinds[cell]],
            )
            for (x, y, right, bottom), cell in zip(corners, cells, strict=True)
        ]
        height, width = image.shape[:2]
        kept = (box.clipped(width, height) for box in suppress(found, IOU_MAX))
        return [box for box in kept if box.area > 0]


def fitted(image: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.float32], float, int, int]:
    """Make the network's input from an image.

    Args:
        image: BGR pixels of shape (height, width, 3), uint8.

    Returns:
        The input, float32 of shape (1, 3, 416, 416); the factor by which the image was scaled; and the column
        and row of the input where the image begins.
    """
    height, width = image.shape[:2]
    scale = SIDE / max(width, height)
    inner = max(1, round(width * scale)), max(1, round(height * scale))
    left, top = (SIDE - inner[0]) // 2, (SIDE - inner[1]) // 2
    square = np.zeros((SIDE, SIDE, 3), np.float32)
    square[top : top + inner[1], left : left + inner[0]] = cv2.resize(
        image, inner, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    )
    square = (square - _MEAN) / _DEVIATION
    return np.ascontiguousarray(square.transpose(2, 0, 1)[np.newaxis]), scale, left, top


def _grid() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The centre of each cell, (N, 2), and its step, (N, 1), in pixels."""
    centres, steps = [], []
    for step in STEPS:
        down, across = np.mgrid[: SIDE // step, : SIDE // step]
        centres.append((np.stack([across.ravel(), down.ravel()], axis=1) + 0.5) * step)
        steps.append(np.full((across.size, 1), step))
    return np.concatenate(centres).astype(np.float32), np.concatenate(steps).astype(np.float32)


_CENTRES, _STEP_OF = _grid()


def _corners(rows: npt.NDArray[np.float32], cells: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    """Left, top, right and bottom of these cells' boxes, in pixels of the network's input."""
    bins = rows.reshape(-1, 4, _BINS)
    weights = np.exp(bins - bins.max(axis=2, keepdims=True))
    distance = (weights @ np.arange(_BINS)) / weights.sum(axis=2) * _STEP_OF[cells]
    centre = _CENTRES[cells]
    return np.concatenate([centre - distance[:, :2], centre + distance[:, 2:]], axis=1).astype(np.float32)
