"""What tests of clients of engines share: an engine's process, pictures, a video."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

import mez
from tests.support import picture

_ENGINE = """\
import sys, mez.engine
mez.engine.run(sys.argv[1], sys.argv[2], edge=sys.argv[3], draw=sys.argv[4])
"""


@contextmanager
def engine(
    edge: mez.Edge, name: str, cameras: str, draw: str = "engine"
) -> Iterator[subprocess.Popen[bytes]]:
    """An engine in a process of its own, which is killed in the end."""
    words = [sys.executable, "-c", _ENGINE, name, cameras, f"unix://{edge.socket}", draw]
    with subprocess.Popen(words) as process:
        try:
            yield process
        finally:
            process.kill()


def numbered() -> Iterator[NDArray[np.uint8]]:
    """Pictures without an end, which tell their number modulo 90."""
    return (picture(number % 90) for number in count())


def write_video(path: Path, frames: int = 50) -> Path:
    """A video of numbered pictures, 25 a second."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 25.0, (64, 48))
    for number in range(frames):
        writer.write(picture(number))
    writer.release()
    return path
