"""Measures rungs of a stream: the bytes of its records, and the application's results."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mez.errors import DataError
from mez.profile.errors import AppError, RecordError
from mez.profile.stream.grid import ORIGINAL, Spec, base_of
from mez.profile.stream.records import Record, Stream
from mez.profile.stream.task import Task


@dataclass(frozen=True, slots=True)
class Made:
    """The records of one index at a rung, one of each stream.

    Attributes:
        size_bytes: Bytes of each record.
        result: The application's result.
        make_ms: Processor time to degrade one record.
        task_ms: Processor time of the application.
    """

    size_bytes: tuple[int, ...]
    result: Any
    make_ms: float
    task_ms: float


@dataclass
class Measured:
    """The measurements of a rung.

    Attributes:
        rung: Its name.
        skip: Number of records skipped after each one that is sent.
        sent: The records that were sent, by index.
        scores: The accuracy of the newest result at each record, by index.
    """

    rung: str
    skip: int
    sent: dict[int, Made] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)

    def bytes_per_record(self, places: Sequence[int]) -> float:
        """Return the mean bytes of a published record. Skipped records count as 0."""
        sizes = [size for place in places for size in self.sent[place - place % (self.skip + 1)].size_bytes]
        return sum(sizes) / len(sizes) / (self.skip + 1)

    def accuracy(self, places: Sequence[int]) -> float:
        """Return the mean accuracy over records."""
        return sum(self.scores[place] for place in places) / len(places)


class Bench:
    """Measures the rungs of streams that one application reads together.

    Args:
        streams: The streams. All are degraded with the same rung.
        spec: Their knobs.
        task: The application.
    """

    def __init__(self, streams: Sequence[Stream], spec: Spec, task: Task) -> None:
        shortest = min(streams, key=lambda stream: len(stream.records))
        self.records = len(shortest.records)
        self._streams = streams
        self._spec = spec
        self._task = task
        self._results: dict[tuple[int, bytes], tuple[Any, float]] = {}
        self._made: dict[tuple[str, int], Made] = {}
        self._measured: dict[str, Measured] = {}

    @property
    def results(self) -> int:
        """Number of results that the application made."""
        return len(self._results)

    def bytes_of(self, rung: str) -> int:
        """Return the bytes of the first record at a rung."""
        return len(self._body(rung, self._streams[0].records[0]))

    def measure(self, rung: str, places: Sequence[int]) -> Measured:
        """Measure a rung at least on these records. Known results are reused.

        Raises:
            AppError: A function of the user's failed.
            RecordError: A record cannot be made at this rung.
        """
        skip = int(self._spec.values(rung).get("skip", 0))
        known = self._measured.setdefault(rung, Measured(rung, skip))
        for place in places:
            if place in known.scores:
                continue
            sent = place - place % (skip + 1)
            known.sent[sent] = made = self._make(base_of(rung), sent)
            reference = self._make(ORIGINAL, place)
            known.scores[place] = self._task.score(reference.result, made.result, self._at(place), rung)
        return known

    def _at(self, place: int) -> list[Record]:
        return [stream.records[place] for stream in self._streams]

    def _make(self, rung: str, place: int) -> Made:
        if (rung, place) in self._made:
            return self._made[rung, place]
        records = self._at(place)
        began = time.process_time()
        bodies = [self._body(rung, record) for record in records]
        make_ms = (time.process_time() - began) * 1e3 / len(bodies)
        # Rungs often give the same bytes: a list of 20 rows does not change if 30 rows are allowed.
        digest = hashlib.sha256(b"".join(hashlib.sha256(body).digest() for body in bodies)).digest()
        if (known := self._results.get((place, digest))) is None:
            began = time.process_time()
            result = self._task.result(bodies, records, rung)
            known = self._results[place, digest] = (result, (time.process_time() - began) * 1e3)
        sizes = tuple(len(body) for body in bodies)
        self._made[rung, place] = made = Made(sizes, known[0], make_ms, known[1])
        return made

    def _body(self, rung: str, record: Record) -> bytes:
        try:
            return self._spec.apply(rung, record.payload, record.content_type)
        except DataError as error:
            cause = error.__cause__
            if cause is not None:
                raise AppError(
                    f"the degrade function raised {type(cause).__name__} on {record.name} at {rung}: {cause}"
                ) from cause
            raise RecordError(f"{record.name} cannot be made at {rung}: {error}") from error
