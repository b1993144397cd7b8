"""Finds the rungs that no other rung beats in both bytes and accuracy (the Pareto frontier)."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def undominated(options: Iterable[T], of: Callable[[T], tuple[float, float]]) -> list[T]:
    """Return those of which none other costs less and keeps as much, from the fewest bytes up.

    Args:
        options: What there is; of equals the first counts.
        of: Bytes and accuracy of one.
    """
    best: list[T] = []
    most = float("-inf")
    for one in sorted(options, key=lambda one: (of(one)[0], -of(one)[1])):
        if of(one)[1] > most:
            best.append(one)
            most = of(one)[1]
    return best
