"""Starts the buses that are compared: an edge, and a Kafka of one or three brokers."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mez._processes import run_to_end
from mez_bench.aitax.drives import Drive
from mez_bench.aitax.durable import Watch
from mez_bench.aitax.part import STAGE
from mez_bench.children import Child, mez
from mez_bench.kafka import start_kafka
from mez_bench.run import Run

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def data_folder(folder: Path, broker: int) -> Path:
    """Return where a broker of `tools/kafka.py` keeps its logs; brokers count from 1."""
    return folder / f"data-{broker}"


class Site(Protocol):
    """A bus that runs.

    Attributes:
        edge: The edge's address; empty for Kafka.
        servers: Kafka's addresses.
        brokers: Number of brokers; each keeps a replica of every record.
        drives: The drives of all brokers; empty: all is kept in memory.
    """

    edge: str
    servers: tuple[str, ...]
    brokers: int
    drives: tuple[Drive, ...]

    def topic(self, pipeline: str, cameras: Sequence[str]) -> None:
        """Make the topic for the records of a run."""

    def drop(self, pipeline: str) -> None:
        """Remove this topic."""

    def watch(self, cameras: Sequence[str]) -> Watch | None:
        """Watch when records become durable, if this may be after their acknowledgement."""

    def cpu_ns(self) -> int:
        """Return the processor time that its processes have used."""


@dataclass(slots=True)
class MezSite:
    """An edge; with a folder on a drive it keeps its logs, its state and its groups there."""

    edge: str
    child: Child
    state: Path | None
    drives: tuple[Drive, ...]
    servers: tuple[str, ...] = ()
    brokers: int = 1

    def topic(self, pipeline: str, cameras: Sequence[str]) -> None:
        """Make nothing: a stream exists once a producer publishes to it."""

    def drop(self, pipeline: str) -> None:
        """Remove nothing: streams end with the edge."""

    def watch(self, cameras: Sequence[str]) -> Watch | None:
        """Watch the logs of all streams."""
        if self.state is None:
            return None
        return Watch(self.state, [f"{camera}/{STAGE}" for camera in cameras])

    def cpu_ns(self) -> int:
        """Return the processor time of the edge."""
        return self.child.cpu_ns()


@dataclass(slots=True)
class KafkaSite:
    """Brokers. On drives each record is synced before it is acknowledged or can be read."""

    child: Child
    servers: tuple[str, ...]
    brokers: int
    drives: tuple[Drive, ...]
    edge: str = ""

    def topic(self, pipeline: str, cameras: Sequence[str]) -> None:
        """Make the topic, a partition for each camera, a replica on each broker."""
        from confluent_kafka.cimpl import NewTopic

        config = {"flush.messages": "1"} if self.drives else {}
        # The client has to live until it has the answer.
        client = self._client()
        made = client.create_topics(
            [NewTopic(f"{pipeline}.{STAGE}", len(cameras), self.brokers, config=config)]
        )
        for future in made.values():
            future.result(30)

    def drop(self, pipeline: str) -> None:
        """Remove the topic."""
        client = self._client()
        for future in client.delete_topics([f"{pipeline}.{STAGE}"]).values():
            future.result(30)

    def _client(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": ",".join(self.servers), "log_level": 2})

    def watch(self, cameras: Sequence[str]) -> Watch | None:
        """Watch nothing: on drives, an acknowledged record is durable."""
        return None

    def cpu_ns(self) -> int:
        """Return the processor time of all brokers."""
        return self.child.helpers_cpu_ns()


@contextlib.contextmanager
def mez_site(run: Run, folder: Path, drive: Drive | None) -> Iterator[MezSite]:
    """Run an edge; on a drive with `--durability sync`: each batch of records is synced."""
    folder.mkdir()
    keys = folder / "keys"
    run_to_end("keys init", mez("keys", "init", "--site", "bench", "--keys", str(keys)))
    socket, kept, store = folder / "edge.sock", folder, list[str]()
    if drive is not None:
        kept = drive.folder / "edge"
        kept.mkdir()
        key = folder / "store.key"
        run_to_end("store key", mez("store", "key", "--file", str(key)))
        store = ["--store", str(kept / "store"), "--store-key", str(key), "--durability", "sync"]
    words = ["edge", "--keys", str(keys), "--listen", "127.0.0.1:0", "--grpc", "off", "--enrol", "off"]
    words += ["--socket", str(socket), "--state", str(kept / "state"), *store]
    child = run.children.start(f"{folder.name} edge", mez(*words))
    try:
        child.ready()
        drives = () if drive is None else (drive,)
        yield MezSite(f"unix://{socket}", child, kept / "state" if drive else None, drives)
    finally:
        run.children.stop(child)
        if drive is not None:
            shutil.rmtree(kept, ignore_errors=True)


@contextlib.contextmanager
def kafka_site(run: Run, folder: Path, brokers: int, drives: Sequence[Drive]) -> Iterator[KafkaSite]:
    """Run brokers with their logs in `data-1` and so on of the folder, where drives may be mounted.

    Raises:
        ExperimentError: The brokers do not start.
    """
    folder.mkdir(exist_ok=True)
    child, servers = start_kafka(run, folder, brokers)
    try:
        yield KafkaSite(child, servers, brokers, tuple(drives))
    finally:
        run.children.stop(child)
