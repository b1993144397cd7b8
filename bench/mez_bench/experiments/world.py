"""Runs scenario files in the deterministic world, and measures how fast virtual time passes."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, Final

import numpy as np
from rich.table import Table

from mez_bench.children import mez
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.run import ROOT, Run
from mez_bench.stats import Interval, interval, median

SCENARIOS: Final = ROOT / "crates" / "testbed" / "scenarios"
SEEDS: Final = 20
SEEDS_QUICK: Final = 3
FIRST_SEED: Final = 1_000_001
"""The expectations of the scenarios were written with other seeds."""
SPEED_S: Final = 120
SPEED_REPEATS: Final = 10
SPEED_REPEATS_QUICK: Final = 3


def _run(run: Run) -> Outcome:
    paths = sorted(SCENARIOS.glob("*.toml"))
    seeds = SEEDS_QUICK if run.quick else SEEDS
    repeats = SPEED_REPEATS_QUICK if run.quick else SPEED_REPEATS
    run.expect(len(paths) + repeats)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in paths:
        command = ("--scenario", f"{path}", "--seed", f"{FIRST_SEED}", "--seeds", f"{seeds}")
        rows[path.stem] = _lines(run, *command)
        run.step(path.stem)
    speeds = []
    for _ in range(repeats):
        speeds.extend(_lines(run, "--speed", f"{SPEED_S}"))
        run.step("speed")
    runs = [row for of_one in rows.values() for row in of_one]
    return Outcome(
        parameters={"first_seed": FIRST_SEED, "seeds": seeds, "scenarios": [path.stem for path in paths]},
        metrics={
            "scenario_runs": Interval.exactly(len(runs)),
            "expectations_missed": Interval.exactly(sum(row["missed"] for row in runs)),
            "times_real_time_five_cameras": interval(
                [np.array([row["times_real_time"]]) for row in speeds], median
            ),
        },
        rows=[{key: value for key, value in row.items() if key != "kind"} for row in runs],
        targets=[
            Target("expectations_missed", "<=", 0),
            Target("times_real_time_five_cameras", ">=", 200),
        ],
        tables=[_table(rows)],
        notes=[
            "every rule of crates/testbed/src/check is checked on every event; a violation ends the "
            "experiment and reports the seed",
            "times_real_time: virtual time divided by real time, for five cameras with 15 frames per second "
            "and one application, on one thread",
        ],
    )


def _lines(run: Run, *words: str) -> list[dict[str, Any]]:
    child = run.children.start("measure world", mez("measure", "world", *words))
    rows = []
    while (line := child.line(seconds_max=120)) is not None:
        rows.append(json.loads(line))
    return rows


def _table(rows: dict[str, list[dict[str, Any]]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("scenario", no_wrap=True)
    for column in ("runs", "virtual s", "frames", "expectations", "missed"):
        table.add_column(column, justify="right")
    for name, of_one in rows.items():
        table.add_row(
            name,
            f"{len(of_one)}",
            f"{sum(row['virtual_s'] for row in of_one):.0f}",
            f"{sum(row['frames'] for row in of_one)}",
            f"{of_one[0]['expectations']}" if of_one else "",
            f"{sum(row['missed'] for row in of_one)}",
        )
    return table


WORLD: Final = Experiment(
    name="world",
    summary="the shipped scenarios in the deterministic world, and its speed",
    needs="nothing",
    seconds_quick=15,
    seconds_full=90,
    run=_run,
    is_virtual=True,
)
