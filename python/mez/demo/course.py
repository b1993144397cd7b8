"""Plots a scenario over time: link rates, latency, delivered sizes, and accuracy."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

import mez
from mez import _pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mez.demo.report import ScenarioResults

_INFEASIBLE: Final = "#c44e52"
_TITLE_COLUMNS: Final = 110


def draw(results: "ScenarioResults", path: Path) -> None:
    """Draw the plot into a PNG file.

    Raises:
        mez.Error: matplotlib is not installed.
        OSError: The file cannot be written.
    """
    scenario, begins_s = results.scenario, results.begins_s
    end_s = max((frame.at_s - begins_s for frame in results.frames), default=scenario.seconds)
    with _pictures.drawing((9, 6.5), 8, mez.Error) as figure:
        from matplotlib.ticker import LogFormatter

        carried, latency, sizes, scored = figure.subplots(4, 1, sharex=True, height_ratios=(1, 2, 1.5, 1))
        for link in scenario.links:
            times = [at_s for at_s, _ in link.steps if at_s < end_s]
            rates = [rate / 1e6 for _, rate in link.steps[: len(times)]]
            if link.camera not in scenario.shared:
                carried.step([*times, end_s], [*rates, rates[-1]], where="post", lw=1)
            elif link.camera == scenario.shared[0]:
                together = f"{len(scenario.shared)} cameras together"
                carried.step(
                    [*times, end_s], [*rates, rates[-1]], where="post", lw=1, color="0.3", label=together
                )
                carried.legend(frameon=False, fontsize=7)
            own = [frame for frame in results.frames if frame.camera == link.camera]
            known = [frame for frame in own if frame.age_ms is not None]
            at = [frame.at_s - begins_s for frame in known]
            (line,) = latency.plot(
                at, [frame.age_ms or 0.0 for frame in known], ".", ms=2.5, label=link.camera
            )
            told = [frame for frame in known if frame.state == "infeasible"]
            latency.plot(
                [frame.at_s - begins_s for frame in told],
                [frame.age_ms or 0.0 for frame in told],
                "x",
                ms=3,
                color=_INFEASIBLE,
            )
            sizes.plot(
                [frame.at_s - begins_s for frame in own],
                [frame.size_bytes / 1e3 for frame in own],
                ".",
                ms=2.5,
                color=line.get_color(),
            )
        if scenario.latency_ms is not None:
            latency.axhline(scenario.latency_ms, color="0.3", lw=0.8, ls=":")
        _draw_accuracy(results, scored)
        carried.set_ylim(bottom=0)
        latency.set_ylim(bottom=0)
        sizes.set_yscale("log")
        # Plain numbers: within one decade, powers of ten say little.
        sizes.yaxis.set_major_formatter(LogFormatter())
        sizes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
        carried.set_ylabel("link, Mbit/s")
        latency.set_ylabel("latency, ms\n(red: infeasible)")
        sizes.set_ylabel("as delivered, kB")
        scored.set_ylabel("accuracy")
        scored.set_xlabel("seconds")
        latency.legend(frameon=False, ncols=4, fontsize=7)
        carried.set_title(textwrap.fill(f"{scenario.name}: {scenario.about}", _TITLE_COLUMNS), fontsize=9)
        _pictures.save(figure, path)


def _draw_accuracy(results: "ScenarioResults", axes: "Axes") -> None:
    """Draw the accuracy of the frames that were scored, camera by camera."""
    scenario = results.scenario
    for link in scenario.links:
        scored = results.accuracy.by_frame if results.accuracy else ()
        points = [
            (at_s - results.begins_s, value)
            for camera, at_s, value in scored
            if camera == link.camera and value is not None
        ]
        axes.plot([at_s for at_s, _ in points], [value for _, value in points], ".", ms=3)
    if scenario.accuracy is not None:
        axes.axhline(scenario.accuracy, color="0.3", lw=0.8, ls=":")
    axes.set_ylim(-0.05, 1.05)
