"""Runs detectors of the YOLO family with ONNX Runtime (`pip install onnxruntime`).

The shape of a model's output determines what its numbers mean:

| output, for a square input of S pixels | family | a row |
| --- | --- | --- |
| (1, N, 6) | final boxes (YOLOv10 and later) | left, top, right, bottom, score, class |
| (1, 4 + classes, N), N the anchors | YOLOv8 to v12 | centre, size, scores; transposed |
| (1, N, 5 + classes), N the anchors | YOLOX | offsets in its cell, log of the size, objectness, scores |
| (1, N, 5 + classes), N three times the anchors | YOLOv5, v7 | centre, size, objectness, scores |

The anchors are the cells of grids of 8, 16 and 32 pixels.
"""

from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from mez.apps.boxes import Box, suppress
from mez.apps.onnx_network import OnnxError, session

__all__ = ["IOU_MAX", "STRONG", "WEAK", "Detector", "OnnxError"]

STRONG: Final = 0.5
"""The score from which a box counts: the usual one for these models."""

WEAK: Final = 0.3
"""The score from which a box is kept."""

IOU_MAX: Final = 0.5
"""Boxes of one class that overlap by more than this are one object."""

SIDE_DEFAULT: Final = 640
"""Side of the input of models that do not fix it."""

STRIDES: Final = (8, 16, 32)
_GREY: Final = 114
"""Fills the rest of the input beside or below the frame, as in training."""

_CANDIDATES_MAX: Final = 1000
"""The most boxes that are considered: those with the highest scores."""


class Detector:
    """A loaded model.

    Args:
        path: The `.onnx` file.
        threads: Processor threads of one frame.

    Raises:
        OnnxError: It cannot be used.
    """

    def __init__(self, path: Path, threads: int = 1) -> None:
        self._session = session(path, threads)
        (input_of,) = self._session.get_inputs()
        self._path = path
        self._input: str = input_of.name
        self._height, self._width = (
            side if isinstance(side, int) else SIDE_DEFAULT for side in input_of.shape[2:]
        )
        self._anchors = sum((self._height // step) * (self._width // step) for step in STRIDES)

    def detect(self, image: npt.NDArray[np.uint8]) -> list[Box]:
        """Find objects.

        Args:
            image: BGR pixels of shape (height, width, 3), uint8.

        Returns:
            The boxes in pixels of `image`, surest first, labelled with the number of their class.

        Raises:
            OnnxError: The model's output has an unknown shape.
        """
        square, scale = self._fit(image)
        table = np.asarray(self._session.run(None, {self._input: self._tensor(square)})[0], dtype=np.float32)
        corners, scores, classes = self._read(table)
        order = np.argsort(-scores, kind="stable")[:_CANDIDATES_MAX]
        order = order[scores[order] >= WEAK]
        boxes = [
            Box(
                float(left) / scale,
                float(top) / scale,
                float(right - left) / scale,
                float(bottom - top) / scale,
                float(score),
                str(int(kind)),
            )
            for (left, top, right, bottom), score, kind in zip(
                corners[order], scores[order], classes[order], strict=True
            )
        ]
        kept = (box.clipped(image.shape[1], image.shape[0]) for box in suppress(boxes, IOU_MAX))
        return [box for box in kept if box.area > 0]

    @property
    def _is_yolox(self) -> bool:
        """YOLOX takes blue, green, red in 0 to 255; all others red, green, blue in 0 to 1."""
        shape = self._session.get_outputs()[0].shape
        return len(shape) == 3 and shape[1] == self._anchors

    def _fit(self, image: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], float]:
        height, width = image.shape[:2]
        scale = min(self._width / width, self._height / height)
        inner = max(1, round(width * scale)), max(1, round(height * scale))
        square = np.full((self._height, self._width, 3), _GREY, dtype=np.uint8)
        square[: inner[1], : inner[0]] = cv2.resize(image, inner, interpolation=cv2.INTER_LINEAR)
        return square, scale

    def _tensor(self, square: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        pixels = square if self._is_yolox else square[:, :, ::-1]
        tensor = np.ascontiguousarray(pixels.transpose(2, 0, 1)[np.newaxis], dtype=np.float32)
        return tensor if self._is_yolox else tensor / np.float32(255)

    def _read(
        self, table: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return corners (N, 4), scores and classes, in pixels of the input."""
        if table.ndim == 3 and table.shape[0] == 1:
            rows = table[0]
            if rows.shape[1] == 6 and rows.shape[0] not in (self._anchors, 3 * self._anchors):
                return rows[:, :4], rows[:, 4], rows[:, 5]
            if rows.shape[1] == self._anchors and rows.shape[0] > 4:
                rows = rows.T
                return _corners(rows[:, :4]), rows[:, 4:].max(axis=1), _best(rows[:, 4:])
            if rows.shape[0] in (self._anchors, 3 * self._anchors) and rows.shape[1] > 5:
                centred = rows[:, :4] if rows.shape[0] != self._anchors else self._from_cells(rows[:, :4])
                return _corners(centred), rows[:, 4] * rows[:, 5:].max(axis=1), _best(rows[:, 5:])
        raise OnnxError(
            f"{self._path} returns an array of the shape {table.shape}, which is not that of a YOLO model "
            f"({self._anchors} anchors at {self._width}x{self._height}); wrap it in a function, "
            "--app FILE.py:FUNCTION"
        )

    def _from_cells(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        cells, steps = [], []
        for step in STRIDES:
            down, across = np.mgrid[: self._height // step, : self._width // step]
            cells.append(np.stack([across.ravel(), down.ravel()], axis=1))
            steps.append(np.full((across.size, 1), step))
        step_of = np.concatenate(steps).astype(np.float32)
        centres = (rows[:, :2] + np.concatenate(cells)) * step_of
        return np.concatenate([centres, np.exp(rows[:, 2:4]) * step_of], axis=1).astype(np.float32)


def _corners(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    centre, half = rows[:, :2], rows[:, 2:4] / 2
    return np.asarray(np.concatenate([centre - half, centre + half], axis=1), dtype=np.float32)


def _best(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.asarray(scores.argmax(axis=1), dtype=np.float32)
