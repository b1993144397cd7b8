"""The bus `kafka`: a topic for each stage, the camera as the key, a consumer group for each reading stage."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mez.errors import MissingPackageError
from mez.pipeline import envelope
from mez.pipeline import record as records
from mez.pipeline.bus import Cameras, DeadLetter, Made, Standing, Terms
from mez.pipeline.errors import BusAwayError, BusError, BusUnsureError, RecordTooLargeError
from mez.pipeline.kafka_table import KafkaSettings
from mez.pipeline.record import Record

try:
    import confluent_kafka
    from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin._listoffsets import OffsetSpec

    from mez.pipeline.kafka_client import ANSWER_S_MAX, HEAD_BYTES, Admin, Link, headers
    from mez.pipeline.kafka_reader import KafkaReader
except ImportError as error:
    raise MissingPackageError(
        f"the bus kafka needs the package confluent-kafka ({error}); run: pip install 'mez[kafka]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable

CONFIRM_S_MAX: Final = 20.0
"""How long brokers may take to confirm a record, in seconds."""

DEAD_LETTERS_MAX: Final = 100


class KafkaBus:
    """The bus `kafka` of a pipeline.

    Args:
        pipeline: The pipeline's name. Names of topics and groups begin with it.
        settings: The table `kafka`.

    Raises:
        BusError: The secrets are missing, or others can read them.
    """

    def __init__(self, pipeline: str, settings: KafkaSettings) -> None:
        self._pipeline = pipeline
        self._link = Link(settings)
        self._settings = settings
        self._admin = Admin(self._link)
        # For each group, the consumer that reads its committed offsets. Several threads use it.
        self._lookers: dict[str, confluent_kafka.Consumer] = {}
        self._lock = threading.Lock()

    def prepare(
        self, stages: Mapping[str, Sequence[str]], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Create missing topics: one for each stage, and one for the dead letters of each reading stage."""
        wanted = [self._topic(stage) for stage in stages]
        wanted += [self._dead(reader) for readers in stages.values() for reader in readers]
        self._admin.make(wanted, is_over)

    def reader(self, source: Cameras | Made, terms: Terms) -> "KafkaReader":
        """Join the consumer group `PIPELINE.STAGE`."""
        if not isinstance(source, Made):
            raise BusError("frames of cameras are on the bus mez; read them there")
        dead = KafkaWriter(self._link, self._dead(terms.stage), plain=False)
        return KafkaReader(self._link, self._topic(source.stage), self._group(terms.stage), terms, dead)

    def writer(self, stage: str, *, plain: bool = False) -> "KafkaWriter":
        """Write to the topic `PIPELINE.STAGE`."""
        return KafkaWriter(self._link, self._topic(stage), plain=plain)

    def standings(self, reads: Mapping[str, Cameras | Made]) -> dict[str, Standing]:
        """The progress of groups, from their committed offsets."""
        known = self._admin.topics()
        found = {}
        for stage, source in reads.items():
            if not isinstance(source, Made) or self._topic(source.stage) not in known:
                continue
            first, end = self._offsets(known, self._topic(source.stage))
            done = self._committed(self._topic(source.stage), self._group(stage), first)
            waiting = sum(end[place] - max(first[place], done.get(place, 0)) for place in end)
            lost = sum(max(0, first[place] - offset) for place, offset in done.items() if place in first)
            dead = 0
            if self._dead(stage) in known:
                dead_first, dead_end = self._offsets(known, self._dead(stage))
                dead = sum(dead_end.values()) - sum(dead_first.values())
            found[stage] = Standing(waiting, None, dead, lost)
        return found

    def dead_letters(self, stage: str) -> list[DeadLetter]:
        """The newest dead letters in the partitions of `PIPELINE.STAGE.dead`."""
        known, topic = self._admin.topics(), self._dead(stage)
        if topic not in known:
            return []
        first, end = self._offsets(known, topic)
        left = {place for place in end if end[place] > first[place]}
        consumer = confluent_kafka.Consumer(
            self._link.client(group_id=f"{topic}.readers", enable_auto_commit=False)
        )
        letters: list[tuple[int, DeadLetter]] = []
        try:
            consumer.assign(
                [TopicPartition(topic, at, max(first[at], end[at] - DEAD_LETTERS_MAX)) for at in left]
            )
            until_s = time.monotonic() + ANSWER_S_MAX
            while left and time.monotonic() < until_s:
                message = consumer.poll(0.5)
                if message is None or message.error():
                    continue
                told = headers(message, "replace")
                tries = told.get("mez-tries", "0")
                letter = DeadLetter(told.get("mez-id", ""), int(tries), told.get("mez-error", ""))
                letters.append((message.timestamp()[1], letter))
                partition, offset = message.partition(), message.offset()
                if offset is not None and offset + 1 >= end.get(partition or 0, 0):
                    left.discard(partition or 0)
        finally:
            consumer.close()
        return [letter for _, letter in sorted(letters, key=lambda each: each[0])][-DEAD_LETTERS_MAX:]

    def close(self) -> None:
        """Close the connections for queries."""
        self._admin.close()
        with self._lock:
            lookers, self._lookers = list(self._lookers.values()), {}
        for looker in lookers:
            looker.close()

    def _offsets(self, known: Mapping[str, Any], topic: str) -> tuple[dict[int, int], dict[int, int]]:
        """The first offset of each partition, and the offset after the last record."""
        places = [TopicPartition(topic, partition) for partition in known[topic].partitions]
        found = []
        offset_of: Any = OffsetSpec
        for spec in (offset_of.earliest(), offset_of.latest()):
            asked = self._admin.client.list_offsets(dict.fromkeys(places, spec), request_timeout=ANSWER_S_MAX)
            try:
                found.append({place.partition: future.result().offset for place, future in asked.items()})
            except KafkaException as error:
                raise self._link.failed(f"the offsets of {topic}", error) from error
            if min(found[-1].values(), default=0) < 0:
                # A partition has no offsets while its leader changes.
                raise BusUnsureError(f"the offsets of {topic}: Kafka does not know them now; try again")
        return found[0], found[1]

    def _committed(self, topic: str, group: str, places: "Iterable[int]") -> dict[int, int]:
        # Not AdminClient.list_consumer_group_offsets: librdkafka 2.16 crashes if the coordinator of the group
        # is not ready or has moved, because that client has no group. A consumer has a group, and does not
        # become a member unless it subscribes.
        asked = [TopicPartition(topic, place) for place in places]
        with self._lock:
            looker = self._lookers.get(group)
            if looker is None:
                settings = self._link.client(group_id=group, enable_auto_commit=False)
                looker = self._lookers[group] = confluent_kafka.Consumer(settings)
        try:
            told = looker.committed(asked, ANSWER_S_MAX)
        except KafkaException as error:
            raise self._link.failed(f"the group {group}", error) from error
        for of in told:
            if of.error is not None:
                raise self._link.failed(f"the group {group}", of.error)
        return {of.partition: of.offset for of in told if of.offset >= 0}

    def _topic(self, stage: str) -> str:
        return f"{self._pipeline}.{stage}"

    def _group(self, stage: str) -> str:
        return f"{self._pipeline}.{stage}"

    def _dead(self, stage: str) -> str:
        return f"{self._pipeline}.{stage}.dead"


class KafkaWriter:
    """Writes records to a topic. Every record is confirmed by all in-sync replicas."""

    def __init__(self, link: Link, topic: str, *, plain: bool) -> None:
        self._link = link
        self._topic = topic
        self._plain = plain
        self._producer: Producer | None = None

    def send(self, made: Sequence[Record]) -> None:
        """Send all, then wait until all are confirmed."""
        limit = self._link.settings.record_bytes_max
        for record in made:
            if len(record.payload) > limit:
                raise RecordTooLargeError(
                    f"{record.id} has {len(record.payload)} bytes; {self._topic} takes at most {limit}; make "
                    "smaller records, or raise kafka.record_bytes_max"
                )
        packed = []
        for record in made:
            records.sending(record)
            told = envelope.plain_fields(record) if self._plain else envelope.fields(record)
            packed.append((record.camera, bytes(record.payload), told))
        self.send_packed(packed)

    def send_packed(self, packed: Sequence[tuple[str, bytes, Mapping[str, str]]]) -> None:
        """Send keys, values and headers.

        Raises:
            BusError: As `Writer.send`.
        """
        faults: list[KafkaError] = []
        missing = len(packed)

        def confirmed(error: KafkaError | None, _: object) -> None:
            nonlocal missing
            missing -= 1
            if error is not None:
                faults.append(error)

        producer = self._open()
        try:
            for key, value, told in packed:
                producer.produce(
                    self._topic, value, key.encode(), headers=list(told.items()), on_delivery=confirmed
                )
            producer.flush(CONFIRM_S_MAX + 1)
        except (KafkaException, BufferError) as error:
            self._drop(producer)
            raise self._link.failed(self._topic, error) from error
        if faults or missing:
            self._drop(producer)
            if not faults:
                raise BusAwayError(f"{self._topic}: Kafka did not confirm {missing} records; is it running?")
            raise self._link.failed(self._topic, faults[0])
        self._link.reached()

    def _open(self) -> Producer:
        if self._producer is None:
            settings = self._link.settings
            self._producer = Producer(
                self._link.client(
                    acks="all",
                    enable_idempotence=True,
                    # A stage waits for the confirmation, so waiting for more records gains nothing.
                    linger_ms=0,
                    delivery_timeout_ms=round(CONFIRM_S_MAX * 1000),
                    message_max_bytes=settings.record_bytes_max + HEAD_BYTES,
                    # As in Java clients, so that all writers put a camera into the same partition.
                    partitioner="murmur2_random",
                )
            )
        return self._producer

    def _drop(self, producer: Producer) -> None:
        """Forget unconfirmed records: they are sent again with a new producer."""
        producer.purge()
        producer.flush(1.0)
        self._producer = None

    def close(self) -> None:
        """Close the connection."""
        self._producer = None
