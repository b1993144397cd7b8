"""Reads the events of a pipeline from a folder, and counts lines that cannot be used."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mez.pipeline.errors import EventsError
from mez.pipeline.events import VERSION
from mez.pipeline.record import Hop

RECORDS_MAX: Final = 200_000
"""The most records that are read, so that a report needs a gigabyte of memory at most."""

CUT_OFF: Final = "cut off at the end of a file"
DAMAGED: Final = "no events"
OTHER_VERSION: Final = f"of another version than {VERSION}"
TWICE: Final = "of a record that was there already"
TOO_MANY: Final = f"beyond the first {RECORDS_MAX} records"


@dataclass(frozen=True, slots=True)
class Way:
    """A record that left a pipeline, and its hops.

    Attributes:
        pipeline: The pipeline's name.
        id: The record's identity.
        camera: The camera of the frame that it was made of.
        frame: This frame: `EPOCH-SEQUENCE`.
        captured_ns: When the frame was captured, in nanoseconds since 1970-01-01 UTC.
        hops: Its way, oldest first; the first is that of the camera.
    """

    pipeline: str
    id: str
    camera: str
    frame: str
    captured_ns: int
    hops: tuple[Hop, ...]

    @property
    def root(self) -> str:
        """The identity of the camera's frame."""
        return f"{self.camera}@{self.frame}"

    def identity(self, place: int) -> str:
        """The identity that the record had after a hop; for the first hop, that of the frame.

        Records of one frame share the hops up to the stage that split them, and so these identities.
        """
        parts = self.id.removeprefix(self.root).split("/")[1:]
        if place > len(parts):
            # This stage made no record of it.
            return f"{self.id}/{self.hops[place].stage}"
        return "/".join((self.root, *parts[:place]))


@dataclass(slots=True)
class Events:
    """The events in a folder.

    Attributes:
        files: How many files.
        ways: The records.
        left_out: Lines that were not used, by the reason.
    """

    files: int = 0
    ways: list[Way] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read(folder: Path) -> Events:
    """Read all files of events in a folder.

    Lines that cannot be used are counted. If a record has several lines, because its worker died before the
    record was settled, only the first one is used.

    Raises:
        EventsError: The folder is not there, or there is not one record in it.
    """
    if not folder.is_dir():
        raise EventsError(f"{folder} is not a folder; give the folder that events in [pipeline] names")
    events = Events()
    known: set[str] = set()
    for path in sorted(folder.glob("*.jsonl")):
        events.files += 1
        for way in _ways(path, events.left_out):
            if way.id in known:
                events.left_out[TWICE] += 1
            elif len(known) >= RECORDS_MAX:
                events.left_out[TOO_MANY] += 1
            else:
                known.add(way.id)
                events.ways.append(way)
    if not events.ways:
        raise EventsError(f"{folder} has {_described(events)}; has a record left the pipeline yet?")
    events.ways.sort(key=lambda way: way.captured_ns)
    return events


def told(left_out: Mapping[str, int]) -> list[str]:
    """The lines that were left out, as a text for each reason."""
    return [f"{count} {'line' if count == 1 else 'lines'} {why}" for why, count in sorted(left_out.items())]


def _described(events: Events) -> str:
    if not events.files:
        return "no files of events (*.jsonl)"
    lines = ", ".join(told(events.left_out)) or "no lines"
    return f"no event in {events.files} {'file' if events.files == 1 else 'files'} ({lines})"


def _ways(path: Path, left_out: Counter[str]) -> Iterator[Way]:
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise EventsError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    with file:
        for line in file:
            try:
                yield _way(line)
            except _OtherVersionError:
                left_out[OTHER_VERSION] += 1
            except (ValueError, KeyError, TypeError, RecursionError):
                # A worker that was killed, or is still writing, leaves an incomplete line.
                left_out[DAMAGED if line.endswith("\n") else CUT_OFF] += 1


class _OtherVersionError(Exception):
    """A line is of another version."""


def _way(line: str) -> Way:
    told: Any = json.loads(line)
    if told["version"] != VERSION:
        raise _OtherVersionError
    hops = tuple(Hop.from_plain(hop) for hop in told["hops"])
    if not hops:
        raise ValueError("a record without hops")
    return Way(
        pipeline=str(told["pipeline"]),
        id=str(told["id"]),
        camera=str(told["camera"]),
        frame=str(told["frame"]),
        captured_ns=int(told["captured_ns"]),
        hops=hops,
    )
