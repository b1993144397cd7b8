"""What stages need of a bus. Two keep it: `mez_bus` and `kafka_bus`, with one set of tests for both.

A bus carries what a stage makes to the stages behind it. Every record reaches one worker of each of them, at
least once. The promises:

- `Writer.send` returns when the bus has confirmed every record, or raises.
- `Reader.next` gives a record to this worker alone, until it is settled, its time is over or the worker has
  died. Then it is given again.
- `Delivery.done` settles it. `Delivery.failed` gives it again, until it has had its tries: then it is a dead
  letter with the last error.
- Identity, camera, capture time, content type, headers and hops of a record are the same behind the bus.
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
    """What a stage makes as a source of records.

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
    """How far a stage has come with what it reads.

    Attributes:
        waiting: Records that are on the bus and were not given to a worker yet; `None` if nobody knows.
        open: Records that were given and are not settled; `None`: the bus counts them as waiting.
        dead: Dead letters.
        lost: Records that the bus no longer held when their turn came.
    """

    waiting: int | None = None
    open: int | None = None
    dead: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that nobody could work on.

    Attributes:
        record: Its identity; on the bus `mez` its place in its stream.
        tries: How often it was given.
        error: How the last try ended.
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
        """Say that the work is done, and what was made of it is on its bus."""

    def failed(self, error: str) -> None:
        """Say that the work could not be done, and why."""


class Reader(Protocol):
    """Gives a worker the records of its stage, one at a time. For one thread."""

    def next(self, timeout_s: float) -> Delivery | None:
        """Wait for a record; `None` if none came. It can be called again after any of these errors.

        Raises:
            BusAwayError: Something has to be on the bus before the next record, and the bus is away. While
                nothing has to be there, a bus that is away is no error: records come when it is back.
            BusRefusedError: The bus refuses, until somebody changes that.
        """

    def close(self) -> None:
        """Leave the group. A record that is not settled is given to another worker."""


class Writer(Protocol):
    """Puts onto a bus what a stage makes. For one thread."""

    def send(self, records: Sequence[Record]) -> None:
        """Send records, and return once the bus has confirmed all of them.

        Raises:
            BusAwayError: It did not confirm in time. Some may be there: send all of them again.
            BusRefusedError: The bus refuses, until somebody changes that. Some may be there.
            BusError: A record cannot be sent, such as one that is too large (`RecordTooLargeError`).
        """

    def close(self) -> None:
        """Let go of the connection."""


class Bus(Protocol):
    """A bus of a pipeline."""

    def prepare(
        self, stages: Mapping[str, Sequence[str]], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Make what the bus needs before workers start.

        Args:
            stages: The stages that write to this bus, each with those that read it.
            is_over: Whether nobody needs the answer any more. Then a bus that is away is given up at once.

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
        """Open what a stage makes for writing.

        Args:
            stage: The stage that writes.
            plain: Send payload and content type alone, for programs that know nothing of pipelines.
        """

    def standings(self, reads: Mapping[str, Cameras | Made]) -> dict[str, Standing]:
        """How far stages have come, by stage; only of those whose group there is.

        Args:
            reads: The stages that read from this bus, and what each reads.

        Raises:
            BusAwayError: The bus cannot be reached.
        """

    def dead_letters(self, stage: str) -> list[DeadLetter]:
        """The newest dead letters of a stage, 100 at most, oldest first.

        Raises:
            BusAwayError: The bus cannot be reached.
        """

    def close(self) -> None:
        """Let go of all connections."""
