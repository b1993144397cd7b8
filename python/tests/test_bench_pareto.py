"""`mez bench pareto`: what its figures mean, and its baseline."""

import json
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest

from mez.apps.boxes import Box
from mez.profile import footage
from mez.profile.document import About, Profile, RungProfile
from mez.profile.errors import RungError
from mez.profile.judge import Judge
from mez.profile.make import Cost, Made
from mez.profile.measure import Measurement
from mez.profile.score import Thresholds
from mez_bench import x264
from mez_bench.experiment import Outcome
from mez_bench.experiments import EXPERIMENTS, pareto

FRAMES = 60
LIMITS = Thresholds(0.7, 0.3)
BOX = Box(10, 10, 20, 40, 1.0)


def made(rungs: Sequence[tuple[str, int, int]]) -> Made:
    """Return a result of rungs with so many bytes that lose the box in every so many frames."""
    reference = Measurement("original", [1000] * FRAMES, FRAMES, found={at: [BOX] for at in range(FRAMES)})
    judge = Judge(reference, LIMITS, 10, FRAMES)
    measurements: dict[str, Measurement] = {}
    profiles: list[RungProfile] = []
    for rung, size, lost in rungs:
        found = {at: [] if lost and at % lost == 0 else [BOX] for at in range(FRAMES)}
        measurements[rung] = Measurement(rung, [size] * FRAMES, FRAMES, [1.0], [2.0], found)
        profiles.append(judge.rung(measurements[rung]))
    perfect = judge.verdict(reference).score(judge.drawn)
    sizes = (160, 120, 10.0, FRAMES, judge.boxes)
    about = About("app", "", 0.7, 0.3, "video", "", *sizes, perfect, perfect, perfect, perfect, "test")
    return Made(Profile(about, tuple(profiles)), judge, reference, measurements, Cost(1, 1, 1, 1, 1, 1.0))


def test_the_cheapest_rung_at_a_floor_decides() -> None:
    """One in ten lost is an F1 of 0.947; with an interval, because in some draws fewer are lost."""
    result = made([("h264/q40", 500, 4), ("h264/q36", 700, 10), ("h264/q30", 1500, 0), ("x264/q30", 3000, 0)])
    cheapest = pareto._cheapest(result, ("h264",), 0.94, strict=False)
    assert cheapest is not None
    assert (cheapest.rung, cheapest.bytes) == ("h264/q36", 700)
    assert set(cheapest.resampled) <= {700.0, 1500.0}
    above = pareto._cheapest(result, ("h264",), 0.96, strict=False)
    baseline = pareto._cheapest(result, ("x264",), 0.96, strict=False)
    assert above is not None
    assert baseline is not None
    assert above.rung == "h264/q30"
    assert above.ratio(baseline).median == pytest.approx(0.5)
    assert pareto._cheapest(result, ("tiles",), 0.9, strict=False) is None
    only = made([("h264/q40", 500, 4)])
    assert pareto._cheapest(only, ("h264",), 0.96, strict=False) is None, "none reaches it"


def test_metrics_have_the_names_that_targets_use() -> None:
    """For both videos and both scores."""
    result = made([("h264/q36", 700, 0), ("knobs/s33/gray/png", 30_000, 0), ("x264/q30", 3000, 0)])
    outcome = Outcome()
    for suffix in ("", "_pan"):
        pareto._metrics(outcome, result, suffix)
        for metric in pareto.TARGETS[suffix]:
            assert metric + suffix in outcome.metrics
    for name in (
        "bytes_096_five_knobs",
        "bytes_096_best",
        "bytes_096_x264_fixed_qp_pan",
        "bytes_090_best_strict",
        "ratio_098_best_x264_fixed_qp_pan_strict",
        "detector_ceiling",
    ):
        assert name in outcome.metrics, name
    assert outcome.metrics["ratio_096_best_five_knobs"].median == pytest.approx(700 / 30_000)


def test_the_shortlist_names_rungs_that_exist() -> None:
    """Of every family, for both videos; a quick run takes the first ones."""
    shortlist = json.loads(pareto.SHORTLIST.read_text())
    for video, width in (("_static", 768), ("_pan", 512)):
        for name in (*pareto.FAMILIES, pareto.BASELINE):
            grid = pareto._grid(name, width)
            rungs = shortlist[video][name]
            assert len(rungs) >= pareto.QUICK_RUNGS
            for rung in rungs:
                assert grid.rung(grid.point(rung)) == rung
    assert EXPERIMENTS["pareto"] is pareto.PARETO


def test_the_baseline_encodes_and_decodes(tmp_path: Path) -> None:
    """Every frame is counted, and those that somebody wants come back at the size of the rung."""
    if (missing := x264.available()) is not None:
        pytest.skip(f"SKIPPED: {missing}")
    for number in range(12):
        image = np.full((96, 128, 3), 60, dtype=np.uint8)
        image[20:50, 10 + 4 * number : 40 + 4 * number] = 220
        cv2.imwrite(str(tmp_path / f"{number:02}.png"), image)
    scene = footage.read(tmp_path)
    shown = list(x264.code("x264/w64/q28", scene, [3, 11]))
    assert [one.place for one in shown] == list(range(12))
    assert all(one.size_bytes for one in shown)
    assert (shown[0].size_bytes or 0) > (shown[1].size_bytes or 0), "the first stands for itself"
    seen = {one.place: one.image for one in shown if one.image is not None}
    assert set(seen) == {3, 11}
    expected = cv2.resize(scene.image(11), (64, 48), interpolation=cv2.INTER_AREA)
    assert np.abs(seen[11].astype(int) - expected.astype(int)).mean() < 6
    with pytest.raises(RungError, match="the form is"):
        list(x264.code("x264/fast", scene, [0]))
