"""Holds what experiments with the profiler share: application, number of frames, progress."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mez.profile.crew import Job
from mez.profile.footage import FRAMES_MAX
from mez_bench.run import CACHE, Run

APP: Final = "pedestrian-hog"

FRAMES: Final = 120
FRAMES_QUICK: Final = 30

FRAMES_ENCODED_QUICK: Final = 400
"""A quick run encodes half the video: four pieces of ten seconds."""

WORKERS: Final = 2


def frames_of(run: Run) -> int:
    """Return how many frames are scored."""
    return FRAMES_QUICK if run.quick else FRAMES


def job(run: Run, video: Path, coders: Mapping[str, str] | None = None) -> Job:
    """Return what is measured of a video; what was measured before is in the cache of all experiments.

    Args:
        run: Whether it is a quick one.
        video: The file.
        coders: Who makes rungs of other systems, as of `Job`.
    """
    encoded = FRAMES_ENCODED_QUICK if run.quick else FRAMES_MAX
    return Job((video,), APP, None, None, CACHE / "profile", coders or {}, encoded)


class Progress:
    """Tells the run of the profiler's progress."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def expect(self, frames: int) -> None:
        """The search decides as it goes; a total that is wrong is worth less than none."""

    def done(self, frames: int, what: str) -> None:
        """Pass it on."""
        self._run.step(what, frames)

    def say(self, text: str) -> None:
        """What it says of time is about a search without a shortlist."""
