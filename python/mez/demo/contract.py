"""Checks a contract after a run: frames on time, infeasible times, and the delays after changes of a link."""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import mez

SETTLES_WITHIN_S: Final = 2.0
"""The time after a change of the link in which late frames are searched for."""

HOLDS_AFTER_S: Final = 0.5
"""A contract counts as kept again after this time without a violation."""

INFEASIBLE: Final = "infeasible"

TELLS_OF_LATENESS: Final = frozenset({"absent", INFEASIBLE, "latency_miss"})
"""Contract states that say that the latency bound is not kept."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A frame with the state of its contract.

    Attributes:
        camera: Its camera.
        at_s: When the application received it, by `time.monotonic`.
        age_ms: Its age then; `None` if that is not known.
        size_bytes: Size of its payload.
        rung: Its rung.
        state: The contract's state.
        reason: The reason for the state, in a sentence.
        skipped: Frames before it that were not delivered.
    """

    camera: str
    at_s: float
    age_ms: float | None
    size_bytes: int
    rung: str
    state: str
    reason: str
    skipped: int


class Diary:
    """Keeps every frame of a scenario, which lasts an hour at most. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: list[Kept] = []
        self._latest: dict[str, Kept] = {}

    def take(self, frame: Kept) -> None:
        """Enter one frame."""
        with self._lock:
            self._frames.append(frame)
            self._latest[frame.camera] = frame

    def latest(self, camera: str) -> Kept | None:
        """Return a camera's newest frame."""
        with self._lock:
            return self._latest.get(camera)

    def frames(self, since_s: float = 0.0) -> list[Kept]:
        """Return all frames since a time, in the order of their arrival."""
        with self._lock:
            return [frame for frame in self._frames if frame.at_s >= since_s]


class Shares:
    """The share of each camera of a declared channel, in bytes per frame."""

    def __init__(self) -> None:
        self._latest: dict[str, int | None] = {}
        self._least: dict[str, int] = {}

    def take(self, cameras: Iterable[mez.CameraInfo]) -> None:
        """Take the edge's list of cameras."""
        for camera in cameras:
            share = self._latest[camera.camera] = camera.share_frame_bytes
            if share is not None:
                self._least[camera.camera] = min(share, self._least.get(camera.camera, share))

    def latest(self, camera: str) -> int | None:
        """Return a camera's share; 0: too little for its floor; `None`: not limited."""
        return self._latest.get(camera)

    def least(self) -> dict[str, int]:
        """Return the smallest share of each camera so far."""
        return dict(self._least)


@dataclass(frozen=True, slots=True)
class Account:
    """Figures of a run.

    Attributes:
        on_time_share: The share of frames within the bound, of those delivered without the state
            `infeasible`; `None` without a bound or without frames.
        on_time_share_of_published: The same, with every frame that was skipped before them counted as late.
        infeasible_share: Frames that came with the state `infeasible`.
        settle_ms: The longest time from a link becoming slower until the last late frame within the next two
            seconds; 0 if no frame was late, `None` if no link became slower.
        infeasible_notice_ms: The longest time for which an application did not know that the bound was not
            kept: from when a camera's first late or skipped frame was due until a frame whose state says so
            came. If none came, until the last late or skipped frame that is followed by half a second
            without any. 0 if the state always said so in advance; `None` without a bound or without frames.
        rungs: How many frames came at each rung.
    """

    on_time_share: float | None
    on_time_share_of_published: float | None
    infeasible_share: float | None
    settle_ms: float | None
    infeasible_notice_ms: float | None
    rungs: dict[str, int]


def account(frames: Sequence[Kept], bound_ms: float | None, worse_at_s: Iterable[float]) -> Account:
    """Compute the figures.

    Args:
        frames: In the order of their arrival.
        bound_ms: The latency bound; `None` for none.
        worse_at_s: When links became slower, by `time.monotonic`.
    """
    rungs: dict[str, int] = {}
    for frame in frames:
        rungs[frame.rung] = rungs.get(frame.rung, 0) + 1
    announced = [frame for frame in frames if frame.state == INFEASIBLE]
    counted = [frame for frame in frames if frame.state != INFEASIBLE and frame.age_ms is not None]
    on_time = sum(not _is_late(frame, bound_ms) for frame in counted)
    published = len(counted) + sum(frame.skipped for frame in counted)
    times = [frame.at_s for frame in frames]
    settle: list[float] = []
    for worse_s in worse_at_s:
        after = frames[bisect_left(times, worse_s) : bisect_left(times, worse_s + SETTLES_WITHIN_S)]
        late = [(frame.at_s - worse_s) * 1e3 for frame in after if _is_late(frame, bound_ms)]
        settle.append(max(late, default=0.0))
    judged = bound_ms is not None and bool(counted)
    return Account(
        on_time_share=on_time / len(counted) if judged else None,
        on_time_share_of_published=on_time / published if judged else None,
        infeasible_share=len(announced) / len(frames) if frames else None,
        settle_ms=max(settle, default=None) if bound_ms is not None else None,
        infeasible_notice_ms=_longest_untold_ms(frames, bound_ms),
        rungs=dict(sorted(rungs.items(), key=lambda item: -item[1])),
    )


def _longest_untold_ms(frames: Sequence[Kept], bound_ms: float | None) -> float | None:
    if bound_ms is None or not frames:
        return None
    by_camera: dict[str, list[Kept]] = {}
    for frame in frames:
        by_camera.setdefault(frame.camera, []).append(frame)
    return max(_untold_s(deliveries, bound_ms) for deliveries in by_camera.values()) * 1e3


def _untold_s(frames: Sequence[Kept], bound_ms: float) -> float:
    """Return the longest time for which one camera's contract was broken without a state that says so."""
    longest_s = 0.0
    since_s: float | None = None  # when the first late or skipped frame was due that no state has told yet
    broke_s = before_s = frames[0].at_s
    is_told = False
    for frame in frames:
        is_broken = frame.skipped > 0 or _is_late(frame, bound_ms)
        if not is_broken and frame.at_s - broke_s > HOLDS_AFTER_S:
            since_s = None
        if is_broken and since_s is None and not is_told:
            # The first skipped frame was due, at the earliest, after the previous frame came.
            since_s = before_s if frame.skipped > 0 else frame.at_s - ((frame.age_ms or 0.0) - bound_ms) / 1e3
        is_told = frame.state in TELLS_OF_LATENESS
        if since_s is not None and (is_broken or is_told):
            longest_s = max(longest_s, frame.at_s - since_s)
        if is_broken:
            broke_s = frame.at_s
        if is_told:
            since_s = None
        before_s = frame.at_s
    return longest_s


def _is_late(frame: Kept, bound_ms: float | None) -> bool:
    return bound_ms is not None and frame.age_ms is not None and frame.age_ms > bound_ms
