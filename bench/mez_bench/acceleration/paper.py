"""Holds figures of the AI Tax paper: inputs of the models, and results that the models are compared with.

D. Richins et al., AI Tax: The Hidden Cost of AI Data Center Applications, ACM TOCS 37 (2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

STAGES_MS: Final[Mapping[str, tuple[float, float]]] = {
    "ingestion": (18.8, 27.0),
    "detection": (74.8, 116.0),
    "identification": (131.5, 380.0),
}
"""Mean and 99 % quantile of each stage's time (section 4.2)."""
WAITING_MS: Final = (126.1, 1840.0)
"""Mean and 99 % quantile of the waiting between detection and identification."""
AI_SHARE: Final[Mapping[str, float]] = {"ingestion": 0.0, "detection": 1 - 0.576, "identification": 1 - 0.124}
"""AI's share of each stage's processor time (section 4.3)."""
SPEEDUPS: Final = (
    ("detection", 8.0, 1.59),
    ("detection", 16.0, 1.66),
    ("detection", float("inf"), 1.74),
    ("identification", 16.0, 5.6),
    ("identification", 32.0, 6.6),
    ("identification", float("inf"), 8.0),
)
"""Stage, factor of the AI, and the speedup that section 5.1 gives."""
WAITING_SHARES: Final[Mapping[float, float]] = {1: 0.646, 2: 0.664, 4: 0.680, 6: 0.791}
"""Waiting as a share of end to end under emulated acceleration (section 5.5)."""

RECORD_BYTES: Final = 37_300
"""Size of a face's record (section 4.2)."""
REPLICAS: Final = 3
WRITE_BYTES_PER_SECOND: Final = 1.1e9
"""Write rate of a drive (Table 2)."""
WRITE_LATENCY_S: Final = 18e-6
"""Write latency of a drive (Table 2)."""
WRITTEN_SHARE_AT_8: Final = 0.67
"""Share of a drive's rate that three brokers with one drive each wrote at 8 times (section 5.4)."""
READ_GBPS_AT_8: Final = 6.0
"""Rate at which a broker read from the network at 8 times (section 5.4)."""

FRAME_MS: Final = 4.5
"""Time that ingestion of object detection takes per frame (section 6.2)."""
INTERVAL_MS: Final = 1000 / 30
"""Time between two sets of frames (section 6.3)."""


@dataclass(frozen=True, slots=True)
class Point:
    """Whether a pipeline was stable at a factor, as the text says.

    Attributes:
        brokers: Number of brokers.
        drives: Number of drives in each broker.
        factor: By how much compute was faster.
        stable: Latency did not grow without end.
        where: The section that says so.
    """

    brokers: int
    drives: int
    factor: int
    stable: bool
    where: str


POINTS: Final = (
    *(Point(3, 1, factor, True, "5.3, 5.5") for factor in (1, 2, 4, 6)),
    *(Point(3, 1, factor, False, "5.3, 7.1") for factor in (8, 12, 16, 24, 32)),
    Point(3, 2, 8, True, "7.1"),
    Point(3, 2, 12, True, "7.1"),
    Point(3, 3, 24, True, "7.1"),
    Point(3, 4, 32, True, "7.1"),
    Point(4, 1, 8, True, "7.1"),
    Point(6, 1, 16, True, "7.1"),
    Point(8, 1, 32, True, "7.1"),
)
"""All single settings in the text. Figure 15 shows more, which the text does not give."""
