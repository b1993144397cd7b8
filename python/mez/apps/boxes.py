"""Boxes around detected objects: their overlap, and the suppression of duplicates."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """An upright rectangle in an image, and how sure the detector is of it.

    Attributes:
        x: Left edge, in pixels from the left of the image.
        y: Upper edge, in pixels from the top of the image.
        width: Pixels, at least 0.
        height: Pixels, at least 0.
        score: Higher is surer. The scale depends on the detector: compare only scores of one detector.
        label: The class of the object, if the detector has classes. Boxes of different labels are always
            different objects.
    """

    x: float
    y: float
    width: float
    height: float
    score: float
    label: str = ""

    @property
    def area(self) -> float:
        """The area in square pixels."""
        return self.width * self.height

    def clipped(self, image_width: float, image_height: float) -> "Box":
        """Return the part inside an image of this size; its area is 0 if no part is inside."""
        left, right = (min(max(x, 0.0), image_width) for x in (self.x, self.x + self.width))
        top, bottom = (min(max(y, 0.0), image_height) for y in (self.y, self.y + self.height))
        return Box(left, top, right - left, bottom - top, self.score, self.label)

    def scaled(self, across: float, down: float) -> "Box":
        """Return the box in the same image scaled by `across` in width and `down` in height."""
        return Box(
            self.x * across, self.y * down, self.width * across, self.height * down, self.score, self.label
        )


def iou(one: Box, other: Box) -> float:
    """Return intersection over union: 0 for boxes that do not overlap, 1 for the same rectangle twice."""
    width = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    height = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    if width <= 0 or height <= 0:
        return 0.0
    intersection = width * height
    return intersection / (one.area + other.area - intersection)


def suppress(boxes: Iterable[Box], iou_max: float) -> list[Box]:
    """Of overlapping boxes of one label, keep only the surest: greedy non-maximum suppression.

    Args:
        boxes: In any order.
        iou_max: Boxes that overlap a surer one that is kept by more than this are dropped; 0 to 1.

    Returns:
        Surest first. Equal scores keep their order, so that equal input gives equal output. A box never
        affects a surer one, so low scores can be removed before or after.
    """
    kept: list[Box] = []
    for box in sorted(boxes, key=lambda box: -box.score):
        if all(box.label != surer.label or iou(box, surer) <= iou_max for surer in kept):
            kept.append(box)
    return kept
