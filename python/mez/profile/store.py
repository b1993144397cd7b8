"""Keeps measurements on disk, so that an interrupted profile can continue.

There is one folder for each video, application, version and H.264 encoder, and one file for each rung, which
is written atomically.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Final

from mez.profile.app import App
from mez.profile.coding import H264_ENCODER
from mez.profile.errors import FormatError
from mez.profile.footage import Footage
from mez.profile.measure import Measurement, version

CACHE: Final = "MEZ_PROFILE_CACHE"
"""The environment variable that names the folder of the cache."""


def folder() -> Path:
    """Return the folder for measurements: `MEZ_PROFILE_CACHE`, else below the user's cache."""
    if named := os.environ.get(CACHE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mez" / "profile"


class Store:
    """The measurements of an application on a video.

    Args:
        root: Folder of all caches.
        footage: The frames.
        app: The application.
        h264_encoder: The H.264 encoder.
    """

    def __init__(self, root: Path, footage: Footage, app: App, h264_encoder: str = H264_ENCODER) -> None:
        decides = [footage.key, app.sha256, app.thresholds.weak, version()]
        if h264_encoder != H264_ENCODER:
            decides.append(h264_encoder)
        key = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
        self.folder = root / f"found-{key[:24]}"

    def get(self, rung: str) -> Measurement | None:
        """Return the measurements of a rung. `None` if there are none, or the file is damaged."""
        try:
            return Measurement.from_json(self._path(rung).read_text())
        except (OSError, UnicodeDecodeError, FormatError):
            return None

    def put(self, measurement: Measurement) -> None:
        """Keep a measurement."""
        path = self._path(measurement.rung)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(measurement.to_json())
        unfinished.replace(path)

    def _path(self, rung: str) -> Path:
        return self.folder / f"{rung.replace('/', '_')}.json"
