"""The messages of one stream on their way to Kafka: in order, bounded, and kept until they are confirmed.

Kafka confirms a message, or refuses it. A message is *poison* if Kafka would always refuse it because of its
content, such as its size. Then it becomes a dead letter. Other refused messages are sent again, in order,
because a missing right or a missing topic can be corrected.

A refusal for size concerns all messages of one request. So a refused message is sent again alone, and counts
as poison only if it is refused then.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from confluent_kafka import KafkaError

from mez.bridge.message import Message
from mez.bridge.reader import LOOK_S
from mez.pipeline.kafka_client import POISON

AGAIN_S: Final = (0.5, 10.0)
"""The pause before a refused message is sent again: the first and the longest one, in seconds."""


class Sends(Protocol):
    """Hands messages to Kafka."""

    @property
    def is_ready(self) -> bool:
        """Whether Kafka has the topics, as far as is known."""

    def send(self, lane: "Lane", number: int, message: Message) -> KafkaError | None:
        """Send; the result is passed to `Lane.heard`. Returns an error if the message was not accepted."""

    def bury(self, lane: "Lane", message: Message, error: str) -> None:
        """Send the headers of a poison message to the topic of dead letters."""

    def refused(self, topic: str, error: KafkaError) -> None:
        """Report a refusal of Kafka to people."""


@dataclass(slots=True)
class Counts:
    """Counts of a lane's messages since the start.

    Attributes:
        records: Confirmed messages.
        bytes: Bytes of their values.
        dead: Dead letters.
        refusals: Messages that were refused and are sent again.
    """

    records: int = 0
    bytes: int = 0
    dead: int = 0
    refusals: int = 0


class Lane:
    """A lane. Any thread may call `put`; the thread that polls calls `heard` and `pump`.

    Args:
        name: The stream's name, for people.
        topic: The topic.
        sender: Hands messages to Kafka.
        count_max: The most messages that are not confirmed.
        bytes_max: The most bytes that are not confirmed. One message may have more.
    """

    def __init__(self, name: str, topic: str, sender: Sends, *, count_max: int, bytes_max: int) -> None:
        self.name = name
        self.topic = topic
        self.counts = Counts()
        self._sender = sender
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        # By number, in order, with refused messages and those whose dead letters are under way.
        self._open: dict[int, Message] = {}
        self._bytes = 0
        self._number = 0
        # Of the open messages: how many the library has, and which ones must be sent again.
        self._flying = 0
        self._refused: set[int] = set()
        # A refused message is being sent again, and no other message may share its request.
        self._is_alone = False
        self._again_at_s = 0.0
        self._again_s = AGAIN_S[0]
        self._is_closed = False

    @property
    def unconfirmed(self) -> int:
        """Messages that Kafka has not confirmed."""
        return len(self._open)

    @property
    def is_well(self) -> bool:
        """Whether no message must be sent again."""
        return not self._refused

    def put(self, message: Message, is_over: Callable[[], bool]) -> bool:
        """Send a message when there is room. `False`: the bridge is to end, and it was not sent."""
        with self._changed:
            while self._is_full(message):
                if is_over() or self._is_closed:
                    return False
                self._changed.wait(LOOK_S)
            self._add(message)
        return True

    def offer(self, message: Message) -> bool:
        """Send a message if there is room now."""
        with self._changed:
            if self._is_full(message):
                return False
            self._add(message)
        return True

    def append(self, message: Message) -> None:
        """Send a message after all others, without a bound: the caller has its own."""
        with self._changed:
            number = self._enter(message)
            if self._holds_up:
                self._refused.add(number)
            else:
                self._send(number, message)

    def heard(self, number: int, error: KafkaError | None) -> None:
        """Take the confirmation or the error of a message."""
        with self._changed:
            self._flying -= 1
            self._is_alone = False
            message = self._open.get(number)
            if message is None or self._is_closed:
                # Ignored: the edge gives this message again.
                return
            if error is not None:
                self._refuse(number, message, error)
                return
            self.counts.records += 1
            self.counts.bytes += message.size
            self._again_s = AGAIN_S[0]
            self._changed.notify_all()
        self.finish(number)

    def pump(self) -> None:
        """Send the oldest refused message again, alone, if it is time."""
        with self._changed:
            if not self._refused or self._flying or not self._sender.is_ready:
                return
            if time.monotonic() < self._again_at_s:
                return
            number = min(self._refused)
            self._refused.remove(number)
            message = self._open[number]
            message.is_retried = True
            self._is_alone = True
            self._send(number, message)

    def finish(self, number: int) -> None:
        """Remove a finished message, and call its `done`."""
        with self._changed:
            message = self._open.pop(number, None)
            if message is None:
                return
            self._bytes -= message.size
            self._changed.notify_all()
        message.done()

    def close(self) -> None:
        """Ignore further confirmations. Unconfirmed messages stay unconfirmed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _is_full(self, message: Message) -> bool:
        # No message may overtake a refused one.
        if self._holds_up:
            return True
        is_heavy = bool(self._open) and self._bytes + message.size > self._bytes_max
        return is_heavy or len(self._open) >= self._count_max

    @property
    def _holds_up(self) -> bool:
        """Whether a new message must wait, even if there is room."""
        return bool(self._refused) or self._is_alone or not self._sender.is_ready

    def _add(self, message: Message) -> None:
        self._send(self._enter(message), message)

    def _enter(self, message: Message) -> int:
        self._number += 1
        self._open[self._number] = message
        self._bytes += message.size
        return self._number

    def _send(self, number: int, message: Message) -> None:
        self._flying += 1
        error = self._sender.send(self, number, message)
        if error is not None:
            self._flying -= 1
            self._is_alone = False
            self._refuse(number, message, error)

    def _refuse(self, number: int, message: Message, error: KafkaError) -> None:
        if error.code() not in POISON:
            self._refused.add(number)
            self.counts.refusals += 1
            self._again_at_s = time.monotonic() + self._again_s
            self._again_s = min(2 * self._again_s, AGAIN_S[1])
            self._sender.refused(self.topic, error)
        elif not message.is_retried:
            self._refused.add(number)
        else:
            self.counts.dead += 1
            letter = Message(
                message.id,
                message.key,
                message.value,
                message.headers,
                lambda: self.finish(number),
            )
            self._sender.bury(self, letter, error.str())
