"""What `mez demo` and `mez profile` need beside the package."""

import importlib.util
from typing import Final

_WANTED: Final = {"cv2": "'opencv-python-headless<5'", "matplotlib": "matplotlib", "rich": "rich"}
"""Modules, and how pip installs them. OpenCV 5 has no HOG people detector."""


def missing() -> str | None:
    """Say which of them are not installed, and how to install these. `None`: all are there."""
    names = [name for name in _WANTED if importlib.util.find_spec(name) is None]
    if not names:
        return None
    wanted = " ".join(_WANTED[name] for name in names)
    are = "is" if len(names) == 1 else "are"
    return f"{', '.join(names)} {are} not installed. Run: pip install {wanted}"
