"""Orders the arms of an experiment in turns, and draws them side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Arm = TypeVar("Arm")


def in_turn(arms: Sequence[Arm], number: int) -> list[Arm]:
    """Return the arms in the order of a round. Each round begins with another arm: none is always first."""
    first = number % len(arms)
    return [*arms[first:], *arms[:first]]


def bars(drawing: Figure, panels: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Draw a panel for each label. A bar in it shows the median of an arm."""
    for axes, (label, measured) in zip(
        np.atleast_1d(drawing.subplots(1, len(panels))), panels.items(), strict=True
    ):
        axes.bar(list(measured), [float(np.median(values)) for values in measured.values()])
        axes.set_ylabel(label)
        axes.tick_params(axis="x", labelrotation=20)
