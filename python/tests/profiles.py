"""What tests of the profiler share: a small video, and applications that need no model."""

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]

WIDTH, HEIGHT, FRAMES = 160, 120, 40

APP = '''
import numpy as np

def bright(image):
    """The white square, by its columns and rows."""
    seen = image.min(axis=2) > 150
    if not seen.any():
        return []
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    share = seen[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1].mean()
    box = (columns[0], rows[0], columns[0] + len(columns), rows[0] + len(rows), share)
    return [box] if len(columns) > 1 and len(rows) > 1 else []

def nothing(image):
    return []

def raises(image):
    raise RuntimeError("no weights")

def nan(image):
    return [(0, 0, 5, 5, float("nan"))]

def outside(image):
    return [(10_000, 0, 10_005, 5, 0.9)]

def shapes(image):
    return [(1, 2, 3)]

def none(image):
    return None

def empty(image):
    return [(3, 3, 3, 8, 0.9)]

not_a_function = 3
'''


def picture(number: int) -> Image:
    """Return a frame: a white square that wanders over a scene with some texture."""
    texture = np.random.default_rng(7).integers(20, 90, size=(HEIGHT, WIDTH, 3), dtype=np.uint8)
    image = np.asarray(cv2.blur(texture, (5, 5)), dtype=np.uint8)
    left, top = 8 + number * 2, 30 + number % 7
    image[top : top + 30, left : left + 24] = 245
    return image


def write_video(folder: Path) -> None:
    """Write the frames as a folder of pictures."""
    for number in range(FRAMES):
        cv2.imwrite(str(folder / f"{number:03}.png"), picture(number))


class Quiet:
    """Hears everything and shows nothing."""

    def __init__(self) -> None:
        self.frames = 0

    def expect(self, frames: int) -> None:
        """Hear how many."""

    def done(self, frames: int, what: str) -> None:
        """Count."""
        self.frames += frames

    def say(self, text: str) -> None:
        """Hear."""
