"""Sends messages to a Kafka cluster: one producer for all lanes, with many messages under way at once."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from mez.bridge import message as messages
from mez.bridge.lane import Lane
from mez.bridge.message import Message
from mez.pipeline.errors import BusAwayError, BusError
from mez.pipeline.kafka_client import HEAD_BYTES, Admin, Link

BATCH_BYTES_MAX: Final = 1_000_000
"""The most bytes of a request for a partition. Brokers accept this by default."""

TOPIC_MS_MAX: Final = 2_000
"""How long the library looks for a topic before it reports that there is none, in milliseconds."""

LINGER_MS: Final = 5
"""How long the library waits for more messages of a partition, so that one request carries several."""

PURGE_S_MAX: Final = 1.0

_DROPPED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_NO_TOPIC: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


class Outlet:
    """The way out to a cluster.

    Args:
        link: The cluster.
        dead_topic: The topic of dead letters.
        bytes_max: The most bytes that all lanes have under way.
        tell: Called with a sentence for people.
        hear_of_dead: Called for each dead letter, with its message and the error.
    """

    def __init__(
        self,
        link: Link,
        dead_topic: str,
        *,
        bytes_max: int,
        tell: Callable[[str], object],
        hear_of_dead: Callable[[Message, str], object],
    ) -> None:
        self._link = link
        self._tell = tell
        self._hear_of_dead = hear_of_dead
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._told: set[tuple[str, int]] = set()
        self._is_broken = False
        self._is_ready = False
        self._is_without_topic = False
        self._batch_bytes = BATCH_BYTES_MAX
        self._producer = Producer(producer_settings(link, bytes_max))
        self.admin = Admin(link)
        # Lanes keep their messages until the dead letters are confirmed.
        self.dead = Lane("dead", dead_topic, self, count_max=1, bytes_max=1)

    @property
    def is_ready(self) -> bool:
        """Whether the topics exist, as far as is known. Until then, nothing is sent."""
        return self._is_ready

    @property
    def wants_topics(self) -> bool:
        """Whether `prepare` should be called, because a topic is missing."""
        return self._is_without_topic or not self._is_ready

    def send(self, lane: Lane, number: int, message: Message) -> KafkaError | None:
        """Give a message to the library, which copies it."""
        with self._lock:
            try:
                self._producer.produce(
                    lane.topic,
                    # The library accepts only bytes, and keeps its own copy.
                    bytes(message.value),
                    message.key.encode(),
                    headers=list(message.headers.items()),
                    on_delivery=partial(_heard, lane, number),
                )
            except KafkaException as error:
                fault: KafkaError = error.args[0]
                self._is_broken |= fault.fatal()
                return fault
            except BufferError:
                return KafkaError(KafkaError._QUEUE_FULL)
        return None

    def bury(self, lane: Lane, message: Message, error: str) -> None:
        """Send a dead letter."""
        if lane is self.dead:
            # A dead letter has no further topic to go to.
            self._tell(f"{self.dead.topic} refuses the dead letter of {message.id}: {error}")
            message.done()
            return
        self._tell(
            f"{lane.topic} refuses {message.id} ({message.size} bytes): {error}; its dead letter is in "
            f"{self.dead.topic}. Raise max.message.bytes of the topic, or send smaller frames"
        )
        self.dead.append(messages.dead_letter(message, lane.topic, error))
        self._hear_of_dead(message, error)

    def refused(self, topic: str, error: KafkaError) -> None:
        """Report a refusal to people, once for each topic and error until it is over."""
        self._is_broken |= error.fatal() or error.code() == KafkaError._FATAL
        if error.code() in _DROPPED:
            return
        self._is_without_topic |= error.code() in _NO_TOPIC
        if (topic, error.code()) not in self._told:
            self._told.add((topic, error.code()))
            is_gone = error.code() in _NO_TOPIC
            why = f"{topic}: creating the missing topic" if is_gone else self._link.failed(topic, error)
            self._tell(f"{why}; records wait, and are sent again")

    def prepare(self, topics: list[str], is_over: Callable[[], bool]) -> None:
        """Create missing topics.

        Args:
            topics: The topics.
            is_over: Whether the bridge is to end. Then the call does not wait for a cluster that is away.

        Raises:
            BusAwayError: The cluster does not answer.
            BusError: It refuses this client or a topic. Messages to other topics are sent anyway.
        """
        try:
            self._is_without_topic = False
            self.admin.make(topics, is_over)
            self._fit(topics)
        except BusAwayError:
            raise
        except BusError:
            self._is_ready = True
            raise
        self._is_ready = True

    def _fit(self, topics: list[str]) -> None:
        """Limit requests to the size that the topics accept: messages refused together lose their order."""
        try:
            bytes_max = min(self.admin.record_bytes_max(topics), BATCH_BYTES_MAX)
        except BusAwayError:
            raise
        except BusError as error:
            self._tell(f"{error}; requests have up to {BATCH_BYTES_MAX} bytes")
            return
        if bytes_max != self._batch_bytes:
            self._batch_bytes = bytes_max
            self._renew()

    def poll(self, timeout_s: float) -> int:
        """Serve confirmations for `timeout_s`. Returns how many came."""
        served: int = self._producer.poll(timeout_s)
        if self._is_broken:
            self._tell("the Kafka producer failed, and is replaced; unconfirmed records are sent again")
            self._renew()
        return served

    def forget_refusals(self, lanes: list[Lane]) -> None:
        """Forget the reported refusals of topics that accept messages again."""
        ill = {lane.topic for lane in lanes if not lane.is_well}
        self._told = {(topic, code) for topic, code in self._told if topic in ill}

    def close(self) -> None:
        """Drop unconfirmed messages, and close the connection."""
        self._producer.purge()
        self._producer.flush(PURGE_S_MAX)
        self.admin.close()

    def _renew(self) -> None:
        """Replace the producer. Lanes are told that messages under way were dropped, and send them again."""
        settings = producer_settings(self._link, self._bytes_max, self._batch_bytes)
        with self._lock:
            broken, self._producer = self._producer, Producer(settings)
            self._is_broken = False
        # Without the lock, because lanes take it when they send.
        broken.purge()
        broken.flush(PURGE_S_MAX)
        self._is_broken = False


def producer_settings(link: Link, bytes_max: int, batch_bytes: int = BATCH_BYTES_MAX) -> dict[str, Any]:
    """The settings of the producer. Messages keep their order, and are not doubled after reconnections.

    Args:
        link: The cluster.
        bytes_max: The most bytes under way.
        batch_bytes: The most bytes of a request for a partition. One record may have more.
    """
    return link.client(
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size=batch_bytes,
        topic_metadata_propagation_max_ms=TOPIC_MS_MAX,
        # No timeout: messages under way are bounded, and the others wait at the edge.
        delivery_timeout_ms=0,
        message_max_bytes=link.settings.record_bytes_max + HEAD_BYTES,
        queue_buffering_max_kbytes=(2 * bytes_max >> 10) + (1 << 16),
        # As in Java clients, so that all writers put a camera into the same partition.
        partitioner="murmur2_random",
    )


def check(link: Link) -> None:
    """Check that the cluster answers.

    Raises:
        BusError: It does not answer, or refuses this client.
    """
    admin = Admin(link)
    try:
        admin.topics()
    finally:
        admin.close()


def _heard(lane: Lane, number: int, error: KafkaError | None, _: object) -> None:
    lane.heard(number, error)
