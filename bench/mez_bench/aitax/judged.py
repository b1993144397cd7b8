"""Judges a run by its stamps: whether it was stable, where records waited, and which were not durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mez_bench.acceleration.stability import Verdict, judge
from mez_bench.queueing import steady
from mez_bench.stats import Values

MACHINE_FULL_SHARE: Final = 0.9
"""Above this share of their time, the processors may limit a run, rather than its bus."""
DISTURBED_SHARE: Final = 0.25
"""If other programs used more than this share of the processors' time, an unstable run proves nothing."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """When each record reached each step, in seconds from the start of the run; NaN: never.

    Attributes:
        due_s: When its frame was due, in ascending order.
        made_s: When its face was ready.
        acked_s: When the bus had acknowledged it.
        fetched_s: When a worker had it.
        done_s: When the worker had settled it.
        durable_s: When it was first seen to be on disk; `None`: nobody looks (nothing is on disk, or Kafka).
        missing_s: When it was last seen not to be on disk; `None` like `durable_s`.
        twice: Number of records that were worked on more than once.
    """

    due_s: Values
    made_s: Values
    acked_s: Values
    fetched_s: Values
    done_s: Values
    durable_s: Values | None
    missing_s: Values | None
    twice: int

    def complete_s(self) -> Values:
        """Return when each record was done and, if records are kept on disk, also durable."""
        complete: Values = self.done_s if self.durable_s is None else np.maximum(self.done_s, self.durable_s)
        return complete


@dataclass(frozen=True, slots=True)
class Judged:
    """How a run went.

    Attributes:
        verdict: Whether it was stable; `None`: it was not, and too few records were completed to say more.
        completed_share: Share of the offered records that were completed.
        whole_ms: Mean time from due to done.
        whole_ms_p99: The 99 % quantile of this time.
        waiting_share: Mean waiting between made and fetched, as a share of `whole_ms`.
        bound_share: This share if records waited for a free worker only.
        durable_ms: Mean time from made to durable; `None`: nobody looks.
        not_durable_share: Share of the acknowledged records that were seen not to be durable afterwards.
        not_durable_max: The most of these at one moment.
        twice: Number of records that were worked on more than once.
    """

    verdict: Verdict | None
    completed_share: float
    whole_ms: float | None
    whole_ms_p99: float | None
    waiting_share: float | None
    bound_share: float
    durable_ms: float | None
    not_durable_share: float
    not_durable_max: int
    twice: int

    @property
    def is_stable(self) -> bool:
        """Whether the bus kept up."""
        return self.verdict is not None and self.verdict.is_stable


def judged(stamps: Stamps, bound_s: Values, service_s: float, end_s: float) -> Judged:
    """Judge a run.

    Args:
        stamps: The stamps of its records.
        bound_s: How long each record would have waited for a worker alone.
        service_s: How long a worker takes.
        end_s: Deadline of all records.
    """
    complete = stamps.complete_s()
    in_time = complete <= end_s
    try:
        verdict = judge(stamps.due_s, np.where(in_time, complete, np.inf), end_s)
    except ValueError:
        verdict = None
    whole = stamps.done_s - stamps.due_s
    waited = stamps.fetched_s - stamps.made_s
    bound = float(steady(bound_s).mean()) / float(
        steady(stamps.made_s - stamps.due_s + bound_s).mean() + service_s
    )
    seen = in_time & ~np.isnan(whole)
    # The first records find idle workers, unlike later ones.
    whole, waited = steady(whole[seen]), steady(waited[seen])
    late, most = _not_durable(stamps)
    durable_ms = None
    if stamps.durable_s is not None and seen.any():
        durable_ms = float((stamps.durable_s - stamps.made_s)[seen].mean() * 1000)
    return Judged(
        verdict,
        float(in_time.mean()),
        float(whole.mean() * 1000) if len(whole) else None,
        float(np.percentile(whole, 99) * 1000) if len(whole) else None,
        float(waited.mean() / whole.mean()) if len(whole) else None,
        bound,
        durable_ms,
        late,
        most,
        stamps.twice,
    )


def _not_durable(stamps: Stamps) -> tuple[float, int]:
    """Return the share of records seen not to be durable after the acknowledgement, and the most at once."""
    if stamps.durable_s is None or stamps.missing_s is None:
        return 0.0, 0
    acked = ~np.isnan(stamps.acked_s)
    late = acked & (stamps.missing_s > stamps.acked_s)
    if not late.any():
        return 0.0, 0
    begins = stamps.acked_s[late]
    ends = stamps.durable_s[late]
    moments = np.concatenate([begins, ends[~np.isnan(ends)]])
    steps = np.concatenate([np.ones(len(begins), int), -np.ones(len(moments) - len(begins), int)])
    # At the same moment, an end counts before a beginning.
    order = np.lexsort((steps, moments))
    return float(late.sum() / acked.sum()), int(np.cumsum(steps[order]).max())


def place_in_stream(camera: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each record's index among the records of its camera, from 0."""
    places = np.empty(len(camera), np.int64)
    for one in np.unique(camera):
        mine = np.flatnonzero(camera == one)
        places[mine] = np.arange(len(mine))
    return places


def majority(runs: Sequence[bool]) -> bool:
    """Return whether most runs are stable; a tie counts as unstable."""
    return sum(runs) * 2 > len(runs)


def stable_max(stable: dict[float, bool]) -> float:
    """Return the largest factor up to which all factors were stable; 0: not even the smallest was."""
    largest = 0.0
    for factor in sorted(stable):
        if not stable[factor]:
            break
        largest = factor
    return largest
