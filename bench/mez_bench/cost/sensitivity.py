"""Tells which input matters most to what a data centre costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from mez_bench.cost.bill import bill, with_faster
from mez_bench.cost.plan import Plan, Rates

CHANGE: Final = 0.2
"""The share of itself by which each input is decreased and increased, one input at a time."""

_Changed = Callable[[float], tuple[Plan, Rates]]


@dataclass(frozen=True, slots=True)
class Swing:
    """The effect of one input on the cost of a year.

    Attributes:
        input: Name of the input.
        less_usd: The change of the year's cost if the input is smaller by `CHANGE`.
        more_usd: The change of the year's cost if the input is larger by `CHANGE`.
    """

    input: str
    less_usd: float
    more_usd: float

    @property
    def size_usd(self) -> float:
        """The larger of the two changes, without sign."""
        return max(abs(self.less_usd), abs(self.more_usd))


def swings(plan: Plan, rates: Rates) -> list[Swing]:
    """Change each input by itself, and return the effects, the largest first."""
    now = bill(plan, rates).year_total_usd
    found = []
    for name, changed in _inputs(plan, rates):
        less, more = (bill(*changed(times)).year_total_usd - now for times in (1 - CHANGE, 1 + CHANGE))
        found.append(Swing(name, less, more))
    return sorted(found, key=lambda swing: swing.size_usd, reverse=True)


def _inputs(plan: Plan, rates: Rates) -> Iterator[tuple[str, _Changed]]:
    yield (
        "records a second",
        lambda times: (replace(plan, records_per_second=plan.records_per_second * times), rates),
    )
    yield "years of use", lambda times: (_facility(plan, "years", times), rates)
    yield "price of electricity", lambda times: (_facility(plan, "usd_per_kwh", times), rates)
    yield "cooling for a watt", lambda times: (_facility(plan, "cooling_watts_per_watt", times), rates)
    yield "racks and the rest", lambda times: (_facility(plan, "other_share_of_equipment", times), rates)
    for place, item in enumerate(plan.items):
        yield f"price of {item.name}", _price_of(plan, rates, place)
    for role in plan.roles:
        yield f"rate of a {role.name} node", _rate_of(plan, rates, role.name)


def _price_of(plan: Plan, rates: Rates, place: int) -> _Changed:
    def changed(times: float) -> tuple[Plan, Rates]:
        items = list(plan.items)
        items[place] = replace(items[place], price_usd=items[place].price_usd * times)
        return replace(plan, items=tuple(items)), rates

    return changed


def _rate_of(plan: Plan, rates: Rates, role: str) -> _Changed:
    return lambda times: (plan, with_faster(rates, role, times))


def _facility(plan: Plan, field: str, times: float) -> Plan:
    value = getattr(plan.facility, field) * times
    return replace(plan, facility=replace(plan.facility, **{field: value}))
