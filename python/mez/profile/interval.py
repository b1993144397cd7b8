"""Computes 95 % intervals of accuracies: the expected range over other minutes of the same scene.

Consecutive frames show the same people in nearly the same places, so frames are drawn in blocks (a circular
block bootstrap, Politis and Romano 1992). Every rung is resampled with the same blocks, so that differences
and ratios between rungs can get intervals too.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mez.profile.score import Counts

RESAMPLES: Final = 1000
SEED: Final = 1
"""Seed of the bootstrap, so that the same measurements give the same interval."""

BLOCK_S: Final = 5.0
"""Length of a block: people in a street scene stay in view for some seconds."""

BLOCKS_MIN: Final = 5
"""The fewest blocks. If there would be fewer, blocks are shortened."""

FRAMES_MIN: Final = 30
"""The fewest scored frames for an interval. A precision of 0.01 in F1 needs about 120."""

Draws = npt.NDArray[np.intp]


def block_frames(frames: int, frames_per_second: float) -> int:
    """Return how many scored frames a block has.

    Args:
        frames: Scored frames.
        frames_per_second: Scored frames in a second of the video.
    """
    return max(1, min(round(BLOCK_S * frames_per_second), frames // BLOCKS_MIN))


def draws(frames: int, block: int, resamples: int = RESAMPLES, seed: int = SEED) -> Draws:
    """Resample frames in blocks. A block may begin at any frame, and continues from the last to the first.

    Returns:
        Indices of frames, shape (resamples, frames).
    """
    blocks = -(-frames // block)
    begins = np.random.default_rng(seed).integers(0, frames, size=(resamples, blocks, 1))
    places = (begins + np.arange(block)) % frames
    return np.asarray(places.reshape(resamples, -1)[:, :frames], dtype=np.intp)


def resampled_f1(counts: Sequence[Counts], drawn: Draws) -> npt.NDArray[np.float64]:
    """Return F1 of every resample; NaN where it is undefined."""
    table = np.array([(one.found, one.false, one.missed) for one in counts], dtype=np.int64)
    found, false, missed = table[drawn].sum(axis=1).T
    total = 2 * found + false + missed
    result = np.full(len(total), np.nan)
    np.divide(2 * found, total, out=result, where=total > 0)
    return result


def interval_95(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the range of the middle 95 % of the values, without NaN."""
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)
