"""Models brokers and their drives: several brokers write every record, and a drive writes one at a time.

A write takes the drive's latency plus the time of its bytes. No parameter is fitted. The model leaves out
batches, the page cache, and the brokers' processors and networks. So it shows when drives are full, not how
long a record waits for a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mez_bench.acceleration import paper
from mez_bench.acceleration.stability import Verdict, judge
from mez_bench.queueing import poisson, waits
from mez_bench.stats import Values


@dataclass(frozen=True, slots=True)
class Drive:
    """A drive.

    Attributes:
        bytes_per_second: Its write rate.
        write_latency_s: Latency of each write, in addition.
    """

    bytes_per_second: float = paper.WRITE_BYTES_PER_SECOND
    write_latency_s: float = paper.WRITE_LATENCY_S

    def write_s(self, record_bytes: float) -> float:
        """Return how long the write of a record takes."""
        return self.write_latency_s + record_bytes / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class Cluster:
    """Brokers that keep records.

    Attributes:
        brokers: Number of brokers.
        drives: Number of drives in each broker.
        record_bytes: Size of a record.
        replicas: On how many brokers a record is kept.
        drive: Properties of each drive.
    """

    brokers: int
    drives: int
    record_bytes: float = paper.RECORD_BYTES
    replicas: int = paper.REPLICAS
    drive: Drive = Drive()

    def __post_init__(self) -> None:
        if self.brokers < self.replicas:
            raise ValueError(f"{self.replicas} replicas need as many brokers, and there are {self.brokers}")

    @property
    def _writes_of_a_drive(self) -> float:
        """Writes of one record on one drive, on average."""
        return self.replicas / (self.brokers * self.drives)

    def busy_share(self, records_per_second: float) -> float:
        """Return the share of its time that a drive has to write; above 1 it cannot keep up."""
        return records_per_second * self._writes_of_a_drive * self.drive.write_s(self.record_bytes)

    def written_share(self, records_per_second: float) -> float:
        """Return the bytes that a drive writes, as a share of its rate; a full drive writes what it can."""
        kept = min(1.0, 1 / self.busy_share(records_per_second))
        offered = records_per_second * self._writes_of_a_drive * self.record_bytes
        return kept * offered / self.drive.bytes_per_second

    def records_per_second_max(self) -> float:
        """Return the rate that keeps the drives busy all the time."""
        return 1 / (self._writes_of_a_drive * self.drive.write_s(self.record_bytes))


def paper_rate() -> float:
    """Return the records a second at factor 1: an eighth of what each broker wrote at 8 times.

    With three brokers and three replicas, each of them writes every record.
    """
    return paper.WRITTEN_SHARE_AT_8 * paper.WRITE_BYTES_PER_SECOND / paper.RECORD_BYTES / 8


def play(
    cluster: Cluster, records_per_second: float, seconds: float, random: np.random.Generator
) -> tuple[Values, Values]:
    """Offer records to a cluster; return when each was due, and when all its replicas were written."""
    due_s = poisson(records_per_second, int(records_per_second * seconds), random)
    leaders = random.integers(0, cluster.brokers, len(due_s))
    write_s = cluster.drive.write_s(cluster.record_bytes)
    done_s = np.zeros(len(due_s))
    brokers = (leaders[:, None] + np.arange(cluster.replicas)[None, :]) % cluster.brokers
    drives = random.integers(0, cluster.drives, brokers.shape)
    for broker in range(cluster.brokers):
        for drive in range(cluster.drives):
            mine = np.flatnonzero(((brokers == broker) & (drives == drive)).any(axis=1))
            waited = waits(due_s[mine], np.full(len(mine), write_s), 1)
            done_s[mine] = np.maximum(done_s[mine], due_s[mine] + waited + write_s)
    return due_s, done_s


def verdict(cluster: Cluster, records_per_second: float, seconds: float, seed: int) -> Verdict:
    """Simulate a run, and judge whether it is stable."""
    due_s, done_s = play(cluster, records_per_second, seconds, np.random.default_rng(seed))
    return judge(due_s, done_s, float(due_s[-1]))
