"""Writes results to files, and shows them as tables."""

import json
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mez_bench.experiment import Outcome
from mez_bench.run import ROOT
from mez_bench.stats import Interval

RESULTS: Final = ROOT / "bench" / "results"


def document(
    name: str, commit: str, machine: dict[str, Any], quick: bool, outcome: Outcome
) -> dict[str, Any]:
    """Return a result as it is written to a file."""
    return {
        "name": name,
        "commit": commit,
        "machine": machine,
        "parameters": {"quick": quick, **outcome.parameters},
        "metrics": {metric: _rounded(value.median) for metric, value in outcome.metrics.items()},
        "intervals_95": {
            metric: [_rounded(value.low), _rounded(value.high)] for metric, value in outcome.metrics.items()
        },
        "targets": [
            {
                "metric": target.metric,
                "target": str(target),
                "met": target.is_met(outcome.metrics[target.metric]),
                "met_by_median": target.is_met_by_median(outcome.metrics[target.metric]),
            }
            for target in outcome.targets
            if target.metric in outcome.metrics and not (quick and target.full_only)
        ],
        "notes": outcome.notes,
        "failures": outcome.failures,
        "rows": [
            {key: _rounded(value) if isinstance(value, float) else value for key, value in row.items()}
            for row in outcome.rows
        ],
    }


def write(result: dict[str, Any], outcome: Outcome, json_path: Path | None) -> list[Path]:
    """Write a result and its plot; return where."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{result['name']}.json"
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    written = [path] if json_path is None else [path, json_path]
    for place in written:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    if outcome.plot is not None:
        written.append(_draw(outcome, RESULTS / f"{result['name']}.svg"))
    return written


def show(console: Console, result: dict[str, Any], outcome: Outcome) -> None:
    """Print a result."""
    for table in outcome.tables:
        console.print(table)
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("metric", no_wrap=True)
    table.add_column("median", justify="right")
    table.add_column("95 % interval", justify="right")
    table.add_column("target")
    targets = {target["metric"]: target for target in result["targets"]}
    for metric, value in outcome.metrics.items():
        target = targets.get(metric)
        table.add_row(metric, figure(value.median), _interval(value), _verdict(target))
    console.print(table)
    for note in outcome.notes:
        console.print(f" note: {note}", highlight=False)


def columns(label: str, *numbers: str) -> Table:
    """A table for a terminal: a column of labels, then columns of numbers."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column(label)
    for number in numbers:
        table.add_column(number, justify="right")
    return table


def figure(value: float) -> str:
    """Format a number for people: four digits, no exponents."""
    if value == int(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _interval(value: Interval) -> str:
    return "" if value.low == value.high else f"{figure(value.low)} to {figure(value.high)}"


def _verdict(target: dict[str, Any] | None) -> Text:
    if target is None:
        return Text("")
    if not target["met"]:
        return Text(f"{target['target']}  MISSED", style="bold red")
    if not target["met_by_median"]:
        return Text(f"{target['target']}  within the interval", style="yellow")
    return Text(f"{target['target']}  met", style="green")


def _rounded(value: float) -> float:
    """Round to six digits, which are more than any figure has."""
    return float(f"{value:.6g}")


def _draw(outcome: Outcome, path: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    # Text as text: smaller files, and searchable.
    with mpl.rc_context(
        {"svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    ):
        drawing = Figure(figsize=(9, 4.5), layout="constrained")
        assert outcome.plot is not None, "checked by the caller"
        outcome.plot(drawing)
        drawing.savefig(path, metadata={"Date": None})
    return path
