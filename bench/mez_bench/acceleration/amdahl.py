"""Computes what faster AI does to a whole stage (Amdahl 1967), and what sets of frames do to ingestion."""

import math


def speedup(share: float, factor: float) -> float:
    """Return how much faster a stage gets.

    Args:
        share: Of its time, that is accelerated.
        factor: By how much that part gets faster; infinity gives the bound.
    """
    return 1 / (1 - share + (0.0 if math.isinf(factor) else share / factor))


def delay_growth_ms_per_s(frames: float, frame_ms: float, interval_ms: float) -> float:
    """Return by how much ingestion falls behind in a second, if it sends a set of frames every interval.

    Args:
        frames: In a set; the factor, where faster AI is fed with as many more cameras.
        frame_ms: What sending one takes.
        interval_ms: From the time when a set is due to the next.
    """
    # A set that takes longer than its interval begins the next one late by the difference, and so on.
    return max(0.0, (frames * frame_ms - interval_ms) / max(frames * frame_ms, interval_ms)) * 1000


def frames_max(frame_ms: float, interval_ms: float) -> float:
    """Return how many frames a set may have, so that it is sent when the next one is due."""
    return interval_ms / frame_ms
