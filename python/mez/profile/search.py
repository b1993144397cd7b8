"""Finds the best rungs of a family without measuring all of them: coarse to fine, on few frames first.

1. A coarse grid is screened: measured on a sixth of the frames.
2. The neighbours of every rung that is near the best for its bytes are screened, nearest first, until there
   are no new ones.
3. The best are measured on all frames, spread over accuracy.
4. Where that leaves wide steps, more of those screened are measured in between, a few at a time.

A rung is near the best if no rung of at most its bytes keeps more than `SLACK` more, and none of clearly
fewer bytes keeps as much. What is far from it is not followed up, so a family whose accuracy had a second
summit far from the first would lose it; knobs make frames gradually worse, and the coarse grid reaches into
every corner.
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
"""Accuracy by which a rung may fall short of the best at its bytes and still be followed up.

Screening cannot tell smaller differences."""

CLEARLY_FEWER: Final = 0.7
"""If another rung keeps as much with less than this share of a rung's bytes, the rung is dropped."""

ACCURACY_MIN: Final = 0.8
"""Rungs below this accuracy are not followed up, because nobody sets so low a floor."""

COARSE_MAX: Final = 48
"""The largest coarse grid.

In families with more corners, single knobs are tried first, starting from the rung that changes nothing."""

FINALISTS_MAX: Final = 10
"""The most rungs of a family that are measured on all frames because screening found them the best."""

STEP_MAX: Final = 0.01
STEP_ENDS_MIN: Final = 0.9
"""A wide step between two accuracies gets a rung in between only if one of them is above this usual floor."""

STEPS_AT_ONCE: Final = 2
"""Steps that get a rung in between before the steps are computed again."""

SEARCHED_SHARE_MAX: Final = 0.19
"""Rungs in between are measured while the search takes less than this share of measuring everything."""

ROUNDS_MAX: Final = 12
"""The most rounds of screening neighbours."""

ROUNDS_AHEAD: Final = 3
ROUND_MIN: Final = 6
"""The fewest rungs of a round.

Each round leaves as many of the rungs that may still be screened to each of the next two, which know more."""

SCREENED_SHARE_MAX: Final = 0.5
SCREENED_MIN: Final = 24
"""A search ends when it has screened half the family, or in small families so many rungs."""


@dataclass(frozen=True, slots=True)
class Screened:
    """What was found of a rung, on a few frames or on all.

    Attributes:
        bytes: Of a published frame, on average.
        accuracy: With hysteresis.
    """

    bytes: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How a family is searched.

    Attributes:
        seeds: Rungs to begin with, in place of the coarse grid, where an earlier search has shown where to
            look.
        rounds_max: Most rounds of neighbours.
        accuracy_min: Rungs that keep less are not followed up.
        steps: Accuracies whose cheapest rungs are measured on all frames, in place of all that.
    """

    seeds: tuple[str, ...] = ()
    rounds_max: int = ROUNDS_MAX
    accuracy_min: float = ACCURACY_MIN
    steps: tuple[float, ...] = ()


class Search:
    """The search of one family.

    Ask `due` what to screen, `tell` it what came out, until nothing is due; then `finalists` are to be
    measured, and what `between` says, until that is nothing.

    Args:
        family: What is searched.
        plan: How.
    """

    def __init__(self, family: Family, plan: Plan = Plan()) -> None:
        self.family = family
        self._plan = plan
        self._seeds = [family.point(rung) for rung in plan.seeds]
        self.screened: dict[Point, Screened] = {}
        self._rounds = 0
        self._screened_max = max(SCREENED_MIN, int(len(family) * SCREENED_SHARE_MAX))

    def due(self) -> list[Point]:
        """Return the settings to screen next; none when the search is over."""
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
        """Note what came out."""
        self.screened[point] = result

    def finalists(self) -> list[str]:
        """Return the rungs to measure on all frames, from the fewest bytes up.

        Those that no other beats; where there are many, spread evenly over accuracy, because that is what
        floors are set in.
        """
        best = _frontier({point: self.screened[point] for point in self._near()})
        if self._plan.steps:
            at_least = [
                [one for one in best if self.screened[one].accuracy >= step] for step in self._plan.steps
            ]
            # And the most accurate, so that a floor that screening missed by a hair has a rung.
            chosen = list(dict.fromkeys([*(reached[0] for reached in at_least if reached), *best[-1:]]))
            return [self.family.rung(point) for point in chosen]
        return [self.family.rung(point) for point in self._spread(best)]

    def between(self, measured: Mapping[str, Screened]) -> list[str]:
        """Return more rungs to measure on all frames, where those that were leave wide steps.

        Each adds most to the area below the frontier, by screening: what it keeps more than the cheaper end
        of its step, times how much cheaper it is than the dearer one, in logarithms.

        Args:
            measured: What was found on all frames, by rung.
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
        """Return the setting that promises most between two others, if any does."""
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
        """Keep both ends of a frontier, and between them those nearest to even steps of accuracy."""
        if len(best) <= FINALISTS_MAX:
            return list(best)
        low, high = (self.screened[point].accuracy for point in (best[0], best[-1]))
        steps = FINALISTS_MAX - 1
        due = [low + (high - low) * step / steps for step in range(steps + 1)]
        # The cheapest at or above each step; never fewer than the ends.
        kept = [next(point for point in best if self.screened[point].accuracy >= at - 1e-9) for at in due]
        return list(dict.fromkeys(kept))

    def _near(self) -> dict[Point, float]:
        """Return the settings that are near the best of their bytes, and by how much they fall short."""
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
        # Where nothing keeps enough, what keeps most leads on.
        return near or {max(ordered, key=lambda point: self.screened[point].accuracy): 0.0}


def _frontier(results: Mapping[Point, Screened]) -> list[Point]:
    """Return those that no other beats in both bytes and accuracy, from the fewest bytes up."""
    return undominated(results, lambda point: (results[point].bytes, results[point].accuracy))


def coarse(family: Family) -> list[Point]:
    """Return the settings to begin with: both ends of every knob and places between, or single knobs."""
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
    """Return four places of a long knob, three of a shorter one, all of one that is short or unordered."""
    if count <= 3 or not ordered:
        return list(range(count))
    steps = 3 if count >= 10 else 2
    return sorted({round(step * (count - 1) / steps) for step in range(steps + 1)})
