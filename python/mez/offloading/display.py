"""Shows answers: in a window, or without one as pictures in a folder."""

import contextlib
import os
import time
from pathlib import Path
from typing import Final, Protocol

from mez import _native
from mez.engine import Image
from mez.offloading.errors import OffloadError

PICTURES_MAX: Final = 600
"""The most pictures in a folder. Then the oldest ones are overwritten."""

PICTURE_EVERY_S: Final = 1.0
"""How often an answer is written, in seconds."""

FOLDER: Final = Path("out/offload")
"""The folder for pictures if no window is possible."""

QUALITY: Final = 90
"""JPEG quality of pictures in a folder."""


class Display(Protocol):
    """Where answers are shown."""

    what: str

    def show(self, number: int, image: Image) -> bool:
        """Show an answer. Returns whether to show more."""

    def close(self) -> None:
        """Close the display."""


class Window:
    """A window of OpenCV. It belongs to the thread that shows.

    Args:
        title: Its title.
    """

    what = "a window; q ends"

    def __init__(self, title: str) -> None:
        self._title = title
        self._is_open = False

    def show(self, number: int, image: Image) -> bool:
        """Show an answer until the next one. Returns false after the key q, or if the window was closed."""
        import cv2

        cv2.imshow(self._title, image)
        self._is_open = True
        key = cv2.waitKey(1) & 0xFF
        return key != ord("q") and cv2.getWindowProperty(self._title, cv2.WND_PROP_VISIBLE) >= 1

    def close(self) -> None:
        """Close the window, if something was shown: OpenCV may raise an error if there is no window."""
        if self._is_open:
            import cv2

            # The user may have closed it.
            with contextlib.suppress(cv2.error):
                cv2.destroyWindow(self._title)


class Folder:
    """Pictures in a folder: one a second.

    Args:
        path: The folder, which is created if it does not exist.

    Raises:
        OffloadError: It cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        self.what = f"pictures in {path}, one a second"
        self._path = path
        self._written = 0
        self._next_s = float("-inf")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(path, error) from error

    def show(self, number: int, image: Image) -> bool:
        """Write an answer, if the last one is a second old.

        Raises:
            OffloadError: It cannot be written.
        """
        if time.monotonic() < self._next_s:
            return True
        self._next_s = time.monotonic() + PICTURE_EVERY_S
        file = self._path / f"answer-{self._written % PICTURES_MAX:04}.jpg"
        try:
            file.write_bytes(_native.encode_jpeg(image, QUALITY))
        except OSError as error:
            raise _unwritable(file, error) from error
        self._written += 1
        return True

    def close(self) -> None:
        """Nothing is open."""


def window_or_folder(title: str) -> Display:
    """A window, if there are a display and an OpenCV with windows; else pictures in `out/offload`."""
    return Folder(FOLDER) if no_window() else Window(title)


def no_window() -> str:
    """Why no window is possible. Empty if it is possible."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no display"
    try:
        import cv2
    except ImportError:
        return "OpenCV is not installed"
    for line in cv2.getBuildInformation().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "GUI" and value.strip() == "NONE":
            return "this OpenCV has no windows (opencv-python-headless)"
    return ""


def _unwritable(path: Path, error: OSError) -> OffloadError:
    return OffloadError(f"{path}: {error.strerror}; give another folder for pictures")
