"""Scores the accuracy of delivered frames after a run, on frames that were kept at both ends.

The reference is the published frame, taken at the camera's own broker. Scoring waits for the end of the run,
because it would take the processor from what is being measured.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import cv2
import numpy as np

import mez
from mez.apps.boxes import Box
from mez.profile.app import load
from mez.profile.score import Counts, FrameScore, f1, score_frame

T = TypeVar("T")

KEPT_ONE_IN: Final = 5
"""One in this many frames of a camera is kept, at both ends."""

KEPT_MAX: Final = 400
"""The most frames of one camera that are kept at each end. It bounds memory."""

Key = tuple[str, int, int]
"""A camera, an epoch, a sequence."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Scores of a run.

    Attributes:
        normalised: With hysteresis, what contracts mean; `None` if nobody was there to be found.
        strict: With one threshold.
        expected: What the profile says of the forms that those frames came in, on average; `None` where it
            says nothing of some.
        frames: How many frames were scored.
        by_camera: The normalised one of each camera's frames alone.
        by_frame: Per frame of each camera, in order: its camera, when it was delivered (by
            `time.monotonic`), and its own score with hysteresis; `None` where nobody was there.
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
    """Keeps one in `KEPT_ONE_IN` frames, as published and as delivered. Safe to use from several threads."""

    def __init__(self) -> None:
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
        if frame.sequence % KEPT_ONE_IN:
            return
        with self._lock:
            if sum(key[0] == frame.camera for key in into) < KEPT_MAX:
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


def score(
    pairs: Sequence[Pair],
    seen: Callable[[mez.Frame, Sequence[Box]], None],
    give_up: Callable[[], bool],
) -> Accuracy:
    """Search every pair, and compare what is found.

    Args:
        pairs: Frames as published and as delivered.
        seen: Called with each delivered frame and what was found on it, in pixels of the frame as published.
        give_up: Tells whether to end early, with what there is.
    """
    app = load("pedestrian-hog")
    cv2.setNumThreads(1)
    scores: dict[str, list[FrameScore]] = {}
    by_frame: list[tuple[str, float, float | None]] = []
    expected: list[float | None] = []
    for pair in pairs:
        if give_up():
            break
        published, delivered = pair.published, pair.delivered
        size, what = (published.width, published.height), f"frame {published.id} of {published.camera}"
        reference = app.find(published.image, size, what)
        found = app.find(delivered.image, size, what)
        scored = score_frame(reference, found, app.thresholds)
        scores.setdefault(published.camera, []).append(scored)
        expected.append(delivered.expected_accuracy)
        by_frame.append((published.camera, pair.at_s, f1(scored.hysteresis)))
        seen(delivered, [box for box in found if box.score >= app.thresholds.strong])
    nothing = Counts(0, 0, 0)
    together = [scored for of_camera in scores.values() for scored in of_camera]
    return Accuracy(
        normalised=f1(sum((scored.hysteresis for scored in together), nothing)),
        strict=f1(sum((scored.strict for scored in together), nothing)),
        expected=_mean(expected),
        frames=len(together),
        by_camera={
            camera: f1(sum((scored.hysteresis for scored in of_camera), nothing))
            for camera, of_camera in scores.items()
        },
        by_frame=by_frame,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of what is known completely."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


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
