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
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.footage import FPS
from mez_bench.hall import CAMERAS, PARAMETERS, Hall
from mez_bench.report import columns, figure
from mez_bench.stats import interval, median

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from mez_bench.children import Child
    from mez_bench.run import Run

BURSTS: Final[Mapping[str, tuple[int, float]]] = {"moderate": (2, 8.0), "heavy": (7, 15.0)}
"""Programs per processor that do nothing but compute, and for how many seconds."""

STEP_S: Final = 1.0
SETTLE_SECONDS_MAX: Final = 120.0
BEFORE_S: Final = 5.0
AFTER_SECONDS_MAX: Final = 120.0
"""How long the frames are watched after a burst. What is not on time again by then counts as that."""

ON_TIME_MIN: Final = 0.95
"""The share of the published frames that have to come on time."""

STEPS_MIN: Final = 3
"""For so many steps in a row."""

ANSWER_SECONDS_MAX: Final = 60.0
RECOVERY_S_MAX: Final = {"moderate": 2.0, "heavy": 30.0}

_COMPUTES: Final = "while True: pass"


@dataclass(frozen=True, slots=True)
class Step:
    """About a second.

    Attributes:
        at_s: Its end, since the burst began; before it, negative.
        on_time_share: Frames that came on time, by frames that were published.
        cameras_cores: Processor time of all camera brokers, by time.
    """

    at_s: float
    on_time_share: float
    cameras_cores: float


class Watched:
    """A hall whose application is asked again and again.

    Args:
        hall: The hall.
    """

    def __init__(self, hall: Hall) -> None:
        self._hall = hall
        self._application = hall.application()
        self._application.ask("begin", ANSWER_SECONDS_MAX)
        self._asked = time.monotonic()
        _, self._cpu_ns = hall.cpu_ns()

    def step(self, begun: float) -> Step:
        """Watch for a step. `begun`: when the burst begins."""
        time.sleep(STEP_S)
        # On a busy host the answer may take a while. What comes meanwhile counts for the next step.
        read = self._application.ask("end", ANSWER_SECONDS_MAX)
        now = time.monotonic()
        took_s, self._asked = now - self._asked, now
        _, cpu_ns = self._hall.cpu_ns()
        cores, self._cpu_ns = (cpu_ns - self._cpu_ns) / 1e9 / took_s, cpu_ns
        on_time = int(np.count_nonzero(np.array(read["ages_ms"], float) <= viewer.LATENCY_MS))
        return Step(now - begun, on_time / (CAMERAS * FPS * took_s), cores)

    def stop(self, run: Run) -> None:
        """End the application."""
        run.children.stop(self._application)


def recovered_s(steps: Sequence[Step], seconds_max: float) -> float:
    """Return when the first of `STEPS_MIN` steps in a row began in which enough frames were on time.

    Args:
        steps: The steps behind a burst, with `at_s` since its end.
        seconds_max: What is returned if there is none.
    """
    for at in range(len(steps) - STEPS_MIN + 1):
        if all(step.on_time_share >= ON_TIME_MIN for step in steps[at : at + STEPS_MIN]):
            return max(0.0, steps[at].at_s - STEP_S)
    return seconds_max


def _settled(watched: Watched) -> None:
    """Wait until the frames come on time after the start of the application."""
    begun, steps = time.monotonic(), list[Step]()
    while recovered_s(steps, -1.0) < 0:
        if time.monotonic() - begun > SETTLE_SECONDS_MAX:
            raise ExperimentError("the frames are late before the burst; is the machine busy?")
        steps.append(watched.step(begun))


def _burst(run: Run, hall: Hall, name: str) -> list[Step]:
    """Watch a hall before, during and after a burst. The time is that since its end."""
    programs, seconds = BURSTS[name]
    watched = Watched(hall)
    _settled(watched)
    ends = time.monotonic() + BEFORE_S + seconds
    steps: list[Step] = []
    while time.monotonic() < ends - seconds:
        steps.append(watched.step(ends))
    busy: list[Child] = [
        run.children.start(f"work {number}", [sys.executable, "-c", _COMPUTES])
        for number in range(programs * (os.cpu_count() or 1))
    ]
    while time.monotonic() < ends:
        steps.append(watched.step(ends))
    for child in busy:
        run.children.stop(child)
    ended = time.monotonic()
    behind: list[Step] = []
    while recovered_s(behind, -1.0) < 0 and time.monotonic() - ended < AFTER_SECONDS_MAX:
        behind.append(watched.step(ended))
    watched.stop(run)
    return [*steps, *behind]


def _run(run: Run) -> Outcome:
    names = run.parts(tuple(BURSTS))
    rounds = 1 if run.quick else 5
    run.expect(rounds * len(names))
    run.step(f"starting {CAMERAS} cameras", done=0)
    hall = Hall(run)
    seen: dict[str, list[list[Step]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            run.step(f"{name} burst", done=0)
            seen[name].append(_burst(run, hall, name))
            run.step(f"{name} burst")
    outcome = _outcome(seen)
    outcome.parameters = {**PARAMETERS, "rounds": rounds, "processors": os.cpu_count() or 1}
    return outcome


def _outcome(seen: Mapping[str, Sequence[Sequence[Step]]]) -> Outcome:
    outcome = Outcome(plot=partial(_plot, seen=seen))
    table = columns("burst", "programs per processor", "seconds", "late after its end, s", "cameras, cores")
    for name, of_rounds in seen.items():
        programs, seconds = BURSTS[name]
        behind = [[step for step in steps if step.at_s > 0] for steps in of_rounds]
        late_s = [np.array([recovered_s(steps, AFTER_SECONDS_MAX)]) for steps in behind]
        outcome.metrics[f"recovery_s_{name}"] = interval(late_s, median)
        outcome.targets.append(Target(f"recovery_s_{name}", "<=", RECOVERY_S_MAX[name]))
        most = max(step.cameras_cores for steps in of_rounds for step in steps)
        late = figure(outcome.metrics[f"recovery_s_{name}"].median)
        table.add_row(name, f"{programs}", f"{seconds:.0f}", late, f"{figure(most)} at most")
        for number, steps in enumerate(of_rounds):
            outcome.rows += [_row(name, number, step) for step in steps]
    outcome.tables = [table]
    outcome.notes = [
        f"recovery_s: from the end of the burst until {ON_TIME_MIN:.0%} of all published frames come within "
        f"{viewer.LATENCY_MS:.0f} ms, for {STEPS_MIN} s; {AFTER_SECONDS_MAX:.0f} if that does not happen",
    ]
    return outcome


def _row(name: str, number: int, step: Step) -> dict[str, Cell]:
    row: dict[str, Cell] = {"burst": name, "round": number, "at_s": step.at_s}
    return row | {"on_time_share": step.on_time_share, "cameras_core_share": step.cameras_cores}


def _plot(drawing: Figure, seen: Mapping[str, Sequence[Sequence[Step]]]) -> None:
    axes = drawing.subplots(len(seen), 1, sharex=True, squeeze=False)[:, 0]
    for part, (name, of_rounds) in zip(axes, seen.items(), strict=True):
        programs, seconds = BURSTS[name]
        part.axvspan(-seconds, 0, color="0.9")
        for steps in of_rounds:
            part.plot([step.at_s for step in steps], [step.on_time_share for step in steps], color="C0")
        part.set_ylim(0, 1.1)
        part.set_ylabel("share on time")
        part.set_title(f"{name}: {programs} programs per processor for {seconds:.0f} s (grey)")
    axes[-1].set_xlabel("seconds after the end of the burst")


BUSY: Final = Experiment(
    name="busy",
    summary="how soon frames of H.264 sources are on time again after a burst of other work on their host",
    needs="ffmpeg with libx264, the demo's video (fetched once)",
    seconds_quick=120,
    seconds_full=420,
    run=_run,
)
