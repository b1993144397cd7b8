"""Makes the profile of a stream: rungs are searched on few records, and the best measured on all."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from mez import _native
from mez.profile import interval
from mez.profile.document import About, Profile, RungProfile, Score, Sizes
from mez.profile.errors import ProfileError
from mez.profile.search import Screened
from mez.profile.stream.grid import FAMILY, ORIGINAL, Spec, base_of, grid
from mez.profile.stream.measure import Bench, Measured
from mez.profile.stream.records import Stream
from mez.profile.stream.search import FrontierSearch
from mez.profile.stream.task import Task

RECORDS_DEFAULT: Final = 120
"""Default number of records that are scored."""

SCREENING_SHARE: Final = 1 / 3
"""Share of the records that rungs are screened on."""

SCREENING_RECORDS_MIN: Final = 16
"""The fewest records that rungs are screened on."""

BYTES_TOLERANCE: Final = 1.01
"""Two rungs have equal bytes if one has no more than this times the bytes of the other."""


class Progress(Protocol):
    """Shows progress."""

    def expect(self, frames: int) -> None:
        """Set the approximate number of results that remain."""

    def done(self, frames: int, what: str) -> None:
        """Add results that are done."""


class Silent:
    """Shows no progress."""

    def expect(self, frames: int) -> None:
        """Do nothing."""

    def done(self, frames: int, what: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a profile, and that of a full measurement.

    Attributes:
        rungs: Number of rungs of the grid.
        rungs_screened: Number of rungs that were measured on few records.
        rungs_measured: Number of rungs that were measured on all records.
        results: Number of results of the application.
        results_exhaustive: Number of results of a full measurement.
        seconds: How long it took.
    """

    rungs: int
    rungs_screened: int
    rungs_measured: int
    results: int
    results_exhaustive: int
    seconds: float

    @property
    def share(self) -> float:
        """Results as a share of those of a full measurement."""
        return self.results / self.results_exhaustive


@dataclass(frozen=True, slots=True)
class Made:
    """A profile, and its cost."""

    profile: Profile
    cost: Cost


def make(
    streams: Sequence[Stream],
    spec: Spec,
    task: Task,
    *,
    records: int = RECORDS_DEFAULT,
    per_second: float | None = None,
    exhaustive: bool = False,
    progress: Progress | None = None,
) -> Made:
    """Profile an application on recorded streams.

    Args:
        streams: The streams that it reads. From several, it gets the records of the same index together.
        spec: The streams' knobs, `mez.Knobs`.
        task: The application, and the accuracy of its results.
        records: Number of records of each stream to score, evenly spread over the recording.
        per_second: Records of a stream per second. `None` if it is unknown.
        exhaustive: Measure every rung on all records.
        progress: Shows progress.

    Raises:
        ProfileError: The recording is too short, or a function of the user's failed.
    """
    began = time.monotonic()
    told: Progress = progress or Silent()
    bench = Bench(streams, spec, task)
    places = _places(bench.records, records)
    rungs = grid(spec, bench.bytes_of)
    told.expect(len(places) * (2 + len(rungs) // 4))
    chosen = list(rungs.originals)
    screened = 0
    if rungs.family is not None and exhaustive:
        chosen += [rungs.family.rung(point) for point in rungs.family.points()]
    elif rungs.family is not None:
        search = FrontierSearch(rungs.family)
        _screen(search, bench, places, told)
        screened = len(search.known)
        chosen += search.frontier()
    measured = []
    for rung in chosen:
        before = bench.results
        measured.append(bench.measure(rung, places))
        told.done(bench.results - before, rung)
    cost = Cost(
        rungs=len(rungs),
        rungs_screened=screened,
        rungs_measured=len(chosen),
        results=bench.results,
        results_exhaustive=len(places) * len({base_of(rung) for rung in spec.rungs()}),
        seconds=time.monotonic() - began,
    )
    rate = None if per_second is None else per_second * len(places) / bench.records
    drawn = interval.draws(len(places), interval.block_frames(len(places), rate or 1.0))
    profiles = [_profile(one, places, drawn) for one in measured]
    profiles.sort(key=lambda rung: (rung.bytes_per_published_frame, rung.rung))
    return Made(Profile(_about(streams, task, len(places), per_second), tuple(profiles)), cost)


def frontier_gap(found: Profile, exhaustive: Profile) -> float:
    """Return the largest loss of accuracy of a profile against that of all rungs, at equal bytes."""
    gap = 0.0
    for best in exhaustive.frontier:
        most = best.bytes_per_published_frame * BYTES_TOLERANCE
        reached = [
            rung.accuracy_normalised.value for rung in found.rungs if rung.bytes_per_published_frame <= most
        ]
        gap = max(gap, best.accuracy_normalised.value - max(reached, default=0.0))
    return gap


def _places(count: int, wanted: int) -> list[int]:
    if min(count, wanted) < interval.FRAMES_MIN:
        raise ProfileError(
            f"{min(count, wanted)} records are too few for a 95 % interval, which needs at least "
            f"{interval.FRAMES_MIN}; " + ("raise --frames" if wanted < count else "record more")
        )
    scored = min(count, wanted)
    return [place * count // scored for place in range(scored)]


def _screen(search: FrontierSearch, bench: Bench, places: Sequence[int], progress: Progress) -> None:
    """Measure the rungs that the search requests on few records, until it requests no more."""
    few = places[:: max(1, len(places) // max(round(len(places) * SCREENING_SHARE), SCREENING_RECORDS_MIN))]
    while (point := search.due()) is not None:
        rung, before = search.family.rung(point), bench.results
        seen = bench.measure(rung, few)
        search.tell(point, Screened(seen.bytes_per_record(few), seen.accuracy(few)))
        progress.done(bench.results - before, rung)


def _profile(one: Measured, places: Sequence[int], drawn: interval.Draws) -> RungProfile:
    scores = np.array([one.scores[place] for place in places])
    sent = [one.sent[place] for place in sorted({place - place % (one.skip + 1) for place in places})]
    sizes = np.array([size for made in sent for size in made.size_bytes], dtype=np.float64)
    make_ms = np.array([made.make_ms for made in sent])
    low, high = interval.interval_95(scores[drawn].mean(axis=1))
    is_original = base_of(one.rung) == ORIGINAL
    return RungProfile(
        rung=one.rung,
        family=FAMILY,
        bytes=Sizes(float(sizes.mean()), *np.percentile(sizes, [5, 50, 95]).tolist()),
        sent_share=1 / (one.skip + 1),
        accuracy_normalised=Score(float(scores.mean()), low, high),
        accuracy_normalised_strict=None,
        camera_ms_mean=0.0 if is_original else float(make_ms.mean()),
        camera_ms_p95=0.0 if is_original else float(np.percentile(make_ms, 95)),
        detector_ms_mean=float(np.mean([made.task_ms for made in sent])),
        frames_scored=len(places),
    )


def _about(streams: Sequence[Stream], task: Task, scored: int, per_second: float | None) -> About:
    digest = hashlib.sha256("".join(stream.sha256 for stream in streams).encode()).hexdigest()
    return About(
        app=task.name,
        app_sha256=task.sha256,
        strong=None,
        weak=None,
        video=", ".join(stream.name for stream in streams),
        video_sha256=streams[0].sha256 if len(streams) == 1 else digest,
        width=0,
        height=0,
        frames_per_second=per_second,
        frames_scored=scored,
        reference_boxes=None,
        ceiling_noise=None,
        ceiling_noise_strict=None,
        ceiling_jpeg=None,
        ceiling_jpeg_strict=None,
        made_by=f"mez {_native.__version__}",
    )
