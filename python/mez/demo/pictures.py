"""Draws the boxes into the frames with the most detections."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from mez.apps.boxes import Box
from mez.demo.detector import Finding

PICTURES_PER_CAMERA: Final = 2
"""Pictures of each camera. Each is the best of one part of the demo, so that they show different moments."""

SHEET_COLUMNS_MAX: Final = 3
SHEET_TILE_WIDTH: Final = 640

_GREEN: Final = (70, 240, 90)
_BLACK: Final = (0, 0, 0)
_WHITE: Final = (255, 255, 255)


@dataclass(frozen=True, slots=True)
class Album:
    """Where the pictures are.

    Attributes:
        pictures: One per frame.
        sheet: All of them together; `None` if there are none.
    """

    pictures: tuple[Path, ...]
    sheet: Path | None


class Gallery:
    """Keeps the findings that make the best pictures: a few frames per camera, however long the demo runs.

    Args:
        begins_s: When the demo begins, by `time.monotonic`.
        seconds: How long it lasts.
    """

    def __init__(self, begins_s: float, seconds: float) -> None:
        self._begins_s = begins_s
        self._seconds = seconds
        self._lock = threading.Lock()
        self._best: dict[tuple[str, int], Finding] = {}

    def keep(self, finding: Finding) -> None:
        """Look at a finding, and keep it if it is the best of its camera and its part of the demo."""
        part = int((finding.at_s - self._begins_s) / self._seconds * PICTURES_PER_CAMERA)
        key = (finding.camera, min(max(part, 0), PICTURES_PER_CAMERA - 1))
        with self._lock:
            best = self._best.get(key)
            if finding.boxes and (best is None or _worth(finding) > _worth(best)):
                self._best[key] = finding

    def write(self, folder: Path) -> Album:
        """Draw what was kept into PNG files in `folder`, which is made if need be.

        Raises:
            OSError: The folder cannot be written to.
        """
        with self._lock:
            best = sorted(self._best.items())
        drawn = [(finding, annotate(finding)) for _, finding in best]
        pictures = []
        for finding, image in drawn:
            name = f"{finding.camera.replace('/', '-')}-{finding.epoch}-{finding.sequence:06}.png"
            pictures.append(write(folder / name, image))
        if not drawn:
            return Album((), None)
        return Album(
            tuple(pictures),
            write(folder / "contact-sheet.png", contact_sheet([image for _, image in drawn])),
        )


def annotate(finding: Finding) -> npt.NDArray[np.uint8]:
    """Draw the boxes and their scores into the frame, and a line about the frame below it."""
    image = finding.image.copy()
    for box in finding.boxes:
        _draw(image, box)
    age = "age unknown" if finding.age_ms is None else f"{finding.age_ms:.1f} ms old in the application"
    what = finding.note or f"of epoch {finding.epoch}   {age}"
    return captioned(
        image, f"{finding.camera}   frame {finding.sequence} {what}   {len(finding.boxes)} found"
    )


def captioned(image: npt.NDArray[np.uint8], text: str) -> npt.NDArray[np.uint8]:
    """A picture with a line of text below it."""
    bar = np.zeros((34, image.shape[1], 3), dtype=np.uint8)
    _text(bar, text, (10, 23), 0.5)
    return np.vstack([image, bar])


def contact_sheet(images: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    """Put pictures side by side, row by row."""
    columns = min(len(images), SHEET_COLUMNS_MAX)
    tiles = [_fitted(image) for image in images]
    height = max(tile.shape[0] for tile in tiles)
    rows = -(-len(tiles) // columns)
    sheet = np.full((rows * height, columns * SHEET_TILE_WIDTH, 3), 32, dtype=np.uint8)
    for index, tile in enumerate(tiles):
        top, left = index // columns * height, index % columns * SHEET_TILE_WIDTH
        sheet[top : top + tile.shape[0], left : left + SHEET_TILE_WIDTH] = tile
    return sheet


def _worth(finding: Finding) -> float:
    """The value of a picture: many boxes of high score. The limit of 2 makes a second box count more."""
    return sum(min(box.score, 2.0) for box in finding.boxes)


def _draw(image: npt.NDArray[np.uint8], box: Box) -> None:
    """Draw the box, and its label and score on a tag in its upper left corner."""
    left, top = round(box.x), round(box.y)
    corner = (round(box.x + box.width) - 1, round(box.y + box.height) - 1)
    cv2.rectangle(image, (left, top), corner, _GREEN, 2)
    score, size = f"{box.label} {box.score:.1f}".strip(), 0.4
    (width, height), _ = cv2.getTextSize(score, cv2.FONT_HERSHEY_SIMPLEX, size, 1)
    cv2.rectangle(image, (left, top), (left + width + 6, top + height + 6), _GREEN, cv2.FILLED)
    cv2.putText(
        image, score, (left + 3, top + height + 3), cv2.FONT_HERSHEY_SIMPLEX, size, _BLACK, 1, cv2.LINE_AA
    )


def _text(image: npt.NDArray[np.uint8], text: str, at: tuple[int, int], size: float) -> None:
    """Write in white."""
    cv2.putText(image, text, at, cv2.FONT_HERSHEY_SIMPLEX, size, _WHITE, 1, cv2.LINE_AA)


def _fitted(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    height = round(image.shape[0] * SHEET_TILE_WIDTH / image.shape[1])
    return np.asarray(
        cv2.resize(image, (SHEET_TILE_WIDTH, height), interpolation=cv2.INTER_AREA), dtype=np.uint8
    )


def write(path: Path, image: npt.NDArray[np.uint8]) -> Path:
    """Write a PNG file, and its folder if need be.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Encoded first, because `imwrite` gives no reason if it cannot write.
    _, encoded = cv2.imencode(".png", image)
    path.write_bytes(encoded.tobytes())
    return path
