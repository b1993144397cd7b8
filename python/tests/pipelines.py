"""What tests of pipelines share: records, and a bus with what goes with it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import mez
from mez.pipeline import record as records
from mez.pipeline.bus import Bus, Delivery, Made, Reader, Standing, Terms
from mez.pipeline.kafka_table import KafkaSettings
from mez.pipeline.record import Hop, Record
from tests.pipelines_kafka import Kafka

PATIENCE_S = 60.0

T = TypeVar("T")


def made(number: int, camera: str = "dock/cam1", payload: object = None, **headers: str) -> Record:
    """A record as stage `detect` makes it of the frame of this number."""
    frame = mez.FrameId(1, number)
    start = Record(
        id=f"{camera}@1-{number}",
        camera=camera,
        frame=frame,
        captured_ns=1_790_000_000_000_000_000 + number,
        payload=memoryview(b"pixels"),
        content_type="image/jpeg",
        published_size=(640, 480),
        hops=(Hop("camera", "", records.clock(), records.wall_ns(), {"captured": 1}, 6, 0, 7),),
    )
    records.begin(start)
    start.mark("found")
    one = start.derive({"number": number} if payload is None else payload, headers=headers)
    return records.finish(start, one, "detect", 0, "detect-0@host")


def settings(kafka: Kafka, **other: Any) -> KafkaSettings:  # noqa: ANN401, fields of the settings
    """The table `kafka` of a pipeline file."""
    plain = KafkaSettings(
        servers=(kafka.server,),
        partitions=4,
        replication=1,
        retention_s=600.0,
        record_bytes_max=8 << 20,
    )
    return replace(plain, **other)


@dataclass
class Site:
    """A bus, and a name for what a test puts on it."""

    kind: str
    bus: Bus
    pattern: str = "dock/*"

    def source(self, stage: str = "detect") -> Made:
        """What a stage makes."""
        return Made(stage, self.pattern)

    def terms(self, number: int = 0, *, tries: int = 5, ordered: bool = False) -> Terms:
        """Those of stage `embed`."""
        return Terms("embed", number, tries, ordered=ordered)

    def standing(self, condition: Callable[[Standing], bool], stage: str = "embed") -> Standing:
        """How the stage stands, once that is so."""
        return until(
            lambda: self.bus.standings({stage: self.source()}).get(stage, Standing()),
            condition,
            "it stands so",
        )


def taken(reader: Reader) -> Delivery:
    """The next record."""
    found = until(lambda: reader.next(0.5), lambda delivery: delivery is not None, "a record comes")
    assert found is not None
    return found


def until(call: Callable[[], T], condition: Callable[[T], bool], what: str) -> T:
    """What a call gives, once that is so. How long it takes is not tested."""
    end = time.monotonic() + PATIENCE_S
    while True:
        value = call()
        if condition(value):
            return value
        assert time.monotonic() < end, f"{what}: {value!r}"
        time.sleep(0.02)
