"""What faster AI does to a pipeline, by theory: against what the AI Tax paper says."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from mez_bench.acceleration import paper
from mez_bench.acceleration.amdahl import delay_growth_ms_per_s, frames_max, speedup
from mez_bench.acceleration.brokers import Cluster, Drive, paper_rate, play, verdict
from mez_bench.acceleration.own import shares
from mez_bench.errors import ExperimentError
from mez_bench.experiments.acceleration import _own_rows, factor_max
from tests.test_pipeline_report import event, written

SEED = 20_262
SECONDS = 2.0


@pytest.mark.parametrize(("stage", "factor", "told"), paper.SPEEDUPS)
def test_amdahls_bound_is_the_papers(stage: str, factor: float, told: float) -> None:
    """Section 5.1, to the digits that it gives."""
    assert speedup(paper.AI_SHARE[stage], factor) == pytest.approx(told, rel=0.01)


def test_what_is_all_ai_gets_as_fast_as_the_ai_and_ingestion_no_faster() -> None:
    """The two ends of the formula."""
    assert speedup(1.0, 8) == 8
    assert speedup(0.0, math.inf) == 1


def test_sets_of_frames_fall_behind_as_soon_as_they_take_longer_than_their_interval() -> None:
    """Eight frames of 4.5 ms do not fit in 33.3 ms (section 6.3); the formula gives what a clock shows."""
    assert frames_max(paper.FRAME_MS, paper.INTERVAL_MS) == pytest.approx(7.4, abs=0.01)
    assert delay_growth_ms_per_s(7, paper.FRAME_MS, paper.INTERVAL_MS) == 0
    for frames in (8, 16):
        free_ms = 0.0
        sets = 10_000
        for number in range(sets):
            begin_ms = max(free_ms, number * paper.INTERVAL_MS)
            free_ms = begin_ms + frames * paper.FRAME_MS
        late_ms = begin_ms - (sets - 1) * paper.INTERVAL_MS
        shown = late_ms / begin_ms * 1000
        assert delay_growth_ms_per_s(frames, paper.FRAME_MS, paper.INTERVAL_MS) == pytest.approx(
            shown, rel=1e-6
        )


def test_one_drive_in_three_brokers_is_full_between_six_and_eight_times() -> None:
    """The paper's instability, from the drive's rate and latency alone; runs are judged, not formulas."""
    cluster = Cluster(3, 1)
    assert 6 < factor_max(cluster) < 8
    for factor, stable in ((1, True), (6, True), (8, False), (16, False)):
        found = [verdict(cluster, paper_rate() * factor, SECONDS, SEED + seed).is_stable for seed in range(3)]
        assert sum(found) >= 2 if stable else not any(found), f"{factor} times, seed {SEED}: {found}"


def test_a_full_drive_writes_two_thirds_of_its_bytes_and_the_network_is_idle() -> None:
    """67 % of 1.1 GB/s and 6 of 100 Gbit/s at 8 times (section 5.4): brokers read what they write."""
    cluster = Cluster(3, 1)
    assert cluster.written_share(paper_rate() * 8) == pytest.approx(paper.WRITTEN_SHARE_AT_8, abs=0.02)
    assert cluster.written_share(paper_rate() * 32) == cluster.written_share(paper_rate() * 8)
    assert cluster.written_share(paper_rate()) == pytest.approx(0.10, abs=0.02)
    gbps = paper.WRITTEN_SHARE_AT_8 * paper.WRITE_BYTES_PER_SECOND * 8 / 1e9
    assert gbps == pytest.approx(paper.READ_GBPS_AT_8, rel=0.02)


def test_the_model_agrees_with_the_paper_but_for_four_settings() -> None:
    """The documents name them; whoever makes the model better changes this list."""
    differ = [
        (point.brokers, point.drives, point.factor)
        for point in paper.POINTS
        if (factor_max(Cluster(point.brokers, point.drives)) > point.factor) != point.stable
    ]
    assert differ == [(3, 3, 24), (3, 4, 32), (6, 1, 16), (8, 1, 32)]
    # The first three load a drive just as the setting does that the paper calls unstable. The last asks for
    # more bytes than a drive can write.
    loads = [Cluster(brokers, drives).busy_share(paper_rate() * factor) for brokers, drives, factor in differ]
    unstable = Cluster(3, 1).busy_share(paper_rate() * 8)
    assert loads[:3] == pytest.approx([unstable] * 3)
    without_latency = Cluster(8, 1, drive=Drive(write_latency_s=0))
    assert without_latency.busy_share(paper_rate() * 32) > 1


def test_smaller_thumbnails_help_less_the_smaller_they_are() -> None:
    """A write takes its latency, however few bytes it has (Figure 15 c)."""
    limits = [factor_max(Cluster(3, 1, paper.RECORD_BYTES / part)) for part in (1, 2, 4, 8)]
    gains = [after / before for before, after in itertools.pairwise(limits)]
    assert limits == sorted(limits)
    assert gains == sorted(gains, reverse=True)
    assert gains[0] < 2


def test_a_record_is_written_by_three_brokers_and_the_slowest_counts() -> None:
    """What overloaded drives complete is what they can write; on idle drives a record takes one write."""
    cluster = Cluster(4, 2)
    offered = cluster.records_per_second_max() * 1.5
    due, done = play(cluster, offered, SECONDS, np.random.default_rng(SEED))
    completed = float((done <= due[-1]).mean())
    # A record has three drives to wait for, each of which has come as far as the others.
    assert completed == pytest.approx(1 / 1.5, abs=0.03)
    due, done = play(cluster, 10, 100, np.random.default_rng(SEED))
    assert np.median(done - due) == pytest.approx(cluster.drive.write_s(paper.RECORD_BYTES))


def test_replicas_need_as_many_brokers() -> None:
    """Two copies on one broker are none when it fails."""
    with pytest.raises(ValueError, match="3 replicas need as many brokers, and there are 2"):
        Cluster(2, 4)


def test_the_shares_of_a_pipeline_of_ones_own_are_those_of_its_events(tmp_path: Path) -> None:
    """Detection takes 50 ms, 20 of them AI, of 101 in all; identification marks nothing."""
    own = shares(written(tmp_path / "events", *(event(number) for number in range(5))))
    assert (own.pipeline, own.records, own.unmarked) == ("faces", 5, ("identify",))
    assert own.stages == {"detect": pytest.approx(0.4)}
    assert own.whole == pytest.approx(20 / 101, abs=0.01)
    rows = _own_rows(own)
    by_place = {(row["stage"], row["factor"]): row["faster"] for row in rows}
    assert by_place["detect", 8.0] == pytest.approx(1 / (0.6 + 0.4 / 8))
    assert by_place["detect", None] == pytest.approx(1 / 0.6)


def test_events_without_marks_are_refused_with_what_to_call(tmp_path: Path) -> None:
    """And a folder without events."""
    unmarked = event()
    del unmarked["hops"][1]["at"]["ai.detected"]
    with pytest.raises(ExperimentError, match=r"no stage of .* marks what is AI; call record\.mark"):
        shares(written(tmp_path / "events", unmarked))
    with pytest.raises(ExperimentError, match="--events: "):
        shares(tmp_path)
