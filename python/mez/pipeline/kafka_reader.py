"""Reads a topic as a member of a consumer group, and counts the tries of each record.

Kafka stores the offset of a group, but not how often a record was tried. A failed try is repeated here, at
once. A try that kills its worker is detected with the metadata of the committed offset:

| metadata | meaning | what the next worker does |
| --- | --- | --- |
| empty | the previous worker left in order | works, and commits in the background |
| `open` | the previous worker did not leave in order: it died | works one record at a time |
| `try N` | the record at this offset was begun N times | tries once more, or makes it a dead letter |

One at a time means that `try N` is committed, and confirmed, before each record, until as many records are
done as may have been under way when the worker died.
"""

import logging
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from mez._data import Origin
from mez._frame_id import FrameId
from mez.errors import DataError
from mez.pipeline import envelope
from mez.pipeline import record as records
from mez.pipeline.bus import Terms
from mez.pipeline.errors import BusAwayError, BusError
from mez.pipeline.kafka_client import ANSWER_S_MAX, HEAD_BYTES, Link, headers
from mez.pipeline.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

WINDOW: Final = 100
"""The most records of a partition that are done and whose commit is not confirmed."""

SESSION_S: Final = 6.0
"""After how long without a heartbeat a worker's partitions go to others, in seconds."""

RENEW_S: Final = 1.0
"""Pause before a client is replaced that cannot be used any more, in seconds."""

POLL_S_MAX: Final = 86_400.0
"""After how long without a poll a living worker loses its partitions, in seconds. The runner kills hanging
workers sooner: it knows whether they work or wait for a bus."""

_OPEN: Final = "open"
_TRY: Final = re.compile(r"try (\d+)")
_ERROR_BYTES_MAX: Final = 500

_log = logging.getLogger("mez")


class Letters(Protocol):
    """Receives dead letters."""

    def send_packed(self, packed: "Sequence[tuple[str, bytes, Mapping[str, str]]]") -> None:
        """Send keys, values and headers."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(slots=True)
class Lane:
    """A partition that is assigned to this worker.

    Attributes:
        next: The offset after the last settled record.
        careful_until: Records before this offset are begun one at a time, because a worker died here.
        tries: How often the record at `next` was begun by workers that died.
        unconfirmed: Records settled since the last confirmed commit.
        is_refused: Whether a commit was refused, which happens during a rebalance.
    """

    next: int
    careful_until: int = 0
    tries: int = 0
    unconfirmed: int = 0
    is_refused: bool = False


@dataclass(slots=True)
class Taken:
    """A message that this worker works on."""

    message: Message
    lane: Lane
    attempt: int = 1
    error: str = ""
    is_dead: bool = False


@dataclass(slots=True)
class KafkaDelivery:
    """A record of a topic."""

    record: Record
    _reader: "KafkaReader" = field(repr=False)
    _taken: Taken = field(repr=False)

    def done(self) -> None:
        """Settle it: commit the offset after it."""
        self._reader.settle(self._taken)

    def failed(self, error: str) -> None:
        """Have it given again, or make it a dead letter."""
        self._reader.fail(self._taken, error)


class KafkaReader:
    """A member of a consumer group."""

    def __init__(self, link: Link, topic: str, group: str, terms: Terms, dead: Letters) -> None:
        self._link = link
        self._topic = topic
        self._tries = terms.tries
        self._dead = dead
        self._lanes: dict[int, Lane] = {}
        # A record that could not be given yet, or is given again.
        self._held: Taken | None = None
        self._group = group
        self._number = terms.number
        self._consumer = self._open()

    def _open(self) -> Consumer:
        settings = self._link.settings
        consumer = Consumer(
            {"on_commit": self._on_commit}
            | self._link.client(
                group_id=self._group,
                # A restarted worker gets its partitions back at once, without a rebalance.
                group_instance_id=f"{self._group}.{socket.gethostname()}.{self._number}",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                partition_assignment_strategy="cooperative-sticky",
                session_timeout_ms=round(SESSION_S * 1000),
                heartbeat_interval_ms=1000,
                max_poll_interval_ms=round(POLL_S_MAX * 1000),
                fetch_message_max_bytes=settings.record_bytes_max + HEAD_BYTES,
                queued_max_messages_kbytes=max(16 << 10, 4 * settings.record_bytes_max >> 10),
                topic_metadata_refresh_interval_ms=5000,
                allow_auto_create_topics=False,
            )
        )
        consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        return consumer

    def next(self, timeout_s: float) -> KafkaDelivery | None:
        """Wait for a record. This also sends dead letters, and repeats refused commits.

        Raises:
            BusError: As `Reader.next`.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            taken, self._held = self._held, None
            if taken is None:
                taken = self._poll(max(0.0, until_s - time.monotonic()))
            if taken is None:
                self._repeat()
                return None
            try:
                delivery = self._give(taken)
            except BusError:
                self._held = taken
                raise
            if delivery is not None:
                return delivery

    def _poll(self, timeout_s: float) -> Taken | None:
        message = self._consumer.poll(timeout_s)
        if message is None:
            return None
        error = message.error()
        # Only an error that comes by the callback says by `fatal` that it is one.
        if error is not None and error.code() == KafkaError._FATAL:
            self._renew(error)
            return None
        if error is not None:
            # Other errors than refusals are temporary: the client connects again by itself.
            failed = self._link.failed(self._topic, error)
            if not isinstance(failed, BusAwayError) and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise failed
            return None
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None, "messages without an error have a place"
        lane = self._lanes.get(partition)
        if lane is None or lane.next > offset:
            lane = self._lanes[partition] = self._opened(partition, offset)
        lane.next = offset
        return Taken(message, lane)

    def _renew(self, error: KafkaError) -> None:
        """Replace the client after an error from which it does not recover.

        Restarted brokers may take a client that joins again for another one of its name, and shut it out.
        Records that are not settled are given again.
        """
        _log.warning("%s: the client is replaced: %s", self._topic, error.str())
        self._lanes.clear()
        self._held = None
        self._consumer.close()
        # Two workers of one name shut each other out: not more often than this.
        time.sleep(RENEW_S)
        self._consumer = self._open()

    def _opened(self, partition: int, offset: int) -> Lane:
        """The state of a newly assigned partition: careful, if the previous worker did not leave in order."""
        try:
            (told,) = self._consumer.committed([TopicPartition(self._topic, partition)], ANSWER_S_MAX)
        except KafkaException:
            # Unknown, so assume that the previous worker died.
            return Lane(offset, offset + WINDOW)
        metadata = told.metadata or ""
        tried = _TRY.fullmatch(metadata)
        if tried and told.offset == offset:
            return Lane(offset, offset + WINDOW, int(tried[1]))
        return Lane(offset, offset + WINDOW if metadata else 0)

    def _give(self, taken: Taken) -> KafkaDelivery | None:
        """The record, or `None` if it became a dead letter.

        Raises:
            BusError: The cluster did not confirm the commit or the dead letter.
        """
        lane = taken.lane
        if lane.tries >= self._tries and not taken.is_dead:
            taken.is_dead, taken.error = True, "its worker died in each try"
            taken.attempt = lane.tries
        if not taken.is_dead:
            self._begin(taken)
            taken.attempt = max(taken.attempt, lane.tries)
            try:
                record = _record(taken.message, taken.attempt)
            except DataError as error:
                taken.is_dead, taken.error = True, f"DataError: {error}"
            else:
                return KafkaDelivery(record, self, taken)
        self._dead.send_packed([_letter(taken)])
        self.settle(taken)
        return None

    def _begin(self, taken: Taken) -> None:
        """Commit that the record was begun, so that the death of this worker is noticed."""
        lane = taken.lane
        if taken.attempt > 1 and lane.tries:
            return
        if lane.next < lane.careful_until:
            lane.tries += 1
            try:
                self._commit(_partition(taken.message), lane.next, f"try {lane.tries}", is_confirmed=True)
            except BusError:
                lane.tries -= 1
                raise
        elif lane.careful_until >= 0:
            # Once for each partition: `open` shows the next worker if this one dies.
            self._commit(_partition(taken.message), lane.next, _OPEN, is_confirmed=True)
            lane.careful_until = -1

    def settle(self, taken: Taken) -> None:
        """Settle a record. Each commit is sent at once; every 100th one is confirmed."""
        lane = taken.lane
        lane.next += 1
        lane.tries = 0
        lane.unconfirmed += 1
        is_confirmed = lane.unconfirmed >= WINDOW
        try:
            self._commit(_partition(taken.message), lane.next, _OPEN, is_confirmed=is_confirmed)
        except BusError as error:
            # A later commit includes this one.
            _log.warning("%s", error)
        if is_confirmed:
            lane.unconfirmed = 0

    def _on_commit(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        for place in places:
            lane = self._lanes.get(place.partition)
            if lane is not None and (error is not None or place.error is not None):
                lane.is_refused = True

    def _repeat(self) -> None:
        """While no record comes, repeat refused commits, because maybe no later record repeats them."""
        for partition, lane in list(self._lanes.items()):
            # With tries, the metadata of the last commit must stay.
            if lane.is_refused and not lane.tries:
                lane.is_refused = False
                try:
                    self._commit(partition, lane.next, _OPEN, is_confirmed=False)
                except BusError:
                    lane.is_refused = True

    def fail(self, taken: Taken, error: str) -> None:
        """Try a record again, or make it a dead letter at the next call of `next`."""
        taken.error = error
        if taken.attempt >= self._tries:
            taken.is_dead = True
        else:
            taken.attempt += 1
        self._held = taken

    def _commit(self, partition: int, offset: int, metadata: str, *, is_confirmed: bool) -> None:
        place = TopicPartition(self._topic, partition, offset, metadata)
        try:
            if is_confirmed:
                self._consumer.commit(offsets=[place], asynchronous=False)
            else:
                self._consumer.commit(offsets=[place], asynchronous=True)
        except KafkaException as error:
            if error.args[0].code() in _NOT_OURS:
                # The partition belongs to another worker by now, which gets the record again.
                return
            raise self._link.failed(f"commit of {self._topic}", error) from error

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:  # noqa: ANN401
        for place in partitions:
            self._lanes.pop(place.partition, None)

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:  # noqa: ANN401
        self._leave([place.partition for place in partitions])

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:  # noqa: ANN401
        for place in partitions:
            self._forget(place.partition)

    def _leave(self, partitions: Sequence[int]) -> None:
        """Commit that this worker leaves the partitions in order."""
        places = []
        for partition in partitions:
            lane = self._forget(partition)
            if lane is not None:
                places.append(TopicPartition(self._topic, partition, lane.next, ""))
        if places:
            try:
                self._consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                _log.warning(
                    "%s: the offset was not committed (%s); records are given again", self._topic, error
                )

    def _forget(self, partition: int) -> Lane | None:
        if self._held is not None and self._held.message.partition() == partition:
            self._held = None
        return self._lanes.pop(partition, None)

    def close(self) -> None:
        """Leave the group. Records that are not settled are given again."""
        self._leave(list(self._lanes))
        self._consumer.close()
        self._dead.close()


_NOT_OURS: Final = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._STATE,
    KafkaError._NO_OFFSET,
)


def _partition(message: Message) -> int:
    partition = message.partition()
    assert partition is not None, "messages without an error have a place"
    return partition


def _record(message: Message, attempt: int) -> Record:
    """The record of a message, with its envelope or without.

    Raises:
        DataError: Its headers cannot be read.
    """
    payload = memoryview(message.value() or b"")
    try:
        told = headers(message)
        if "mez-version" in told:
            return envelope.opened(told, payload, attempt)
        key = str(message.key() or b"", "utf-8")
        camera = told.get("mez-camera", key) or "unknown"
        place = f"{message.partition()}-{message.offset()}"
        frame = told.get("mez-frame", place)
        epoch, sequence = map(int, frame.split("-"))
        captured_ns = int(told.get("mez-captured-ns", message.timestamp()[1] * 1_000_000))
    except (UnicodeDecodeError, ValueError) as error:
        raise DataError(f"the headers of the message cannot be read ({error})") from error
    content_type = told.get("content-type", "application/octet-stream")
    origin = Origin(camera, FrameId(epoch, sequence), captured_ns)
    return records.start(origin, payload, content_type, attempt)


def _letter(taken: Taken) -> tuple[str, bytes, dict[str, str]]:
    """A dead letter: the unchanged message, with the error and the number of tries as further headers."""
    message = taken.message
    told = headers(message, "replace")
    told.setdefault("mez-id", f"{message.topic()}@{message.partition()}-{message.offset()}")
    error = taken.error.encode()[:_ERROR_BYTES_MAX].decode(errors="ignore")
    told |= {"mez-error": error, "mez-tries": str(taken.attempt)}
    return str(message.key() or b"", "utf-8", "replace"), message.value() or b"", told
