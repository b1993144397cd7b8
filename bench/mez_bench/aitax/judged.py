"""Says of the stamps of a run how it went: stable or not, where records waited, what was not durable."""

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
"""Above this share of their time the processors may be what bounds a run, and not its bus."""
DISTURBED_SHARE: Final = 0.25
"""If other programs have more than this share of the processors' time, an unstable run proves nothing."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """When what happened to each record, in seconds from the start of the run; not a number: never.

    Attributes:
        due_s: The frame was due, in ascending order.
        made_s: Its face was there.
        acked_s: The bus had acknowledged it.
        fetched_s: A worker had it.
        done_s: The worker had settled it.
        durable_s: It was on disk; `None`: nothing is kept on disk.
        twice: Records that were worked on more than once.
    """

    due_s: Values
    made_s: Values
    acked_s: Values
    fetched_s: Values
    done_s: Values
    durable_s: Values | None
    twice: int

    def complete_s(self) -> Values:
        """When each record was done and, where records are kept on disk, durable too."""
        complete: Values = self.done_s if self.durable_s is None else np.maximum(self.done_s, self.durable_s)
        return complete


@dataclass(frozen=True, slots=True)
class Judged:
    """How a run went.

    Attributes:
        verdict: Whether it was stable; `None`: it was not, and too few records were completed to say more.
        completed_share: Of the records offered.
        whole_ms: Mean from due to done.
        whole_ms_p99: Its 99 % quantile.
        waiting_share: Waiting between made and fetched, as a share of the whole; of means.
        bound_share: The same where records wait for a free worker only.
        durable_ms: Mean from made to durable; `None`: nothing is kept on disk.
        not_durable_share: Records acknowledged before they were durable, of those acknowledged.
        not_durable_max: The most records at one moment that were acknowledged and not durable.
        twice: Records that were worked on more than once.
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
        """It kept up."""
        return self.verdict is not None and self.verdict.is_stable


def judged(stamps: Stamps, bound_s: Values, service_s: float, end_s: float) -> Judged:
    """Judge a run.

    Args:
        stamps: What happened.
        bound_s: How long each record would have waited for a worker alone.
        service_s: How long a worker takes.
        end_s: Until when records had time.
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
    # The first records find workers idle that later ones do not.
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
    """The share of records that were acknowledged before they were durable, and the most of them at once."""
    if stamps.durable_s is None:
        return 0.0, 0
    acked = ~np.isnan(stamps.acked_s)
    late = acked & ~(stamps.durable_s <= stamps.acked_s)
    if not late.any():
        return 0.0, 0
    begins = stamps.acked_s[late]
    ends = stamps.durable_s[late]
    moments = np.concatenate([begins, ends[~np.isnan(ends)]])
    steps = np.concatenate([np.ones(len(begins), int), -np.ones(len(moments) - len(begins), int)])
    # An end and a beginning at the same moment do not count as two.
    order = np.lexsort((steps, moments))
    return float(late.sum() / acked.sum()), int(np.cumsum(steps[order]).max())


def place_in_stream(camera: NDArray[np.int64]) -> NDArray[np.int64]:
    """The how manieth record of its camera each one is, from 0."""
    places = np.empty(len(camera), np.int64)
    for one in np.unique(camera):
        mine = np.flatnonzero(camera == one)
        places[mine] = np.arange(len(mine))
    return places


def majority(runs: Sequence[bool]) -> bool:
    """What most runs say; as many stable as unstable ones count as unstable."""
    return sum(runs) * 2 > len(runs)


def stable_max(stable: dict[float, bool]) -> float:
    """The largest factor up to which all factors were stable; 0: not even the smallest was."""
    largest = 0.0
    for factor in sorted(stable):
        if not stable[factor]:
            break
        largest = factor
    return largest
