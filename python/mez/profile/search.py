"""Finds the best rungs of a family without measuring all of them: coarse to fine, few frames first.

1. A coarse grid is screened: measured on a sixth of the frames.
2. The neighbours of every rung that is near the best for its bytes are screened, until there are no new ones.
3. Those near the best are measured on all frames.

A rung is near the best if no rung of at most its bytes keeps more than `SLACK` more, and none of clearly
fewer bytes keeps as much. What is far from it is not followed up, so a family whose accuracy had a second
summit far from the first would lose it; knobs make frames gradually worse, and the coarse grid reaches into
every corner.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final

from mez.profile.families import Family, Point

SCREENING_SHARE: Final = 1 / 6
"""Share of the frames that rungs are screened on."""

SLACK: Final = 0.02
"""Accuracy by which a rung may fall short of the best of its bytes and still be followed up: what screening
cannot tell."""

CLEARLY_FEWER: Final = 0.7
"""Share of a rung's bytes below which another that keeps as much makes it useless, whatever screening could
not tell."""

ACCURACY_MIN: Final = 0.8
"""Rungs that keep less are not followed up: nobody sets a floor down there."""

COARSE_MAX: Final = 48
"""Largest coarse grid; of families with more corners, single knobs are tried first, from where nothing is
done."""

FINALISTS_MAX: Final = 12
"""Most rungs of a family that are measured on all frames."""

ROUNDS_MAX: Final = 12
"""Most rounds of neighbours."""

SCREENED_SHARE_MAX: Final = 0.5
SCREENED_MIN: Final = 24
"""A search ends when it has screened half the family, or in small families so many rungs."""


@dataclass(frozen=True, slots=True)
class Screened:
    """What screening found of a rung.

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
        finalists_max: Most rungs that are measured on all frames.
        steps: Accuracies whose cheapest rungs are measured on all frames, in place of an even spread.
    """

    seeds: tuple[str, ...] = ()
    rounds_max: int = ROUNDS_MAX
    accuracy_min: float = ACCURACY_MIN
    finalists_max: int = FINALISTS_MAX
    steps: tuple[float, ...] = ()


class Search:
    """The search of one family.

    Ask `due` what to screen, `tell` it what came out, until nothing is due; then `finalists` are to be
    measured.

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
        if self._rounds >= self._plan.rounds_max:
            return []
        self._rounds += 1
        near = self._near(self.screened)
        fresh = {
            neighbour
            for point in near
            for neighbour in self.family.neighbours(point)
            if neighbour not in self.screened
        }
        left = self._screened_max - len(self.screened)
        return sorted(fresh)[: max(left, 0)]

    def tell(self, point: Point, result: Screened) -> None:
        """Note what came out."""
        self.screened[point] = result

    def finalists(self) -> list[str]:
        """Return the rungs to measure on all frames, from the fewest bytes up.

        Those that no other beats come first; where there are many, they are spread evenly over accuracy,
        because that is what floors are set in. What room is left goes to those that fall short of them by the
        least.
        """
        near = sorted(self._near(self.screened), key=lambda point: self.screened[point].bytes)
        best: list[Point] = []
        short: dict[Point, float] = {}
        for point in near:
            by = self.screened[best[-1]].accuracy - self.screened[point].accuracy if best else -1.0
            if by < 0:
                best.append(point)
            else:
                short[point] = by
        if self._plan.steps:
            at_least = [
                [one for one in best if self.screened[one].accuracy >= step] for step in self._plan.steps
            ]
            # And the most accurate, so that a floor that screening missed by a hair has a rung.
            chosen = list(dict.fromkeys([*(reached[0] for reached in at_least if reached), *best[-1:]]))
            return [self.family.rung(point) for point in chosen]
        chosen = self._spread(best)
        room = self._plan.finalists_max - len(chosen)
        chosen += sorted(short, key=lambda point: (short[point], point))[: max(room, 0)]
        return [
            self.family.rung(point) for point in sorted(chosen, key=lambda point: self.screened[point].bytes)
        ]

    def _spread(self, best: list[Point]) -> list[Point]:
        """Keep both ends of a frontier, and between them those nearest to even steps of accuracy."""
        if len(best) <= self._plan.finalists_max:
            return list(best)
        low, high = (self.screened[point].accuracy for point in (best[0], best[-1]))
        steps = self._plan.finalists_max - 1
        due = [low + (high - low) * step / steps for step in range(steps + 1)]
        # The cheapest at or above each step; never fewer than the ends.
        kept = [next(point for point in best if self.screened[point].accuracy >= at - 1e-9) for at in due]
        return list(dict.fromkeys(kept))

    def _near(self, points: Iterable[Point]) -> list[Point]:
        """Return the settings that are near the best of their bytes."""
        ordered = sorted(points, key=lambda point: (self.screened[point].bytes, point))
        best = 0.0
        near = []
        for point in ordered:
            bytes_, accuracy = self.screened[point].bytes, self.screened[point].accuracy
            best = max(best, accuracy)
            much_cheaper = (
                self.screened[one] for one in ordered if self.screened[one].bytes < CLEARLY_FEWER * bytes_
            )
            if accuracy >= max(best - SLACK, self._plan.accuracy_min) and all(
                one.accuracy < accuracy for one in much_cheaper
            ):
                near.append(point)
        # Where nothing keeps enough, what keeps most leads on.
        return near or [max(ordered, key=lambda point: self.screened[point].accuracy)]


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
