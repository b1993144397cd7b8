"""Divides the way of a record into steps, each of one kind.

A step is the time between two consecutive stamps:

| from | to | step | kind |
| --- | --- | --- | --- |
| `captured` | `logged`, or `fetched` where the bus stamps nothing | `ingest` | ingestion |
| `made` | `sent` | `queue` | waiting |
| `sent` | `logged` | `send` | waiting |
| `logged`, else `sent` | `handed`, else `fetched` | `wait` | waiting |
| `handed` | `fetched` | `fetch` | waiting |
| `fetched` or a mark | the next mark, or `made` | that mark, or `rest` | see below |
| `sent` | `confirmed` | `confirm` | waiting |

A mark ends a step. If its name is `ai` or begins with `ai.`, the step was AI: `record.mark("ai.detected")`.
The steps of a stage before its first AI step are pre-processing; those after it that are not AI are
post-processing. Without an AI mark, all steps of the stage's function are undivided work.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mez.pipeline.record import CAMERA, STEPS, Hop
from mez.pipeline.report.reading import Way

CONFIRMED: Final = "confirmed"
_OWN: Final = {*STEPS, CONFIRMED}


class Kind(StrEnum):
    """How the time of a record is spent."""

    INGESTION = "ingestion"
    WAITING = "waiting"
    PRE = "pre-processing"
    AI = "AI"
    POST = "post-processing"
    WORK = "work, not divided"


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a record's time.

    Attributes:
        record: The identity that the record had after the stage.
        stage: The stage that works, or to which the step leads.
        name: See the module.
        kind: See the module.
        start_ns: Its start, in nanoseconds since 1970 by the wall clock of the host that stamped it.
        ns: How long it took.
        is_exact: Whether both stamps are of one clock. Otherwise the error of `ns` is the unknown difference
            between the wall clocks of two hosts.
        error_ns: The largest possible error of `ns`: 0 for an exact step, more if a camera's clock was
            compared with that of this host. `None` if it is unknown.
        hop: The index of its hop on the way.
    """

    record: str
    stage: str
    name: str
    kind: Kind
    start_ns: int
    ns: int
    is_exact: bool
    error_ns: int | None
    hop: int

    @property
    def end_ns(self) -> int:
        """Its end, as `start_ns`."""
        return self.start_ns + self.ns


def is_ai(mark: str, more: Sequence[str] = ()) -> bool:
    """Whether a mark ends AI: by its name, or because it is one of `more`."""
    return mark == "ai" or mark.startswith("ai.") or mark in more


def steps(way: Way, ai: Sequence[str] = ()) -> list[Step]:
    """The steps of a record's whole way, in order. Each begins where the one before it ended.

    Args:
        way: The record.
        ai: Marks that end AI, besides `ai` and `ai.…`.
    """
    found: list[Step] = []
    for place, hop in enumerate(way.hops):
        if place > 0:
            found += _way_there(way, place)
            found += work(way, place, ai)
        if place == len(way.hops) - 1 and CONFIRMED in hop.at and "sent" in hop.at:
            found.append(_step(way, place, "confirm", Kind.WAITING, hop, "sent", CONFIRMED))
    return found


def _way_there(way: Way, place: int) -> Iterator[Step]:
    """The steps from the previous hop to the worker."""
    before, hop = way.hops[place - 1], way.hops[place]
    if "fetched" not in hop.at:
        return
    stamps = [step for step in ("logged", "handed", "fetched") if step in hop.at]
    if before.stage == CAMERA:
        if "captured" in before.at:
            # After the edge's stamp, the time is waiting. Without this stamp, all of it is ingestion.
            yield _step(way, place, "ingest", Kind.INGESTION, before, "captured", stamps[0], to=hop)
    else:
        if "made" in before.at and "sent" in before.at:
            yield _step(way, place, "queue", Kind.WAITING, before, "made", "sent")
        begin = "sent" if "sent" in before.at else "made"
        if begin in before.at:
            name = "send" if stamps[0] == "logged" else "wait"
            yield _step(way, place, name, Kind.WAITING, before, begin, stamps[0], to=hop)
    for first, second in itertools.pairwise(stamps):
        name = "fetch" if first == "handed" else "wait"
        yield _step(way, place, name, Kind.WAITING, hop, first, second)


def work(way: Way, place: int, ai: Sequence[str] = ()) -> Iterator[Step]:
    """The steps of a stage's function, divided at its marks."""
    hop = way.hops[place]
    if "fetched" not in hop.at or "made" not in hop.at:
        return
    # Sorted by stamp, because a mark that is set again keeps its place in the dict.
    marks = sorted((stamp, mark) for mark, stamp in hop.at.items() if mark not in _OWN)
    has_ai = any(is_ai(mark, ai) for _, mark in marks)
    kind = Kind.PRE if has_ai else Kind.WORK
    begin = "fetched"
    for mark in [mark for _, mark in marks] + ["made"]:
        name = "rest" if mark == "made" else mark
        if is_ai(mark, ai):
            yield _step(way, place, name, Kind.AI, hop, begin, mark)
            kind = Kind.POST
        else:
            yield _step(way, place, name, kind, hop, begin, mark)
        begin = mark


def _step(
    way: Way, place: int, name: str, kind: Kind, of: Hop, first: str, second: str, to: Hop | None = None
) -> Step:
    """A step from a stamp of one hop to a stamp of the same or another."""
    end = to or of
    is_exact = of.clock == end.clock
    if is_exact:
        ns = end.at[second] - of.at[first]
    else:
        ns = end.at[second] + end.wall_ns - of.at[first] - of.wall_ns
    error_ns: int | None = 0 if is_exact else None
    if first == "captured":
        # Stamped by the camera's host. `error_ns` is set if its clock was compared with this host's.
        error_ns = of.error_ns if is_exact else None
        is_exact = is_exact and of.error_ns is not None
    start_ns = of.at[first] + of.wall_ns
    return Step(
        way.identity(place), way.hops[place].stage, name, kind, start_ns, ns, is_exact, error_ns, place
    )
