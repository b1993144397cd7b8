"""Plans a run of emulated acceleration: how many records there are, and when each is due and made.

The method is the AI Tax paper's (section 5.2): compute is a wait of the measured time, divided by the factor,
and a record is random bytes of the measured size. Every frame has one face. The factor divides waits and
multiplies arrivals, so stages are as busy at every factor as at factor 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mez_bench.acceleration import paper
from mez_bench.queueing import streams, waits
from mez_bench.stats import Values

MAKE_S: Final = (paper.STAGES_MS["ingestion"][0] + paper.STAGES_MS["detection"][0]) / 1000
"""Time that a producer takes for a frame at factor 1: ingestion and detection."""
IDENTIFY_S: Final = paper.STAGES_MS["identification"][0] / 1000
"""Time that a worker takes for a face at factor 1."""
USED_SHARE: Final = 0.6
"""Share of the workers' time that is used."""
DRIVE_SHARE_AT_1: Final = 0.1
"""Share of a drive's rate that the payloads of factor 1 take (section 5.4)."""
CAMERAS_FOR_WORKER: Final = 2
SIGNED: Final = 1 << 32
_MURMUR: Final = 0x5BD1E995


@dataclass(frozen=True, slots=True)
class Load:
    """What is offered at factor 1.

    Attributes:
        workers: Number of workers of the stage `identification`.
        record_bytes: Size of a face.
    """

    workers: int
    record_bytes: int = paper.RECORD_BYTES

    @property
    def cameras(self) -> int:
        """Number of cameras. Each is a stream and a partition, so that all workers have equally many."""
        return CAMERAS_FOR_WORKER * self.workers

    @property
    def records_per_second(self) -> float:
        """The rate that keeps the workers busy for `USED_SHARE` of their time."""
        return USED_SHARE * self.workers / IDENTIFY_S

    @property
    def producers(self) -> int:
        """Number of producers, so that they are busy for at most `USED_SHARE` of their time on average."""
        return math.ceil(self.records_per_second * MAKE_S / USED_SHARE)

    @property
    def drive_bytes_per_second(self) -> float:
        """The limit of a drive: payloads of the paper's size take a tenth of it at factor 1."""
        return self.records_per_second * paper.RECORD_BYTES / DRIVE_SHARE_AT_1

    def names(self) -> list[str]:
        """Return names of cameras. Kafka puts each into a partition of its own."""
        return spread_names(self.cameras)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The records of a run, in the order of their frames.

    Attributes:
        due_s: When each frame is due, in seconds from the start.
        made_s: When its face is ready: after waiting for its producer, and the producer's own wait.
        camera: Number of its camera.
        producers: Number of producers; camera `c` belongs to producer `c` modulo this.
        service_s: How long a worker waits for each record.
    """

    due_s: Values
    made_s: Values
    camera: NDArray[np.int64]
    producers: int
    service_s: float

    def of_producer(self, number: int) -> NDArray[np.int64]:
        """Return the records of a producer, in the order in which it makes them."""
        return np.flatnonzero(self.camera % self.producers == number)

    def bound_s(self, workers: int) -> Values:
        """Return how long records wait for a free worker at least, on any bus."""
        order = np.argsort(self.made_s, kind="stable")
        waited = np.empty(len(order))
        waited[order] = waits(self.made_s[order], np.full(len(order), self.service_s), workers)
        return waited


def schedule(load: Load, factor: float, seconds: float, random: np.random.Generator) -> Schedule:
    """Plan a run.

    Args:
        load: What is offered at factor 1.
        factor: By how much compute is faster.
        seconds: For how long frames are due.
        random: Draws the times at which cameras begin.
    """
    each_s = load.cameras / (load.records_per_second * factor)
    of_one = max(1, math.floor(seconds / each_s))
    times = [streams(1, each_s, of_one, random) for _ in range(load.cameras)]
    due_s = np.concatenate(times)
    camera = np.repeat(np.arange(load.cameras), of_one)
    order = np.argsort(due_s, kind="stable")
    due_s, camera = due_s[order], camera[order]
    made_s = np.empty(len(due_s))
    for producer in range(load.producers):
        mine = np.flatnonzero(camera % load.producers == producer)
        compute_s = np.full(len(mine), MAKE_S / factor)
        made_s[mine] = due_s[mine] + waits(due_s[mine], compute_s, 1) + compute_s
    return Schedule(due_s, made_s, camera, load.producers, IDENTIFY_S / factor)


def spread_names(count: int) -> list[str]:
    """Name cameras so that Kafka's partitioner puts each into a different one of `count` partitions."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        name = f"bench/c{number}"
        found.setdefault(partition(name, count), name)
        number += 1
    return [found[place] for place in sorted(found)]


def partition(key: str, partitions: int) -> int:
    """Return the partition of a key, as Kafka's clients choose it."""
    return (_murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Return MurmurHash2 with the seed of Kafka's `Utils.murmur2`."""
    whole = len(data) & ~3
    value = (0x9747B28C ^ len(data)) % SIGNED
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MURMUR % SIGNED
        word = (word ^ word >> 24) * _MURMUR % SIGNED
        value = (value * _MURMUR % SIGNED) ^ word
    if data[whole:]:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MURMUR % SIGNED
    value = (value ^ value >> 13) * _MURMUR % SIGNED
    return value ^ value >> 15
