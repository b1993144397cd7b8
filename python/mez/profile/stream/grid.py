"""The rungs of a stream's knobs, as a grid for the search."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from mez.profile.families import Axis, Family

ORIGINAL: Final = "original"
FAMILY: Final = "data"
_SKIP: Final = "skip"


@runtime_checkable
class Spec(Protocol):
    """The used part of a stream's declared knobs, `mez.Knobs`."""

    def rungs(self) -> list[str]:
        """Return all rungs by their names."""
        ...

    def values(self, rung: str) -> dict[str, int | float]:
        """Return the setting of each knob at a rung."""
        ...

    def apply(self, rung: str, payload: object, content_type: str | None = None) -> bytes:
        """Return the bytes that a record has at a rung."""
        ...


@dataclass(frozen=True, slots=True)
class Grid:
    """The rungs of a stream.

    Attributes:
        originals: The rung `original`, and its variants that skip records.
        family: All other rungs. `None` if no knob changes a record.
    """

    originals: Sequence[str]
    family: Family | None

    def __len__(self) -> int:
        return len(self.originals) + (len(self.family) if self.family is not None else 0)


def base_of(rung: str) -> str:
    """Return the name of a rung without its part for skipped records."""
    head, _, last = rung.rpartition("/")
    return head if head and last.startswith(_SKIP) and "=" not in last else rung


def grid(spec: Spec, bytes_of: Callable[[str], int]) -> Grid:
    """Make the grid of a stream's rungs.

    Args:
        spec: The knobs of the stream.
        bytes_of: Returns the bytes of a record at a rung, to find out which end of a knob is the fine one.
    """
    rungs = spec.rungs()
    originals = [rung for rung in rungs if base_of(rung) == ORIGINAL]
    others = [rung for rung in rungs if base_of(rung) != ORIGINAL]
    if not others:
        return Grid(originals, None)
    parts: dict[str, dict[float, str]] = {}
    for rung in others:
        values = spec.values(rung)
        named = base_of(rung).split("/")[1:]
        for part in named:
            name = part.partition("=")[0]
            parts.setdefault(name, {})[float(values[name])] = part
    orders = [[part for _, part in sorted(of_knob.items())] for of_knob in parts.values()]
    middle = [order[len(order) // 2] for order in orders]
    for at, order in enumerate(orders):
        ends = [
            bytes_of("/".join([FAMILY, *middle[:at], end, *middle[at + 1 :]]))
            for end in (order[0], order[-1])
        ]
        if ends[0] < ends[1]:
            order.reverse()
    axes = [Axis(tuple(order)) for order in orders]
    skips = sorted({int(spec.values(rung).get(_SKIP, 0)) for rung in others})
    if skips != [0]:
        axes.append(Axis(tuple(f"{_SKIP}{skip}" if skip else "" for skip in skips)))
    return Grid(originals, Family(FAMILY, FAMILY, tuple(axes), "records made smaller by the stream's knobs"))
