"""Draws a report as SVG or PNG."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from mez import _pictures
from mez.pipeline.errors import EventsError
from mez.pipeline.report.steps import Kind
from mez.pipeline.report.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES: Final = (".svg", ".png", ".pdf")

COLOURS: Final[Mapping[Kind, str]] = {
    Kind.INGESTION: "#56b4e9",
    Kind.WAITING: "#d55e00",
    Kind.PRE: "#f0e442",
    Kind.AI: "#009e73",
    Kind.POST: "#cc79a7",
    Kind.WORK: "#999999",
}
"""Colours that colour-blind people can tell apart (Okabe and Ito)."""

POINTS_MAX: Final = 4000
"""The most records that are drawn as points. If there are more, every n-th one is drawn."""


def draw(summary: Summary, path: Path) -> None:
    """Draw a report into a file, whose suffix says how.

    Raises:
        EventsError: Matplotlib is not installed, or knows no such suffix.
    """
    if path.suffix not in SUFFIXES:
        raise EventsError(
            f"{path}: the format of the picture is not known; give a name that ends in {', '.join(SUFFIXES)}"
        )
    with _pictures.drawing((10, 6.5), 9, EventsError) as drawing:
        drawing.suptitle(f"{summary.pipeline}: {len(summary.ways)} records", fontsize=10)
        (means, shares), (tails, course) = drawing.subplots(2, 2)
        _times(means, summary, "mean")
        _times(tails, summary, "p99")
        _shares(shares, summary)
        _course(course, summary)
        means.legend(*means.get_legend_handles_labels(), frameon=False, fontsize=7)
        _pictures.save(drawing, path)


def _times(axes: "Axes", summary: Summary, word: str) -> None:
    """Bars of stages, divided by kind. 99 % quantiles do not add up, so they are drawn side by side."""
    kinds = [kind for kind in Kind if any(kind in stage.kinds for stage in summary.stages.values())]
    names = list(summary.stages)
    place = np.arange(len(names), dtype=np.float64)
    left = np.zeros(len(names))
    for number, kind in enumerate(kinds):
        values = np.array(
            [getattr(of.kinds[kind], word) if kind in of.kinds else 0.0 for of in summary.stages.values()]
        )
        if word == "mean":
            axes.barh(place, values, left=left, height=0.6, color=COLOURS[kind], label=kind.value)
            left += np.maximum(values, 0)
        else:
            height = 0.8 / len(kinds)
            at = place + (number - (len(kinds) - 1) / 2) * height
            axes.barh(at, values, height=height, color=COLOURS[kind], label=kind.value)
    axes.set_yticks(place, names)
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title("mean" if word == "mean" else "99 % quantile of each kind", fontsize=9)


def _shares(axes: "Axes", summary: Summary) -> None:
    """How each stage's function spends its time."""
    inside = (Kind.PRE, Kind.AI, Kind.POST, Kind.WORK)
    for place, stage in enumerate(summary.stages.values()):
        whole = sum(stage.kinds[kind].mean for kind in inside if kind in stage.kinds) or 1.0
        left = 0.0
        for kind in inside:
            if kind in stage.kinds:
                share = stage.kinds[kind].mean / whole * 100
                axes.barh(place, share, left=left, height=0.6, color=COLOURS[kind])
                left += share
    axes.set_yticks(range(len(summary.stages)), list(summary.stages))
    axes.invert_yaxis()
    axes.set_xlabel("% of the time in the stage's function")
    axes.set_title("AI and other work", fontsize=9)


def _course(axes: "Axes", summary: Summary) -> None:
    """Latency over time, with the number of records under way."""
    ways = summary.ways[:: -(-len(summary.ways) // POINTS_MAX)]
    begin = summary.ways[0][0]
    axes.plot([at - begin for at, _ in ways], [ms for _, ms in ways], ".", ms=2, color="#0072b2")
    axes.set_xlabel("capture time, seconds after the first")
    axes.set_ylabel("end-to-end latency, ms", color="#0072b2")
    axes.set_ylim(bottom=0)
    begins = np.array([at for at, _ in summary.ways]) - begin
    ends = np.sort(begins + np.array([ms for _, ms in summary.ways]) / 1000)
    grid = np.linspace(0, float(ends[-1]), 300)
    under_way = np.searchsorted(begins, grid, "right") - np.searchsorted(ends, grid, "right")
    other = axes.twinx()
    other.plot(grid, under_way, lw=1, color=COLOURS[Kind.WAITING])
    other.set_ylabel("records under way", color=COLOURS[Kind.WAITING])
    other.set_ylim(bottom=0)
    axes.set_title("over time", fontsize=9)
