"""Draws frames of the Pareto frontier, with the boxes found on them."""

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from mez.apps.boxes import Box
from mez.profile import coding
from mez.profile.document import RungProfile
from mez.profile.footage import Footage, Image
from mez.profile.make import Made
from mez.profile.score import Thresholds, match

EXAMPLES_MAX: Final = 5
"""The most rungs of which a frame is shown."""

WIDTH: Final = 768
"""Width of the pictures in pixels, the same for all rungs."""

FLOORS: Final = (0.80, 0.90, 0.95, 0.96)

_FOUND: Final = (70, 200, 60)
_MISSED: Final = (40, 40, 230)
_FALSE: Final = (0, 200, 250)


@dataclass(frozen=True)
class Example:
    """A frame of a rung.

    Attributes:
        title: The rung, its bytes and its accuracy.
        note: The numbers of found, missed and false boxes.
        image: With boxes: green found, red missed, yellow without a reference.
    """

    title: str
    note: str
    image: Image


def examples(made: Made, footage: Footage, thresholds: Thresholds) -> list[Example]:
    """Draw the frame with the most detections: as published, and at some rungs of the frontier."""
    place = max(
        made.reference.found,
        key=lambda at: sum(box.score >= thresholds.strong for box in made.reference.found[at]),
    )
    reference = made.reference.found[place]
    strong = [box for box in reference if box.score >= thresholds.strong]
    image = _sized(footage.image(place), footage)
    scale = image.shape[1] / footage.width
    for box in strong:
        _draw(image, box, scale, _FOUND)
    shown = [Example("as published", f"{len(strong)} found, {len(footage.jpegs[place]):,} bytes", image)]
    # The original is shown already.
    for rung in chosen([rung for rung in made.profile.frontier if rung.rung in made.measurements]):
        measurement = made.measurements[rung.rung]
        delivered = last_shown(rung.rung, footage, place)
        if delivered is None:
            continue
        image = _sized(delivered, footage)
        found = [box for box in measurement.found[place] if box.score >= thresholds.weak]
        pairs = match(strong, found)
        missed = [box for at, box in enumerate(strong) if at not in {pair[0] for pair in pairs}]
        hits = [found[pair[1]] for pair in pairs]
        rest = [box for at, box in enumerate(found) if at not in {pair[1] for pair in pairs}]
        excess = [box for box in rest if box.score >= thresholds.strong]
        false = [
            box for at, box in enumerate(excess) if at not in {pair[1] for pair in match(reference, excess)}
        ]
        for boxes, colour in ((hits, _FOUND), (missed, _MISSED), (false, _FALSE)):
            for box in boxes:
                _draw(image, box, scale, colour)
        note = f"{len(hits)} found, {len(missed)} missed, {len(false)} false"
        title = (
            f"{rung.rung}: {rung.bytes_per_published_frame:,.0f} bytes, accuracy "
            f"{rung.accuracy_normalised.value:.3f}"
        )
        shown.append(Example(title, note, image))
    return shown


def chosen(frontier: list[RungProfile]) -> list[RungProfile]:
    """Return the cheapest rungs at some floors, and the most accurate one."""
    picks: list[RungProfile] = []
    for floor in FLOORS:
        picks += [rung for rung in frontier if rung.accuracy_normalised.value >= floor][:1]
    picks += frontier[-1:]
    return list({rung.rung: rung for rung in picks}.values())[:EXAMPLES_MAX]


def last_shown(rung: str, footage: Footage, place: int) -> Image | None:
    """Return the image that an application sees at this frame."""
    image: Image | None = None
    for shown in coding.code(rung, footage, [place]):
        if shown.image is not None:
            image = shown.image
        if shown.place == place:
            break
    return image


def _sized(image: Image, footage: Footage) -> Image:
    size = WIDTH, round(footage.height * WIDTH / footage.width)
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), dtype=np.uint8)


def _draw(image: Image, box: Box, scale: float, colour: tuple[int, int, int]) -> None:
    left, top = round(box.x * scale), round(box.y * scale)
    right, bottom = round((box.x + box.width) * scale) - 1, round((box.y + box.height) * scale) - 1
    cv2.rectangle(image, (left, top), (right, bottom), colour, 2)
