"""Defines what a data centre consists of, and what its nodes carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("server", "storage", "network")
"""Kinds of equipment."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a node does.

    Attributes:
        name: Such as `broker`.
        spare_nodes: Nodes beyond those that the rates ask for.
    """

    name: str
    spare_nodes: int


@dataclass(frozen=True, slots=True)
class Item:
    """Equipment of one sort.

    There are `count` of it or, for `of`, `each` of it for `per` of those, rounded up.

    Attributes:
        name: What it is called in this plan.
        model: What to order.
        kind: One of `KINDS`.
        price_usd: For one.
        watts_max: What one takes at most; 0 where it is fed by another item.
        of: Roles and earlier items that are counted.
        each: How many come for each `per`.
        per: For how many of `of` there are `each`.
        count: How many there are, whatever the nodes; `None`: as many as `of` asks for.
    """

    name: str
    model: str
    kind: str
    price_usd: float
    watts_max: float
    of: tuple[str, ...]
    each: int
    per: int
    count: int | None


@dataclass(frozen=True, slots=True)
class Facility:
    """What equipment costs besides its price.

    Attributes:
        years: For how long it is used; prices are divided by it.
        usd_per_kwh: The price of electricity.
        hours_per_year: How long it runs.
        load_share: Average power as a share of the maximum.
        cooling_watts_per_watt: What cooling takes for each watt of the equipment.
        other_share_of_equipment: Racks, power distribution and installation, as a share of the price of all
            equipment.
    """

    years: float
    usd_per_kwh: float
    hours_per_year: float
    load_share: float
    cooling_watts_per_watt: float
    other_share_of_equipment: float


@dataclass(frozen=True, slots=True)
class Published:
    """What a publication says a plan costs, to compare.

    Attributes:
        equipment_usd: All equipment.
        year_usd: All, a year.
    """

    equipment_usd: float
    year_usd: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A data centre.

    Attributes:
        name: What it is called.
        about: What is particular about it, in a line.
        source: Where the equipment and the prices are from.
        records_per_second: What it has to carry.
        roles: What its nodes do.
        items: Its equipment, in an order in which no item counts a later one.
        facility: Power, cooling and the rest.
        published: What it is compared with, if anything.
    """

    name: str
    about: str
    source: str
    records_per_second: float
    roles: tuple[Role, ...]
    items: tuple[Item, ...]
    facility: Facility
    published: Published | None


@dataclass(frozen=True, slots=True)
class Rates:
    """What nodes carry.

    Attributes:
        name: What these rates are called.
        source: Where they are from.
        measured: They were measured by Mez, and are not the paper's.
        per_node: Records a second that a node carries, by role.
        named: The roles whose rate these rates give themselves; those of others are the paper's.
    """

    name: str
    source: str
    measured: bool
    per_node: Mapping[str, float]
    named: tuple[str, ...]
