"""Reads pictures from a camera, a video, a stream, or an iterable of a program."""

import contextlib
import math
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from mez.engine import Image
from mez.errors import MissingPackageError
from mez.offloading.errors import OffloadError

Pictures: TypeAlias = str | int | Path | Iterable[Image]
"""A source: a number or `/dev/video0` (a camera), a file or an address (a video), or pictures."""

FPS_DEFAULT: Final = 25.0
"""Frames per second of videos that state none."""

FPS_MAX: Final = 1000.0
"""The highest frame rate of a video. A higher rate is an error in the file."""


def read(source: Pictures, fps: float | None, loop: bool) -> Generator[Image]:
    """Open a source, and return its pictures at its pace. A video file is read at its own rate, or at `fps`.

    Closing the generator closes the camera, the file or the stream. A program's iterable stays open.

    Args:
        source: What to read.
        fps: Pictures per second of a file, or of pictures that a program yields. Default: that of the file;
            pictures of a program come as fast as it yields them.
        loop: Whether a file begins again at its end.

    Raises:
        OffloadError: It cannot be opened; or later, from the iterator: a camera or a stream was lost.
        MissingPackageError: OpenCV is not installed, and the source is not pictures of a program.
    """
    if fps is not None and not (math.isfinite(fps) and fps > 0):
        raise OffloadError(f"fps is {fps}; give pictures per second, above 0")
    if isinstance(source, str | int | Path):
        return _captured(source, fps, loop)
    return _paced(iter(source), fps)


def _captured(source: str | int | Path, fps: float | None, loop: bool) -> Generator[Image]:
    try:
        import cv2
    except ImportError as error:
        raise MissingPackageError(
            f"sources are read by OpenCV ({error}); run: pip install 'mez[apps]'"
        ) from error

    word = str(source)
    is_file = Path(word).is_file()
    opened = cv2.VideoCapture(int(word) if word.isdecimal() and not is_file else word)
    if not opened.isOpened():
        what = "not a video that OpenCV reads" if is_file else "no such file, camera or stream"
        raise OffloadError(
            f"source {word}: {what}; give a video, an address, /dev/video0, or a camera's number"
        )

    def pictures() -> Generator[Image]:
        try:
            while True:
                good, image = opened.read()
                if good:
                    yield np.asarray(image, np.uint8)
                elif not is_file:
                    raise OffloadError(f"source {word} gives no pictures any more; is it still connected?")
                elif not (loop and opened.set(cv2.CAP_PROP_POS_FRAMES, 0)):
                    return
        finally:
            opened.release()

    if not is_file:
        return pictures()
    stated = opened.get(cv2.CAP_PROP_FPS)
    pace = fps or (stated if 0 < stated <= FPS_MAX else FPS_DEFAULT)

    def paced() -> Generator[Image]:
        with contextlib.closing(pictures()) as read:
            yield from _paced(read, pace)

    return paced()


def _paced(pictures: Iterator[Image], fps: float | None) -> Generator[Image]:
    """Pictures at a rate. After a delay, the rate continues; missed pictures are not made up for."""
    next_s = time.monotonic()
    # Not `yield from`, which would close the program's iterable.
    for image in pictures:
        if fps is not None:
            time.sleep(max(0.0, next_s - time.monotonic()))
            next_s = max(next_s + 1 / fps, time.monotonic())
        yield image
