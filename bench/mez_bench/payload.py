"""Makes JPEG images of an exact size, with room for a stamp."""

from pathlib import Path
from typing import Final

import cv2
import numpy as np

from mez_bench.errors import ExperimentError

WIDTH: Final = 1920
HEIGHT: Final = 1080
STAMP_BYTES: Final = 24
SEGMENT_BYTES_MAX: Final = 65_535
"""The largest value of a segment's length field. The length includes the two bytes of this field."""


def write_jpeg(folder: Path, size_bytes: int, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Path:
    """Write a JPEG of exactly this many bytes, by default of 1920 x 1080 pixels, and return the file.

    It shows smoothed noise at the highest quality that fits. Comment segments before the picture pad it. The
    first one begins where every measured program puts its stamp (`bench/measure/src/stamp.rs`).
    """
    width, height = size
    noise = np.random.default_rng(size_bytes).integers(0, 256, (height, width, 3), np.uint8)
    picture = cv2.GaussianBlur(noise, (0, 0), 1.0)

    def code(quality: int) -> bytes:
        return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()

    low, high, best = 1, 100, b""
    while low <= high:
        quality = (low + high) // 2
        coded = code(quality)
        if len(coded) + 4 + STAMP_BYTES <= size_bytes:
            best, low = coded, quality + 1
        else:
            high = quality - 1
    if not best:
        raise ExperimentError(f"{size_bytes} bytes are too few for a picture of {width}x{height} pixels")
    path = folder / f"{size_bytes}.jpg"
    path.write_bytes(best[:2] + _comments(size_bytes - len(best)) + best[2:])
    assert path.stat().st_size == size_bytes, "the comments fill it up"
    return path


def _comments(size_bytes: int) -> bytes:
    """Return comment segments that take this many bytes together, markers included."""
    segments = []
    while size_bytes > 0:
        # The rest must have room for the marker and the length of the next segment.
        take = min(size_bytes, SEGMENT_BYTES_MAX + 2)
        if 0 < size_bytes - take < 4:
            take -= 4
        segments.append(b"\xff\xfe" + (take - 2).to_bytes(2, "big") + bytes(take - 4))
        size_bytes -= take
    return b"".join(segments)
