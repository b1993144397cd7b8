"""Reads plans and rates from TOML. Errors name file, field, value and remedy."""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mez_bench.cost.plan import KINDS, Facility, Item, Plan, Published, Rates, Role
from mez_bench.errors import ExperimentError

FOLDER: Final = Path(__file__).parent
SHIPPED: Final = (FOLDER / "plans" / "homogeneous.toml", FOLDER / "plans" / "targeted.toml")
"""The plans of the paper: Tables 3 and 4."""
PAPER_RATES: Final = FOLDER / "rates" / "paper.toml"
SHOWN_CHARACTERS: Final = 60
"""How many characters of a wrong value an error shows."""


class PlanError(ExperimentError):
    """A file of the cost model cannot be used. The message names file, field, value and remedy."""


class _Fields:
    """The fields of one table. Each is taken once; a field that is left over is an error (`end`)."""

    def __init__(self, path: Path, place: str, fields: Mapping[str, Any]) -> None:
        self._path = path
        self._place = place
        self._fields = dict(fields)
        self._known: list[str] = []

    def wrong(self, field: str, value: object, problem: str, remedy: str) -> PlanError:
        """Return the error for a value of this table."""
        shown = "" if value is None else f" = {_shown(value)}"
        return PlanError(f"{self._path}: {self._place}{field}{shown}: {problem}; {remedy}")

    def _take(self, field: str, remedy: str, default: object = None) -> object:
        self._known.append(field)
        value = self._fields.pop(field, default)
        if value is None:
            near = difflib.get_close_matches(field, self._fields, n=1)
            instead = f' (there is "{near[0]}")' if near else ""
            raise self.wrong(field, None, f"is missing{instead}", remedy)
        return value

    def text(self, field: str, example: str) -> str:
        """Take a text that is not empty."""
        remedy = f'write it in quotes, such as {field} = "{example}"'
        value = self._take(field, remedy)
        if not isinstance(value, str):
            raise self.wrong(field, value, "is not a text", remedy)
        if not value.strip():
            raise self.wrong(field, value, "is empty", remedy)
        return value

    def number(
        self, field: str, example: str, low: float, high: float = math.inf, default: float | None = None
    ) -> float:
        """Take a number from `low` to `high`."""
        remedy = f"write a number without unit or currency symbol, such as {field} = {example}"
        value = self._take(field, remedy, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(field, value, "is not a number", remedy)
        if not math.isfinite(value):
            raise self.wrong(field, value, "is not finite", remedy)
        if not low <= value <= high:
            allowed = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise self.wrong(field, value, f"is out of range ({allowed})", remedy)
        return float(value)

    def positive(self, field: str, example: str) -> float:
        """Take a number above zero."""
        value = self.number(field, example, 0)
        if value == 0:
            raise self.wrong(field, 0, "is zero", f"write a number above zero, such as {field} = {example}")
        return value

    def whole(self, field: str, example: str, low: int, default: int | None = None) -> int:
        """Take a whole number of at least `low`."""
        value = self.number(field, example, low, default=default)
        if value != int(value):
            raise self.wrong(field, value, "is not whole", f"write {field} = {math.ceil(value)}")
        return int(value)

    def flag(self, field: str) -> bool:
        """Take `true` or `false`."""
        remedy = f"write {field} = true or {field} = false, without quotes"
        value = self._take(field, remedy)
        if not isinstance(value, bool):
            raise self.wrong(field, value, "is neither true nor false", remedy)
        return value

    def names(self, field: str, known: Sequence[str]) -> tuple[str, ...]:
        """Take a list of names, each of which is known."""
        remedy = f'write a list of names, such as {field} = ["{known[0]}"]'
        value = self._take(field, remedy)
        if not isinstance(value, list) or not value:
            raise self.wrong(field, value, "is not a list of names", remedy)
        for name in value:
            if name not in known:
                raise self.wrong(field, name, "is no role or earlier item", _choose(name, known))
        if len(set(value)) != len(value):
            raise self.wrong(field, value, "has a name twice", "give each name once")
        return tuple(value)

    def choice(self, field: str, known: Sequence[str]) -> str:
        """Take one of the known words."""
        value = self.text(field, known[0])
        if value not in known:
            raise self.wrong(field, value, "is not known", _choose(value, known))
        return value

    def tables(self, field: str, least: int = 1) -> list[Mapping[str, Any]]:
        """Take tables, `[[field]]`."""
        remedy = f"begin each with a line [[{field}]]"
        value = self._take(field, remedy)
        if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
            raise self.wrong(field, value, "is not a list of tables", remedy)
        if len(value) < least:
            raise self.wrong(field, value, "is empty", remedy)
        return value

    def table(self, field: str) -> Mapping[str, Any]:
        """Take one table, `[field]`."""
        remedy = f"begin it with a line [{field}]"
        value = self._take(field, remedy)
        if not isinstance(value, dict):
            raise self.wrong(field, value, "is not a table", remedy)
        return value

    def has(self, field: str) -> bool:
        """Tell whether a field that may be left out is there."""
        self._known.append(field)
        return field in self._fields

    def end(self) -> None:
        """Refuse fields that were not taken."""
        for field, value in self._fields.items():
            raise self.wrong(field, value, "is no field of this table", _choose(field, self._known))


def plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        PlanError: The file cannot be used.
    """
    top = _Fields(path, "", _document(path))
    name = top.text("name", "ours")
    about = top.text("about", "what is particular about it")
    source = top.text("source", "our offer of 2026-05-01")
    load = top.positive("records_per_second", "20000")
    roles: list[Role] = []
    for number, table in enumerate(top.tables("role"), 1):
        roles.append(_role(_Fields(path, f"role[{number}].", table), [role.name for role in roles]))
    items: list[Item] = []
    for number, table in enumerate(top.tables("item"), 1):
        known = [role.name for role in roles] + [item.name for item in items]
        items.append(_item(_Fields(path, f"item[{number}].", table), known))
    facility = _facility(_Fields(path, "facility.", top.table("facility")))
    published = None
    if top.has("published"):
        published = _published(_Fields(path, "published.", top.table("published")))
    top.end()
    return Plan(name, about, source, load, tuple(roles), tuple(items), facility, published)


def rates(path: Path, otherwise: Rates | None = None) -> Rates:
    """Read rates.

    Args:
        path: The file.
        otherwise: The rates of roles that the file does not name.

    Raises:
        PlanError: The file cannot be used.
    """
    top = _Fields(path, "", _document(path))
    name = top.text("name", "Mez, on disk")
    source = top.text("source", "mez bench aitax, 2026-05-01")
    measured = top.flag("measured")
    per_node: dict[str, float] = dict(otherwise.per_node) if otherwise is not None else {}
    named: list[str] = []
    for number, table in enumerate(top.tables("rate"), 1):
        fields = _Fields(path, f"rate[{number}].", table)
        role = fields.text("role", "broker")
        if role in named:
            raise fields.wrong("role", role, "is there twice", "give each role one [[rate]]")
        named.append(role)
        nodes = fields.whole("nodes", "8", 1)
        per_node[role] = fields.positive("records_per_second", "79040") / nodes
        fields.end()
    top.end()
    return Rates(name, source, measured, per_node, tuple(named))


def check(plan: Plan, path: Path, rates: Rates) -> None:
    """Refuse rates that lack a role of the plan.

    Raises:
        PlanError: A role has no rate.
    """
    for number, role in enumerate(plan.roles, 1):
        if role.name not in rates.per_node:
            remedy = _choose(role.name, sorted(rates.per_node))
            raise PlanError(
                f"{path}: role[{number}].name = {_shown(role.name)}: has no rate; "
                f"{remedy}, or give it a [[rate]] in a file for --rates"
            )


def check_roles(rates: Rates, path: Path, plans: Sequence[Plan]) -> None:
    """Refuse rates of a role that no plan has: a misspelt name would have no effect.

    Raises:
        PlanError: No plan has the role.
    """
    known = sorted({role.name for plan in plans for role in plan.roles})
    for number, role in enumerate(rates.named, 1):
        if role not in known:
            raise PlanError(
                f"{path}: rate[{number}].role = {_shown(role)}: is no role of the plan; "
                f"{_choose(role, known)}"
            )


def _document(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(
            f"{path}: cannot be read ({error.strerror}); name a TOML file, or copy one of {FOLDER / 'plans'}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: is not TOML: {error}; correct the file there") from error


def _role(fields: _Fields, taken: Sequence[str]) -> Role:
    role = Role(fields.text("name", "broker"), fields.whole("spare_nodes", "2", 0, default=0))
    if role.name in taken:
        raise fields.wrong("name", role.name, "is there twice", "give each role a name of its own")
    fields.end()
    return role


def _item(fields: _Fields, known: Sequence[str]) -> Item:
    name = fields.text("name", "drive")
    if name in known:
        raise fields.wrong("name", name, "is there twice", "give each item a name of its own")
    model = fields.text("model", "what to order")
    kind = fields.choice("kind", KINDS)
    price = fields.number("price_usd", "399", 0)
    watts = fields.number("watts_max", "750", 0)
    if fields.has("count"):
        count = fields.whole("count", "16", 0)
        for other in ("of", "each", "per"):
            if fields.has(other):
                raise fields.wrong(
                    other, None, "cannot stand beside count", "give either count, or of with each and per"
                )
        fields.end()
        return Item(name, model, kind, price, watts, (), 1, 1, count)
    of = fields.names("of", known)
    each, per = fields.whole("each", "4", 1, default=1), fields.whole("per", "32", 1, default=1)
    fields.end()
    return Item(name, model, kind, price, watts, of, each, per, None)


def _facility(fields: _Fields) -> Facility:
    facility = Facility(
        years=fields.positive("years", "3"),
        usd_per_kwh=fields.number("usd_per_kwh", "0.10", 0),
        hours_per_year=fields.number("hours_per_year", "8760", 0, 8784),
        load_share=fields.number("load_share", "0.7", 0, 1),
        cooling_watts_per_watt=fields.number("cooling_watts_per_watt", "1.0", 0),
        other_share_of_equipment=fields.number("other_share_of_equipment", "0.019", 0),
    )
    fields.end()
    return facility


def _published(fields: _Fields) -> Published:
    published = Published(
        equipment_usd=fields.positive("equipment_usd", "27878431"),
        year_usd=fields.positive("year_usd", "10800000"),
    )
    fields.end()
    return published


def _choose(name: object, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(name), known, n=1)
    return f'did you mean "{near[0]}"?' if near else f"one of: {', '.join(known)}"


def _shown(value: object) -> str:
    """Format a value as in a TOML file."""
    is_float = isinstance(value, float)
    text = f"{value}" if is_float else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
