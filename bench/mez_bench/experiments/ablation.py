"""Measures what each mechanism of the policy is worth: switches them off one at a time, in virtual time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from rich.table import Table

from mez_bench.children import mez
from mez_bench.experiment import Experiment, Outcome
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval

FIRST_SEED: Final = 1_000_001
"""The constants of the policy were tuned on other seeds."""
CLASSES: Final = ("calm", "mixed", "harsh")
LINKS: Final = (*CLASSES, "step_60_12", "outages", "cellular", "walking_away", "elevator")
WIFI: Final = ("wifi_cameras", "wifi_hidden", "wifi_oven", "wifi_roaming")
NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Group:
    """Links whose figures form one column."""

    name: str
    links: Sequence[str]
    traffic: str = "stills"
    delay_ms: int = 3
    seeds: int = 10
    seconds: int = 60


GROUPS: Final = (
    Group("reference", CLASSES),
    Group("other", LINKS[3:]),
    Group("wifi", WIFI),
    Group("far_20ms", CLASSES, delay_ms=20),
    Group("far_70ms", CLASSES, delay_ms=70),
    Group("video", ("mixed", "harsh", "cellular", "walking_away"), "video"),
    Group("small_stills", ("mixed", "walking_away"), "small_stills"),
    Group("five_cameras", ("mixed",), "five_cameras", seeds=5),
)

Figures = dict[tuple[str, str], dict[int, list[float]]]
"""By group and mechanism: for each seed, the utilities on the links of the group."""


def _run(run: Run) -> Outcome:
    groups = [_quick(group) for group in GROUPS] if run.quick else list(GROUPS)
    # A step is a seed of a group.
    run.expect(sum(group.seeds for group in groups))
    figures: Figures = defaultdict(lambda: defaultdict(list))
    for group in groups:
        _collect(run, group, figures)
    mechanisms = list(dict.fromkeys(mechanism for _, mechanism in figures))
    metrics = {
        f"{mechanism}_{group.name}": difference(figures, group.name, mechanism)
        for group in groups
        for mechanism in mechanisms
        if mechanism != NOTHING
    }
    return Outcome(
        parameters={
            "first_seed": FIRST_SEED,
            "groups": [
                f"{group.name}: {'+'.join(group.links)}, {group.traffic}, {group.seeds} seeds of "
                f"{group.seconds} s, delay {group.delay_ms} ms"
                for group in groups
            ],
            "frames_per_second": 15,
            "latency_bound_ms": 100,
        },
        metrics=metrics,
        rows=[
            {
                "group": group,
                "off": mechanism,
                "seeds": len(by_seed),
                "utility": float(np.mean([utility for values in by_seed.values() for utility in values])),
            }
            for (group, mechanism), by_seed in figures.items()
        ],
        tables=[table(figures, groups, mechanisms)],
        notes=[
            "utility: the accuracy of frames that arrived in time, summed over all slots and divided by "
            "the number of slots",
            "a figure is the utility without the mechanism minus the utility with all mechanisms, on the "
            "same links and frames (in thousandths in the table): below 0, the mechanism helps. Seeds are "
            "paired; intervals are 95 %",
        ],
    )


def _quick(group: Group) -> Group:
    return Group(group.name, group.links[:2], group.traffic, group.delay_ms, seeds=3, seconds=20)


def _collect(run: Run, group: Group, figures: Figures) -> None:
    command = mez(
        *("measure", "ablation", "--links", ",".join(group.links), "--traffic", group.traffic),
        *("--seeds", f"{group.seeds}", "--first-seed", f"{FIRST_SEED}", "--seconds", f"{group.seconds}"),
        *("--delay-ms", f"{group.delay_ms}"),
    )
    for line in _lines(run, command):
        by_seed = figures[group.name, line["off"]]
        if line["off"] == NOTHING and line["seed"] not in by_seed:
            run.step(f"{group.name}, seed {line['seed']}")
        by_seed[line["seed"]].append(line["utility"])


def _lines(run: Run, command: Sequence[str]) -> Iterator[dict[str, Any]]:
    child = run.children.start("measure ablation", command)
    while (line := child.line(seconds_max=300)) is not None:
        yield json.loads(line)


def difference(figures: Figures, group: str, mechanism: str) -> Interval:
    """Return the utility without a mechanism minus the utility with all, over the links of a seed."""
    without, whole = figures[group, mechanism], figures[group, NOTHING]
    per_seed: list[Values] = [np.array(without[seed]) - np.array(whole[seed]) for seed in whole]
    return interval(per_seed, lambda values: float(np.mean(values)))


def table(figures: Figures, groups: Sequence[Group], mechanisms: Sequence[str]) -> Table:
    """Return the differences in thousandths. Those whose interval excludes 0 are bold."""
    shown = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    shown.add_column("without (thousandths of utility)")
    for group in groups:
        shown.add_column(group.name, justify="right")
    whole = [np.mean(np.concatenate(list(figures[group.name, NOTHING].values()))) for group in groups]
    shown.add_row("[dim]utility with all mechanisms", *(f"{utility:.3f}" for utility in whole))
    for mechanism in mechanisms:
        if mechanism != NOTHING:
            cells = (difference(figures, group.name, mechanism) for group in groups)
            shown.add_row(mechanism, *(_cell(cell) for cell in cells))
    return shown


def _cell(cell: Interval) -> str:
    text = f"{cell.median * 1e3:+.1f} ({cell.low * 1e3:+.1f} to {cell.high * 1e3:+.1f})"
    return text if cell.low <= 0 <= cell.high else f"[bold]{text}"


ABLATION: Final = Experiment(
    name="ablation",
    summary="the policy with its mechanisms switched off, one at a time",
    needs="nothing",
    seconds_quick=20,
    seconds_full=420,
    run=_run,
    is_virtual=True,
)
