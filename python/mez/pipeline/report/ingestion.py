"""Computes whether the first stage keeps up with the cameras.

Cameras send a set of frames every interval: one frame of each camera. If the first stage's workers need
longer for a set than the interval, each set begins later than the one before, and the delay keeps growing
(Figure 14 of the AI Tax paper, Richins et al. 2021).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mez.pipeline.record import CAMERA, Hop
from mez.pipeline.report.reading import Way

FRAMES_MIN: Final = 20
"""With fewer frames of a stage, the growth of its delay is not computed."""


@dataclass(frozen=True, slots=True)
class Ingestion:
    """How a first stage keeps up with frames.

    Attributes:
        frames: Number of frames that left the pipeline, themselves or as records made of them.
        cameras: Number of cameras, which is the number of frames in a set.
        workers: Number of workers that had frames.
        interval_ms: Median time between consecutive frames of a camera that left the pipeline.
        set_ms: Time that the workers need for a set: the mean time from when a worker had a frame until its
            results were given to the bus, times the cameras, divided by the workers.
        delay_ms_mean: Mean time from the capture of a frame until a worker had it.
        delay_ms_p99: The 99 % quantile of this time.
        growth_ms_per_s: Growth of this delay per second of capture time, by least squares. `None`: there were
            too few frames.
    """

    frames: int
    cameras: int
    workers: int
    interval_ms: float | None
    set_ms: float
    delay_ms_mean: float
    delay_ms_p99: float
    growth_ms_per_s: float | None

    @property
    def expected_ms_per_s(self) -> float | None:
        """Growth of the delay per second of capture time, if each set waits for the previous one."""
        if not self.interval_ms:
            return None
        return max(0.0, self.set_ms / self.interval_ms - 1) * 1000

    def plain(self) -> dict[str, Any]:
        """For programs."""

        def told(value: float | None) -> float | None:
            return None if value is None else round(value, 3)

        return {
            "frames": self.frames,
            "cameras": self.cameras,
            "workers": self.workers,
            "interval_ms": told(self.interval_ms),
            "set_ms": told(self.set_ms),
            "delay_ms_mean": told(self.delay_ms_mean),
            "delay_ms_p99": told(self.delay_ms_p99),
            "growth_ms_per_s": told(self.growth_ms_per_s),
            "expected_ms_per_s": told(self.expected_ms_per_s),
        }


@dataclass(frozen=True, slots=True)
class _Taken:
    """A frame that a worker of a first stage had, in nanoseconds since 1970."""

    camera: str
    worker: str
    captured_ns: int
    fetched_ns: int
    done_ns: int


def ingestion(ways: Sequence[Way]) -> Mapping[str, Ingestion]:
    """How first stages keep up with frames, by stage."""
    taken: dict[str, dict[str, _Taken]] = defaultdict(dict)
    for way in ways:
        if len(way.hops) < 2 or way.hops[0].stage != CAMERA or "captured" not in way.hops[0].at:
            continue
        camera, first = way.hops[:2]
        if "fetched" not in first.at:
            continue
        own = _taken(way, camera, first)
        known = taken[first.stage].get(way.root)
        # The last record made of a frame that is sent ends the work on the frame.
        if known is None or own.done_ns > known.done_ns:
            taken[first.stage][way.root] = own
    return {stage: _of(list(frames.values())) for stage, frames in taken.items()}


def _taken(way: Way, camera: Hop, first: Hop) -> _Taken:
    done = first.at.get("sent", first.at.get("made", first.at["fetched"]))
    captured_ns = camera.at["captured"] + camera.wall_ns
    fetched_ns = first.at["fetched"] + first.wall_ns
    if camera.clock == first.clock:
        # The wall clock may have been set between the two.
        fetched_ns = captured_ns + first.at["fetched"] - camera.at["captured"]
    return _Taken(way.camera, first.worker, captured_ns, fetched_ns, fetched_ns + done - first.at["fetched"])


def _of(frames: Sequence[_Taken]) -> Ingestion:
    frames = sorted(frames, key=lambda frame: frame.captured_ns)
    cameras = {frame.camera for frame in frames}
    workers = {frame.worker for frame in frames}
    gaps = []
    for camera in cameras:
        captured = [frame.captured_ns for frame in frames if frame.camera == camera]
        gaps += np.diff(captured).tolist()
    delays = np.array([frame.fetched_ns - frame.captured_ns for frame in frames]) / 1e6
    works = np.array([frame.done_ns - frame.fetched_ns for frame in frames]) / 1e6
    growth = None
    at = np.array([frame.captured_ns - frames[0].captured_ns for frame in frames]) / 1e9
    if len(frames) >= FRAMES_MIN and at[-1] > 0:
        growth = float(np.polyfit(at, delays, 1)[0])
    return Ingestion(
        frames=len(frames),
        cameras=len(cameras),
        workers=len(workers),
        interval_ms=float(np.median(gaps)) / 1e6 if gaps else None,
        set_ms=float(works.mean()) * len(cameras) / len(workers),
        delay_ms_mean=float(delays.mean()),
        delay_ms_p99=float(np.percentile(delays, 99)),
        growth_ms_per_s=growth,
    )
