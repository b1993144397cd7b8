"""Counts livelocks of the policy: slow phases of a link with almost no frame on time, in virtual time."""

import json
from typing import Final

from mez_bench.children import mez
from mez_bench.experiment import Outcome, Target
from mez_bench.run import Run
from mez_bench.stats import Interval

SEEDS: Final = 300
SEEDS_QUICK: Final = 20


def livelocks(run: Run, outcome: Outcome) -> None:
    """Play a minute of 50 and 5 Mbit/s in turn with each seed; count the slow phases without frames."""
    seeds = SEEDS_QUICK if run.quick else SEEDS
    child = run.children.start("measure livelocks", mez("measure", "livelocks", "--seeds", f"{seeds}"))
    rows = []
    while (line := child.line(seconds_max=120)) is not None:
        rows.append(json.loads(line))
    run.step("livelocks")
    locked = [row for row in rows if row["locked_phases"]]
    outcome.metrics["livelocks"] = Interval.exactly(sum(row["locked_phases"] for row in locked))
    outcome.targets.append(Target("livelocks", "==", 0))
    outcome.rows += [{"scenario": "livelocks", **row} for row in locked]
    outcome.notes.append(
        f"livelocks: slow phases of a square wave in which less than a tenth of the frames were on time; "
        f"{seeds} seeds of a minute each, in virtual time"
    )
