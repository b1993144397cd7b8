"""Families of rungs as grids for the search: their settings, and the neighbours of each setting."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Final

from mez.profile.errors import RungError

Point = tuple[int, ...]
"""A rung, as its position on each axis of its family."""

WIDTHS: Final = (
    Fraction(1),
    Fraction(5, 6),
    Fraction(2, 3),
    Fraction(1, 2),
    Fraction(5, 12),
    Fraction(1, 3),
    Fraction(1, 4),
)
"""Widths that frames are scaled to, as shares of the camera's width."""

WIDTH_PIXELS_MIN: Final = 32
"""The smallest width that is tried, in pixels."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A knob.

    Attributes:
        parts: The part of a rung's name for each setting, from the most bytes to the fewest. Empty for the
            setting that changes nothing.
        ordered: Whether adjacent settings are alike. Otherwise every other setting is a neighbour.
    """

    parts: tuple[str, ...]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Family:
    """Rungs of one method of encoding.

    Attributes:
        name: Its name on the command line and in reports.
        prefix: The prefix of its rungs' names.
        axes: Its knobs, in the order of their parts in a name.
        what: A description for people.
    """

    name: str
    prefix: str
    axes: tuple[Axis, ...]
    what: str

    def __len__(self) -> int:
        size = 1
        for axis in self.axes:
            size *= len(axis.parts)
        return size

    def rung(self, point: Point) -> str:
        """Return the name of a setting."""
        chosen = (axis.parts[place] for axis, place in zip(self.axes, point, strict=True))
        return "/".join([self.prefix, *filter(None, chosen)])

    def point(self, rung: str) -> Point:
        """Return the setting of that name.

        Raises:
            RungError: The family has no such rung.
        """
        for point in self.points():
            if self.rung(point) == rung:
                return point
        raise RungError(
            f"the family {self.name} has no rung {rung}; its first is {self.rung((0,) * len(self.axes))}"
        )

    def points(self) -> Iterator[Point]:
        """Return all settings."""
        return product(*(range(len(axis.parts)) for axis in self.axes))

    def neighbours(self, point: Point) -> Iterator[Point]:
        """Return the settings that differ in one knob: by one step, if the knob is ordered."""
        for at, axis in enumerate(self.axes):
            places = (point[at] - 1, point[at] + 1) if axis.ordered else range(len(axis.parts))
            for place in places:
                if 0 <= place < len(axis.parts) and place != point[at]:
                    yield (*point[:at], place, *point[at + 1 :])


def _widths(width: int) -> Axis:
    sizes = [int(share * width) // 2 * 2 for share in WIDTHS if share != 1]
    return Axis(("", *(f"w{size}" for size in sizes if size >= WIDTH_PIXELS_MIN)))


def _numbers(prefix: str, *numbers: int) -> Axis:
    return Axis(tuple(f"{prefix}{number}" for number in numbers))


def _jpeg(width: int) -> Family:
    quality = _numbers("q", 95, 90, 80, 70, 60, 50, 40, 30, 20, 10, 5)
    sampling = Axis(("444", "420", "gray"), ordered=False)
    return Family("jpeg", "jpeg", (_widths(width), quality, sampling), "whole JPEG frames")


def _tiles(width: int) -> Family:
    quality = _numbers("q", 95, 90, 80, 70, 60, 50, 40, 30, 20, 10)
    sampling = Axis(("420", "gray"), ordered=False)
    return Family("tiles", "tiles", (_widths(width), quality, sampling), "JPEG of the tiles that changed")


def _h264(width: int) -> Family:
    quantisers = _numbers("q", *range(18, 52, 2), 51)
    return Family("h264", "h264", (_widths(width), quantisers), "H.264 (openh264)")


def _five_knobs(width: int) -> Family:
    del width  # its resolutions are shares already
    return Family(
        "five-knobs", "knobs", (*_KNOBS, Axis(("png",))), "the five knobs of the Mez paper, lossless"
    )


def _five_knobs_jpeg(width: int) -> Family:
    del width
    return Family("five-knobs-jpeg", "knobs", (*_KNOBS, Axis(("q95",))), "the five knobs, coded as JPEG")


_KNOBS: Final = (
    Axis(("", "s68", "s50", "s33", "s25")),
    Axis(("", "luv", "lab", "hsv", "gray"), ordered=False),
    Axis(("", "blur5", "blur8", "blur10", "blur15")),
    Axis(("", "moving", "contours"), ordered=False),
    Axis(("", "diff0", "diff18", "diff36", "diff54", "diff72")),
)

_FAMILIES: Final[dict[str, Callable[[int], Family]]] = {
    "h264": _h264,
    "tiles": _tiles,
    "jpeg": _jpeg,
    "five-knobs": _five_knobs,
    "five-knobs-jpeg": _five_knobs_jpeg,
}

NAMES: Final = tuple(_FAMILIES)
"""Families that can be profiled."""

DEFAULT: Final = ("h264", "tiles", "jpeg")
"""Families that are profiled by default: those of live links."""


def family(name: str, width: int) -> Family:
    """Return a family for a camera with frames of this width.

    Raises:
        RungError: There is no family of this name.
    """
    if name not in _FAMILIES:
        raise RungError(f"there is no family {name!r}; --families takes {', '.join(NAMES)}")
    return _FAMILIES[name](width)


def family_of(rung: str) -> str:
    """Return the name of a rung's family. For an unknown family: the first word of the rung's name."""
    prefix = rung.partition("/")[0]
    if prefix == "knobs":
        return "five-knobs" if rung.split("/")[-1] == "png" else "five-knobs-jpeg"
    return prefix
