"""Finds the frontier of a grid of knobs without measuring all of it.

A coarse grid is measured first. Then the next rung is always the one with the largest expected gain: its
expected accuracy minus that of the best known rung of its bytes. Expected bytes and accuracy are interpolated
between the nearest measured neighbours along each knob. The search ends when no expected gain is above
`GAIN_MIN`.

A rung is excluded if it cannot gain `GAIN_POSSIBLE_MIN`. This assumes that a finer setting of a knob makes no
record smaller and no result worse, at least approximately.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mez.profile.families import Family, Point
from mez.profile.pareto import undominated
from mez.profile.search import Screened, coarse

GAIN_MIN: Final = 0.005
"""The search ends when no rung is expected to add this much accuracy at its bytes."""

GAIN_POSSIBLE_MIN: Final = 0.01
"""A rung that cannot add more accuracy than this is excluded."""

Values = NDArray[np.float64]


class FrontierSearch:
    """The search of one grid. Measure what `due` returns, and pass it to `tell`, until nothing is due.

    Args:
        family: The grid. The settings of each knob go from the most bytes to the fewest.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        shape = tuple(len(axis.parts) for axis in family.axes)
        self.known: dict[Point, Screened] = {}
        self._seen = np.zeros(shape, dtype=bool)
        self._bytes, self._accuracy = np.zeros(shape), np.zeros(shape)
        # Bounds of each rung's bytes and accuracy, from measured finer and coarser rungs.
        self._bytes_low, self._bytes_high = np.ones(shape), np.full(shape, np.inf)
        self._accuracy_low, self._accuracy_high = np.zeros(shape), np.ones(shape)
        last = tuple(length - 1 for length in shape)
        self._begin = list(dict.fromkeys([*coarse(family), last]))

    def due(self) -> Point | None:
        """Return the setting to measure next. `None` when the search is over."""
        while self._begin:
            if (point := self._begin.pop()) not in self.known:
                return point
        costs, keeps = self._expected()
        gain = keeps - self._best_at(costs)
        possible = self._accuracy_high - self._best_at(self._bytes_low)
        gain[self._seen | (possible <= GAIN_POSSIBLE_MIN)] = -1.0
        place = np.unravel_index(int(np.argmax(gain)), gain.shape)
        return tuple(map(int, place)) if gain[place] > GAIN_MIN else None

    def tell(self, point: Point, result: Screened) -> None:
        """Take the result of a setting."""
        self.known[point] = result
        self._seen[point] = True
        self._bytes[point], self._accuracy[point] = max(result.bytes, 1.0), result.accuracy
        coarser = tuple(slice(place, None) for place in point)
        finer = tuple(slice(None, place + 1) for place in point)
        for limit, part, value, pick in (
            (self._bytes_high, coarser, result.bytes, np.minimum),
            (self._accuracy_high, coarser, result.accuracy, np.minimum),
            (self._bytes_low, finer, result.bytes, np.maximum),
            (self._accuracy_low, finer, result.accuracy, np.maximum),
        ):
            limit[part] = pick(limit[part], value)

    def frontier(self) -> list[str]:
        """Return the rungs on the frontier, from the fewest bytes up."""
        best = undominated(self.known, lambda point: (self.known[point].bytes, self.known[point].accuracy))
        return [self.family.rung(point) for point in best]

    def _best_at(self, costs: Values) -> Values:
        """Return the best known accuracy at no more than these bytes. 0 if there is none."""
        order = np.argsort(self._bytes[self._seen], kind="stable")
        sizes = self._bytes[self._seen][order]
        best = np.concatenate([[0.0], np.maximum.accumulate(self._accuracy[self._seen][order])])
        return np.asarray(best[np.searchsorted(sizes, costs * (1 + 1e-9), side="right")])

    def _expected(self) -> tuple[Values, Values]:
        """Return the expected bytes and accuracy of each rung."""
        weight, costs, keeps = (np.zeros(self._seen.shape) for _ in range(3))
        for axis in range(self._seen.ndim):
            here = np.arange(self._seen.shape[axis]).reshape(
                [-1 if at == axis else 1 for at in range(self._seen.ndim)]
            )
            below = np.maximum.accumulate(np.where(self._seen, here, -1), axis)
            backwards = np.flip(np.where(self._seen, here, self._seen.shape[axis]), axis)
            above = np.flip(np.minimum.accumulate(backwards, axis), axis)
            inside = (below >= 0) & (above < self._seen.shape[axis])
            low, high = np.where(inside, below, 0), np.where(inside, above, 0)
            apart = np.maximum(high - low, 1)
            share = np.where(inside, 1 / apart, 0.0)
            for of, values in ((costs, np.log(np.maximum(self._bytes, 1.0))), (keeps, self._accuracy)):
                one, other = (np.take_along_axis(values, ends, axis) for ends in (low, high))
                of += share * (one + (other - one) * (here - low) / apart)
            weight += share
        between = weight > 0
        middle = np.sqrt(self._bytes_low * np.minimum(self._bytes_high, self._bytes.max()))
        safe = np.where(between, weight, 1.0)
        return (
            np.where(between, np.exp(costs / safe), middle),
            np.where(between, keeps / safe, (self._accuracy_low + self._accuracy_high) / 2),
        )
