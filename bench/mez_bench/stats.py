"""Computes medians, percentiles and ratios with intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

RESAMPLES: Final = 2000
SEED: Final = 1
"""Seed of the bootstrap, so that the same figures give the same interval."""

Values = NDArray[np.float64]
Statistic = Callable[[Values], float]


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % interval.

    Attributes:
        median: The figure itself.
        low: Where the interval begins.
        high: Where it ends.
    """

    median: float
    low: float
    high: float

    @staticmethod
    def exactly(value: float) -> "Interval":
        """Return a figure that was counted, not sampled."""
        return Interval(value, value, value)


def percentile(percent: float) -> Statistic:
    """Return the function that takes this percentile of values."""

    def statistic(values: Values) -> float:
        return float(np.percentile(values, percent))

    return statistic


def median(values: Values) -> float:
    """Return the middle value."""
    return float(np.median(values))


def mean(values: Values) -> float:
    """Return the mean."""
    return float(np.mean(values))


def interval(rounds: Sequence[Values], statistic: Statistic) -> Interval:
    """Return a statistic of all values, with an interval.

    Whole rounds are resampled (a cluster bootstrap): the values of one round are correlated, because they
    share what else the machine did then.

    Args:
        rounds: The values of each round.
        statistic: The statistic of the values of all rounds together.
    """
    return _bootstrap([rounds], lambda arms: statistic(arms[0]))


def ratio_interval(above: Sequence[Values], below: Sequence[Values], statistic: Statistic) -> Interval:
    """Return the ratio of a statistic of two arms that took turns, with an interval.

    Args:
        above: The values of each round of the arm in the numerator.
        below: The values of each round of the arm in the denominator. Round `i` of both arms ran one after
            the other, and is resampled as a pair.
        statistic: The statistic of the values of all rounds together.
    """
    if len(above) != len(below):
        raise ValueError(f"{len(above)} rounds against {len(below)}: arms take turns")
    return _bootstrap([above, below], lambda arms: statistic(arms[0]) / statistic(arms[1]))


def _bootstrap(arms: Sequence[Sequence[Values]], figure: Callable[[list[Values]], float]) -> Interval:
    rounds = len(arms[0])
    if rounds == 0:
        raise ValueError("no rounds")

    def of(chosen: Sequence[int]) -> float:
        return figure([np.concatenate([arm[index] for index in chosen]) for arm in arms])

    value = of(range(rounds))
    if rounds == 1:
        return Interval.exactly(value)
    random = np.random.default_rng(SEED)
    draws = random.integers(0, rounds, size=(RESAMPLES, rounds))
    low, high = np.percentile([of(draw.tolist()) for draw in draws], [2.5, 97.5])
    return Interval(value, float(low), float(high))
