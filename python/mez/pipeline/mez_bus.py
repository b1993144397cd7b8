"""The bus `mez`: what a stage makes of a camera is a derived stream at the edge, read by groups."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mez
from mez import _native
from mez._frame import Frame
from mez.errors import BusyError, ConnectError, DataError, Error, FrameTooLargeError, WaitTimeoutError
from mez.pipeline import envelope
from mez.pipeline import record as records
from mez.pipeline.bus import Cameras, DeadLetter, Made, Standing, Terms
from mez.pipeline.errors import BusAwayError, BusError, RecordTooLargeError
from mez.pipeline.record import Record

GROUPS_S_MAX: Final = 20.0
"""How long the question for the groups of an edge may take. It takes tenths of a second."""

CONNECT_S: Final = 5.0
"""How long an edge is dialled before it counts as away."""

DEAD_LETTERS_MAX: Final = 100

# How the command is started without the package, which takes long to import.
_COMMAND: Final = [
    sys.executable,
    "-I",
    "-S",
    str(Path(_native.__file__).with_name("_again.py")),
    _native.__file__,
]


@dataclass(frozen=True, slots=True)
class MezBus:
    """The bus `mez` of a pipeline.

    Attributes:
        pipeline: The pipeline's name, which begins the names of its groups.
        edge: The edges, as in `mez.subscribe`; empty: its defaults.
        keys: The folder of keys; `None`: its default.
    """

    pipeline: str
    edge: tuple[str, ...] = ()
    keys: Path | None = None

    def prepare(self, stages: Mapping[str, Sequence[str]]) -> None:
        """See that the edge answers. Streams and groups are made by whoever comes first."""
        with _told("the edge"):
            mez.cameras(edge=self._edge, keys=self.keys, connect_timeout=CONNECT_S)

    def reader(self, source: Cameras | Made, terms: Terms) -> "MezReader":
        """Join the group `PIPELINE.STAGE`."""
        options: dict[str, Any] = {}
        if isinstance(source, Cameras):
            pattern, newest = source.pattern, source.newest
            given = {"latency_ms": source.latency_ms, "accuracy": source.accuracy, "profile": source.profile}
            options = {name: value for name, value in given.items() if value is not None}
        else:
            pattern, newest = f"{source.pattern}/{source.stage}", False
        with _told(f"the cameras {pattern}"):
            subscription = mez.subscribe(
                pattern,
                edge=self._edge,
                keys=self.keys,
                group=self._group(terms.stage),
                deliver="newest" if newest else "every",
                tries=None if newest else terms.tries,
                again_after=None if newest else terms.again_after_s,
                ordered="camera" if terms.ordered else None,
                application=f"{self.pipeline}.{terms.stage}-{terms.number}",
                connect_timeout=CONNECT_S,
                **options,
            )
        return MezReader(subscription)

    def writer(self, stage: str, *, plain: bool = False) -> "MezWriter":
        """Publish `CAMERA/STAGE`."""
        return MezWriter(stage, self._edge, self.keys, plain)

    def standings(self, reads: Mapping[str, Cameras | Made]) -> dict[str, Standing]:
        """What `mez groups` says."""
        known = {group["name"]: group for group in self._groups()}
        found = {}
        for stage in reads:
            group = known.get(self._group(stage))
            if group is None:
                continue
            account = group["account"]
            waiting = None if group["asleep"] else sum(lane["lag"] or 0 for lane in group["lanes"])
            found[stage] = Standing(waiting, account["open"], account["dead"], sum(account["lost"].values()))
        return found

    def dead_letters(self, stage: str) -> list[DeadLetter]:
        """What `mez groups show` says. The record is named by its place: `dock/cam1/detect@1-42`."""
        name = self._group(stage)
        return [
            DeadLetter(f"{told['camera']}@{told['epoch']}-{told['sequence']}", told["tries"], told["last"])
            for group in self._groups()
            if group["name"] == name
            for told in group["dead_letters"][-DEAD_LETTERS_MAX:]
        ]

    def close(self) -> None:
        """Nothing is held."""

    @property
    def _edge(self) -> list[str] | None:
        return list(self.edge) or None

    def _group(self, stage: str) -> str:
        return f"{self.pipeline}.{stage}"

    def _groups(self) -> list[dict[str, Any]]:
        return groups(self.edge, self.keys)


def groups(edge: Sequence[str], keys: Path | None) -> list[dict[str, Any]]:
    """What `mez groups --json` says.

    Args:
        edge: The edges, as in `mez.subscribe`; empty: its defaults.
        keys: The folder of keys; `None`: its default.

    Raises:
        BusAwayError: The edge did not answer.
    """
    words = [*_COMMAND, "groups", "--json"]
    for each in edge:
        words += ["--edge", each]
    if keys is not None:
        words += ["--keys", str(keys)]
    try:
        said = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GROUPS_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BusAwayError("the edge did not say how its groups stand; is it running?") from None
    if said.returncode != 0:
        raise BusAwayError(f"the edge did not say how its groups stand: {said.stderr.strip()}")
    return [json.loads(line) for line in said.stdout.splitlines()]


@dataclass(slots=True)
class MezDelivery:
    """A record that the edge gave to this worker."""

    record: Record
    _frame: Frame

    def done(self) -> None:
        """Settle it."""
        self._frame.done()

    def failed(self, error: str) -> None:
        """Have it given again."""
        self._frame.failed(error)


class MezReader:
    """A member of a group."""

    def __init__(self, subscription: mez.Subscription) -> None:
        self._subscription = subscription

    def next(self, timeout_s: float) -> MezDelivery | None:
        """Wait for a record. One with a damaged envelope fails, and is a dead letter in the end."""
        while True:
            try:
                with _told(self._subscription.pattern):
                    frame = self._subscription.next(timeout_s)
            except WaitTimeoutError:
                return None
            try:
                return MezDelivery(opened(frame), frame)
            except DataError as error:
                frame.failed(error)

    def close(self) -> None:
        """Leave the group."""
        self._subscription.close()


def opened(frame: Frame) -> Record:
    """The record that a frame is, with its envelope if it has one.

    Raises:
        DataError: The envelope is damaged.
    """
    if frame.content_type != envelope.ENVELOPE:
        return records.of_frame(frame)
    made = envelope.unpack(frame.payload, max(1, frame.attempt))
    return records.arrived(made, records.bus_stamps(frame))


class MezWriter:
    """Publishes what a stage makes, a stream for each camera."""

    def __init__(self, stage: str, edge: list[str] | None, keys: Path | None, plain: bool) -> None:
        self._stage = stage
        self._edge = edge
        self._keys = keys
        self._plain = plain
        self._streams: dict[str, mez.Publisher] = {}

    def send(self, made: Sequence[Record]) -> None:
        """Publish, one record after the other: each call waits until the edge has the record."""
        for record in made:
            with _told(f"{record.camera}/{self._stage}"):
                stream = self._stream(record.camera)
                records.sending(record)
                if self._plain:
                    stream.send_data(
                        bytes(record.payload), content_type=record.content_type, of=record.origin
                    )
                else:
                    packed = envelope.pack(record)
                    stream.send_data(packed, content_type=envelope.ENVELOPE, of=record.origin)

    def _stream(self, camera: str) -> mez.Publisher:
        stream = self._streams.get(camera)
        if stream is None:
            stream = self._streams[camera] = mez.publisher(
                f"{camera}/{self._stage}",
                of=camera,
                edge=self._edge,
                keys=self._keys,
                connect_timeout=CONNECT_S,
            )
        return stream

    def close(self) -> None:
        """Close all streams."""
        for stream in self._streams.values():
            stream.close()


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn errors of Mez into those of a bus."""
    try:
        yield
    except WaitTimeoutError:
        raise
    except FrameTooLargeError as error:
        raise RecordTooLargeError(f"{what}: {error}") from error
    except (ConnectError, BusyError) as error:
        raise BusAwayError(f"{what}: {error}") from error
    except Error as error:
        raise BusError(f"{what}: {error}") from error
