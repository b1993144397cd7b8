"""Scores accuracy: how well the boxes found on delivered frames agree with those on published frames.

Accuracy is micro-F1 over frames. Boxes are paired greedily by overlap, at least `IOU_MIN`. There are always
two scores:

- with hysteresis (`accuracy_normalised`, which contracts use): a strong reference box counts as found if its
  box is at least weak. A box counts as false only if it is strong and has no reference box that is at least
  weak. So a box whose score barely crosses a threshold does not change the result.
- strict (`accuracy_normalised_strict`): strong boxes against strong boxes.

Images are not used here: the reference is what the detector found, right or wrong.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mez.apps.boxes import Box, iou
from mez.errors import Error

IOU_MIN: Final = 0.5
"""The overlap from which two boxes are the same object."""


class UndefinedAccuracyError(Error):
    """The reference has no strong box in any frame, so accuracy is undefined."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The scores from which on boxes count. They depend on the detector.

    Attributes:
        strong: A box with at least this score is a detection.
        weak: A box with at least this score can match a strong box. At most `strong`.
    """

    strong: float
    weak: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Agreement, counted in boxes.

    Attributes:
        found: Reference boxes that were found.
        false: Boxes without a reference.
        missed: Reference boxes that were not found.
    """

    found: int
    false: int
    missed: int

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.found + other.found, self.false + other.false, self.missed + other.missed)


@dataclass(frozen=True, slots=True)
class FrameScore:
    """Both scores of one frame.

    Attributes:
        hysteresis: With two thresholds.
        strict: With one.
    """

    hysteresis: Counts
    strict: Counts


def score_frame(reference: Sequence[Box], found: Sequence[Box], thresholds: Thresholds) -> FrameScore:
    """Compare the boxes found on a frame with the reference.

    Args:
        reference: The detector's boxes on the published frame, at least down to the weak threshold.
        found: Its boxes on the delivered frame, in pixels of the published frame.
        thresholds: The scores from which on boxes count.
    """
    strong_reference, weak_reference = _split(reference, thresholds)
    strong, weak = _split(found, thresholds)

    pairs = match(strong_reference, strong)
    strict = Counts(len(pairs), len(strong) - len(pairs), len(strong_reference) - len(pairs))

    # Strong boxes are paired with strong ones first: if a weak box took the place of a strong one, the strong
    # one would count as false.
    first = match(strong_reference, strong)
    left = _without(strong_reference, (pair[0] for pair in first))
    second = match(left, weak)
    excess = _without(strong, (pair[1] for pair in first))
    echoes = match(weak_reference, excess)
    hits = len(first) + len(second)
    hysteresis = Counts(hits, len(excess) - len(echoes), len(strong_reference) - hits)
    return FrameScore(hysteresis, strict)


def f1(counts: Counts) -> float | None:
    """Return the harmonic mean of precision and recall. `None` without any boxes."""
    total = 2 * counts.found + counts.false + counts.missed
    return 2 * counts.found / total if total else None


def match(ones: Sequence[Box], others: Sequence[Box], iou_min: float = IOU_MIN) -> list[tuple[int, int]]:
    """Pair overlapping boxes of equal label, largest overlap first. Each box has at most one partner.

    Returns:
        Pairs of indices in `ones` and `others`. For equal overlaps, earlier boxes come first.
    """
    overlaps = [
        (overlap, -i, -j)
        for i, one in enumerate(ones)
        for j, other in enumerate(others)
        if one.label == other.label and (overlap := iou(one, other)) >= iou_min
    ]
    pairs: list[tuple[int, int]] = []
    taken_ones: set[int] = set()
    taken_others: set[int] = set()
    for _, i, j in sorted(overlaps, reverse=True):
        if -i not in taken_ones and -j not in taken_others:
            taken_ones.add(-i)
            taken_others.add(-j)
            pairs.append((-i, -j))
    return pairs


def _split(boxes: Iterable[Box], thresholds: Thresholds) -> tuple[list[Box], list[Box]]:
    """Return the strong boxes, and those that are only weak."""
    boxes = list(boxes)
    strong = [box for box in boxes if box.score >= thresholds.strong]
    return strong, [box for box in boxes if thresholds.weak <= box.score < thresholds.strong]


def _without(boxes: Sequence[Box], places: Iterable[int]) -> list[Box]:
    gone = set(places)
    return [box for place, box in enumerate(boxes) if place not in gone]
