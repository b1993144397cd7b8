"""Finds the rungs that no other rung beats in both bytes and accuracy (the Pareto frontier)."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def undominated(options: Iterable[T], of: Callable[[T], tuple[float, float]]) -> list[T]:
    """Return the options that no other option beats in both bytes and accuracy, from the fewest bytes up.

    Args:
        options: The options. Of equal ones, the first is returned.
        of: Returns bytes and accuracy of an option.
    """
    best: list[T] = []
    most = float("-inf")
    for one in sorted(options, key=lambda one: (of(one)[0], -of(one)[1])):
        if of(one)[1] > most:
            best.append(one)
            most = of(one)[1]
    return best
