"""Compares the model of drives with measured points, and applies it to more nodes.

The model is that of `acceleration/brokers.py`. Of a drive of this machine it knows only the rate limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mez_bench.acceleration import paper
from mez_bench.acceleration.brokers import Cluster, Drive, paper_rate, play
from mez_bench.acceleration.stability import judge
from mez_bench.aitax.judged import majority
from mez_bench.aitax.runs import GRACE_S
from mez_bench.aitax.settings import SEED, Point

SECONDS: Final = 4.0
SEEDS: Final = 3
RECORDS_MIN: Final = 1000
"""Fewest records in a run of the model, so that it can be judged."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A measured point and the model.

    Attributes:
        point: The measured point.
        busy_share: Share of time that a drive is busy by the model, if each byte of a record is written once.
        stable: Whether the point is then stable by the model.
        written_busy_share: This share if as many bytes are written as were measured at this point.
        written_stable: Whether the point is then stable by the model.
    """

    point: Point
    busy_share: float
    stable: bool
    written_busy_share: float
    written_stable: bool


def compared(points: Sequence[Point], workers: int) -> list[Compared]:
    """Compare the model with the points that were measured on drives and decided."""
    found = []
    for point in points:
        times = point.ran.written_times
        if not point.drive_bytes_per_second or times is None or not point.is_decided:
            continue
        load = point.setting.load(workers)
        offered = load.records_per_second * point.factor
        plain = point.cluster(load.record_bytes)
        written = point.cluster(load.record_bytes * max(1.0, times))
        found.append(
            Compared(
                point,
                plain.busy_share(offered),
                stable(plain, offered),
                written.busy_share(offered),
                stable(written, offered),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Larger:
    """A cluster that this machine is too small for.

    Attributes:
        point: The paper's result for it.
        stable: Whether it is stable by the model, with the paper's drives and no fitted parameter.
        stable_flushed: Whether it is stable if each record is synced, with as many bytes as Kafka wrote here.
    """

    point: paper.Point
    stable: bool
    stable_flushed: bool


def larger(written_times: float) -> list[Larger]:
    """Apply the model to the paper's clusters of 3 to 8 brokers with 1 to 4 drives, at the paper's load.

    Args:
        written_times: Bytes that a broker writes for each byte of a record, if it syncs each record.
    """
    found = []
    for point in paper.POINTS:
        offered = paper_rate() * point.factor
        flushed = Cluster(
            point.brokers, point.drives, paper.RECORD_BYTES * max(1.0, written_times), drive=Drive()
        )
        found.append(
            Larger(point, stable(Cluster(point.brokers, point.drives), offered), stable(flushed, offered))
        )
    return found


def stable(cluster: Cluster, records_per_second: float) -> bool:
    """Return whether most of a few runs of the model, with different seeds, were stable."""
    seconds = max(SECONDS, RECORDS_MIN / records_per_second)
    found = []
    for seed in range(SEEDS):
        due_s, done_s = play(cluster, records_per_second, seconds, np.random.default_rng(SEED + seed))
        # The last record has as much time as in a measured run.
        found.append(judge(due_s, done_s, float(due_s[-1]) + GRACE_S).is_stable)
    return majority(found)
