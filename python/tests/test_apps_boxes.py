"""Boxes overlap, are cut and are suppressed as geometry says."""

import random

import pytest

from mez.apps.boxes import Box, iou, suppress


def test_overlap_is_the_shared_part_of_what_both_cover() -> None:
    """Two 10 x 10 boxes that share 5 x 10 cover 150 together."""
    assert iou(Box(0, 0, 10, 10, 1), Box(5, 0, 10, 10, 1)) == pytest.approx(50 / 150)
    assert iou(Box(0, 0, 10, 10, 1), Box(0, 0, 10, 10, 2)) == 1
    assert iou(Box(0, 0, 10, 10, 1), Box(2, 2, 5, 4, 1)) == pytest.approx(20 / 100)


def test_boxes_that_touch_or_are_empty_do_not_overlap() -> None:
    """Nor does a box of no area with itself: there is nothing to divide by."""
    assert iou(Box(0, 0, 10, 10, 1), Box(10, 0, 10, 10, 1)) == 0
    assert iou(Box(3, 3, 0, 5, 1), Box(3, 3, 0, 5, 1)) == 0


def test_box_is_cut_at_the_borders_of_the_image() -> None:
    """Also one that lies wholly outside, which is left with no area."""
    assert Box(-4, 90, 10, 20, 0.5).clipped(100, 100) == Box(0, 90, 6, 10, 0.5)
    assert Box(120, 5, 10, 10, 0.5).clipped(100, 100).area == 0


def test_surest_of_overlapping_boxes_survives() -> None:
    """And one that only the dropped box overlapped survives as well: suppression is not passed on."""
    left, middle, right = Box(0, 0, 10, 10, 0.9), Box(4, 0, 10, 10, 0.5), Box(8, 0, 10, 10, 0.4)
    assert suppress([right, middle, left], iou_max=0.4) == [left, right]


@pytest.mark.parametrize("seed", range(20))
def test_cutting_low_scores_before_or_after_suppression_gives_the_same(seed: int) -> None:
    """This is what allows the detector to stop at the score that is asked for."""
    draw = random.Random(seed)
    boxes = [
        Box(
            draw.uniform(0, 60),
            draw.uniform(0, 60),
            draw.uniform(5, 40),
            draw.uniform(5, 40),
            draw.uniform(-1, 3),
        )
        for _ in range(80)
    ]
    after = [box for box in suppress(boxes, 0.4) if box.score >= 0.5]
    assert after == suppress([box for box in boxes if box.score >= 0.5], 0.4)
    assert after
    assert all(iou(a, b) <= 0.4 for a in after for b in after if a is not b)
