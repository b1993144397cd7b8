"""Computes the speedup of a stage by faster AI (Amdahl 1967), and the delay that sets of frames cause."""

import math


def speedup(share: float, factor: float) -> float:
    """Return how much faster a stage gets.

    Args:
        share: The share of its time that is accelerated.
        factor: By how much that part gets faster; infinity gives the bound.
    """
    return 1 / (1 - share + (0.0 if math.isinf(factor) else share / factor))


def delay_growth_ms_per_s(frames: float, frame_ms: float, interval_ms: float) -> float:
    """Return by how much ingestion falls behind in a second, if it sends a set of frames every interval.

    Args:
        frames: Frames in a set. It is the factor, if faster AI serves that many more cameras.
        frame_ms: Time to send a frame.
        interval_ms: Time from one set to the next.
    """
    # A set that takes longer than its interval delays the next set by the difference, and so on.
    return max(0.0, (frames * frame_ms - interval_ms) / max(frames * frame_ms, interval_ms)) * 1000


def frames_max(frame_ms: float, interval_ms: float) -> float:
    """Return how many frames a set may have, so that it is sent before the next set is due."""
    return interval_ms / frame_ms
