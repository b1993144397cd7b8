"""Keeps frames of a scenario as published and as delivered, to measure the detector's accuracy on them.

The reference is the frame as it was published, read from the camera's own broker. Scoring is part of the
experiments (`bench/mez_bench/scenario.py`), which only a checkout has.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

import mez

T = TypeVar("T")

KEPT_ONE_IN: Final = 5
"""One in this many frames of a camera is kept by default, at both ends."""

KEPT_MAX: Final = 400
"""The most frames of one camera that are kept at each end by default. It bounds memory."""

Key = tuple[str, int, int]
"""A camera, an epoch, a sequence."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Scores of a run.

    Attributes:
        normalised: With hysteresis, as contracts define it; `None` if the reference has no boxes.
        strict: With one threshold.
        expected: The mean accuracy that the profile has for the rungs of those frames; `None` if it has none
            for some of them.
        frames: How many frames were scored.
        by_camera: The normalised accuracy of each camera's frames.
        by_frame: Per frame of each camera, in order: its camera, when it was delivered (by
            `time.monotonic`), and its own score with hysteresis; `None` where the reference has no boxes.
    """

    normalised: float | None
    strict: float | None
    expected: float | None
    frames: int
    by_camera: Mapping[str, float | None]
    by_frame: Sequence[tuple[str, float, float | None]]


@dataclass(frozen=True, slots=True)
class Pair:
    """A frame at both ends.

    Attributes:
        published: As it is in the camera's log.
        delivered: As the application got it.
        at_s: When that was, by `time.monotonic`.
    """

    published: mez.Frame
    delivered: mez.Frame
    at_s: float


class Samples:
    """Keeps one in so many frames, as published and as delivered. Safe to use from several threads.

    Args:
        one_in: How many.
        most: The most frames of one camera that are kept at each end.
    """

    def __init__(self, one_in: int = KEPT_ONE_IN, most: int = KEPT_MAX) -> None:
        self._one_in, self._most = one_in, most
        self._lock = threading.Lock()
        self._published: dict[Key, mez.Frame] = {}
        self._delivered: dict[Key, tuple[mez.Frame, float]] = {}

    def take_published(self, frame: mez.Frame) -> None:
        """Enter a frame as it is in the camera's log."""
        self._take(self._published, frame, frame)

    def take_delivered(self, frame: mez.Frame, at_s: float) -> None:
        """Enter a frame as the application got it, and when, by `time.monotonic`."""
        self._take(self._delivered, frame, (frame, at_s))

    def _take(self, into: dict[Key, T], frame: mez.Frame, kept: T) -> None:
        if frame.sequence % self._one_in:
            return
        with self._lock:
            if sum(key[0] == frame.camera for key in into) < self._most:
                into[frame.camera, frame.epoch, frame.sequence] = kept

    def pairs(self, frames_per_camera: int) -> list[Pair]:
        """Return frames that were kept at both ends, spread evenly over the run."""
        with self._lock:
            both = sorted(self._published.keys() & self._delivered.keys())
            chosen: list[Key] = []
            for camera in sorted({key[0] for key in both}):
                own = [key for key in both if key[0] == camera]
                places = np.linspace(0, len(own) - 1, min(frames_per_camera, len(own))).round().astype(int)
                chosen += [own[place] for place in places]
            return [Pair(self._published[key], *self._delivered[key]) for key in chosen]


class Originals:
    """Takes frames as they were published, at the camera broker's own socket.

    Args:
        socket: The broker's, `unix:///PATH`.
        camera: Its camera.
        samples: Gets the frames.
    """

    def __init__(self, socket: str, camera: str, samples: Samples) -> None:
        self._samples = samples
        self._subscription = mez.subscribe(
            camera, edge=socket, deliver="every", application="mez demo, reference"
        )
        self._thread = threading.Thread(target=self._run, name=f"originals of {camera}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the subscription, and the thread with it."""
        self._subscription.close()
        self._thread.join(5.0)

    def _run(self) -> None:
        for frame in self._subscription:
            self._samples.take_published(frame)
