"""Finds the best rungs of a family without measuring all of them: coarse to fine, on few frames first.

1. A coarse grid is screened: measured on a sixth of the frames.
2. The neighbours of every rung near the frontier are screened, nearest first, until there are no new ones.
3. The best rungs, spread over accuracy, are measured on all frames.
4. If this leaves wide steps, further screened rungs in between are measured, a few at a time.

A rung is near the frontier if no rung of at most its bytes is more than `SLACK` more accurate, and no rung of
clearly fewer bytes is as accurate. Neighbours of other rungs are not screened. So the search would miss a
second maximum far from the first one. But knobs degrade frames gradually, and the coarse grid reaches every
corner.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Final

from mez.profile.families import Family, Point
from mez.profile.pareto import undominated

SCREENING_SHARE: Final = 1 / 6
"""Share of the frames that rungs are screened on."""

SLACK: Final = 0.02
"""How far a rung's accuracy may be below the best at its bytes so that its neighbours are screened.

Screening cannot resolve smaller differences."""

CLEARLY_FEWER: Final = 0.7
"""If another rung is as accurate with less than this share of a rung's bytes, the rung is dropped."""

ACCURACY_MIN: Final = 0.8
"""Neighbours of rungs below this accuracy are not screened, because floors are not that low."""

COARSE_MAX: Final = 48
"""The largest coarse grid.

In families with more corners, single knobs are tried first, starting from the rung that changes nothing."""

FINALISTS_MAX: Final = 10
"""The most rungs of a family that are measured on all frames after screening."""

STEP_MAX: Final = 0.01
STEP_ENDS_MIN: Final = 0.9
"""A wide step between two accuracies gets a rung in between only if one of them is above this usual floor."""

STEPS_AT_ONCE: Final = 2
"""Number of steps that get a rung in between before the steps are computed again."""

SEARCHED_SHARE_MAX: Final = 0.19
"""Rungs in between are measured while the search takes less than this share of measuring everything."""

ROUNDS_MAX: Final = 12
"""The most rounds of screening neighbours."""

ROUNDS_AHEAD: Final = 3
ROUND_MIN: Final = 6
"""The fewest rungs of a round.

Each round leaves the same number of rungs for each of the next two rounds, which have more information."""

SCREENED_SHARE_MAX: Final = 0.5
SCREENED_MIN: Final = 24
"""A search ends when it has screened half of the family, or in small families this many rungs."""


@dataclass(frozen=True, slots=True)
class Screened:
    """The result for a rung, on a few frames or on all.

    Attributes:
        bytes: Mean bytes of a published frame.
        accuracy: The accuracy with hysteresis.
    """

    bytes: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How a family is searched.

    Attributes:
        seeds: Rungs to begin with instead of the coarse grid, from an earlier search.
        rounds_max: The most rounds of neighbours.
        accuracy_min: Neighbours of rungs below this accuracy are not screened.
        steps: Only the cheapest rungs that reach these accuracies are measured on all frames.
    """

    seeds: tuple[str, ...] = ()
    rounds_max: int = ROUNDS_MAX
    accuracy_min: float = ACCURACY_MIN
    steps: tuple[float, ...] = ()


class Search:
    """The search of one family.

    Screen the settings that `due` returns, and pass the results to `tell`, until `due` returns none. Then
    measure the `finalists`, and the rungs that `between` returns, until it returns none.

    Args:
        family: The family.
        plan: How to search.
    """

    def __init__(self, family: Family, plan: Plan = Plan()) -> None:
        self.family = family
        self._plan = plan
        self._seeds = [family.point(rung) for rung in plan.seeds]
        self.screened: dict[Point, Screened] = {}
        self._rounds = 0
        self._screened_max = max(SCREENED_MIN, int(len(family) * SCREENED_SHARE_MAX))

    def due(self) -> list[Point]:
        """Return the settings to screen next. Empty when the search is over."""
        if not self.screened:
            return self._seeds or coarse(self.family)
        rounds_left = self._plan.rounds_max - self._rounds
        if rounds_left <= 0:
            return []
        self._rounds += 1
        fresh: dict[Point, float] = {}
        for point, short in self._near().items():
            for neighbour in self.family.neighbours(point):
                if neighbour not in self.screened:
                    fresh[neighbour] = min(short, fresh.get(neighbour, short))
        left = max(self._screened_max - len(self.screened), 0)
        at_once = max(left // min(rounds_left, ROUNDS_AHEAD), ROUND_MIN)
        return sorted(fresh, key=lambda point: (fresh[point], point))[: min(at_once, left)]

    def tell(self, point: Point, result: Screened) -> None:
        """Take the result of a setting."""
        self.screened[point] = result

    def finalists(self) -> list[str]:
        """Return the rungs to measure on all frames, from the fewest bytes up.

        These are the rungs on the frontier. If there are many, they are spread evenly over accuracy, because
        floors are accuracies.
        """
        best = _frontier({point: self.screened[point] for point in self._near()})
        if self._plan.steps:
            at_least = [
                [one for one in best if self.screened[one].accuracy >= step] for step in self._plan.steps
            ]
            # And the most accurate one, so that there is a rung for a floor that screening barely missed.
            chosen = list(dict.fromkeys([*(reached[0] for reached in at_least if reached), *best[-1:]]))
            return [self.family.rung(point) for point in chosen]
        return [self.family.rung(point) for point in self._spread(best)]

    def between(self, measured: Mapping[str, Screened]) -> list[str]:
        """Return further rungs to measure on all frames, in wide steps between measured ones.

        For each step, this is the rung that adds most to the area below the frontier, by screening: its gain
        in accuracy over the cheaper end of the step, times the logarithm of its saving in bytes over the
        other end.

        Args:
            measured: The results on all frames, by rung.
        """
        if self._plan.steps:
            return []
        known = {self.family.point(rung): result for rung, result in measured.items()}
        steps = [
            (known[high].accuracy - known[low].accuracy, low, high)
            for low, high in pairwise(_frontier(known))
            if known[high].accuracy >= STEP_ENDS_MIN
        ]
        widest = sorted((step for step in steps if step[0] > STEP_MAX), reverse=True)
        found = (self._within(low, high, known) for _, low, high in widest)
        left = SEARCHED_SHARE_MAX * len(self.family) - SCREENING_SHARE * len(self.screened)
        room = int(left / (1 - SCREENING_SHARE)) - len(known)
        chosen = [self.family.rung(point) for point in found if point is not None]
        return chosen[: max(min(room, STEPS_AT_ONCE), 0)]

    def _within(self, low: Point, high: Point, known: Mapping[Point, Screened]) -> Point | None:
        """Return the most promising setting between two others, if there is one."""
        cheap, dear = self.screened[low], self.screened[high]
        least = cheap.accuracy - SLACK

        def area(point: Point) -> float:
            seen = self.screened[point]
            return (min(seen.accuracy, dear.accuracy) - least) * math.log(dear.bytes / seen.bytes)

        inside = [
            point
            for point, seen in self.screened.items()
            if point not in known and cheap.bytes < seen.bytes < dear.bytes and seen.accuracy > least
        ]
        return max(inside, key=area, default=None)

    def _spread(self, best: list[Point]) -> list[Point]:
        """Keep both ends of a frontier, and the settings nearest to even steps of accuracy in between."""
        if len(best) <= FINALISTS_MAX:
            return list(best)
        low, high = (self.screened[point].accuracy for point in (best[0], best[-1]))
        steps = FINALISTS_MAX - 1
        due = [low + (high - low) * step / steps for step in range(steps + 1)]
        # The cheapest setting at or above each step, which includes both ends.
        kept = [next(point for point in best if self.screened[point].accuracy >= at - 1e-9) for at in due]
        return list(dict.fromkeys(kept))

    def _near(self) -> dict[Point, float]:
        """Return the settings near the frontier, and how far below the best accuracy they are."""
        ordered = sorted(self.screened, key=lambda point: (self.screened[point].bytes, point))
        best = 0.0
        near = {}
        for point in ordered:
            bytes_, accuracy = self.screened[point].bytes, self.screened[point].accuracy
            best = max(best, accuracy)
            much_cheaper = (
                self.screened[one] for one in ordered if self.screened[one].bytes < CLEARLY_FEWER * bytes_
            )
            if accuracy >= max(best - SLACK, self._plan.accuracy_min) and all(
                one.accuracy < accuracy for one in much_cheaper
            ):
                near[point] = best - accuracy
        # If no setting is accurate enough, continue from the most accurate one.
        return near or {max(ordered, key=lambda point: self.screened[point].accuracy): 0.0}


def _frontier(results: Mapping[Point, Screened]) -> list[Point]:
    """Return the settings that no other beats in both bytes and accuracy, from the fewest bytes up."""
    return undominated(results, lambda point: (results[point].bytes, results[point].accuracy))


def coarse(family: Family) -> list[Point]:
    """Return the first settings: both ends of every knob and points in between, or single knobs."""
    levels = [_levels(len(axis.parts), axis.ordered) for axis in family.axes]
    size = 1
    for places in levels:
        size *= len(places)
    if size <= COARSE_MAX:
        return list(product(*levels))
    base = (0,) * len(family.axes)
    star = {base}
    for at, axis in enumerate(family.axes):
        star.update((*base[:at], place, *base[at + 1 :]) for place in range(len(axis.parts)))
    return sorted(star)


def _levels(count: int, ordered: bool) -> list[int]:
    """Return four points of a long knob, three of a shorter one, all of a very short or unordered one."""
    if count <= 3 or not ordered:
        return list(range(count))
    steps = 3 if count >= 10 else 2
    return sorted({round(step * (count - 1) / steps) for step in range(steps + 1)})
