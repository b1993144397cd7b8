"""Packages that `mez demo` and `mez profile` need in addition."""

import importlib.util
from typing import Final

_WANTED: Final = {"cv2": "'opencv-python-headless<5'", "matplotlib": "matplotlib", "rich": "rich"}
"""Modules, with the names for pip. OpenCV 5 has no HOG people detector."""


def missing() -> str | None:
    """Return a message with the missing packages and how to install them; `None` if none is missing."""
    names = [name for name in _WANTED if importlib.util.find_spec(name) is None]
    if not names:
        return None
    wanted = " ".join(_WANTED[name] for name in names)
    are = "is" if len(names) == 1 else "are"
    return f"{', '.join(names)} {are} not installed. Run: pip install {wanted}"
