"""Accuracy, by hand and by property; intervals."""

import math
import random

import numpy as np
import pytest

from mez.apps.boxes import Box
from mez.profile import interval
from mez.profile.judge import Judge
from mez.profile.measure import Measurement
from mez.profile.score import Counts, Thresholds, UndefinedAccuracyError, f1, match, score_frame

LIMITS = Thresholds(strong=0.7, weak=0.3)


def box(x: float, score: float, label: str = "") -> Box:
    """Return a box of a person's shape at `x`."""
    return Box(x, 0, 50, 100, score, label)


def counts(found: int, false: int, missed: int) -> Counts:
    """Return counts."""
    return Counts(found, false, missed)


@pytest.mark.parametrize(
    ("name", "reference", "found", "hysteresis", "strict"),
    [
        ("found as it was", [box(0, 1.0)], [box(0, 1.0)], (1, 0, 0), (1, 0, 0)),
        ("strong found weakly", [box(0, 0.8)], [box(2, 0.4)], (1, 0, 0), (0, 0, 1)),
        ("strong lost", [box(0, 0.8)], [box(2, 0.2)], (0, 0, 1), (0, 0, 1)),
        ("a weak one became strong", [box(0, 0.5)], [box(1, 0.9)], (0, 0, 0), (0, 1, 0)),
        ("false and strong", [], [box(0, 0.9)], (0, 1, 0), (0, 1, 0)),
        ("false and weak", [], [box(0, 0.5)], (0, 0, 0), (0, 0, 0)),
        ("too far away", [box(0, 1.0)], [box(30, 1.0)], (0, 1, 1), (0, 1, 1)),
        ("twice what is once", [box(0, 1.0)], [box(0, 1.0), box(5, 0.9)], (1, 1, 0), (1, 1, 0)),
        ("another kind", [box(0, 1.0, "cat")], [box(0, 1.0, "dog")], (0, 1, 1), (0, 1, 1)),
        # The weak box lies nearer; the strong one is the same person all the same, not a false one.
        ("strong before weak", [box(0, 1.0)], [box(0, 0.4), box(9, 0.9)], (1, 0, 0), (1, 0, 0)),
        ("at the thresholds", [box(0, 0.7)], [box(0, 0.3)], (1, 0, 0), (0, 0, 1)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_frame_is_scored_as_by_hand(
    name: str,
    reference: list[Box],
    found: list[Box],
    hysteresis: tuple[int, int, int],
    strict: tuple[int, int, int],
) -> None:
    """Found, false and missed boxes, by both scores."""
    score = score_frame(reference, found, LIMITS)
    assert (score.hysteresis, score.strict) == (counts(*hysteresis), counts(*strict)), name


def test_boxes_that_overlap_most_are_paired_first() -> None:
    """And each has one partner."""
    ones, others = [box(0, 1), box(10, 1)], [box(9, 1), box(3, 1)]
    assert match(ones, others) == [(1, 0), (0, 1)]


def some_boxes(source: random.Random) -> list[Box]:
    """Return a few boxes that overlap now and then."""
    return [box(source.uniform(0, 300), source.uniform(0, 1.2)) for _ in range(source.randrange(7))]


@pytest.mark.parametrize("seed", range(300))
def test_scores_keep_their_rules(seed: int) -> None:
    """Sums agree, the same boxes are perfect, hysteresis is the kinder score, and no order matters."""
    source = random.Random(seed)
    reference, found = some_boxes(source), some_boxes(source)
    score = score_frame(reference, found, LIMITS)
    strong = sum(one.score >= LIMITS.strong for one in reference)
    for one in (score.hysteresis, score.strict):
        assert one.found + one.missed == strong
        assert min(one.found, one.false, one.missed) >= 0
        value = f1(one)
        assert value is None or 0 <= value <= 1
    assert score.hysteresis.found >= score.strict.found
    assert score.hysteresis.false <= score.strict.false
    assert score_frame(reference, reference, LIMITS).strict == counts(strong, 0, 0)
    assert score_frame(reference, reference, LIMITS).hysteresis == counts(strong, 0, 0)
    source.shuffle(reference)
    source.shuffle(found)
    assert score_frame(reference, found, LIMITS) == score, "another order"


def test_without_people_accuracy_is_undefined_and_says_so() -> None:
    """A reference of weak boxes only is as good as none."""
    nobody = Measurement("original", found={0: [], 1: [box(0, 0.5)]})
    with pytest.raises(UndefinedAccuracyError, match="found nothing on the 2 frames") as caught:
        Judge(nobody, LIMITS, 10, 2)
    assert "use a video with objects" in (caught.value.remedy or "")
    assert f1(counts(0, 0, 0)) is None


def test_intervals_hold_the_value_and_repeat() -> None:
    """They are as wide as frames differ, and the same every time."""
    source = random.Random(3)
    frames = [counts(4, source.randrange(2), source.randrange(2)) for _ in range(120)]
    drawn = interval.draws(120, 8)
    low, high = interval.interval_95(interval.resampled_f1(frames, drawn))
    total = sum(frames, counts(0, 0, 0))
    value = f1(total)
    assert value is not None
    assert low < value < high < low + 0.1
    assert (low, high) == interval.interval_95(interval.resampled_f1(frames, interval.draws(120, 8)))
    same = [counts(4, 1, 0)] * 120
    assert interval.interval_95(interval.resampled_f1(same, drawn)) == pytest.approx((8 / 9, 8 / 9))


def test_blocks_widen_intervals_of_frames_that_resemble_their_neighbours() -> None:
    """Ten frames of the same scene are not ten observations."""
    frames = [counts(4, 0, 0) if at // 10 % 2 else counts(2, 1, 2) for at in range(120)]

    def width(block: int) -> float:
        low, high = interval.interval_95(interval.resampled_f1(frames, interval.draws(120, block)))
        return high - low

    assert width(12) > 1.3 * width(1) or width(20) > 1.3 * width(1)
    assert interval.block_frames(120, 1.5) == 8
    assert interval.block_frames(30, 100) == 6
    assert interval.block_frames(30, 0.01) == 1


def test_resamples_without_any_box_do_not_count() -> None:
    """A video may be empty for a while."""
    frames = [counts(0, 0, 0)] * 59 + [counts(3, 0, 0)]
    values = interval.resampled_f1(frames, interval.draws(60, 1))
    assert np.isnan(values).any()
    assert not any(map(math.isnan, interval.interval_95(values)))
