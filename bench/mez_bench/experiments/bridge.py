"""Measures how fast a bridge copies a backlog of an edge into Kafka, compared with a plain producer."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.table import Table

import mez as mez_client
from mez import _native
from mez_bench.arms import in_turn
from mez_bench.children import Child, mez
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.experiments.groups import Site
from mez_bench.kafka import start_kafka
from mez_bench.report import columns, figure
from mez_bench.run import Run
from mez_bench.stats import Values, interval, median, ratio_interval

SEED: Final = 59
CAMERAS: Final = 8
FPS: Final = 20.0
PIXELS: Final = (304, 368, 3)
QUALITY: Final = 90
"""The payload is noise, whose JPEG has about 100 kB."""

UNCONFIRMED_MAX: Final = 256
PARTITIONS: Final = 4
PLAIN: Final = "plain producer"
BRIDGE: Final = "mez bridge"
SPAN: Final = (0.1, 0.9)
"""The rate is measured between a tenth and nine tenths of the records, without start and end."""

QUIET_S: Final = 1.5
"""A bridge that has copied no more records for this long has copied everything."""

SECONDS_MAX: Final = 60.0

PRODUCER: Final = """
import json, sys, time
from pathlib import Path
from confluent_kafka import Producer
from mez.bridge import file
from mez.bridge.outlet import producer_settings
from mez.pipeline.kafka_client import Link
bridge = file.read(Path(sys.argv[1]))
topic, payload = sys.argv[2], Path(sys.argv[4]).read_bytes()
count, unconfirmed_max = int(sys.argv[3]), int(sys.argv[5])
producer = Producer(producer_settings(Link(bridge.kafka), bridge.unconfirmed_bytes_max))
headers = [(f"mez-header-{number}", "x" * 24) for number in range(18)]
confirmed, stamps = 0, []
def heard(error, message):
    global confirmed
    if error is not None:
        raise SystemExit(str(error))
    confirmed += 1
    stamps.append(time.time_ns())
sent = 0
while confirmed < count:
    while sent < count and sent - confirmed < unconfirmed_max:
        producer.produce(topic, payload, f"bench/c{sent % 8}", headers=headers, on_delivery=heard)
        sent += 1
        producer.poll(0)
    producer.poll(0.1)
print(json.dumps({"stamps": [[at, number + 1] for number, at in enumerate(stamps)]}), flush=True)
"""
"""A plain producer: the same library, settings, bounds, keys and sizes of headers."""


class Cluster:
    """A real Kafka on loopback, and files of bridges that use it.

    Args:
        run: The run that it belongs to.
        payload: The bytes of each record.
    """

    def __init__(self, run: Run, payload: bytes) -> None:
        self._run = run
        self._payload = run.folder / "payload.jpg"
        self._payload.write_bytes(payload)
        self.bytes = len(payload)
        _, (self._server,) = start_kafka(run, run.folder / "kafka")

    def file(self, name: str, socket: Path) -> Path:
        """Write the file of a bridge."""
        file = self._run.folder / f"{name}.toml"
        file.write_text(
            f'[bridge]\nname = "bench"\nunconfirmed_max = {UNCONFIRMED_MAX}\n'
            f'[mez]\nedge = "unix://{socket}"\n'
            f'[kafka]\nservers = "{self._server}"\npartitions = {PARTITIONS}\n'
            f'[stream.frames]\ncameras = "bench/*"\ntopic = "{name}"\n'
        )
        return file

    def make(self, file: Path) -> None:
        """Make the topics that a file names, so that no arm waits for them."""
        from mez.bridge import file as files
        from mez.pipeline.kafka_client import Admin, Link

        bridge = files.read(file)
        Admin(Link(bridge.kafka)).make(bridge.topics)

    def plain(self, name: str, count: int) -> float:
        """Return the records per second of a plain producer."""
        file = self.file(name, self._run.folder / "no.sock")
        self.make(file)
        words = [sys.executable, "-c", PRODUCER, str(file), name, str(count), str(self._payload)]
        child = self._run.children.start("producer", [*words, str(UNCONFIRMED_MAX)])
        rate = _rate(child.answer(SECONDS_MAX)["stamps"])
        self._run.children.stop(child)
        return rate


def _rate(stamps: Sequence[Sequence[int]]) -> float:
    """Return the records per second within `SPAN`, from pairs of a time in nanoseconds and a count."""
    total = stamps[-1][1]
    (begin_ns, first), (end_ns, last) = (
        next((at, count) for at, count in stamps if count >= share * total) for share in SPAN
    )
    if end_ns <= begin_ns:
        raise ExperimentError("the records were copied too fast to be timed; more records are needed")
    return (last - first) / (end_ns - begin_ns) * 1e9


class Waiting:
    """An edge at which records wait for a bridge.

    Args:
        run: The run that it belongs to.
        name: Name of its folder.
        cluster: The Kafka that the bridge copies to.
    """

    def __init__(self, run: Run, name: str, cluster: Cluster) -> None:
        self._run = run
        self._site = Site(run, name)
        self._file = cluster.file(name, self._site.socket)
        cluster.make(self._file)

    def fill(self, count: int, payload: bytes) -> None:
        """Let this many records wait: the bridge has copied some of each camera, and is stopped."""
        names, edge = [f"bench/c{number}" for number in range(CAMERAS)], f"unix://{self._site.socket}"
        with (
            self._site.publishing(names, FPS, payload),
            mez_client.subscribe("bench/*", edge=edge, deliver="every", timeout=30) as frames,
        ):
            bridge = self._start()
            self._await_records(bridge, 10 * CAMERAS)
            self._run.children.stop(bridge)
            for _ in range(count):
                frames.next()

    def copied(self) -> float:
        """Return the records per second of the bridge, which copies until no record waits."""
        bridge = self._start()
        stamps: list[tuple[int, int]] = []
        quiet_s = time.monotonic() + SECONDS_MAX
        while time.monotonic() < quiet_s:
            stamp = _records(bridge)
            if stamp[1] != (stamps[-1][1] if stamps else 0):
                stamps.append(stamp)
                quiet_s = time.monotonic() + QUIET_S
        if not stamps:
            raise ExperimentError("the bridge copied none of the waiting records")
        self._run.children.stop(bridge)
        self._run.children.stop(self._site.edge)
        return _rate(stamps)

    def _await_records(self, bridge: Child, count: int) -> None:
        """Wait until the bridge has copied this many records."""
        while _records(bridge)[1] < count:
            pass

    def _start(self) -> Child:
        words = mez("bridge", "kafka", str(self._file), "--json", "--progress", "0.02")
        bridge = self._run.children.start(
            "bridge", words, {"MEZ_STATE": str(self._run.folder / "bridge-state")}
        )
        while "runs:" not in (bridge.line(60.0) or "ended"):
            pass
        return bridge


def _records(bridge: Child) -> tuple[int, int]:
    """Return the time in nanoseconds and the number of copied records in the bridge's next status."""
    while True:
        line = bridge.line(SECONDS_MAX)
        if line is None:
            raise ExperimentError("the bridge ended unexpectedly")
        told: dict[str, Any] = json.loads(line).get("status", {})
        if told:
            return told["at_ns"], told["streams"]["frames"]["records"]


def _run(run: Run) -> Outcome:
    rounds, count = (2, 1000) if run.quick else (5, 3000)
    run.expect(2 * rounds)
    noise = np.random.default_rng(SEED).integers(0, 256, PIXELS, np.uint8)
    payload: bytes = _native.encode_jpeg(noise, QUALITY)
    cluster = Cluster(run, payload)
    rates: dict[str, list[Values]] = {PLAIN: [], BRIDGE: []}
    for number in range(rounds):
        for arm in in_turn([PLAIN, BRIDGE], number):
            if arm == PLAIN:
                rate = cluster.plain(f"plain-{number}", count)
            else:
                waiting = Waiting(run, f"bridge-{number}", cluster)
                waiting.fill(count, payload)
                rate = waiting.copied()
            rates[arm].append(np.array([rate]))
            run.step(arm)
    return _outcome(rates, count, len(payload))


def _outcome(rates: Mapping[str, Sequence[Values]], count: int, size: int) -> Outcome:
    outcome = Outcome(
        parameters={
            "records": count,
            "record_bytes": size,
            "unconfirmed_max": UNCONFIRMED_MAX,
            "partitions": PARTITIONS,
            "cameras": CAMERAS,
            "seed": SEED,
        },
        metrics={
            "bridge_throughput_ratio": ratio_interval(rates[BRIDGE], rates[PLAIN], median),
            "records_per_s_bridge": interval(rates[BRIDGE], median),
            "records_per_s_plain": interval(rates[PLAIN], median),
        },
        targets=[Target("bridge_throughput_ratio", ">=", 0.8)],
        notes=[
            "one broker on loopback, and all programs on this machine: the bridge shares its processors with "
            "the edge that it reads from, the plain producer has the bytes in memory",
            "the rate is measured between a tenth and nine tenths of the records, as confirmed by the broker",
        ],
    )
    for arm, of_arm in rates.items():
        rate = float(np.median(np.concatenate(of_arm)))
        outcome.rows.append({"arm": arm, "records_per_s": rate, "megabytes_per_s": rate * size / 1e6})
    outcome.tables = [_table(outcome.rows)]
    return outcome


def _table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    table = columns("", "records/s", "MB/s")
    for row in rows:
        numbers = [figure(float(row[name] or 0.0)) for name in ("records_per_s", "megabytes_per_s")]
        table.add_row(str(row["arm"]), *numbers)
    return table


BRIDGE_THROUGHPUT: Final = Experiment(
    name="bridge",
    summary="how fast a bridge copies an edge's backlog into Kafka, compared with a plain producer",
    needs="Java 17 and Maven (tools/setup --tests)",
    seconds_quick=60,
    seconds_full=400,
    run=_run,
)
