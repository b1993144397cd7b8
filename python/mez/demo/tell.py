"""Ends a demo: prints the summary, writes files, and returns the exit code."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

import mez
from mez.demo.course import draw
from mez.demo.options import Options
from mez.demo.pictures import Gallery
from mez.demo.report import Results, write_json


def tell(
    console: Console, options: Options, gallery: Gallery, results: Results, beside: Mapping[str, Results]
) -> int:
    """Print the summary, write the files, and return the exit code.

    Args:
        console: Where people read.
        options: What was asked for.
        gallery: Makes the pictures.
        results: Results of the run.
        beside: Results under other policies, by their names.
    """
    problems = results.problems()
    console.print()
    if results.interrupted:
        console.print("Ended early.", style="bold")
    console.print(results.table())
    console.print()
    for sentence in results.sentences():
        console.print(sentence, markup=False)
    if beside and results.scenario is not None:
        console.print()
        console.print(_compared({options.policy: results, **beside}))
        console.print()
    try:
        album = gallery.write(options.out)
        if album.sheet is None:
            console.print("No picture was written, because nothing was found.")
        else:
            console.print(
                f"Pictures with boxes: {album.sheet} shows all {len(album.pictures)} of {options.out}/"
            )
    except OSError as error:
        problems.append(
            f"The pictures could not be written to {options.out}: {error}. Choose another folder with --out."
        )
    if options.json is not None:
        try:
            write_json(options.json, results.figures() | _figures(beside))
            console.print(f"Figures: {options.json}", markup=False)
        except OSError as error:
            problems.append(f"The figures could not be written to {options.json}: {error}.")
    if results.scenario is not None:
        picture = options.out / "course.png"
        try:
            options.out.mkdir(parents=True, exist_ok=True)
            draw(results.scenario, picture)
            console.print(f"Latency, rung and accuracy over time: {picture}", markup=False)
        except (OSError, mez.Error) as error:
            problems.append(f"The plot could not be drawn: {error}.")
    for problem in problems:
        console.print(f"FAILED: {problem}", style="bold red", markup=False)
    if not problems:
        console.print("Every frame is accounted for, and nothing failed.", style="green")
    if said := str(results.traffic):
        console.print(said, markup=False)
    return 1 if problems else 0


def _figures(beside: Mapping[str, Results]) -> dict[str, object]:
    """Return the figures of other policies, with the policy's name as a prefix."""
    return {
        f"{policy}_{name}": value
        for policy, results in beside.items()
        for name, value in (results.latencies() | results.contract()).items()
    }


def _compared(by_policy: Mapping[str, Results]) -> Table:
    """Compare the contract under each policy in a table."""
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("policy", min_width=11)
    for name in ("on time %", "of published %", "infeasible %", "p50 ms", "p95 ms", "accuracy", "settled ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for policy, results in by_policy.items():
        figures = results.latencies() | results.contract()
        shares = ("on_time_share", "on_time_share_of_published", "infeasible_share")
        table.add_row(
            policy,
            *(_shown(figures.get(name), 1, 100) for name in shares),
            *(_shown(figures.get(name), 0) for name in ("latency_ms_p50", "latency_ms_p95")),
            _shown(figures.get("accuracy_normalised"), 3),
            _shown(figures.get("settle_ms"), 0),
        )
    return table


def _shown(value: object, digits: int, times: int = 1) -> str:
    return f"{value * times:.{digits}f}" if isinstance(value, int | float) else "-"
