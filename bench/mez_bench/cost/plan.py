"""Defines the parts of a data centre, and the rates of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("server", "storage", "network")
"""Kinds of equipment."""


@dataclass(frozen=True, slots=True)
class Role:
    """A role of nodes.

    Attributes:
        name: Its name, such as `broker`.
        spare_nodes: Nodes beyond those that the rates ask for.
    """

    name: str
    spare_nodes: int


@dataclass(frozen=True, slots=True)
class Item:
    """Equipment of one sort.

    The quantity is `count` or, without `count`, `each` for every `per` nodes or items of `of`, rounded up.

    Attributes:
        name: Its name in this plan.
        model: The model to order.
        kind: One of `KINDS`.
        price_usd: Price of one.
        watts_max: Maximum power of one; 0 if another item feeds it.
        of: Roles and earlier items that are counted.
        each: Quantity for every `per` of `of`.
        per: Number of `of` for each `each`.
        count: Fixed quantity; `None`: the quantity depends on `of`.
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
        years: Years of use; prices are divided by it.
        usd_per_kwh: The price of electricity.
        hours_per_year: Hours of operation in a year.
        load_share: Average power as a share of the maximum.
        cooling_watts_per_watt: Power of cooling for each watt of the equipment.
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
    """The published cost of a plan, to compare with.

    Attributes:
        equipment_usd: Price of all equipment.
        year_usd: Total cost of a year.
    """

    equipment_usd: float
    year_usd: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A data centre.

    Attributes:
        name: Its name.
        about: What is particular about it, in a line.
        source: Source of the equipment and the prices.
        records_per_second: The load that it has to carry.
        roles: Roles of its nodes.
        items: Its equipment, in an order in which no item counts a later one.
        facility: Power, cooling and the rest.
        published: Published cost, if there is one.
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
    """The rates of nodes.

    Attributes:
        name: Name of these rates.
        source: Where they are from.
        measured: They were measured with Mez; otherwise they are the paper's or a guess.
        per_node: Records per second that a node carries, by role.
        named: Roles whose rates the file gives; other roles have the paper's rates.
    """

    name: str
    source: str
    measured: bool
    per_node: Mapping[str, float]
    named: tuple[str, ...]
