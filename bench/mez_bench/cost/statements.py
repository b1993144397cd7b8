"""Compares the AI Tax paper's statements about its two data centres with its own tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mez_bench.cost.bill import Bill

CAPTION_USD: Final = 30.9e6
"""The caption of Table 3: "around US$30.9 million"."""
POWER_KW: Final = 921.0
"""Section 7.2: "a total maximum power consumption of 921 kW"."""
POWER_AT_MAXIMUM_USD: Final = 1.61e6
"""Section 7.2: "US$1.61 million per year under maximum load"."""
POWER_USD: Final = 1.4e6
"""Section 7.2, a paragraph before: "US$1.4 million for power" a year."""
SAVED_SHARE: Final = 0.166
"""Section 7.3: "16.6% lower than the TCO of the homogeneous data center"."""
TCO_USD: Final = (12.9e6, 10.8e6)
"""Sections 7.2 and 7.3: a year of each data centre."""
SPLITTERS: Final = 16
"""Figure 16: an edge switch of 32 ports splits half of them."""
DRIVE_SATURATED: Final = 0.67
"""Section 5.4: "67% utilization has effectively saturated the available bandwidth"."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A figure of the text beside what its inputs give.

    Attributes:
        where: Its place in the paper.
        what: What the figure is, with the unit.
        says: The figure in the text.
        gives: The figure that the paper's own inputs give.
        why: Cause of the difference, as far as it is known.
        contradicts: The text contradicts itself here; otherwise the difference is rounding, or a choice.
    """

    where: str
    what: str
    says: float
    gives: float
    why: str
    contradicts: bool


def statements(homogeneous: Bill, targeted: Bill) -> list[Statement]:
    """Compare the text with its tables; the contradictions of the cost section come first."""
    year = homogeneous.year_usd()
    power_usd = year["power"] + year["cooling"]
    switches = homogeneous.quantity("switch")
    others_watts = homogeneous.watts_max - switches * _watts(homogeneous, "switch")
    switches_told = (POWER_KW * 1000 - others_watts) / _watts(homogeneous, "switch")
    edges = targeted.quantity("edge switch of compute")
    splitters = targeted.quantity("optical splitter")
    more_usd = (edges * SPLITTERS - splitters) * _price(targeted, "optical splitter")
    saved_rounded = 1 - TCO_USD[1] / TCO_USD[0]
    return [
        Statement(
            "Table 3, caption",
            "equipment, M$",
            CAPTION_USD / 1e6,
            homogeneous.equipment_usd / 1e6,
            "the table's own total; no sum of its rows equals the caption's figure",
            True,
        ),
        Statement(
            "7.2, fourth paragraph",
            "maximum power without cooling, kW",
            POWER_KW,
            homogeneous.watts_max / 1000,
            f"the text's sum needs {switches_told:.0f} switches, Table 3 has {switches}",
            True,
        ),
        Statement(
            "7.2, fourth paragraph",
            "power and cooling at maximum load, M$ a year",
            POWER_AT_MAXIMUM_USD / 1e6,
            power_usd / 1e6,
            "follows from the 921 kW",
            True,
        ),
        Statement(
            "7.2, third paragraph",
            "power and cooling, M$ a year",
            POWER_USD / 1e6,
            power_usd / 1e6,
            "a calculator's figure; its load is not given",
            False,
        ),
        Statement(
            "Table 4 and Figure 16",
            "optical splitters",
            splitters,
            edges * SPLITTERS,
            f"the figure splits 16 ports of each of {edges} edge switches; ${more_usd:,.0f} more",
            True,
        ),
        Statement(
            "7.3, last paragraph",
            "saved, % of the yearly cost",
            SAVED_SHARE * 100,
            saved_rounded * 100,
            "from the two totals as the text rounds them; the abstract says 15 %",
            False,
        ),
        Statement(
            "7.2 and 5.4",
            "what a broker's drive writes at 32 times, % of its rate",
            DRIVE_SATURATED * 100,
            DRIVE_SATURATED * (32 / 8) * (3 / 8) * 100,
            "5.4 calls a drive full at 67 %; eight brokers with one drive each are sized beyond that",
            True,
        ),
    ]


def _watts(bill: Bill, item: str) -> float:
    return next(line.item.watts_max for line in bill.lines if line.item.name == item)


def _price(bill: Bill, item: str) -> float:
    return next(line.item.price_usd for line in bill.lines if line.item.name == item)
