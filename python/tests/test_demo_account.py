"""The books of the demo balance exactly when every frame published is delivered or explained."""

import random
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from mez.demo.account import DISCREPANCIES_MAX, Delivery, Ledger, Totals


def delivery(
    sequence: int,
    *,
    camera: str = "dock/cam1",
    epoch: int = 1,
    skipped: dict[str, int] | None = None,
    age_ms: float | None = 5.0,
    corrupt: str | None = None,
    at_s: float = 0.0,
) -> Delivery:
    """Make a delivery of 100 bytes."""
    return Delivery(camera, epoch, sequence, skipped or {}, age_ms, 100, corrupt, at_s)


def booked(deliveries: Iterable[Delivery]) -> Totals:
    """Enter all of them, and return the books."""
    ledger = Ledger()
    for entry in deliveries:
        ledger.take(entry)
    return ledger.totals()


def test_frames_delivered_and_skipped_make_up_those_published() -> None:
    """From 7 to 12 are six frames; two of them were explained."""
    totals = booked(
        [
            delivery(7),
            delivery(8),
            delivery(11, skipped={"link_busy": 1, "application_busy": 1}),
            delivery(12),
        ]
    )
    assert (totals.published, totals.delivered, totals.skipped.total()) == (6, 4, 2)
    assert totals.skipped == {"link_busy": 1, "application_busy": 1}
    assert (totals.unexplained, totals.discrepancy_count) == (0, 0)


def test_what_was_before_the_first_delivery_does_not_count() -> None:
    """Neither in published nor in skipped: the subscription had not begun."""
    totals = booked([delivery(40, skipped={"not_wanted": 40}), delivery(41)])
    assert (totals.published, totals.delivered, totals.skipped.total()) == (2, 2, 0)


def test_new_epoch_is_accounted_for_from_its_first_frame() -> None:
    """A camera that starts again numbers from 0, and what comes before its first delivery was watched for."""
    totals = booked([delivery(5), delivery(2, epoch=2, skipped={"link_down": 2}), delivery(3, epoch=2)])
    assert (totals.published, totals.delivered, totals.skipped) == (5, 3, {"link_down": 2})
    assert totals.cameras["dock/cam1"].epochs == 2
    assert (totals.unexplained, totals.discrepancy_count) == (0, 0)


def test_frame_that_vanishes_without_a_reason_is_named() -> None:
    """The whole point of the books."""
    totals = booked([delivery(5), delivery(7)])
    assert (totals.unexplained, totals.discrepancy_count) == (1, 1)
    assert (
        str(totals.discrepancies[0])
        == "dock/cam1, epoch 1, frame 7: 1 frames are missing before it, 0 are explained"
    )


def test_two_errors_that_cancel_are_both_found() -> None:
    """One frame too few explained and later one too many: the sums agree, the deliveries do not."""
    totals = booked([delivery(1), delivery(3), delivery(4, skipped={"link_busy": 1})])
    assert totals.unexplained == 0
    assert totals.discrepancy_count == 2


def test_errors_of_two_cameras_do_not_cancel() -> None:
    """One camera lost a frame without a word, the other explains one that never was."""
    totals = booked(
        [
            delivery(1, camera="a"),
            delivery(3, camera="a"),
            delivery(1, camera="b"),
            delivery(2, camera="b", skipped={"link_busy": 1}),
        ]
    )
    assert totals.published == totals.delivered + totals.skipped.total()
    assert totals.unexplained == 2


@pytest.mark.parametrize("again", [delivery(4), delivery(5), delivery(9, epoch=0)])
def test_frame_that_comes_again_or_out_of_order_is_found(again: Delivery) -> None:
    """Also one of an epoch that is over."""
    totals = booked([delivery(4), delivery(5), again, delivery(6)])
    assert totals.discrepancy_count == 1
    assert "again or out of order" in str(totals.discrepancies[0])
    assert totals.unexplained == 1


def test_discrepancies_are_counted_also_when_no_more_are_kept() -> None:
    """A long demo with a broken broker must not fill the memory with them."""
    totals = booked(delivery(sequence) for sequence in range(0, 200, 2))
    assert totals.discrepancy_count == 99
    assert len(totals.discrepancies) == DISCREPANCIES_MAX


def test_corrupt_frames_are_delivered_but_counted() -> None:
    """And the first one's fault is kept."""
    totals = booked([delivery(1), delivery(2, corrupt="cut off"), delivery(3, corrupt="grey")])
    assert (totals.published, totals.delivered, totals.corrupt) == (3, 3, 2)
    assert totals.corrupt_example == "dock/cam1, epoch 1, frame 2: cut off"


def test_camera_without_a_frame_stays_in_the_books() -> None:
    """With nothing, rather than forgotten."""
    totals = Ledger(["dock/cam1", "dock/cam2"]).totals()
    assert list(totals.cameras) == ["dock/cam1", "dock/cam2"]
    assert (totals.published, totals.delivered, totals.age_ms(95)) == (0, 0, None)


@pytest.mark.parametrize("seed", range(10))
def test_books_agree_with_what_a_camera_really_published(seed: int) -> None:
    """A camera restarts and loses frames at random; the truth is counted frame by frame beside the books."""
    draw = random.Random(seed)
    ledger = Ledger()
    truth: Counter[str] = Counter()
    ages: list[float] = []
    delivered_before = False
    for epoch in range(1, 5):
        # Frames since the last delivery; they are published for the books only once a later one is delivered.
        pending: Counter[str] = Counter()
        for sequence in range(draw.randrange(1, 60)):
            if draw.random() < 0.3:
                pending[draw.choice(["link_busy", "link_down", "late_or_lost"])] += 1
                continue
            ages.append(draw.expovariate(0.1))
            ledger.take(delivery(sequence, epoch=epoch, skipped=dict(pending), age_ms=ages[-1]))
            truth.update(pending if delivered_before else {})
            truth["delivered"] += 1
            pending.clear()
            delivered_before = True
    totals = ledger.totals()
    assert (totals.unexplained, totals.discrepancy_count) == (0, 0), f"seed {seed}"
    assert totals.published == truth.total()
    assert totals.delivered == truth.pop("delivered")
    assert totals.skipped == truth
    assert totals.age_ms(95) == pytest.approx(np.percentile(ages, 95))


def test_live_figures_look_back_over_their_window_only() -> None:
    """Ten frames a second for four seconds, then twenty of which half have no known age."""
    ledger = Ledger(["dock/cam1"])
    for number in range(40):
        ledger.take(delivery(number, age_ms=50.0, at_s=number / 10))
    for number in range(40):
        ledger.take(delivery(40 + number, age_ms=None if number % 2 else 10.0, at_s=4 + number / 20))
    now = ledger.now("dock/cam1", window_s=1.0, at_s=5.96)
    assert now.frames_per_second == pytest.approx(20, abs=1)
    assert (now.age_ms_p50, now.age_ms_p95, now.size_bytes) == (10.0, 10.0, 100.0)
    assert now.silent_s == pytest.approx(0.01)
    later = ledger.now("dock/cam1", window_s=1.0, at_s=9.0)
    assert (later.frames_per_second, later.age_ms_p50) == (0, None)
