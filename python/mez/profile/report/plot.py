"""Plots bytes against accuracy, with one line for each family."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mez import _pictures
from mez.profile.document import Profile, RungProfile, Score
from mez.profile.errors import ProfileError
from mez.profile.make import ceiling_of
from mez.profile.pareto import undominated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final[Mapping[str, str]] = {
    "h264": "#0072b2",
    "tiles": "#009e73",
    "jpeg": "#e69f00",
    "five-knobs": "#cc3311",
    "five-knobs-jpeg": "#cc79a7",
    "x264": "#56565a",
}
"""Colours of families, which colour-blind people can tell apart (Okabe and Ito)."""

COLOURS_OTHERS: Final = ("#785ef0", "#8c6d31", "#17becf", "#b15928", "#6a3d9a", "#333333")

ACCURACY_SHOWN_MIN: Final = 0.7
"""The lowest accuracy that the plot shows."""


def colour_of(family: str, known: Sequence[str]) -> str:
    """Return a family's colour."""
    if family in COLOURS:
        return COLOURS[family]
    others = [name for name in known if name not in COLOURS]
    return COLOURS_OTHERS[others.index(family) % len(COLOURS_OTHERS)]


def draw(profiles: Mapping[str, Profile], paths: Sequence[Path], strict: bool = False) -> None:
    """Draw profiles into files, in the format of their suffix (`.svg`, `.png`).

    Args:
        profiles: The profiles by name. Several profiles differ in the style of their lines.
        paths: The files.
        strict: Draw the strict score, instead of that with hysteresis.

    Raises:
        ProfileError: Matplotlib is not installed.
    """
    with _pictures.drawing((9, 5.2), 10, ProfileError) as drawing:
        _axes(drawing.subplots(1, 1), profiles, strict)
        for path in paths:
            _pictures.save(drawing, path)


def _axes(axes: "Axes", profiles: Mapping[str, Profile], strict: bool) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    families = sorted({name for profile in profiles.values() for name in profile.families})
    lowest = 1.0
    for (name, profile), line in zip(profiles.items(), ("-", "--", ":", "-.") * len(profiles), strict=False):
        for family in profile.families:
            rungs = [
                rung for rung in profile.rungs if rung.family == family and _score(rung, strict) is not None
            ]
            colour = colour_of(family, families)
            label = family if len(profiles) == 1 else f"{family} ({name})"
            best = _frontier(rungs, strict)
            shown = [rung for rung in best if _value(rung, strict) >= ACCURACY_SHOWN_MIN]
            for rung in shown:
                score = _score(rung, strict)
                if score is not None and score.low is not None and score.high is not None:
                    x = rung.bytes_per_published_frame
                    axes.plot([x, x], [score.low, score.high], color=colour, alpha=0.35, linewidth=3)
            axes.plot(
                [rung.bytes_per_published_frame for rung in shown],
                [_value(rung, strict) for rung in shown],
                line,
                marker="o",
                markersize=4,
                color=colour,
                label=label,
            )
            others = [
                rung for rung in rungs if rung not in best and _value(rung, strict) >= ACCURACY_SHOWN_MIN
            ]
            axes.plot(
                [rung.bytes_per_published_frame for rung in others],
                [_value(rung, strict) for rung in others],
                ".",
                color=colour,
                alpha=0.3,
                markersize=4,
            )
            lowest = min([lowest, *(_value(rung, strict) for rung in shown)])
    if len(profiles) == 1:
        _ceiling(axes, next(iter(profiles.values())), strict)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: _bytes(value))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("mean bytes per published frame")
    axes.set_ylabel(f"accuracy (F1 against the frame as published{', strict' if strict else ''})")
    axes.set_ylim(max(ACCURACY_SHOWN_MIN, lowest - 0.03) if lowest < 1 else None, 1.005)
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(loc="lower right", frameon=False)


def _ceiling(axes: "Axes", profile: Profile, strict: bool) -> None:
    score = ceiling_of(profile.about, strict)
    if score is None:
        return
    axes.axhline(score.value, color="#888888", linewidth=1, linestyle=(0, (1, 2)))
    axes.annotate(
        f"the detector's own ceiling, {score.value:.3f}",
        (0.01, score.value),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        xytext=(0, 3),
        color="#666666",
        fontsize=9,
    )


def _frontier(rungs: Sequence[RungProfile], strict: bool) -> list[RungProfile]:
    return undominated(rungs, lambda one: (one.bytes_per_published_frame, _value(one, strict)))


def _score(rung: RungProfile, strict: bool) -> Score | None:
    return rung.accuracy_normalised_strict if strict else rung.accuracy_normalised


def _value(rung: RungProfile, strict: bool) -> float:
    score = _score(rung, strict)
    return float(score.value) if score is not None else 0.0


def _bytes(value: float) -> str:
    return f"{value / 1000:g} kB" if value >= 1000 else f"{value:g} B"
