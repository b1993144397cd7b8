"""What tests of the bridge share: a bridge as a process of its own, and what is in topics."""

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

import mez
from mez.pipeline import kafka_client
from tests.pipelines import until
from tests.pipelines_kafka import Kafka


@dataclass(frozen=True)
class Found:
    """A message of a topic."""

    key: str
    value: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    partition: int
    offset: int

    @property
    def id(self) -> str:
        """Its identity."""
        return self.headers["mez-id"]

    @property
    def json(self) -> Any:  # noqa: ANN401, what JSON holds
        """Its value."""
        return json.loads(self.value)


def in_topic(kafka: Kafka, topic: str) -> list[Found]:
    """All that a topic has now: of each key in order."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.server,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=30).topics.get(topic)
        if known is None or known.error is not None:
            return []
        ends = {}
        for partition in known.partitions:
            # A topic that was made a moment ago has no leader yet.
            first, end = until(partial(_bounds, consumer, topic, partition), bool, "it has a leader") or (
                0,
                0,
            )
            if end > first:
                ends[partition] = end
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        found = []
        while ends:
            message = consumer.poll(30)
            assert message is not None, f"{topic} does not give what it has"
            assert message.error() is None, message.error()
            partition, offset = message.partition() or 0, message.offset() or 0
            key = str(message.key() or b"", "utf-8")
            headers = kafka_client.headers(message)
            found.append(Found(key, message.value() or b"", headers, partition, offset))
            if offset + 1 >= ends.get(partition, 0):
                ends.pop(partition, None)
        return found
    finally:
        consumer.close()


def _bounds(consumer: confluent_kafka.Consumer, topic: str, partition: int) -> tuple[int, int] | None:
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    except KafkaException as error:
        fault = error.args[0]
        # Of this question, the library does not call an answer of the wrong broker worth another try.
        if not fault.retriable() and fault.code() not in _LEADERLESS:
            raise
        return None


_LEADERLESS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


class BridgeProcess:
    """`mez bridge` as a process of its own, which is killed in the end.

    Args:
        folder: Where its file and its state are.
        tables: What its file says besides `name`.
        name: Its name.
        command: `kafka` or `dds`.
        within: Words that start it, such as those of a network namespace.
    """

    def __init__(
        self,
        folder: Path,
        tables: str,
        name: str = "hall7",
        command: str = "kafka",
        within: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._command = [*within, sys.executable, "-m", "mez", "bridge", command]
        self.file = folder / f"{name}.toml"
        self.file.write_text(tables)
        self._state = folder / "state"
        self.said: list[str] = []
        self.status: dict[str, Any] = {}
        self.start()

    def start(self) -> None:
        """Start it."""
        words = [*self._command, str(self.file), "--json"]
        words += ["--progress", "0.3", "--state", str(self._state)]
        self.process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._listening = threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True)
        self._listening.start()

    def _listen(self, output: Any) -> None:  # noqa: ANN401, a pipe
        with output:
            for line in output:
                self._hear(line)

    def _hear(self, line: str) -> None:
        try:
            told = json.loads(line)
        except ValueError:
            self.said.append(line.rstrip())
            return
        if "status" in told:
            self.status = told["status"]
        else:
            self.said.append(told["say"])

    def hears(self, text: str) -> str:
        """The sentence with this text, once it was said."""
        said = until(
            lambda: list(self.said),
            lambda lines: any(text in line for line in lines),
            f"it says {text!r}",
        )
        return next(line for line in said if text in line)

    def has_said(self, text: str) -> bool:
        """Whether a sentence had this text."""
        return any(text in line for line in list(self.said))

    def runs(self) -> Self:
        """Wait until it has joined its groups."""
        self.hears("the bridge hall7 runs")
        return self

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self._ended()

    def interrupt(self) -> int:
        """Ctrl-C; its exit status."""
        self.process.send_signal(signal.SIGINT)
        return self._ended()

    def _ended(self) -> int:
        status = self.process.wait(60)
        self._listening.join(60)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def tables(edge: mez.Edge, kafka: Kafka, name: str, more: str = "", kafka_more: str = "") -> str:
    """A bridge's file: topics begin with the name of the test."""
    return f"""
[bridge]
name = "hall7"
events = "{name}.events"
dead = "{name}.dead"

[mez]
edge = "unix://{edge.socket}"

[kafka]
servers = "{kafka.server}"
partitions = 2
{kafka_more}

[stream.frames]
cameras = "dock/*"
topic = "{name}.frames"
{more}
"""


def held(edge: mez.Edge, camera: str) -> list[str]:
    """The identities of the frames that an edge has of a camera, in order."""
    frames = mez.read(camera, edge=f"unix://{edge.socket}", held_only=True, timeout=60)
    return [f"{frame.camera}@{frame.id.epoch}-{frame.id.sequence}" for frame in frames]


def due(edge: mez.Edge, found: list[Found], camera: str) -> list[str]:
    """What the edge has of a camera from the first frame on that is in Kafka."""
    ids = {message.id for message in found}
    known = held(edge, camera)
    first = next((at for at, name in enumerate(known) if name in ids), len(known))
    return known[first:]


def complete(edge: mez.Edge, kafka: Kafka, topic: str, *cameras: str) -> list[Found]:
    """What is in a topic, once it has everything that is due."""
    return until(
        lambda: in_topic(kafka, topic),
        lambda found: (
            bool(found)
            and all(set(due(edge, found, camera)) <= {message.id for message in found} for camera in cameras)
        ),
        "everything is in Kafka",
    )


def without_repeats(found: list[Found], camera: str) -> list[str]:
    """The identities of a camera in the order of its partition, the first of equal ones."""
    return list(dict.fromkeys(message.id for message in found if message.key == camera))


def records_of(bridge: BridgeProcess) -> int:
    """How many records Kafka has confirmed."""
    count: int = bridge.status.get("records", 0)
    return count


def with_password(edge: mez.Edge, kafka: Kafka, name: str) -> str:
    """The file of a bridge that comes as the user with a password."""
    cluster = kafka.cluster
    secure = (
        f'sasl = "PLAIN"\nca = "{cluster["ca"]}"\ncredentials = "{cluster["credentials"]}"\nsecurity = "tls"'
    )
    return tables(edge, kafka, name, kafka_more=secure).replace(kafka.server, cluster["secure"])
