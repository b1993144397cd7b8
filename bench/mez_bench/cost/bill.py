"""Computes what a plan costs: nodes from rates, equipment from nodes, power from equipment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mez_bench.cost.plan import Item, Plan, Rates

PARTS: Final = ("server", "storage", "network", "other", "power", "cooling")
"""What a year's cost consists of. *other*: racks, power distribution, installation."""
ROUNDING: Final = 1e-9
"""Tolerance, in nodes: a load that n nodes just carry must not need another node because of rounding."""


@dataclass(frozen=True, slots=True)
class Line:
    """One item of a bill."""

    item: Item
    quantity: int

    @property
    def usd(self) -> float:
        """The price of the whole quantity."""
        return self.quantity * self.item.price_usd

    @property
    def watts_max(self) -> float:
        """The maximum power of the whole quantity."""
        return self.quantity * self.item.watts_max


@dataclass(frozen=True, slots=True)
class Bill:
    """What a plan costs.

    Attributes:
        plan: The plan that was priced.
        rates: The rates of its nodes.
        nodes: Number of nodes, by role.
        lines: The equipment.
    """

    plan: Plan
    rates: Rates
    nodes: Mapping[str, int]
    lines: tuple[Line, ...]

    @property
    def equipment_usd(self) -> float:
        """The price of all equipment."""
        return sum(line.usd for line in self.lines)

    @property
    def watts_max(self) -> float:
        """The maximum power of all equipment, without cooling."""
        return sum(line.watts_max for line in self.lines)

    def year_usd(self) -> dict[str, float]:
        """Return the cost of a year, by `PARTS`."""
        facility = self.plan.facility
        year = dict.fromkeys(PARTS, 0.0)
        for line in self.lines:
            year[line.item.kind] += line.usd / facility.years
        year["other"] = self.equipment_usd * facility.other_share_of_equipment / facility.years
        kwh = self.watts_max / 1000 * facility.load_share * facility.hours_per_year
        year["power"] = kwh * facility.usd_per_kwh
        year["cooling"] = year["power"] * facility.cooling_watts_per_watt
        return year

    @property
    def year_total_usd(self) -> float:
        """The cost of a year."""
        return sum(self.year_usd().values())

    @property
    def total_usd(self) -> float:
        """The cost over the years of use."""
        return self.year_total_usd * self.plan.facility.years

    def quantity(self, name: str) -> int:
        """Return how many of an item there are."""
        return next(line.quantity for line in self.lines if line.item.name == name)


def bill(plan: Plan, rates: Rates) -> Bill:
    """Price a plan. Every role must have a rate (`reading.check`)."""
    nodes = {
        role.name: _nodes(plan.records_per_second, rates.per_node[role.name]) + role.spare_nodes
        for role in plan.roles
    }
    return price(plan, rates, nodes)


def price(plan: Plan, rates: Rates, nodes: Mapping[str, int]) -> Bill:
    """Price a plan with the given numbers of nodes."""
    quantities: dict[str, int] = dict(nodes)
    lines = []
    for item in plan.items:
        # `reading` ensures that no item counts a later item.
        counted = sum(quantities[name] for name in item.of)
        quantity = item.count if item.count is not None else math.ceil(counted * item.each / item.per)
        quantities[item.name] = quantity
        lines.append(Line(item, quantity))
    return Bill(plan, rates, dict(nodes), tuple(lines))


def with_faster(rates: Rates, role: str, times: float) -> Rates:
    """Return the rates with that of one role multiplied by `times`."""
    return replace(rates, per_node={**rates.per_node, role: rates.per_node[role] * times})


def _nodes(records_per_second: float, per_node: float) -> int:
    return max(1, math.ceil(records_per_second / per_node - ROUNDING))
