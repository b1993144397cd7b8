"""Defines what an experiment is, and what its result holds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from mez_bench.run import Run
    from mez_bench.stats import Interval

Cell = str | int | float | bool | None
"""A value in a row of a result."""

_RELATIONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a metric should reach.

    Attributes:
        metric: Name of the metric.
        relation: `<=`, `>=` or `==`.
        bound: The value that the metric is compared with.
        full_only: Not judged in a quick run, which has too few frames for it.
    """

    metric: str
    relation: str
    bound: float
    full_only: bool = False

    def is_met(self, interval: Interval) -> bool:
        """Tell whether the 95 % interval reaches the bound."""
        holds = _RELATIONS[self.relation]
        return any(holds(value, self.bound) for value in (interval.low, interval.median, interval.high))

    def is_met_by_median(self, interval: Interval) -> bool:
        """Tell whether the median itself reaches the bound."""
        return _RELATIONS[self.relation](interval.median, self.bound)

    def __str__(self) -> str:
        """Return the condition, such as `<= 1`."""
        return f"{self.relation} {self.bound:g}"


@dataclass(slots=True)
class Outcome:
    """The result of an experiment.

    Attributes:
        parameters: The settings, complete enough to repeat the run.
        metrics: Values with 95 % intervals, by name. The name has the unit.
        rows: The measurements, a row for each cell of the experiment.
        targets: What the metrics should reach.
        tables: Tables to print.
        plot: Draws the plot.
        notes: What a reader of the figures must know, such as what was left out, and why.
        failures: Parts that could not be run, and why. The figures of the other parts are complete.
    """

    parameters: dict[str, Cell | Sequence[Cell]] = field(default_factory=dict)
    metrics: dict[str, Interval] = field(default_factory=dict)
    rows: list[dict[str, Cell]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    tables: list[RenderableType] = field(default_factory=list)
    plot: Callable[[Figure], None] | None = None
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment.

    Attributes:
        name: Its name on the command line.
        summary: What it measures, in a line.
        needs: What it requires besides a built checkout.
        seconds_quick: Approximate duration of a quick run.
        seconds_full: Approximate duration of a full run.
        run: Runs the experiment.
        is_virtual: It runs in virtual time, never on a network.
        description: Description in `mez bench NAME --help`, instead of the general one.
        examples: Examples below the options of this help.
    """

    name: str
    summary: str
    needs: str
    seconds_quick: int
    seconds_full: int
    run: Callable[[Run], Outcome]
    is_virtual: bool = False
    description: str | None = None
    examples: str | None = None
