"""Computes the cost of a data centre for a recognition pipeline, and how a faster bus would change it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.table import Table

from mez_bench.cost import reading
from mez_bench.cost.bill import PARTS, Bill, bill, price, with_faster
from mez_bench.cost.plan import Plan, Rates
from mez_bench.cost.sensitivity import CHANGE, Swing, swings
from mez_bench.cost.statements import Statement, statements
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.run import ROOT, Run
from mez_bench.stats import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BROKER: Final = "broker"
"""The role whose rate depends on the bus."""
FASTER: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Multiples of a broker node's rate, for the table of buses."""
SWINGS_SHOWN: Final = 8
COLOURS: Final = ("#4477aa", "#66ccee", "#228833", "#bbbbbb", "#ee6677", "#aa3377")
"""Colours of `PARTS`, for people with any colour vision."""

_HELP: Final = """\
Computes what a data centre costs a year: nodes from rates, equipment from nodes,
power and cooling from equipment, prices spread over the years of use. It measures
nothing, so it takes a second.

Without options it prices the two data centres of the AI Tax paper (Richins et al.
2021, Tables 3 and 4) and holds them against what the paper says they cost. It also
lists the places where the paper's text contradicts its own tables.

It prints
  - for each plan: nodes, equipment, power, the cost of a year and of all years;
  - what matters most: each input 20 % smaller and larger, one at a time;
  - what another bus would change: the same work with other rates of broker nodes.

A plan is a TOML file: what has to be carried, roles, equipment with prices, power.
Begin with a copy: bench/mez_bench/cost/plans/targeted.toml
Rates are a TOML file: so many nodes of a role carried so many records a second.
Begin with a copy: bench/mez_bench/cost/rates/paper.toml
docs/cost.md explains every field.
"""

_EXAMPLES: Final = """\
examples:
  mez bench cost                          the paper's two data centres
  mez bench cost --plan ours.toml         your own
  mez bench cost --plan a.toml --plan b.toml
                                          two side by side
  mez bench cost --rates mez.toml         with the rates that you measured; roles that
                                          the file does not name keep the paper's
  mez bench cost --check                  fails if the paper's totals are missed by 1 %

exit code:
  0  the costs were computed
  1  a file cannot be used (the message names file, field, value and remedy), or with
     --check a target was missed
"""


def _run(run: Run) -> Outcome:
    paths = run.subject.plans or reading.SHIPPED
    plans = [reading.plan(path) for path in paths]
    if len({plan.name for plan in plans}) < len(plans):
        raise reading.PlanError(
            f"{paths[-1]}: name: two plans have the same name; give each plan a name of its own"
        )
    paper = reading.rates(reading.PAPER_RATES)
    rates = paper if run.subject.rates is None else reading.rates(run.subject.rates, paper)
    for plan, path in zip(plans, paths, strict=True):
        reading.check(plan, path, rates)
    if run.subject.rates is not None:
        reading.check_roles(rates, run.subject.rates, plans)
    # Bills that are compared with the paper use the paper's rates, even if the user gives others.
    by_paper = [bill(plan, paper) if _knows(paper, plan) else bill(plan, rates) for plan in plans]
    bills = [bill(plan, rates) for plan in plans]
    ranked = swings(plans[-1], rates)
    told = statements(*by_paper) if not run.subject.plans else []
    outcome = Outcome(
        parameters={
            "plans": [_shown(path) for path in paths],
            "rates": rates.name,
            "rates_source": rates.source,
            "rates_measured": rates.measured,
            "sensitivity_change": CHANGE,
        },
        metrics=_metrics(bills, by_paper),
        rows=[
            *(row for one in bills for row in _rows(one)),
            *(_swing_row(plans[-1], swing) for swing in ranked),
            *(_statement_row(statement) for statement in told),
        ],
        tables=[
            *(_equipment(one) for one in bills),
            _years(bills),
            *([_differences(told)] if told else []),
            _most(plans[-1], ranked),
            *([_buses(plans[-1], paper, rates)] if _has_broker(plans[-1]) else []),
        ],
        notes=_notes(run.subject.rates, rates, by_paper),
    )
    if any(one.plan.published for one in by_paper):
        outcome.targets = [Target("tco_error_max", "<=", 0.01), Target("equipment_usd_off_max", "<=", 0)]
    outcome.plot = lambda drawing: _plot(drawing, bills, ranked)
    return outcome


def _knows(rates: Rates, plan: Plan) -> bool:
    return all(role.name in rates.per_node for role in plan.roles)


def _has_broker(plan: Plan) -> bool:
    return any(role.name == BROKER for role in plan.roles)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _metrics(bills: Sequence[Bill], by_paper: Sequence[Bill]) -> dict[str, Interval]:
    metrics: dict[str, float] = {}
    errors, off = [], []
    for one in by_paper:
        if one.plan.published is not None:
            errors.append(abs(one.equipment_usd / one.plan.published.equipment_usd - 1))
            errors.append(abs(one.year_total_usd / one.plan.published.year_usd - 1))
            off.append(abs(one.equipment_usd - one.plan.published.equipment_usd))
    if errors:
        metrics["tco_error_max"] = max(errors)
        metrics["equipment_usd_off_max"] = max(off)
    for one in bills:
        name = one.plan.name.replace(" ", "_")
        metrics[f"equipment_usd_{name}"] = one.equipment_usd
        metrics[f"year_usd_{name}"] = one.year_total_usd
        metrics[f"total_usd_{name}"] = one.total_usd
        metrics[f"power_kw_{name}"] = one.watts_max / 1000
        metrics[f"nodes_{name}"] = sum(one.nodes.values())
    if len(bills) > 1:
        metrics["saved_share"] = 1 - bills[-1].year_total_usd / bills[0].year_total_usd
    return {name: Interval.exactly(value) for name, value in metrics.items()}


def _rows(one: Bill) -> list[dict[str, Cell]]:
    nodes: list[dict[str, Cell]] = [
        {"kind": "nodes", "plan": one.plan.name, "role": role, "nodes": count}
        for role, count in one.nodes.items()
    ]
    items: list[dict[str, Cell]] = [
        {
            "kind": "item",
            "plan": one.plan.name,
            "item": line.item.name,
            "model": line.item.model,
            "price_usd": line.item.price_usd,
            "quantity": line.quantity,
            # Whole dollars: integers are written with all digits.
            "usd": round(line.usd),
        }
        for line in one.lines
    ]
    total: dict[str, Cell] = {
        "kind": "year",
        "plan": one.plan.name,
        "equipment_usd": round(one.equipment_usd),
        **{f"{part}_usd_per_year": usd for part, usd in one.year_usd().items()},
        "year_usd": one.year_total_usd,
        "total_usd": one.total_usd,
    }
    return [*nodes, *items, total]


def _swing_row(plan: Plan, swing: Swing) -> dict[str, Cell]:
    return {
        "kind": "sensitivity",
        "plan": plan.name,
        "input": swing.input,
        "less_usd_per_year": swing.less_usd,
        "more_usd_per_year": swing.more_usd,
    }


def _statement_row(statement: Statement) -> dict[str, Cell]:
    return {
        "kind": "statement",
        "where": statement.where,
        "what": statement.what,
        "says": statement.says,
        "gives": statement.gives,
        "contradicts": statement.contradicts,
        "why": statement.why,
    }


def _notes(given: Path | None, rates: Rates, by_paper: Sequence[Bill]) -> list[str]:
    notes = []
    roles = dict.fromkeys(role.name for one in by_paper for role in one.plan.roles)
    papers = [role for role in roles if role not in rates.named]
    if given is not None and not rates.measured:
        notes.append(f"{given} says measured = false: nothing here is a rate that Mez's bus reached")
    if given is not None and papers:
        notes.append(f"{given} has no rate of: {', '.join(papers)}; the paper's rates are used for these")
    if given is None:
        notes.append(
            "no measured rate of Mez's bus was given (--rates FILE): the paper's rates set the numbers of "
            "nodes, and the table of buses shows the effect of other rates, not what Mez reaches"
        )
    if any(one.plan.published for one in by_paper):
        notes.append(
            "racks, power distribution and installation (`other`) are fitted: one share of the equipment's "
            "price, fitted to two published totals. Without `other`, a year costs "
            + " and ".join(
                f"{(one.year_total_usd - one.year_usd()['other']) / 1e6:.2f} M$" for one in by_paper
            )
        )
    sources = dict.fromkeys([*(one.plan.source for one in by_paper), rates.source])
    notes.append(f"sources: {'; '.join(sources)}")
    return notes


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column(columns[0], overflow="fold")
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _equipment(one: Bill) -> Table:
    table = _table(f"{one.plan.name}: {one.plan.about}", "price $", "quantity", "$", "kW max")
    for line in one.lines:
        table.add_row(
            f"{line.item.name}: {line.item.model}",
            f"{line.item.price_usd:,.0f}",
            f"{line.quantity:,}",
            f"{line.usd:,.0f}",
            f"{line.watts_max / 1000:,.1f}" if line.watts_max else "",
        )
    nodes = ", ".join(f"{count} {role}" for role, count in one.nodes.items())
    table.add_row(
        f"[bold]all, for {nodes} nodes",
        "",
        "",
        f"[bold]{one.equipment_usd:,.0f}",
        f"[bold]{one.watts_max / 1000:,.1f}",
    )
    return table


def _years(bills: Sequence[Bill]) -> Table:
    table = _table("M$ per year", *PARTS, "all", "paper", "all years")
    for one in bills:
        published = one.plan.published
        table.add_row(
            one.plan.name,
            *(f"{usd / 1e6:.2f}" for usd in one.year_usd().values()),
            f"{one.year_total_usd / 1e6:.2f}",
            f"{published.year_usd / 1e6:.1f}" if published else "",
            f"{one.total_usd / 1e6:.1f}",
        )
    return table


def _differences(told: Sequence[Statement]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("figure in the paper's text")
    table.add_column("where")
    table.add_column("says", justify="right")
    table.add_column("paper's inputs give", justify="right")
    table.add_column("")
    table.add_column("why", overflow="fold")
    for statement in told:
        table.add_row(
            statement.what,
            statement.where,
            f"{statement.says:.4g}",
            f"{statement.gives:.4g}",
            "[yellow]contradicts[/yellow]" if statement.contradicts else "",
            statement.why,
        )
    return table


def _most(plan: Plan, ranked: Sequence[Swing]) -> Table:
    table = _table(
        f"largest effects on {plan.name}: M$ per year",
        f"{CHANGE * 100:.0f} % less",
        f"{CHANGE * 100:.0f} % more",
    )
    for swing in ranked[:SWINGS_SHOWN]:
        table.add_row(swing.input, f"{swing.less_usd / 1e6:+.3f}", f"{swing.more_usd / 1e6:+.3f}")
    return table


def _buses(plan: Plan, paper: Rates, rates: Rates) -> Table:
    table = _table(
        f"effect of the bus on {plan.name}", "records/s per broker node", "broker nodes", "M$ per year"
    )

    def add(name: str, one: Bill) -> None:
        table.add_row(
            name,
            f"{one.rates.per_node[BROKER]:,.0f}",
            f"{one.nodes[BROKER]}",
            f"{one.year_total_usd / 1e6:.2f}",
        )

    if rates is not paper:
        add(f"{rates.name}{'' if rates.measured else ' (not measured)'}", bill(plan, rates))
    for times in FASTER:
        base = paper if _knows(paper, plan) else rates
        add(f"{base.name}, times {times:g}", bill(plan, with_faster(base, BROKER, times)))
    none = _without_brokers(plan, rates)
    table.add_row("bound: no broker nodes at all", "", "0", f"{none.year_total_usd / 1e6:.2f}")
    return table


def _without_brokers(plan: Plan, rates: Rates) -> Bill:
    """Price a plan whose bus needs no nodes of its own: the lower bound for any bus."""
    return price(plan, rates, {**bill(plan, rates).nodes, BROKER: 0})


def _plot(drawing: Figure, bills: Sequence[Bill], ranked: Sequence[Swing]) -> None:
    left, right = drawing.subplots(1, 2, width_ratios=(1, 1.2))
    _plot_years(left, bills)
    _plot_swings(right, bills[-1].plan, ranked[:SWINGS_SHOWN])


def _plot_years(axes: Axes, bills: Sequence[Bill]) -> None:
    names = [one.plan.name for one in bills]
    below = [0.0] * len(bills)
    for part, colour in zip(PARTS, COLOURS, strict=True):
        values = [one.year_usd()[part] / 1e6 for one in bills]
        axes.bar(names, values, bottom=below, width=0.6, color=colour, label=part)
        below = [start + value for start, value in zip(below, values, strict=True)]
    for place, one in enumerate(bills):
        axes.text(place, below[place], f"{below[place]:.1f}", ha="center", va="bottom", fontsize=8)
        if one.plan.published is not None:
            published = one.plan.published.year_usd / 1e6
            label = "paper" if place == 0 else None
            axes.plot([place - 0.38, place + 0.38], [published] * 2, "k--", lw=1, label=label)
    axes.set_ylim(0, math.ceil(max(below) * 1.25))
    axes.set_ylabel("M$ per year")
    axes.legend(frameon=False, fontsize=7, ncols=3, loc="upper center")


def _plot_swings(axes: Axes, plan: Plan, ranked: Sequence[Swing]) -> None:
    names = [swing.input for swing in reversed(ranked)]
    for values, colour, label in (
        ([swing.less_usd / 1e6 for swing in reversed(ranked)], COLOURS[0], "less"),
        ([swing.more_usd / 1e6 for swing in reversed(ranked)], COLOURS[4], "more"),
    ):
        axes.barh(names, values, color=colour, height=0.6, label=f"{CHANGE * 100:.0f} % {label}")
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_title(f"largest effects on {plan.name}", fontsize=9)
    axes.set_xlabel("change of the yearly cost, M$")
    axes.legend(frameon=False, fontsize=7, loc="lower right")


COST: Final = Experiment(
    name="cost",
    summary="what a data centre for a recognition pipeline costs a year, and what a faster bus would change",
    needs="nothing; your own data centre: --plan FILE, --rates FILE",
    seconds_quick=5,
    seconds_full=5,
    run=_run,
    is_virtual=True,
    description=_HELP,
    examples=_EXAMPLES,
)
