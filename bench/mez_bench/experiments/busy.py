"""Measures what a burst of other work leaves behind on a host with many cameras that have H.264 sources."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from mez_bench import viewer
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.hall import CAMERAS, ON_TIME_MIN, PARAMETERS, STEPS_MIN, Hall, Step, Watched, punctual_s
from mez_bench.report import columns, figure
from mez_bench.stats import interval, median

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from mez_bench.children import Child
    from mez_bench.run import Run

BURSTS: Final[Mapping[str, tuple[int, float]]] = {"moderate": (2, 8.0), "heavy": (7, 15.0)}
"""Programs per processor that do nothing but compute, and for how many seconds."""

BEFORE_S: Final = 5.0
AFTER_SECONDS_MAX: Final = 120.0
"""How long frames are watched after a burst. If they are not on time by then, this is the figure."""

RECOVERY_S_MAX: Final = {"moderate": 2.0, "heavy": 30.0}

_COMPUTES: Final = "while True: pass"


@dataclass(frozen=True, slots=True)
class Burst:
    """A burst, and the frames around it.

    Attributes:
        start_s: How long frames were late after the start of the application, before the burst.
        steps: Steps before, during and after the burst. The event is its end.
    """

    start_s: float
    steps: Sequence[Step]

    @property
    def recovery_s(self) -> float:
        """How long frames were late after the end of the burst."""
        late_s = punctual_s([step for step in self.steps if step.at_s > 0])
        return AFTER_SECONDS_MAX if late_s is None else late_s


def _burst(run: Run, hall: Hall, name: str) -> Burst:
    """Watch a hall before, during and after a burst."""
    programs, seconds = BURSTS[name]
    application = hall.application()
    watched = Watched(hall, application)
    start_s = watched.settle()
    ends = time.monotonic() + BEFORE_S + seconds
    steps: list[Step] = []
    while time.monotonic() < ends - seconds:
        steps.append(watched.step(ends))
    work: list[Child] = [
        run.children.start(f"work {number}", [sys.executable, "-c", _COMPUTES])
        for number in range(programs * (os.cpu_count() or 1))
    ]
    while time.monotonic() < ends:
        steps.append(watched.step(ends))
    for child in work:
        run.children.stop(child)
    # A step that the end of the burst falls into counts for the burst.
    before = [step for step in steps if step.at_s <= 0]
    after = watched.until_punctual(AFTER_SECONDS_MAX)
    run.children.stop(application)
    return Burst(start_s, [*before, *after])


def _run(run: Run) -> Outcome:
    # A quick run has no time for the heavy burst.
    names = run.parts(tuple(BURSTS)[:1] if run.quick else tuple(BURSTS))
    rounds = 1 if run.quick else 5
    run.expect(rounds * len(names))
    run.step(f"starting {CAMERAS} cameras", done=0)
    hall = Hall(run)
    seen: dict[str, list[Burst]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            run.step(f"{name} burst", done=0)
            seen[name].append(_burst(run, hall, name))
            run.step(f"{name} burst")
    outcome = _outcome(seen)
    outcome.parameters = {**PARAMETERS, "rounds": rounds, "processors": os.cpu_count() or 1}
    return outcome


def _outcome(seen: Mapping[str, Sequence[Burst]]) -> Outcome:
    outcome = Outcome(plot=partial(_plot, seen=seen))
    table = columns(
        "burst", "programs per processor", "seconds", "late after its end, s", "cameras, cores at most"
    )
    for name, bursts in seen.items():
        programs, seconds = BURSTS[name]
        recovery = interval([np.array([burst.recovery_s]) for burst in bursts], median)
        outcome.metrics[f"recovery_s_{name}"] = recovery
        outcome.targets.append(Target(f"recovery_s_{name}", "<=", RECOVERY_S_MAX[name]))
        most = max(step.cameras_cores for burst in bursts for step in burst.steps)
        table.add_row(name, f"{programs}", f"{seconds:.0f}", figure(recovery.median), figure(most))
        for number, burst in enumerate(bursts):
            outcome.rows += [_row(name, number, step) for step in burst.steps]
    starts = [np.array([burst.start_s]) for bursts in seen.values() for burst in bursts]
    outcome.metrics["start_s"] = interval(starts, median)
    outcome.tables = [table]
    outcome.notes = [
        f"recovery_s: from the end of the burst until {ON_TIME_MIN:.0%} of all published frames come within "
        f"{viewer.LATENCY_MS:.0f} ms, for {STEPS_MIN} s; {AFTER_SECONDS_MAX:.0f} if that does not happen",
        "start_s: the same from the start of the application, when every camera decodes its source until the "
        "next keyframe",
    ]
    return outcome


def _row(name: str, number: int, step: Step) -> dict[str, Cell]:
    row: dict[str, Cell] = {"burst": name, "round": number, "at_s": step.at_s}
    return row | {"on_time_share": step.on_time_share, "cameras_core_share": step.cameras_cores}


def _plot(drawing: Figure, seen: Mapping[str, Sequence[Burst]]) -> None:
    axes = drawing.subplots(len(seen), 1, sharex=True, squeeze=False)[:, 0]
    for part, (name, bursts) in zip(axes, seen.items(), strict=True):
        programs, seconds = BURSTS[name]
        part.axvspan(-seconds, 0, color="0.9")
        for burst in bursts:
            at_s = [step.at_s for step in burst.steps]
            part.plot(at_s, [step.on_time_share for step in burst.steps], color="C0")
        part.set_ylim(0, 1.1)
        part.set_ylabel("share on time")
        part.set_title(f"{name}: {programs} programs per processor for {seconds:.0f} s (grey)")
    axes[-1].set_xlabel("seconds after the end of the burst")


BUSY: Final = Experiment(
    name="busy",
    summary="how soon frames of H.264 sources are on time again after a burst of other work on their host",
    needs="ffmpeg with libx264, the demo's video (fetched once)",
    seconds_quick=60,
    seconds_full=480,
    run=_run,
)
