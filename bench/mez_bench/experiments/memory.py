"""Whether brokers keep to their budgets at full load, beside applications that have stopped reading."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez_bench.bursts import Driver, System
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.payload import write_jpeg
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval
from mez_bench.systems.mez import Brokers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOG_BYTES: Final = 128 << 20
"""The budget of each broker: full within seconds."""

FRAME_BYTES: Final = (1_000_000, 700_000, 1_300_000)
"""In turn, so that evicted memory does not always fit."""

FPS: Final = 30
STALLED: Final = 2
"""Applications that are stopped in the middle of everything, as by a debugger.."""

ABOVE_BUDGET_MB_MAX: Final = 64.0


def _run(run: Run) -> Outcome:
    seconds = 30 if run.quick else 600
    run.step("starting", done=0)
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
    stalled = [brokers.subscriber(name=f"stalled {number}") for number in range(STALLED)]
    for child in stalled:
        child.ask("subscriptions 2")
    outcome = Outcome()
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in system.brokers}
    lost = frames = 0
    begin, turn = time.monotonic(), 0
    run.expect(seconds)
    stopped = False
    try:
        while (now := time.monotonic() - begin) < seconds:
            # They read at first, so that they hold something when they stop.
            if not stopped and now > min(5.0, seconds / 6):
                stopped = True
                for child in stalled:
                    os.kill(child.pid, signal.SIGSTOP)
            burst = driver.burst(system, payloads[turn % len(payloads)], 1 / FPS, FPS * 2, 0)
            turn += 1
            lost += burst.lost
            frames += burst.latency_ms.size
            for name, child in system.brokers.items():
                samples[name].append((time.monotonic() - begin, child.memory()[0]))
            run.step(f"{lost} of {frames} frames lost", done=round(time.monotonic() - begin - now))
    finally:
        for child in stalled:
            os.kill(child.pid, signal.SIGCONT)
    budget_mb = LOG_BYTES / 1e6
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("broker", "budget MB", "RSS MB, median", "most", "above the budget"):
        table.add_column(column, justify="left" if column == "broker" else "right")
    for name, child in system.brokers.items():
        most = child.memory()[1]
        median = float(np.median([mb for _, mb in samples[name]]))
        outcome.metrics[f"{name}_rss_mb_max"] = Interval.exactly(most)
        outcome.metrics[f"{name}_rss_above_budget_mb_max"] = Interval.exactly(most - budget_mb)
        table.add_row(name, *map(figure, (budget_mb, median, most, most - budget_mb)))
        outcome.rows += [{"broker": name, "seconds": at, "rss_mb": mb} for at, mb in samples[name]]
    outcome.metrics["frames_lost"] = Interval.exactly(lost)
    outcome.targets = [
        *(Target(f"{name}_rss_above_budget_mb_max", "<=", ABOVE_BUDGET_MB_MAX) for name in system.brokers),
        Target("frames_lost", "==", 0),
    ]
    outcome.parameters |= {
        "log_bytes": LOG_BYTES,
        "frame_bytes": list(FRAME_BYTES),
        "fps": FPS,
        "seconds": seconds,
        "stalled_applications": STALLED,
        "frames": frames,
    }
    outcome.tables = [table]
    outcome.plot = lambda drawing: _plot(drawing, samples, budget_mb)
    return outcome


def _plot(drawing: Figure, samples: dict[str, list[tuple[float, float]]], budget_mb: float) -> None:
    axes = drawing.subplots()
    for name, of_broker in samples.items():
        axes.plot([at for at, _ in of_broker], [mb for _, mb in of_broker], label=name)
    axes.axhline(budget_mb, color="black", linewidth=0.8, label="budget of the log")
    axes.axhline(budget_mb + ABOVE_BUDGET_MB_MAX, color="black", linewidth=0.8, linestyle=":", label="target")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("resident memory, MB")
    axes.legend(frameon=False)


MEMORY: Final = Experiment(
    name="memory",
    summary="resident memory of both brokers at full load, beside applications that have stopped reading",
    needs="nothing but the build",
    seconds_quick=40,
    seconds_full=620,
    run=_run,
)
