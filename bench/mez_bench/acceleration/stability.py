"""Judges whether a pipeline keeps up: its latency does not grow, and what is offered is completed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mez_bench.stats import Values

BLOCKS: Final = 20
"""Pieces of a run. The means of pieces are less correlated than the latencies of neighbouring records."""
STUDENT_95: Final = 2.101
"""The two-sided 95 % quantile of Student's t for `BLOCKS` - 2 degrees of freedom."""
COMPLETED_SHARE_MIN: Final = 0.999


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run went.

    Attributes:
        slope: Growth of the latency, in seconds per second.
        slope_low: Lower end of the slope's 95 % interval.
        slope_high: Upper end of this interval.
        completed_share: Share of the offered records that were completed.
    """

    slope: float
    slope_low: float
    slope_high: float
    completed_share: float

    @property
    def is_stable(self) -> bool:
        """The slope's interval is not above zero, and `COMPLETED_SHARE_MIN` of records or more completed.

        A slope below zero comes from a start that was slower than the rest, not from a queue that grows.
        """
        return self.slope_low <= 0 and self.completed_share >= COMPLETED_SHARE_MIN


def judge(due_s: Values, done_s: Values, end_s: float) -> Verdict:
    """Judge a run.

    Args:
        due_s: When each record was offered, in ascending order; every record counts.
        done_s: When it was completed; not a number or later than `end_s` if it was not.
        end_s: Deadline of all records: the end of the run, plus the time that a record may take.

    Raises:
        ValueError: There are too few records to judge.
    """
    completed = done_s <= end_s
    if completed.sum() < 2 * BLOCKS:
        raise ValueError(
            f"{completed.sum()} completed records; at least {2 * BLOCKS} are needed to judge a run"
        )
    pieces = np.array_split(np.flatnonzero(completed), BLOCKS)
    at = np.array([due_s[piece].mean() for piece in pieces])
    latency = np.array([(done_s[piece] - due_s[piece]).mean() for piece in pieces])
    from_mean = at - at.mean()
    slope = float(from_mean @ latency / (from_mean @ from_mean))
    rest = latency - latency.mean() - slope * from_mean
    error = float(np.sqrt(rest @ rest / (BLOCKS - 2) / (from_mean @ from_mean)))
    half = STUDENT_95 * error
    return Verdict(slope, slope - half, slope + half, float(completed.mean()))
