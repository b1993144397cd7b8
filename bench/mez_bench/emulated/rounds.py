"""Computes the figures of a round of the emulated pipeline, and the waiting that no bus can avoid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mez.pipeline.report.reading import Way
from mez_bench.errors import ExperimentError
from mez_bench.queueing import steady, waits
from mez_bench.stats import Values


@dataclass(frozen=True, slots=True)
class Shown:
    """A round on a bus, in the order of sending, without the warm-up; in seconds.

    Attributes:
        waited: Time from when a record was given to the bus until a worker had it.
        bound: Waiting for a worker alone: the same arrivals and work, each record to the first free worker.
        whole: Time from when the record's frame was due until the record was identified.
        sent: Records of the whole round that the bus has confirmed.
        lost: How many of the sent records were not identified.
    """

    waited: Values
    bound: Values
    whole: Values
    sent: int
    lost: int


def shown(ways: Sequence[Way], sent: int, workers: int) -> Shown:
    """Compute the figures of a round.

    Raises:
        ExperimentError: No record was identified, or a record has stamps of several clocks.
    """
    rows = np.array(sorted(map(_row, ways)), np.float64).reshape(-1, 4)
    if not len(rows):
        raise ExperimentError("no record was identified")
    sent_s, fetched_s, made_s, due_s = rows.T / 1e9
    bound = waits(sent_s, made_s - fetched_s, workers)
    return Shown(
        steady(fetched_s - sent_s), steady(bound), steady(made_s - due_s), sent, max(0, sent - len(rows))
    )


def _row(way: Way) -> tuple[int, int, int, int]:
    camera, detect, identify = way.hops
    if len({hop.clock for hop in way.hops}) != 1:
        raise ExperimentError(f"{way.id} has stamps of several clocks, but all processes run on this host")
    return detect.at["sent"], identify.at["fetched"], identify.at["made"], camera.at["captured"]
