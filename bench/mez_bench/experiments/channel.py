"""Compares the model of a Wi-Fi channel with published measurements."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

from mez_bench.children import mez
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEEDS: Final = 10
SEEDS_QUICK: Final = 3
FRAMES: Final = 200
FRAMES_QUICK: Final = 100

Row = Mapping[str, Any]


def _run(run: Run) -> Outcome:
    seeds, frames = (SEEDS_QUICK, FRAMES_QUICK) if run.quick else (SEEDS, FRAMES)
    run.expect(seeds)
    command = mez("measure", "channel", "--seeds", f"{seeds}", "--frames", f"{frames}")
    child = run.children.start("measure channel", command)
    chosen: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    while (line := child.line(seconds_max=300)) is not None:
        row = json.loads(line)
        if row.pop("kind") == "chosen":
            chosen = row
            continue
        if not rows or rows[-1]["seed"] != row["seed"]:
            run.step(f"seed {row['seed']}")
        rows.append(row)
    own = [row for row in rows if row["constants"] == "calibrated"]
    held_out = [row for row in rows if row["constants"] != "calibrated"]
    outcome = Outcome(
        parameters={"seeds": seeds, "frames": frames, **chosen},
        metrics={
            "mean_absolute_error_5fps": _error(own, lambda row: row["frames_per_second"] == 5),
            "mean_absolute_error_table_2_chosen_on_table_1": _error(held_out, _is_unseen),
            "mean_absolute_error_table_2_6m_chosen_on_table_1": _error(
                held_out, lambda row: _is_unseen(row) and row["metres"] == 6
            ),
            "mean_absolute_error_table_2_12m_chosen_on_table_1": _error(
                held_out, lambda row: _is_unseen(row) and row["metres"] == 12
            ),
            "mean_absolute_error_15fps": _error(own, lambda row: row["frames_per_second"] == 15),
        },
        rows=rows,
        targets=[
            Target("mean_absolute_error_5fps", "<=", 0.15),
            Target("mean_absolute_error_table_2_chosen_on_table_1", "<=", 0.15),
        ],
        tables=[_table(own)],
        notes=[
            "measured: tables 1 and 2 of A. George et al., Mez (2020): 95th percentile of the first camera's "
            "latency",
            "held out: the cells of table 2 at 5 frames per second, except one and five cameras at 6 m, "
            "which are also in table 1, and one camera at 12 m, which gives the rate at that distance",
            "virtual time: a model of the channel with transport windows, not a network",
        ],
    )
    outcome.plot = lambda drawing: _plot(drawing, own)
    return outcome


def _is_unseen(row: Row) -> bool:
    return bool(
        row["table"] == 2
        and row["frames_per_second"] == 5
        and not (row["metres"] == 12 and row["cameras"] == 1)
    )


def _error(rows: Sequence[Row], which: Callable[[Row], bool]) -> Interval:
    by_seed: Mapping[int, list[float]] = defaultdict(list)
    for row in rows:
        if which(row):
            by_seed[row["seed"]].append(abs(row["modelled_ms_p95"] / row["measured_ms_p95"] - 1))
    return interval([np.array(errors) for errors in by_seed.values()], _mean)


def _mean(values: Values) -> float:
    return float(np.mean(values))


def _cells(rows: Sequence[Row]) -> Mapping[tuple[int, float, int, float, float, float], list[float]]:
    cells: Mapping[tuple[int, float, int, float, float, float], list[float]] = defaultdict(list)
    for row in rows:
        cells[
            row["table"],
            row["frame_kilobytes"],
            row["cameras"],
            row["frames_per_second"],
            row["metres"],
            row["measured_ms_p95"],
        ].append(row["modelled_ms_p95"])
    return cells


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("table", "frame, kB", "cameras", "fps", "m", "measured, ms", "modelled, ms", "error"):
        table.add_column(column, justify="right")
    for (number, kilobytes, cameras, fps, metres, measured), modelled in _cells(rows).items():
        value = float(np.median(modelled))
        numbers = (f"{number:g}" for number in (number, kilobytes, cameras, fps, metres))
        table.add_row(*numbers, f"{measured:.1f}", f"{value:.1f}", f"{(value / measured - 1) * 100:+.0f} %")
    return table


def _plot(drawing: Figure, rows: Sequence[Row]) -> None:
    axes = drawing.subplots(1, 1)
    cells = _cells(rows)
    for fps, marker in ((5, "o"), (15, "s")):
        chosen = [(cell[5], float(np.median(values))) for cell, values in cells.items() if cell[3] == fps]
        measured, modelled = zip(*chosen, strict=True)
        axes.plot(measured, modelled, marker, label=f"{fps} frames per second")
    axes.axline((30, 30), slope=1, color="0.6", lw=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured latency, 95th percentile, milliseconds")
    axes.set_ylabel("modelled")
    axes.legend(frameon=False)


CHANNEL: Final = Experiment(
    name="channel",
    summary="the model of a Wi-Fi channel, compared with published measurements (Mez, tables 1 and 2)",
    needs="nothing",
    seconds_quick=30,
    seconds_full=120,
    run=_run,
    is_virtual=True,
)
