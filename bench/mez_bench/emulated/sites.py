"""The buses of the emulated pipeline, each with the pipeline that runs on it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mez._processes import mez_command
from mez.pipeline import buses, file
from mez.pipeline.errors import EventsError
from mez.pipeline.report import reading
from mez.pipeline.report.reading import Way
from mez_bench.children import Child
from mez_bench.emulated import producers
from mez_bench.emulated.producers import Plan, Played
from mez_bench.errors import ExperimentError
from mez_bench.kafka import start_kafka as start_brokers
from mez_bench.run import Run
from mez_bench.systems.mez import Brokers

HERE: Final = Path(__file__).parent
LOG_BYTES: Final = 256 << 20
"""The edge's memory."""
RUNNING_S_MAX: Final = 90.0
ENDED_S_MAX: Final = 120.0
"""How long the last records of a round may take."""
TRIED_KEYS_MAX: Final = 4000


@dataclass(frozen=True, slots=True)
class Shape:
    """What the pipeline looks like on either bus.

    Attributes:
        workers: Number of workers of identification.
        cameras: Number of cameras.
        ai_share: AI's share of identification.
    """

    workers: int
    cameras: int
    ai_share: float


class Site:
    """A pipeline on a bus, and a process that plays its cameras.

    Args:
        run: The run that it belongs to.
        bus: `mez` or `kafka`.
        head: The tables of the buses, for the pipeline file.
        names: Names of the cameras.
        shape: What the pipeline looks like.
    """

    def __init__(self, run: Run, bus: str, head: str, names: list[str], shape: Shape) -> None:
        self.bus = bus
        self.names = names
        self._folder = run.folder / f"{bus}-pipeline"
        self._folder.mkdir()
        self._events = self._folder / "events"
        path = self._folder / "faces.toml"
        path.write_text(_file(bus, head, shape))
        words = ("pipeline", "run", str(path), "--state", str(self._folder / "state"))
        self._runner = run.children.start(f"{bus} pipeline", mez_command(*words))
        _await_running(self._runner)
        self._producers = run.children.start(
            f"{bus} producers", [sys.executable, "-P", str(Path(producers.__file__)), str(path), *names]
        )
        self._producers.ready(RUNNING_S_MAX)

    def play(self, plan: Plan, seconds: float) -> tuple[Played, list[Way]]:
        """Play a round, and wait until all records have left the pipeline, or for `ENDED_S_MAX`."""
        told = self._producers.ask(json.dumps(asdict(plan)), seconds + ENDED_S_MAX)
        played = Played(**told)
        if played.failed:
            raise ExperimentError(f"{self.bus}: records were not sent: {played.failed[0]}")
        deadline = time.monotonic() + ENDED_S_MAX
        while True:
            ways = self._ways(plan.number)
            if len(ways) >= played.sent or time.monotonic() > deadline:
                return played, ways
            time.sleep(0.2)

    def _ways(self, number: int) -> list[Way]:
        try:
            found = reading.read(self._events).ways
        except EventsError:
            return []
        return [way for way in found if way.frame.startswith(f"{number}-")]


def start_mez(run: Run, shape: Shape) -> Site:
    """Start an edge that keeps its log on disk, and the pipeline on it.

    A record is confirmed when the operating system has it, as with Kafka.
    """
    store = run.folder / "mez-store"
    brokers = Brokers(run, LOG_BYTES, "mez", ("--store", str(store), "--durability", "async"))
    head = f'[mez]\nedge = "{brokers.socket}"\n'
    return Site(run, "mez", head, [f"dock/cam{number}" for number in range(shape.cameras)], shape)


def start_kafka(run: Run, shape: Shape) -> Site:
    """Start a real Kafka, and the pipeline on it.

    In its best setup: as many partitions as workers, and camera names that spread evenly over them. With
    other names some workers have more to do than others.
    """
    _, servers = start_brokers(run, run.folder / "kafka")
    head = f"[kafka]\nservers = {json.dumps(servers)}\npartitions = {shape.workers}\n"
    # The pipeline subscribes to cameras at an edge, although here another program plays them.
    edge = Brokers(run, LOG_BYTES, "kafka-edge")
    head += f'[mez]\nedge = "{edge.socket}"\n'
    scratch = run.folder / "keys.toml"
    scratch.write_text(_file("kafka", head, shape).replace('name = "faces"', 'name = "keys"'))
    return Site(run, "kafka", head, _even_names(scratch, shape), shape)


def _even_names(path: Path, shape: Shape) -> list[str]:
    """Return camera names that the client itself spreads evenly over the partitions."""
    from confluent_kafka import Message, Producer

    pipeline = file.read(path)
    bus = buses.of(pipeline, "kafka")
    bus.prepare({"detect": ["identify"]})
    bus.close()
    assert pipeline.kafka is not None, "the file has it"
    servers = ",".join(pipeline.kafka.servers)
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    most = -(-shape.cameras // shape.workers)
    lanes: dict[int, list[str]] = {}

    def landed(error: object, message: Message) -> None:
        if error is None:
            lanes.setdefault(message.partition() or 0, []).append(str(message.key() or b"", "utf-8"))

    for number in range(TRIED_KEYS_MAX):
        producer.produce(f"{pipeline.name}.detect", b"", f"dock/cam{number}".encode(), on_delivery=landed)
        producer.flush(10.0)
        if len(lanes) == shape.workers and all(len(names) >= most for names in lanes.values()):
            chosen = [name for names in zip(*lanes.values(), strict=False) for name in names]
            return chosen[: shape.cameras]
    raise ExperimentError("found no camera names that spread evenly over Kafka's partitions")


def _await_running(runner: Child) -> None:
    deadline = time.monotonic() + RUNNING_S_MAX
    while time.monotonic() < deadline:
        line = runner.line(RUNNING_S_MAX)
        if line is None:
            break
        if " runs: " in line:
            return
    raise ExperimentError(f"{runner.name} did not start.{runner.last_words()}")


def _file(bus: str, head: str, shape: Shape) -> str:
    return f"""
[pipeline]
name = "faces"
bus = "{bus}"
events = "events"

{head}
[stage.detect]
cameras = "dock/*"

[stage.identify]
run = "{HERE / "stages.py"}:identify"
after = "detect"
workers = {shape.workers}
options.ai_share = {shape.ai_share}
"""
