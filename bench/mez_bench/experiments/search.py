"""Compares the profiler's search with measuring all rungs, for each family on a real video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez.errors import Error
from mez.profile.crew import Crew
from mez.profile.document import RungProfile, frontier
from mez.profile.families import DEFAULT, Axis, Family, family
from mez.profile.make import Cost, make
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.footage import demo_video
from mez_bench.profiling import APP, WORKERS, Progress, frames_of, job
from mez_bench.run import Run
from mez_bench.stats import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


QUICK: Final = "h264"
QUICK_WIDTHS: Final = 3
QUICK_STEP: Final = 2
"""A quick run searches the three largest widths of one family, at every other quantiser: few enough rungs to
measure them all."""

ACCURACY_MIN: Final = 0.9
"""The frontier is compared from this accuracy on: lower accuracy floors are not used."""

SHORTFALL_MAX: Final = 0.02
COST_SHARE_MAX: Final = 0.2


@dataclass(frozen=True)
class Compared:
    """A family, searched and completely measured.

    Attributes:
        every: All rungs.
        found: The rungs that the search measured on all frames.
        cost: The cost of the search.
    """

    every: Sequence[RungProfile]
    found: Sequence[RungProfile]
    cost: Cost

    def shortfalls(self) -> list[float]:
        """Return the search's loss of accuracy at the bytes of each rung of the frontier.

        Only rungs from `ACCURACY_MIN` on count, and only from the bytes of the cheapest such rung found:
        below it there is nothing to compare.
        """
        cheapest = min(
            (one.bytes_per_published_frame for one in self.found if _is_worth_having(one)), default=np.inf
        )
        best = [
            one
            for one in frontier(self.every)
            if _is_worth_having(one) and one.bytes_per_published_frame >= cheapest
        ]
        return [one.accuracy_normalised.value - _best_within(self.found, one) for one in best]

    def bytes_ratio(self) -> float:
        """Return the bytes of the cheapest rung found at `ACCURACY_MIN`, divided by those of the cheapest."""
        found, every = (
            min((one.bytes_per_published_frame for one in rungs if _is_worth_having(one)), default=np.nan)
            for rungs in (self.found, self.every)
        )
        return float(found / every)


def _is_worth_having(one: RungProfile) -> bool:
    return one.accuracy_normalised.value >= ACCURACY_MIN


def _best_within(found: Sequence[RungProfile], other: RungProfile) -> float:
    """Return the highest accuracy of rungs with at most as many bytes as another rung."""
    most = other.bytes_per_published_frame
    return max(one.accuracy_normalised.value for one in found if one.bytes_per_published_frame <= most)


def _run(run: Run) -> Outcome:
    video = demo_video()
    frames = frames_of(run)
    try:
        with Crew(job(run, video), WORKERS) as crew:
            width = crew.lead.footage.width
            families = (
                [_part(family(QUICK, width))] if run.quick else [family(name, width) for name in DEFAULT]
            )
            compared = {one.name: _compare(run, crew, one, frames) for one in families}
    except Error as error:
        raise ExperimentError(str(error)) from error
    outcome = Outcome(parameters={"frames": frames, "app": APP, "video": video.name})
    for name, one in compared.items():
        shortfalls = one.shortfalls()
        for metric, value in (
            ("shortfall_max", max(shortfalls, default=np.nan)),
            ("shortfall_mean", float(np.mean(shortfalls)) if shortfalls else np.nan),
            ("cost_share", one.cost.share),
            ("bytes_ratio_090", one.bytes_ratio()),
        ):
            outcome.metrics[f"{name}_{metric}"] = Interval(value, value, value)
        outcome.targets += [
            Target(f"{name}_shortfall_max", "<=", SHORTFALL_MAX, full_only=True),
            Target(f"{name}_cost_share", "<=", COST_SHARE_MAX, full_only=True),
        ]
        found = {rung.rung for rung in one.found}
        outcome.rows += [
            {
                "family": name,
                "rung": rung.rung,
                "bytes": rung.bytes_per_published_frame,
                "accuracy": rung.accuracy_normalised.value,
                "found": rung.rung in found,
            }
            for rung in one.every
        ]
    outcome.tables = [_table(compared)]
    outcome.notes = [
        f"accuracy: {APP}, with hysteresis; the search is that of `mez profile run`, without a shortlist",
        f"shortfall: accuracy of a rung of the true frontier minus the best accuracy found with at most its "
        f"bytes, from {ACCURACY_MIN} on",
        "cost: frames that the detector searched, as a share of measuring every rung",
    ]
    outcome.plot = lambda drawing: _plot(drawing, compared)
    return outcome


def _part(one: Family) -> Family:
    widths, quantisers = one.axes
    few = (Axis(widths.parts[:QUICK_WIDTHS]), Axis(quantisers.parts[::QUICK_STEP]))
    return replace(one, axes=few)


def _compare(run: Run, crew: Crew, one: Family, frames: int) -> Compared:
    run.say(f"{one.name}: searching")
    made = make(crew, [one], Progress(run), frames)
    places = crew.lead.footage.sampled(frames)
    rungs = [one.rung(point) for point in one.points()]
    run.say(f"{one.name}: measuring all {len(rungs)} rungs")
    measured = crew.measure(rungs, places, lambda rung: run.step(rung, len(places)))
    every = [made.judge.rung(found, one.name) for found in measured.values()]
    return Compared(every, [rung for rung in every if rung.rung in made.measurements], made.cost)


def _table(compared: Mapping[str, Compared]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("family", "rungs", "screened", "measured", "cost", "shortfall, max", "shortfall, mean"):
        table.add_column(column, justify="left" if column == "family" else "right")
    for name, one in compared.items():
        cost, shortfalls = one.cost, one.shortfalls() or [float("nan")]
        table.add_row(
            name,
            *(f"{number}" for number in (cost.rungs, cost.rungs_screened, cost.rungs_measured)),
            f"{cost.share:.3f}",
            f"{max(shortfalls):.3f}",
            f"{np.mean(shortfalls):.3f}",
        )
    return table


def _plot(drawing: Figure, compared: Mapping[str, Compared]) -> None:
    panels = np.atleast_1d(drawing.subplots(1, len(compared), sharey=True))
    for axes, (name, one) in zip(panels, compared.items(), strict=True):
        axes.plot(*_curve(one.every), ".", ms=3, color="0.75")
        for rungs, label in ((one.every, "all rungs"), (one.found, "found")):
            axes.step(*_curve(frontier(rungs)), where="post", lw=1, label=label)
        axes.set_xscale("log")
        axes.set_xlabel("bytes per published frame")
        axes.set_title(name, fontsize=9)
    panels[0].set_ylim(0.8, 1.005)
    panels[0].set_ylabel("accuracy with hysteresis")
    panels[-1].legend(frameon=False, fontsize=7, loc="lower right")


def _curve(rungs: Sequence[RungProfile]) -> tuple[list[float], list[float]]:
    sizes = [rung.bytes_per_published_frame for rung in rungs]
    return sizes, [rung.accuracy_normalised.value for rung in rungs]


SEARCH: Final = Experiment(
    name="search",
    summary="the profiler's search, compared with measuring all rungs of each family",
    needs="the demo's video",
    seconds_quick=60,
    seconds_full=4200,
    run=_run,
)
