"""The bus `mez`: a stage publishes a derived stream for each camera at the edge, and groups read them."""

import contextlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mez
from mez import _native
from mez._frame import Frame
from mez._frame_id import FrameId
from mez._subscribe import connect
from mez.errors import (
    BrokerError,
    BusyError,
    ConnectError,
    DataError,
    Error,
    FrameTooLargeError,
    KeysError,
    NotOnDiskError,
    WaitTimeoutError,
)
from mez.pipeline import envelope
from mez.pipeline import record as records
from mez.pipeline.bus import Cameras, DeadLetter, Made, Standing, Terms
from mez.pipeline.errors import BusAwayError, BusError, BusRefusedError, RecordTooLargeError
from mez.pipeline.record import Record

_log = logging.getLogger(__name__)

GROUPS_S_MAX: Final = 20.0
"""How long the query for the groups of an edge may take, in seconds. Usually it takes tenths of a second."""

CONNECT_S: Final = 0.0
"""The edge is tried once. The callers try again, and report the wait."""

AGAIN_AFTER_S: Final = 86_400.0
"""How long the edge leaves a record with a living worker that reports nothing, in seconds. The runner kills
hanging workers sooner: it knows whether they work or wait for a bus."""

DEAD_LETTERS_MAX: Final = 100

# How the command `mez` is started without the package, because its import takes long.
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
        pipeline: The pipeline's name. Names of its groups begin with it.
        edge: The edges, as in `mez.subscribe`; empty: its defaults.
        keys: The folder of keys; `None`: its default.
        on_disk: Whether a record is confirmed once it is on the edge's disk, if the edge has a store.
    """

    pipeline: str
    edge: tuple[str, ...] = ()
    keys: Path | None = None
    on_disk: bool = True

    def prepare(
        self, stages: Mapping[str, Sequence[str]], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Check that the edge answers. Streams and groups are created at their first use."""
        with _told("the edge"):
            # This needs no grant.
            connect(self._edge, keys=self.keys, application=self.pipeline, connect_timeout=CONNECT_S)

    def reader(self, source: Cameras | Made, terms: Terms) -> "MezReader":
        """Join the group `PIPELINE.STAGE`."""
        options: dict[str, Any] = {}
        if isinstance(source, Cameras):
            pattern, newest = source.pattern, source.newest
            given = {"latency_ms": source.latency_ms, "accuracy": source.accuracy, "profile": source.profile}
            options = {name: value for name, value in given.items() if value is not None}
        else:
            pattern, newest = f"{source.pattern}/{source.stage}", False
        if not newest:
            options |= {"deliver": "every", "tries": terms.tries, "again_after": AGAIN_AFTER_S}

        def opens() -> mez.Subscription:
            return mez.subscribe(
                pattern,
                edge=self._edge,
                keys=self.keys,
                group=self._group(terms.stage),
                ordered="camera" if terms.ordered else None,
                application=f"{self.pipeline}.{terms.stage}-{terms.number}",
                connect_timeout=CONNECT_S,
                **options,
            )

        return MezReader(f"the cameras {pattern}", opens)

    def writer(self, stage: str, *, plain: bool = False) -> "MezWriter":
        """Publish `CAMERA/STAGE`."""
        return MezWriter(stage, self._edge, self.keys, plain=plain, on_disk=self.on_disk)

    def standings(self, reads: Mapping[str, Cameras | Made]) -> dict[str, Standing]:
        """The progress of groups, from `mez groups`."""
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
        """The dead letters of a stage's group. A record is named by its place: `dock/cam1/detect@1-42`."""
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
    """The output of `mez groups --json`.

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
        raise BusAwayError("the edge did not answer the query for its groups; is it running?") from None
    if said.returncode != 0:
        # Before the error, the command may print how long it tried.
        why = said.stderr.strip().rpartition("\n")[2].removeprefix("mez groups: ")
        raise BusAwayError(f"the query for the groups of the edge failed: {why}")
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
        """Report the failure. The record is given again, or becomes a dead letter."""
        self._frame.failed(error)


class MezReader:
    """A member of a group.

    Args:
        what: What it reads, for people.
        opens: Joins the group.

    Raises:
        BusError: As `Bus.reader`.
    """

    def __init__(self, what: str, opens: Callable[[], mez.Subscription]) -> None:
        self._what = what
        self._opens = opens
        self._subscription: mez.Subscription | None = None
        self._join()

    def next(self, timeout_s: float) -> MezDelivery | None:
        """Wait for a record. A record with a damaged envelope fails, and becomes a dead letter."""
        while True:
            subscription = self._join()
            try:
                with _told(self._what):
                    frame = subscription.next(timeout_s)
            except WaitTimeoutError:
                return None
            except BusRefusedError:
                # The edge has ended the subscription. The next call joins the group again.
                self.close()
                raise
            try:
                return MezDelivery(opened(frame), frame)
            except DataError as error:
                frame.failed(error)

    def _join(self) -> mez.Subscription:
        if self._subscription is None:
            with _told(self._what):
                self._subscription = self._opens()
        return self._subscription

    def close(self) -> None:
        """Leave the group."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()


def opened(frame: Frame) -> Record:
    """The record of a frame, read from its envelope if it has one.

    Raises:
        DataError: The envelope is damaged.
    """
    if frame.content_type != envelope.ENVELOPE:
        return records.of_frame(frame)
    made = envelope.unpack(frame.payload, max(1, frame.attempt))
    return records.arrived(made, records.bus_stamps(frame))


class MezWriter:
    """Publishes the records of a stage, in a stream for each camera."""

    def __init__(
        self, stage: str, edge: list[str] | None, keys: Path | None, *, plain: bool, on_disk: bool
    ) -> None:
        self._stage = stage
        self._edge = edge
        self._keys = keys
        self._plain = plain
        self._waits_for_disk = on_disk
        self._streams: dict[str, mez.Publisher] = {}
        # Records that a failed `send` has published. The next call brings the same records again.
        self._unsure: list[tuple[Record, FrameId]] = []
        # The cameras for which it was logged that the edge has no store.
        self._told: set[str] = set()

    def send(self, made: Sequence[Record]) -> None:
        """Publish the records in order, and wait until all are on the edge's disk, if it has a store.

        Called again with the same records after an error, it publishes only those that are not in their
        streams. So readers do not get a record repeatedly while a disk is full. If the edge lost records,
        the next call publishes these, and the records that followed them in their streams, in order.
        """
        self._unsure = [(one, frame) for one, frame in self._unsure if any(one is record for record in made)]
        for record in made:
            if not any(record is one for one, _ in self._unsure):
                self._unsure.append((record, self._publish(record)))
        if self._waits_for_disk:
            self._wait_for_disk()
        self._unsure = []

    def _wait_for_disk(self) -> None:
        # The first lost record of each camera.
        lost: dict[str, int] = {}
        # The last record first: if it is on disk, the earlier ones are too.
        for at, (record, frame) in reversed(list(enumerate(self._unsure))):
            if not self._is_on_disk(record, frame):
                lost[record.camera] = at
        if lost:
            self._unsure = [
                (record, frame)
                for at, (record, frame) in enumerate(self._unsure)
                if at < lost.get(record.camera, len(self._unsure))
            ]
            names = ", ".join(f"{camera}/{self._stage}" for camera in sorted(lost))
            raise BusAwayError(f"{names}: the edge lost records before they were on disk; send them again")

    @contextlib.contextmanager
    def _working_on(self, camera: str) -> Iterator[None]:
        """Convert errors to those of a bus. A stream that the edge has ended is opened again next time."""
        try:
            with _told(f"{camera}/{self._stage}"):
                yield
        except BusRefusedError:
            refused = self._streams.pop(camera, None)
            self._told.discard(camera)
            if refused is not None:
                refused.close()
            raise

    def _publish(self, record: Record) -> FrameId:
        """Publish a record. It returns once the record is in its stream."""
        with self._working_on(record.camera):
            return self._send(record)

    def _is_on_disk(self, record: Record, frame: FrameId) -> bool:
        """Wait until a record is on disk. False: it is lost, and must be published again."""
        with self._working_on(record.camera):
            try:
                self._stream(record.camera).wait_on_disk(frame)
            except NotOnDiskError as error:
                if error.reason == "RECORD_LOST":
                    return False
                if error.reason != "NO_STORE":
                    raise
                # The stream may continue at an edge with a store, so the next record checks again.
                if record.camera not in self._told:
                    self._told.add(record.camera)
                    _log.info("%s/%s: confirmed only in memory: %s", record.camera, self._stage, error)
        return True

    def _send(self, record: Record) -> FrameId:
        stream = self._stream(record.camera)
        records.sending(record)
        if self._plain:
            payload, content_type = bytes(record.payload), record.content_type
        else:
            payload, content_type = envelope.pack(record), envelope.ENVELOPE
        frame = stream.send_data(payload, content_type=content_type, of=record.origin)
        assert frame is not None, "an edge gives every record of a derived stream a number"
        return frame

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
    """Convert errors of Mez to those of a bus."""
    try:
        yield
    except WaitTimeoutError:
        raise
    except FrameTooLargeError as error:
        raise RecordTooLargeError(f"{what}: {error}") from error
    except (ConnectError, BusyError, NotOnDiskError) as error:
        raise BusAwayError(f"{what}: {error}") from error
    except (BrokerError, KeysError) as error:
        raise BusRefusedError(f"{what}: {error}") from error
    except Error as error:
        raise BusError(f"{what}: {error}") from error
