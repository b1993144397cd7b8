"""Measures whether brokers keep to their budgets at full load, beside applications that do not read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez_bench.bursts import Driver, System
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.payload import write_jpeg
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stalled import LOCAL_STOPPED, WAYS, Stalled
from mez_bench.stats import Interval
from mez_bench.systems.mez import Brokers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

LOG_BYTES: Final = 128 << 20
"""The budget of each broker: full within seconds."""

FRAME_BYTES: Final = (1_000_000, 700_000, 1_300_000)
"""Sizes of frames, in turn, so that memory of evicted frames does not always fit a new one."""

FPS: Final = 30
ARMS: Final = {"": {LOCAL_STOPPED: 4}, "_beside_100": dict.fromkeys(WAYS, 25)}
"""Subscriptions that stop reading, by way: a few that a debugger stopped, and a hundred in all ways."""

ABOVE_BUDGET_MB_MAX: Final = 64.0

Samples = dict[str, list[tuple[float, float]]]
"""Seconds since the beginning and resident megabytes, by broker."""


def _run(run: Run) -> Outcome:
    outcome = Outcome()
    seconds = 22 if run.quick else 300
    run.step("starting", done=0)
    run.expect(2 * seconds)
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("stalled", "broker", "budget MB", "RSS MB, median", "max", "above the budget", "lost"):
        table.add_column(column, justify="left" if column == "broker" else "right")
    arms: dict[str, Samples] = {}
    for arm, stalled in ARMS.items():
        with run.apart():
            arms[arm] = _arm(run, outcome, table, seconds, arm, stalled)
    outcome.parameters |= {
        "log_bytes": LOG_BYTES,
        "frame_bytes": list(FRAME_BYTES),
        "fps": FPS,
        "seconds": seconds,
        "stalled_subscriptions": [sum(ways.values()) for ways in ARMS.values()],
        "stalled_ways": list(WAYS),
    }
    outcome.tables = [table]
    outcome.plot = lambda drawing: _plot(drawing, arms)
    return outcome


def _arm(
    run: Run, outcome: Outcome, table: Table, seconds: int, arm: str, ways: Mapping[str, int]
) -> Samples:
    """Measure with these stalled subscriptions, and add the figures to the outcome."""
    brokers = Brokers(run, LOG_BYTES)
    camera = brokers.dial(brokers.link_address)
    system = System(
        name="mez",
        publisher=brokers.publisher(),
        subscriber=brokers.subscriber(),
        brokers={"camera": camera, "edge": brokers.edge},
    )
    payloads = []
    for size in FRAME_BYTES:
        (run.folder / f"{size}").mkdir()
        payloads.append(write_jpeg(run.folder / f"{size}", size))
    driver = Driver()
    driver.subscriptions(system, 1)
    driver.warm(system, payloads[0])
    samples: Samples = {name: [] for name in system.brokers}
    lost = frames = 0
    count = sum(ways.values())
    with Stalled(brokers, ways) as stalled:
        begin, turn, stopped = time.monotonic(), 0, False
        while (now := time.monotonic() - begin) < seconds:
            # They read at first, so that they hold frames when they stop.
            if not stopped and now > min(5.0, seconds / 6):
                stopped = True
                stalled.stop()
            burst = driver.burst(system, payloads[turn % len(payloads)], 1 / FPS, FPS * 2, 0)
            turn += 1
            # While a hundred still read at full load, all processors are busy, so losses do not count.
            if stopped:
                lost += burst.lost
                frames += burst.latency_ms.size
            for name, child in system.brokers.items():
                samples[name].append((time.monotonic() - begin, child.memory()[0]))
            run.step(
                f"{count} stalled: {lost} of {frames} frames lost", done=round(time.monotonic() - begin - now)
            )
    budget_mb = LOG_BYTES / 1e6
    for name, child in system.brokers.items():
        most = child.memory()[1]
        median = float(np.median([mb for _, mb in samples[name]]))
        outcome.metrics[f"{name}_rss_mb_max{arm}"] = Interval.exactly(most)
        outcome.metrics[f"{name}_rss_above_budget_mb_max{arm}"] = Interval.exactly(most - budget_mb)
        outcome.targets.append(Target(f"{name}_rss_above_budget_mb_max{arm}", "<=", ABOVE_BUDGET_MB_MAX))
        table.add_row(f"{count}", name, *map(figure, (budget_mb, median, most, most - budget_mb)), f"{lost}")
        outcome.rows += [
            {"stalled": count, "broker": name, "seconds": at, "rss_mb": mb} for at, mb in samples[name]
        ]
    outcome.metrics[f"frames_lost{arm}"] = Interval.exactly(lost)
    outcome.metrics[f"frames{arm}"] = Interval.exactly(frames)
    outcome.targets.append(Target(f"frames_lost{arm}", "==", 0))
    return samples


def _plot(drawing: Figure, arms: dict[str, Samples]) -> None:
    budget_mb = LOG_BYTES / 1e6
    axes = drawing.subplots()
    for arm, samples in arms.items():
        for name, of_broker in samples.items():
            label = name + arm.replace("_", " ")
            axes.plot([at for at, _ in of_broker], [mb for _, mb in of_broker], label=label)
    axes.axhline(budget_mb, color="black", linewidth=0.8, label="budget of the log")
    axes.axhline(budget_mb + ABOVE_BUDGET_MB_MAX, color="black", linewidth=0.8, linestyle=":", label="target")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("resident memory, MB")
    axes.legend(frameon=False)


MEMORY: Final = Experiment(
    name="memory",
    summary="resident memory of both brokers at full load, with applications that have stopped reading",
    needs="nothing but the build",
    seconds_quick=60,
    seconds_full=630,
    run=_run,
)
