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
    """Return the profiler's job for a video. All experiments share a cache of measurements.

    Args:
        run: The run; a quick one encodes fewer frames.
        video: The file.
        coders: Encoders for rungs of other systems (see `Job`).
    """
    encoded = FRAMES_ENCODED_QUICK if run.quick else FRAMES_MAX
    return Job((video,), APP, None, None, CACHE / "profile", coders or {}, encoded)


class Progress:
    """Shows the profiler's progress as that of the run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def expect(self, frames: int) -> None:
        """Ignore the total: the search changes it as it goes."""

    def done(self, frames: int, what: str) -> None:
        """Report this many frames more."""
        self._run.step(what, frames)

    def say(self, text: str) -> None:
        """Ignore the text: its times are those of a search without a shortlist."""
