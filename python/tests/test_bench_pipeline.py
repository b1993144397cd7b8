"""What is worked out of rounds of the emulated pipeline; the buses themselves run in the experiment."""

import numpy as np
import pytest

from mez.pipeline import Hop
from mez.pipeline.report.reading import Way
from mez_bench.emulated.rounds import Shown, shown
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Outcome
from mez_bench.experiments import pipeline

MS = 1_000_000


def way(number: int, due: float, sent: float, fetched: float, made: float, clock: str = "boot") -> Way:
    """A record; stamps in milliseconds."""

    def hop(stage: str, **at: float) -> Hop:
        return Hop(stage, "", clock, 0, {step: round(ms * MS) for step, ms in at.items()}, 1)

    hops = (
        hop("camera", captured=due),
        hop("detect", sent=sent),
        Hop("identify", "", "boot", 0, {"fetched": round(fetched * MS), "made": round(made * MS)}, 1),
    )
    return Way("faces", f"dock/cam1@1-{number}/detect.0/identify", "dock/cam1", f"1-{number}", 0, hops)


def test_the_bound_is_the_waiting_for_a_free_worker_with_the_same_arrivals() -> None:
    """Records of 100 ms every 80 ms: each waits 20 ms longer than the one before, whatever carries it."""
    records = 20
    arrivals = [80.0 * number for number in range(records)]
    begins = [100.0 * number + 5 for number in range(records)]
    ways = [
        way(n, arrivals[n] - 90, arrivals[n], begins[n], begins[n] + 100) for n in reversed(range(records))
    ]
    found = shown(ways, records + 1, 1)
    np.testing.assert_allclose(found.bound * 1000, [20.0 * number for number in range(4, records)], atol=1e-6)
    np.testing.assert_allclose((found.waited - found.bound) * 1000, 5, atol=1e-6)
    np.testing.assert_allclose((found.whole - found.waited) * 1000, 190, atol=1e-6)
    assert (found.sent, found.lost) == (records + 1, 1)
    # A second worker is always free in time.
    assert shown(ways, records, 2).bound.max() == 0


def test_stamps_of_several_clocks_are_no_measurement() -> None:
    """All processes of the experiment are on one host."""
    with pytest.raises(ExperimentError, match="several clocks"):
        shown([way(0, 0, 90, 91, 200, clock="other")], 1, 4)
    with pytest.raises(ExperimentError, match="no record was identified"):
        shown([], 1, 4)


@pytest.mark.parametrize("part", pipeline.PARTS)
def test_both_buses_have_the_same_frames_and_the_same_work(part: str) -> None:
    """But for the names of cameras. Workers are busy for 0.6 of their time."""
    ours = pipeline._plan([f"a{n}" for n in range(8)], part, 3, 60.0)
    theirs = pipeline._plan([f"b{n}" for n in range(8)], part, 3, 60.0)
    assert list(ours.due_s.values()) == list(theirs.due_s.values())
    assert list(ours.work_ms.values()) == list(theirs.work_ms.values())
    work_s = sum(sum(of) for of in ours.work_ms.values()) / 1000
    assert work_s / (60.0 * pipeline.WORKERS) == pytest.approx(pipeline.USED_SHARE, rel=0.02)
    assert (max(ours.work_ms["a0"]) == min(ours.work_ms["a0"])) == (part == pipeline.CONSTANT)


def test_figures_are_medians_of_rounds() -> None:
    """A round in which the machine was busy elsewhere does not count; what a bus lost does."""

    def of(waited_ms: float, lost: int = 0) -> Shown:
        waited = np.full(100, waited_ms / 1000)
        return Shown(waited, np.zeros(100), waited + 0.2, 125, lost)

    outcome = Outcome()
    measured = {"mez": [of(5), of(6), of(500)], "kafka": [of(10), of(1000, lost=2), of(20)]}
    pipeline._fill(outcome, pipeline.CONSTANT, measured)
    metrics = {name: value.median for name, value in outcome.metrics.items()}
    assert metrics["mez_waiting_ms_mean"] == pytest.approx(6)
    assert metrics["mez_waiting_share_mean"] == pytest.approx(6 / 206)
    assert metrics["ratio_e2e_mean_kafka"] == pytest.approx(205 / 210)
    assert (metrics["mez_lost"], metrics["kafka_lost"]) == (0, 2)
    assert len(outcome.rows) == 6
