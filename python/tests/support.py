"""Pictures that can be told apart, getting a first frame through, and a camera broker of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import mez


def picture(number: int, width: int = 64, height: int = 48) -> NDArray[np.uint8]:
    """A smooth BGR picture, whose mean brightness tells its number (0 to 99)."""
    y, x = np.mgrid[0:height, 0:width]
    ramp = (x / width + y / height) * 10
    channels = [ramp + 10 + 2 * number, ramp + 20 + 2 * number, ramp[::-1] + 30 + 2 * number]
    return np.stack(channels, axis=2).astype(np.uint8)


def number_of(image: NDArray[np.uint8]) -> int:
    """The number of a picture that went through JPEG."""
    return round((float(image.mean()) - float(picture(0).mean())) / 2)


def deliver(
    publisher: mez.Publisher, subscription: mez.Subscription, image: NDArray[np.uint8] | bytes | None = None
) -> mez.Frame:
    """Publish until something arrives: a subscription takes a moment to reach the camera. The last one."""
    publisher.wait_connected(timeout=30)
    for _ in range(200):
        publisher.send(picture(0) if image is None else image)
        try:
            frame = subscription.next(timeout=0.1)
            while frame.sequence < publisher.published - 1:
                frame = subscription.next(timeout=0.5)
        except mez.WaitTimeoutError:
            continue
        return frame
    raise AssertionError("nothing was delivered")


@contextmanager
def camera_broker(camera: str, edge: mez.Edge, socket: Path) -> Iterator[subprocess.Popen[str]]:
    """`mez camera` without a source, as a process of its own, which is killed in the end."""
    words = [str(Path(sys.executable).parent / "mez"), "--log", "error", "camera", camera]
    words += ["--edge", edge.address, "--keys", str(edge.keys), "--socket", str(socket)]
    words += ["--state", str(socket.with_suffix(".state"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
            yield process
        finally:
            process.kill()
