"""Computes where the time of records went, by stage: means, 99 % quantiles, shares."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mez.pipeline.record import CAMERA
from mez.pipeline.report.ingestion import Ingestion, ingestion
from mez.pipeline.report.reading import Events, Way
from mez.pipeline.report.steps import CONFIRMED, Kind, Step, steps

PUT_OUT: Final = "the end"
"""The name for the time after the last function, until the bus had the results."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Statistics of durations, in milliseconds."""

    mean: float
    p50: float
    p99: float

    @classmethod
    def of(cls, values_ns: Sequence[float]) -> "Figures":
        """The statistics of durations in nanoseconds."""
        values = np.asarray(values_ns, np.float64) / 1e6
        p50, p99 = np.percentile(values, [50, 99])
        return cls(float(values.mean()), float(p50), float(p99))

    def plain(self) -> dict[str, float]:
        """For programs."""
        return {
            "mean_ms": round(self.mean, 3),
            "p50_ms": round(self.p50, 3),
            "p99_ms": round(self.p99, 3),
        }


@dataclass(frozen=True, slots=True)
class StageSummary:
    """A stage.

    Attributes:
        name: Its name.
        records: Its records that left the pipeline. A step that several records share counts once.
        kinds: Statistics by the kind of step. For each record, the steps of a kind are added up.
        steps: Statistics by the name of the step.
        ai_share: The share of AI in the time of its function. `None` if no mark says what was AI.
    """

    name: str
    records: int
    kinds: Mapping[Kind, Figures]
    steps: Mapping[str, Figures]
    ai_share: float | None

    @property
    def faster_max(self) -> float | None:
        """The largest possible speed-up of the function, if its AI takes no time (Amdahl's law)."""
        if self.ai_share is None:
            return None
        return math.inf if self.ai_share == 1 else 1 / (1 - self.ai_share)

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {
            "records": self.records,
            "kinds": {kind.value: of.plain() for kind, of in self.kinds.items()},
            "steps": {name: of.plain() for name, of in self.steps.items()},
            "ai_share": None if self.ai_share is None else round(self.ai_share, 4),
        }


@dataclass(frozen=True, slots=True)
class Clocks:
    """How accurate durations are.

    Attributes:
        across: Number of steps between stamps of two hosts' clocks, by stage.
        smallest_ms: The smallest of these steps, by stage. If negative, the wall clocks differ by at least
            this much.
        captured_error_ms: The largest possible error of capture times, where clocks were compared.
        captured_unknown: Records whose capture time is by a wall clock, so that its error is unknown.
    """

    across: Mapping[str, int] = field(default_factory=dict)
    smallest_ms: Mapping[str, float] = field(default_factory=dict)
    captured_error_ms: float | None = None
    captured_unknown: int = 0

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {
            "across": dict(self.across),
            "smallest_ms": {stage: round(ms, 3) for stage, ms in self.smallest_ms.items()},
            "captured_error_ms_max": self.captured_error_ms,
            "captured_unknown": self.captured_unknown,
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """Where the time of a pipeline's records went.

    Attributes:
        pipeline: Its name; several, with commas between.
        whole: Time from the capture to the end of the last function.
        stages: The stages, in the order in which records pass them.
        shares: Shares of the time of all records, by kind.
        end: Time from the end of the last function until the bus had the results.
        clocks: How accurate these durations are.
        ingestion: Whether the first stages keep up with the cameras, by stage.
        ways: When each record was captured, in seconds since 1970, and how long it took, in milliseconds.
        files: How many files were read.
        left_out: Lines that were not used, by the reason.
    """

    pipeline: str
    whole: Figures
    stages: Mapping[str, StageSummary]
    shares: Mapping[Kind, float]
    end: Figures | None
    clocks: Clocks
    ingestion: Mapping[str, Ingestion]
    ways: Sequence[tuple[float, float]]
    files: int
    left_out: Mapping[str, int]

    @property
    def waiting_share(self) -> float:
        """The share of the time of all records that they waited between stages."""
        return self.shares.get(Kind.WAITING, 0.0)

    def plain(self) -> dict[str, Any]:
        """For programs: names with units."""
        return {
            "pipeline": self.pipeline,
            "records": len(self.ways),
            "files": self.files,
            "left_out": dict(self.left_out),
            "end_to_end": self.whole.plain(),
            "waiting_share": round(self.waiting_share, 4),
            "shares": {kind.value: round(share, 4) for kind, share in self.shares.items()},
            "stages": {name: stage.plain() for name, stage in self.stages.items()},
            "end": None if self.end is None else self.end.plain(),
            "clocks": self.clocks.plain(),
            "ingestion": {stage: of.plain() for stage, of in self.ingestion.items()},
        }


def summary(events: Events, ai: Sequence[str] = ()) -> Summary:
    """Compute where the time went.

    Args:
        events: The events in a folder, with at least one record.
        ai: Marks that end AI, besides `ai` and `ai.…`.
    """
    cut = [steps(way, ai) for way in events.ways]
    spent: dict[Kind, int] = defaultdict(int)
    for found in cut:
        for step in found:
            if step.name != "confirm":
                spent[step.kind] += max(0, step.ns)
    whole = max(1, sum(spent.values()))
    ends = [step.ns for found in cut for step in found if step.name == "confirm"]
    ways = [(way.captured_ns / 1e9, _whole_ns(way) / 1e6) for way in events.ways]
    return Summary(
        pipeline=", ".join(sorted({way.pipeline for way in events.ways})),
        whole=Figures.of([ms * 1e6 for _, ms in ways]),
        stages=_stages(cut),
        shares={kind: spent[kind] / whole for kind in Kind if spent[kind]},
        end=Figures.of(ends) if ends else None,
        clocks=_clocks(events.ways, cut),
        ingestion=ingestion(events.ways),
        ways=ways,
        files=events.files,
        left_out=events.left_out,
    )


def _whole_ns(way: Way) -> int:
    """The time from the capture to the end of the last function."""
    last = way.hops[-1]
    end_ns = last.at.get("made", max(last.at.values(), default=0))
    first = way.hops[0]
    if first.stage == CAMERA and "captured" in first.at:
        if first.clock == last.clock:
            return end_ns - first.at["captured"]
        return end_ns + last.wall_ns - first.at["captured"] - first.wall_ns
    return end_ns + last.wall_ns - way.captured_ns


def _stages(cut: Sequence[Sequence[Step]]) -> dict[str, StageSummary]:
    # Records of one frame share the hops up to the stage that split them: these count once.
    by_stage: dict[str, dict[str, list[Step]]] = {}
    for found in cut:
        of_way: dict[tuple[str, str], list[Step]] = defaultdict(list)
        for step in found:
            if step.name != "confirm":
                of_way[step.stage, step.record].append(step)
        for (stage, record), own in of_way.items():
            by_stage.setdefault(stage, {}).setdefault(record, own)
    return {name: _stage(name, list(of.values())) for name, of in by_stage.items()}


def _stage(name: str, records: Sequence[Sequence[Step]]) -> StageSummary:
    kinds: dict[Kind, list[int]] = defaultdict(list)
    named: dict[str, list[int]] = defaultdict(list)
    present = {step.kind for record in records for step in record}
    for record in records:
        sums = dict.fromkeys(present, 0)
        for step in record:
            sums[step.kind] += step.ns
            named[step.name].append(step.ns)
        for kind, ns in sums.items():
            kinds[kind].append(ns)
    inside = {kind: sum(kinds[kind]) for kind in (Kind.PRE, Kind.AI, Kind.POST, Kind.WORK) if kind in kinds}
    ai_share = inside[Kind.AI] / max(1, sum(inside.values())) if Kind.AI in inside else None
    return StageSummary(
        name,
        len(records),
        {kind: Figures.of(kinds[kind]) for kind in Kind if kind in kinds},
        {step: Figures.of(values) for step, values in named.items()},
        ai_share,
    )


def _clocks(ways: Sequence[Way], cut: Sequence[Sequence[Step]]) -> Clocks:
    across: dict[str, int] = defaultdict(int)
    smallest: dict[str, float] = {}
    for way, found in zip(ways, cut, strict=True):
        for step in found:
            before, here = way.hops[step.hop - 1], way.hops[step.hop]
            if step.name == CONFIRMED or step.error_ns == 0 or before.clock == here.clock:
                continue
            across[step.stage] += 1
            smallest[step.stage] = min(smallest.get(step.stage, math.inf), step.ns / 1e6)
    first = [way.hops[0] for way in ways if way.hops[0].stage == CAMERA]
    errors = [hop.error_ns for hop in first if hop.error_ns is not None]
    return Clocks(
        dict(across),
        smallest,
        max(errors) / 1e6 if errors else None,
        len(ways) - len(errors),
    )
