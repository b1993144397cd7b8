"""The interface of a bus. `mez_bus` and `kafka_bus` implement it; one set of tests checks both.

A bus carries the records of a stage to the stages that read them. Every record reaches one worker of each
reading stage, at least once. The guarantees:

- `Writer.send` returns when the bus has confirmed every record, or raises.
- `Reader.next` gives a record to this worker alone. If its time is over or the worker dies before the record
  is settled, it is given again.
- `Delivery.done` settles it. `Delivery.failed` gives it again, until its tries are used up: then it is a dead
  letter with the last error.
- The bus preserves identity, camera, capture time, content type, headers and hops of a record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mez.pipeline.record import Record


@dataclass(frozen=True, slots=True)
class Cameras:
    """Frames of cameras as a source of records: always on the bus `mez`.

    Attributes:
        pattern: Which cameras: `dock/*`.
        newest: Give the newest frame of each camera, once, instead of every frame at least once.
        latency_ms: As in `mez.subscribe`, like the others.
        accuracy: The accuracy floor.
        profile: The profile of the detector.
    """

    pattern: str
    newest: bool = False
    latency_ms: float | None = None
    accuracy: float | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """The records that a stage makes, as a source.

    Attributes:
        stage: The stage.
        pattern: The cameras of its pipeline.
    """

    stage: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Terms:
    """How a stage reads.

    Attributes:
        stage: The reading stage, which names its group.
        number: Which of its workers, from 0.
        tries: How often a record is given before it is a dead letter.
        ordered: Whether records of a camera are worked on one after the other.
    """

    stage: str
    number: int = 0
    tries: int = 5
    ordered: bool = False


@dataclass(slots=True)
class Standing:
    """The progress of a stage.

    Attributes:
        waiting: Number of records on the bus that no worker has got yet. `None` if it is unknown.
        open: Number of records that were given and are not settled. `None`: they count as waiting.
        dead: Number of dead letters.
        lost: Number of records that the bus dropped before they were given.
    """

    waiting: int | None = None
    open: int | None = None
    dead: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that failed at every try.

    Attributes:
        record: Its identity. On the bus `mez`: its place in its stream.
        tries: How often it was given.
        error: The error of the last try.
    """

    record: str
    tries: int
    error: str


class Delivery(Protocol):
    """A record in a worker's hands."""

    @property
    def record(self) -> Record:
        """The record."""

    def done(self) -> None:
        """Report that the work is done, and its results are on the bus."""

    def failed(self, error: str) -> None:
        """Report that the work failed, and why."""


class Reader(Protocol):
    """Gives a worker the records of its stage, one at a time. For one thread."""

    def next(self, timeout_s: float) -> Delivery | None:
        """Wait for a record; `None` if none came. It can be called again after any of these errors.

        Raises:
            BusAwayError: The bus is away, and a commit or dead letter must reach it before the next record.
                Otherwise a bus that is away is not an error: records come when it is back.
            BusRefusedError: The bus refuses until somebody changes its settings or rights.
        """

    def close(self) -> None:
        """Leave the group. A record that is not settled is given to another worker."""


class Writer(Protocol):
    """Sends the records of a stage to a bus. For one thread."""

    def send(self, records: Sequence[Record]) -> None:
        """Send records, and return once the bus has confirmed all of them.

        Raises:
            BusAwayError: It did not confirm in time. Some records may be on the bus: send all of them again.
            BusRefusedError: The bus refuses until somebody changes its settings or rights. Some records may
                be on the bus.
            BusError: A record cannot be sent, such as one that is too large (`RecordTooLargeError`).
        """

    def close(self) -> None:
        """Close the connection."""


class Bus(Protocol):
    """A bus of a pipeline."""

    def prepare(
        self, stages: Mapping[str, Sequence[str]], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Create what the bus needs before workers start.

        Args:
            stages: The stages that write to this bus, each with those that read it.
            is_over: Whether the pipeline is to end. Then the call does not wait for a bus that is away.

        Raises:
            BusAwayError: It cannot be reached.
            BusError: It refuses.
        """

    def reader(self, source: Cameras | Made, terms: Terms) -> Reader:
        """Join the group of a stage.

        Raises:
            BusAwayError: The bus cannot be reached.
            BusError: It refuses.
        """

    def writer(self, stage: str, *, plain: bool = False) -> Writer:
        """Open the stream or topic of a stage for writing.

        Args:
            stage: The stage that writes.
            plain: Send only payload and content type, for programs that do not know pipelines.
        """

    def standings(self, reads: Mapping[str, Cameras | Made]) -> dict[str, Standing]:
        """The progress of stages, by stage. Stages without a group are left out.

        Args:
            reads: The stages that read from this bus, and what each reads.

        Raises:
            BusAwayError: The bus cannot be reached.
        """

    def dead_letters(self, stage: str) -> list[DeadLetter]:
        """The newest dead letters of a stage, at most 100, oldest first.

        Raises:
            BusAwayError: The bus cannot be reached.
        """

    def close(self) -> None:
        """Close all connections."""
