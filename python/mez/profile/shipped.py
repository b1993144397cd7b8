"""Finds the profiles that come with Mez."""

import hashlib
from pathlib import Path
from typing import Final

from mez.profile import document
from mez.profile.document import Profile

FOLDER: Final = Path(__file__).resolve().parents[1] / "profiles"
"""The folder of these profiles."""


def find(app: str, video: Path) -> Path | None:
    """Return the profile of an application on exactly this video. `None` if Mez does not contain it.

    Raises:
        FormatError: A profile of Mez is damaged.
        OSError: The video cannot be read.
    """
    known = [(path, document.load(path)) for path in sorted(FOLDER.glob("*.json"))]
    wanted = [(path, profile) for path, profile in known if profile.about.app == app]
    if not wanted:
        return None
    sha256 = _sha256(video)
    return next((path for path, profile in wanted if _is_of(profile, sha256)), None)


def _is_of(profile: Profile, video_sha256: str) -> bool:
    return bool(profile.about.video_sha256) and profile.about.video_sha256 == video_sha256


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
