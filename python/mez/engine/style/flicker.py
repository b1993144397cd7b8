"""Measures the flicker of a style: changes in painted pictures of a static scene.

There are two measures. For photographs: each is painted twice, with different noise. For a video: consecutive
frames are painted, and only pixels with nearly unchanged surroundings count, so motion needs no compensation.
Both are mean absolute differences, in levels of 255, and are given beside those of the original pictures.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Paints = Callable[[Image], Image]

NOISE: Final = 4.0
"""The standard deviation of the noise, in levels."""

STILL_LEVELS: Final = 12
"""A pixel stands still if nothing within `AROUND` of it changed by more than this."""

AROUND: Final = 4
"""In pixels: about as far as a stroke reaches."""


@dataclass(frozen=True, slots=True)
class Flicker:
    """Changes between consecutive pictures, in levels of 255.

    Attributes:
        before: In the original pictures.
        after: In the painted pictures.
        still: The share of pixels that were compared.
    """

    before: float
    after: float
    still: float


def of_noise(paints: Paints, photographs: Iterable[Image], seed: int = 1) -> Flicker:
    """The flicker of photographs that differ by noise."""
    random = np.random.default_rng(seed)

    def noisy(photograph: Image) -> Image:
        noise = random.normal(0, NOISE, photograph.shape)
        return np.clip(np.round(photograph + noise), 0, 255).astype(np.uint8)

    before: list[float] = []
    after: list[float] = []
    for photograph in photographs:
        one, other = noisy(photograph), noisy(photograph)
        before.append(float(_change(one, other).mean()))
        after.append(float(_change(paints(one), paints(other)).mean()))
    return Flicker(float(np.mean(before)), float(np.mean(after)), 1.0)


def of_video(paints: Paints, frames: Iterable[Image]) -> Flicker:
    """The flicker of the static parts of a video."""
    last: tuple[Image, Image] | None = None
    sums = np.zeros(4)
    for frame in frames:
        painted = paints(frame)
        if last is not None:
            before, after = _change(last[0], frame), _change(last[1], painted)
            # Blurred, because noise is not motion.
            moved = _change(_blurred(last[0]), _blurred(frame)).max(axis=2)
            reach = np.ones((2 * AROUND + 1, 2 * AROUND + 1), np.uint8)
            still = cv2.dilate(moved, reach) <= STILL_LEVELS
            sums += (before[still].sum() / 3, after[still].sum() / 3, still.sum(), still.size)
        last = frame, painted
    before_sum, after_sum, count, all_of = sums
    return Flicker(before_sum / max(count, 1), after_sum / max(count, 1), count / max(all_of, 1))


def _blurred(frame: Image) -> Image:
    return np.asarray(cv2.blur(frame, (3, 3)), np.uint8)


def _change(one: Image, other: Image) -> npt.NDArray[np.float32]:
    return np.abs(one.astype(np.float32) - other.astype(np.float32))
