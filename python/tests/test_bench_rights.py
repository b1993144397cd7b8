"""The experiment on rights: what its figures mean."""

import numpy as np
import pytest

from mez_bench.experiment import Outcome
from mez_bench.experiments import rights
from mez_bench.experiments.rights import LIVE, QUIC, REVOKED, TCP, UNGRANTED


def outcome(late: float = 1.0, slow: float = 1.0, check_us: float = 0.2) -> Outcome:
    """A result: one stream took `late` seconds, frames with many grants `slow` times as long."""
    ended = {(REVOKED, LIVE): [0.5, late], (REVOKED, QUIC): [0.4, 0.6], (UNGRANTED, LIVE): [0.3, 0.9]}
    blocks = {1: [np.full(50, 2.0)] * 4, 1000: [np.full(50, 2.0 * slow)] * 4}
    checks = {(1, "allowed"): [np.array([0.1])], (1000, "refused"): [np.array([check_us])]}
    return rights._outcome(ended, blocks, checks)


def missed(result: Outcome) -> list[str]:
    """The targets that are not met."""
    known = [target for target in result.targets if target.metric in result.metrics]
    return [target.metric for target in known if not target.is_met(result.metrics[target.metric])]


@pytest.mark.parametrize(
    ("made", "misses"),
    [
        (outcome(), []),
        (outcome(late=5.1), ["revoked_s_max"]),
        (outcome(slow=1.03), ["grants_cost_ratio"]),
        (outcome(check_us=2.1), ["check_us"]),
    ],
)
def test_the_slowest_of_all_counts(made: Outcome, misses: list[str]) -> None:
    """One stream that goes on, one slow arm: either fails the target."""
    assert missed(made) == misses
    assert [row["of"] for row in made.rows] == [LIVE, QUIC, LIVE]
    assert made.rows[0]["s_max"] == made.metrics["revoked_s_max"].median or not misses


@pytest.mark.parametrize(
    ("kind", "reason", "misses"),
    [
        ((REVOKED, LIVE), "the certificate of app/x was revoked (the experiment); to join …", False),
        ((REVOKED, LIVE), "the broker closed the connection", True),
        ((UNGRANTED, LIVE), "app/x may not watch bench/steady", False),
        ((UNGRANTED, LIVE), "it ended without a reason", True),
        ((REVOKED, TCP), "the link is gone", False),
    ],
)
def test_an_application_is_told_why(kind: tuple[str, str], reason: str, misses: bool) -> None:
    """Cameras log it; applications get it."""
    assert rights._misses_reason(kind, reason) == misses
