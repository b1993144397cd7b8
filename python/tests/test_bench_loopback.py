"""What is worked out of bursts where a peer failed on the way."""

import io
from collections.abc import Iterator

import numpy as np
import pytest
from rich.console import Console

from mez_bench.bursts import Burst, System
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Outcome
from mez_bench.experiments import loopback
from mez_bench.run import Run

SETTINGS = (
    loopback.Setting(*loopback.GATED, frames=10, rounds=3),
    loopback.Setting(1_700_000, 15, frames=5, rounds=3),
)


def bursts(median_ms: float, frames: int) -> list[Burst]:
    """Make three bursts around a latency."""
    drawn = np.random.default_rng(int(median_ms * 10))
    none = np.zeros(frames)
    processes = {"publisher": 0.5, "subscriber": 0.5}
    return [
        Burst(median_ms + drawn.uniform(-0.1, 0.1, (1, frames)), 0, none, none, processes, processes)
        for _ in range(3)
    ]


@pytest.fixture
def run() -> Iterator[Run]:
    """A run that tells its progress to nobody."""
    with Run(quick=True, data=None, console=Console(file=io.StringIO())) as run:
        yield run


def test_a_peer_that_failed_counts_where_it_did_not() -> None:
    """Its settings before that are kept; the best of the others is what the ratio is to."""
    gated = {name: bursts(2.0, 10) for name in loopback.SYSTEMS} | {"nats": bursts(3.0, 10)}
    later = {name: bursts(4.0, 5) for name in loopback.SYSTEMS if name != "zenoh"}
    outcome = Outcome()
    measured = {SETTINGS[0].key: gated, SETTINGS[1].key: later}
    loopback._fill(outcome, SETTINGS, measured, {"mez": {"publisher": (10.0, 12.0)}})
    of_zenoh = [row for row in outcome.rows if row["system"] == "zenoh"]
    assert [row["frame_bytes"] for row in of_zenoh] == [1_000_000]
    assert "publisher_rss_mb" not in of_zenoh[0], "its processes are gone"
    assert outcome.metrics["ratio_1mb_p50_best_peer"].median == pytest.approx(1.0, abs=0.05)

    del gated["zenoh"], gated["nats_leaf"]
    outcome = Outcome()
    loopback._fill(outcome, SETTINGS, measured, {})
    assert outcome.metrics["ratio_1mb_p50_best_peer"].median == pytest.approx(2 / 3, abs=0.05)
    assert "ratio_1mb_p50_best_peer_both" not in outcome.metrics, "nobody to be held against"


def test_without_mez_there_is_nothing_to_be_said(run: Run) -> None:
    """A peer that fails is named with its reason; what is measured may not fail."""
    outcome, error = Outcome(), ExperimentError("zenoh router does not run any more.\n  It last logged: oh")
    child = run.children.start("sleeps", ["sleep", "60"])
    loopback._leave_out(System("zenoh", child, child, {}), SETTINGS[0], error, run, outcome)
    assert outcome.notes == [
        "LEFT OUT zenoh from 1000 kB at 15 fps on: zenoh router does not run any more. It last logged: oh"
    ]
    with pytest.raises(ExperimentError):
        loopback._leave_out(System("mez", child, child, {}), SETTINGS[0], error, run, outcome)
