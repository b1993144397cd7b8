"""Runs producers or workers in a process of its own: `part.py`.

The first line of its input is JSON (`Task`). It prints `ready` once its bus is open, and then takes commands:

| line | what it does |
| --- | --- |
| `warm N` | a producer sends N warm-up records of each of its cameras, and answers |
| `taken` | a worker answers with how many records each of its members has taken |
| `begin NS` | a producer begins its schedule at this moment of the monotonic clock |
| `end` | writes its stamps into the task's file, and answers |

Each producer and each worker is a thread with a connection of its own. They wait nearly all the time, so
threads do as well as processes.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import mez
from mez.pipeline import record as records
from mez.pipeline.bus import Bus, Made, Reader, Terms, Writer
from mez.pipeline.errors import BusAwayError
from mez.pipeline.kafka_table import KafkaSettings
from mez.pipeline.mez_bus import MezBus
from mez.pipeline.record import Hop, Record

PIPELINE: Final = "aitax"
STAGE: Final = "face"
READER: Final = "identify"
WARM: Final = 1 << 40
"""Records with this number or a larger one are for the warm-up, and do not count."""
WARM_S: Final = 0.002
BATCH_MAX: Final = 64
"""The most records that a producer sends at once, if they became due while it waited for its bus."""
LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a process.

    Attributes:
        role: `produce` or `identify`.
        name: Name of the pipeline.
        edge: The edge's socket; empty: the bus is Kafka.
        servers: Kafka's addresses.
        replication: Replicas of Kafka's topics.
        cameras: Names of the cameras, by number.
        members: The numbers of the producers or workers in this process.
        schedule: File with `made_s` and `camera` of the run's records, and the number of producers.
        service_s: How long a worker waits.
        record_bytes: Size of a record.
        out: File for the stamps.
    """

    role: str
    name: str
    edge: str
    servers: tuple[str, ...]
    replication: int
    cameras: tuple[str, ...]
    members: tuple[int, ...]
    schedule: str
    service_s: float
    record_bytes: int
    out: str


def open_bus(task: Task) -> Bus:
    """Open the bus of a task: one of the buses of pipelines."""
    if task.edge:
        return MezBus(task.name, (task.edge,))
    from mez.pipeline.kafka_bus import KafkaBus

    settings = KafkaSettings(
        servers=task.servers,
        partitions=len(task.cameras),
        replication=task.replication,
        retention_s=3600.0,
        record_bytes_max=8 << 20,
    )
    bus: Bus = KafkaBus(task.name, settings)
    return bus


def face(number: int, camera: str, payload: bytes) -> Record:
    """Return a record as the stage before makes it."""
    hop = Hop(STAGE, "", records.clock(), records.wall_ns(), {}, len(payload), 1)
    return Record(
        id=f"{camera}@1-{number}/{STAGE}.0",
        camera=camera,
        frame=mez.FrameId(1, number),
        captured_ns=time.time_ns(),
        payload=memoryview(payload),
        content_type="application/octet-stream",
        hops=(hop,),
    )


def sleep_until(moment_ns: int) -> None:
    """Wait until a moment of the monotonic clock."""
    left_ns = moment_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


class Producers:
    """Sends records when they are made. A record that is late is sent at once; none is left out."""

    def __init__(self, task: Task) -> None:
        plan = np.load(task.schedule)
        self._cameras = task.cameras
        self._made_ns = (plan["made_s"] * 1e9).astype(np.int64)
        self._camera = plan["camera"]
        self._producers = int(plan["producers"])
        self._payload = np.random.default_rng(1).bytes(task.record_bytes)
        self._members = task.members
        self._warmed = 0
        self._bus = open_bus(task)
        self._writers: dict[int, Writer] = {number: self._bus.writer(STAGE) for number in task.members}
        self._sent_ns = np.zeros(len(self._made_ns), np.int64)
        self._acked_ns = np.zeros(len(self._made_ns), np.int64)
        self._faults: list[str] = []

    def warm(self, count: int) -> dict[str, Any]:
        """Send warm-up records of each camera."""
        sent = 0
        for number, writer in self._writers.items():
            names = self._cameras[number :: self._producers]
            for _ in range(count):
                writer.send(
                    [face(WARM + self._warmed + at, name, self._payload) for at, name in enumerate(names)]
                )
                self._warmed += len(names)
                sent += len(names)
        return {"sent": sent}

    def begin(self, start_ns: int) -> None:
        """Start the producers' threads, which follow the schedule from this moment on."""
        for number in self._members:
            threading.Thread(target=self._produce, args=(number, start_ns), daemon=True).start()

    def _produce(self, number: int, start_ns: int) -> None:
        mine = np.flatnonzero(self._camera % self._producers == number)
        due_ns = self._made_ns[mine] + start_ns
        writer, at = self._writers[number], 0
        while at < len(mine):
            sleep_until(int(due_ns[at]))
            now_ns = time.monotonic_ns()
            end = min(max(at + 1, int(np.searchsorted(due_ns, now_ns, "right"))), at + BATCH_MAX)
            batch = mine[at:end]
            made = [face(int(one), self._cameras[self._camera[one]], self._payload) for one in batch]
            self._sent_ns[batch] = now_ns
            try:
                writer.send(made)
            except BusAwayError as error:
                self._faults.append(str(error))
                return
            self._acked_ns[batch] = time.monotonic_ns()
            at = end

    def end(self) -> dict[str, Any]:
        """Return the stamps of the records sent so far."""
        return {"sent_ns": self._sent_ns.copy(), "acked_ns": self._acked_ns.copy(), "faults": self._faults}


@dataclass(slots=True)
class Taken:
    """The records that one worker has taken: number, when the worker had it, when it was done."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)
    count: int = 0


class Workers:
    """Takes records, waits, and settles them."""

    def __init__(self, task: Task) -> None:
        self._service_ns = round(task.service_s * 1e9)
        self._bus = open_bus(task)
        self._stop = threading.Event()
        self._taken = [Taken() for _ in task.members]
        readers = [self._bus.reader(Made(STAGE, "bench/*"), Terms(READER, number)) for number in task.members]
        for reader, taken in zip(readers, self._taken, strict=True):
            threading.Thread(target=self._work, args=(reader, taken), daemon=True).start()

    def _work(self, reader: Reader, taken: Taken) -> None:
        while not self._stop.is_set():
            delivery = reader.next(LOOK_S)
            if delivery is None:
                continue
            fetched_ns = time.monotonic_ns()
            number = delivery.record.frame.sequence
            counts = number < WARM
            sleep_until(fetched_ns + (self._service_ns if counts else round(WARM_S * 1e9)))
            delivery.done()
            taken.count += 1
            if counts:
                taken.rows.append((number, fetched_ns, time.monotonic_ns()))

    def taken(self) -> dict[str, Any]:
        """Return how many records each worker has taken."""
        return {"taken": [taken.count for taken in self._taken]}

    def end(self) -> dict[str, Any]:
        """Stop the workers, and return the stamps of the records taken so far."""
        self._stop.set()
        rows = [row for taken in self._taken for row in list(taken.rows)]
        return {"rows": np.array(rows, np.int64).reshape(-1, 3), "faults": []}


def main(lines: Iterator[str]) -> None:
    """Read the task, then take commands until the input ends."""
    told = json.loads(next(lines))
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in told.items()
    }
    task = Task(**fields)
    produce = Producers(task) if task.role == "produce" else None
    work = Workers(task) if task.role == "identify" else None
    print("ready", flush=True)
    for line in lines:
        word, *rest = line.split()
        answer: dict[str, Any] | None = None
        if word == "warm" and produce:
            answer = produce.warm(int(rest[0]))
        elif word == "taken" and work:
            answer = work.taken()
        elif word == "begin" and produce:
            produce.begin(int(rest[0]))
        elif word == "end":
            stamps = (produce or work).end()  # type: ignore[union-attr]
            faults = stamps.pop("faults")
            with Path(task.out).open("wb") as out:
                np.savez(out, **stamps)
            answer = {"faults": faults}
        if answer is not None:
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.stdin)
