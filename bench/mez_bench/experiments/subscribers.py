"""Measures the cost of more subscribers of a camera: latency, bytes on the link, processor time, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez_bench.arms import in_turn
from mez_bench.bursts import Burst, Driver, System
from mez_bench.children import Child, mez
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.payload import write_jpeg
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, percentile, ratio_interval
from mez_bench.systems.mez import Brokers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAME_BYTES: Final = 100_000
FPS: Final = 15
LINK_BITS_PER_SECOND: Final = 100_000_000
QUEUE_BYTES_MAX: Final = 1 << 20
COUNTS: Final = (1, 32)
FIRST_FRAMES: Final = 5

LOG_BYTES: Final = 8 << 20
"""Log of each broker: full within the first seconds, so that later growth of memory is due to subscribers."""

LOCAL: Final = "local"
REMOTE: Final = "grpc"
"""`LOCAL`: through the edge's socket. `REMOTE`: through gRPC over TLS, like a program on another host."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One burst to this many subscriptions.

    Attributes:
        burst: The result of the burst.
        link_bytes_per_frame: Bytes per frame on the link towards the edge, headers included.
        rss_mb: Resident memory afterwards, by process.
    """

    burst: Burst
    link_bytes_per_frame: float
    rss_mb: dict[str, float]


Arm = tuple[str, int]
Turns = dict[Arm, list[Turn]]


def _run(run: Run) -> Outcome:
    frames, rounds = (30, 4) if run.quick else (100, 10)
    run.step("starting", done=0)
    brokers = Brokers(run, LOG_BYTES)
    link = run.children.start(
        "link",
        mez(
            *("measure", "link", "--to", brokers.link_address),
            *("--bits-per-second", f"{LINK_BITS_PER_SECOND}", "--queue-bytes-max", f"{QUEUE_BYTES_MAX}"),
        ),
    )
    camera = brokers.dial(link.ready())
    publisher = brokers.publisher()
    subscribers = {
        LOCAL: brokers.subscriber(name="local subscriber"),
        REMOTE: brokers.subscriber(
            *("--edge", brokers.grpc_address, "--keys", str(brokers.keys), "--connections"),
            name="grpc subscriber",
        ),
    }
    systems = {
        way: System(f"mez, {way}", publisher, subscriber, {"camera": camera, "edge": brokers.edge})
        for way, subscriber in subscribers.items()
    }
    payload = write_jpeg(run.folder, FRAME_BYTES)
    driver = Driver()
    arms = [(way, count) for way in systems for count in COUNTS]
    for way, system in systems.items():
        driver.subscriptions(system, 1)
        driver.warm(system, payload)
        driver.subscriptions(system, 0)
        run.step(f"warmed {way} up", done=0)

    run.expect(rounds * len(arms))
    turns: Turns = {arm: [] for arm in arms}
    for turn in range(rounds):
        for way, count in in_turn(arms, turn):
            run.step(f"{way}, {count} subscriptions", done=0)
            system = systems[way]
            driver.subscriptions(system, count)
            before = _passed(link)
            burst = driver.burst(system, payload, 1 / FPS, frames, FIRST_FRAMES, count)
            passed = _passed(link) - before
            rss_mb = {name: child.memory()[0] for name, child in system.processes.items()}
            turns[way, count].append(Turn(burst, passed / (frames + FIRST_FRAMES), rss_mb))
            driver.subscriptions(system, 0)
            run.step(f"{way}, {count} subscriptions", done=1)
    dropped = int(link.ask("")["up"]["dropped"])
    outcome = _outcome(turns)
    outcome.parameters = {
        "frame_bytes": FRAME_BYTES,
        "fps": FPS,
        "link_bits_per_second": LINK_BITS_PER_SECOND,
        "link_queue_bytes_max": QUEUE_BYTES_MAX,
        "link_datagrams_dropped": dropped,
        "rounds": rounds,
        "frames_per_round": frames,
        "first_frames_not_counted": FIRST_FRAMES,
        "log_bytes": LOG_BYTES,
        "local": "one process, one connection to the edge's Unix socket for each subscription",
        "grpc": "one process, one TLS connection for each subscription, on the same machine",
    }
    return outcome


def _passed(link: Child) -> int:
    return int(link.ask("")["up"]["bytes"])


def _outcome(turns: Turns) -> Outcome:
    one, many = COUNTS
    outcome = Outcome(rows=[_row(arm, of_arm) for arm, of_arm in turns.items()])
    metrics = outcome.metrics
    for way in (LOCAL, REMOTE):
        few, lots = turns[way, one], turns[way, many]
        prefix = "" if way == LOCAL else f"{way}_"
        metrics[f"{prefix}p95_ratio_{many}_to_{one}"] = ratio_interval(
            _latencies(lots), _latencies(few), percentile(95)
        )
        bytes_few, bytes_lots = ([np.array([t.link_bytes_per_frame]) for t in of] for of in (few, lots))
        metrics[f"{prefix}link_bytes_ratio_{many}_to_{one}"] = ratio_interval(bytes_lots, bytes_few, median)
        for count, of_count in ((one, few), (many, lots)):
            metrics[f"{prefix}ms_p50_{count}"] = interval(_latencies(of_count), percentile(50))
            metrics[f"{prefix}ms_p95_{count}"] = interval(_latencies(of_count), percentile(95))
        for process in ("edge", "subscriber"):
            cpu: list[Values] = [
                np.array([(_cpu(lot, process) - _cpu(first, process)) / (many - one)])
                for lot, first in zip(lots, few, strict=True)
            ]
            metrics[f"{prefix}{process}_cpu_ms_per_frame_per_subscriber"] = interval(cpu, median)
            # Of the first round: in later rounds, freed memory is reused.
            growth_mb = (lots[0].rss_mb[process] - few[0].rss_mb[process]) / (many - one)
            metrics[f"{prefix}{process}_rss_mb_per_subscriber"] = Interval.exactly(growth_mb)
    delivered = [turn.burst for of_arm in turns.values() for turn in of_arm]
    metrics["deliveries_lost"] = Interval.exactly(sum(burst.lost for burst in delivered))
    metrics["deliveries_corrupt"] = Interval.exactly(sum(burst.corrupt for burst in delivered))
    outcome.targets = [
        Target(f"p95_ratio_{many}_to_{one}", "<=", 1.2),
        Target(f"link_bytes_ratio_{many}_to_{one}", "<=", 1.02),
        Target("deliveries_corrupt", "==", 0),
    ]
    outcome.tables = [_table(outcome.rows)]
    outcome.plot = lambda drawing: _plot(drawing, turns)
    return outcome


def _latencies(turns: Sequence[Turn]) -> list[Values]:
    return [turn.burst.received_ms for turn in turns]


def _cpu(turn: Turn, process: str) -> float:
    return turn.burst.cpu_ms_per_frame[process]


def _row(arm: Arm, turns: Sequence[Turn]) -> dict[str, Cell]:
    way, count = arm
    latencies = np.concatenate(_latencies(turns))
    if not len(latencies):
        raise ExperimentError(f"{count} subscriptions ({way}) received no frame")
    row: dict[str, Cell] = {
        "way": way,
        "subscriptions": count,
        "deliveries": sum(turn.burst.latency_ms.size for turn in turns),
        "deliveries_lost": sum(turn.burst.lost for turn in turns),
        "link_bytes_per_frame": float(np.median([turn.link_bytes_per_frame for turn in turns])),
        "publisher_late_ms_p50": float(np.median(np.concatenate([turn.burst.late_ms for turn in turns]))),
    }
    for percent in (50, 95, 99):
        row[f"latency_ms_p{percent}"] = float(np.percentile(latencies, percent))
    row["latency_ms_max"] = float(latencies.max())
    for process in turns[0].rss_mb:
        row[f"{process}_cpu_ms_per_frame"] = float(np.median([_cpu(turn, process) for turn in turns]))
        row[f"{process}_rss_mb"] = float(np.median([turn.rss_mb[process] for turn in turns]))
    return row


def _table(rows: Sequence[dict[str, Cell]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("way")
    columns = {
        "subs": "subscriptions",
        "p50 ms": "latency_ms_p50",
        "p95 ms": "latency_ms_p95",
        "max ms": "latency_ms_max",
        "lost": "deliveries_lost",
        "link kB/frame": "link_bytes_per_frame",
        "edge CPU ms": "edge_cpu_ms_per_frame",
        "edge MB": "edge_rss_mb",
        "sub CPU ms": "subscriber_cpu_ms_per_frame",
        "sub MB": "subscriber_rss_mb",
    }
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        cells = []
        for column in columns.values():
            value = row[column]
            assert isinstance(value, (int, float)), "a column of numbers"
            cells.append(figure(value / 1000 if column == "link_bytes_per_frame" else value))
        table.add_row(str(row["way"]), *cells)
    return table


def _plot(drawing: Figure, turns: Turns) -> None:
    axes = drawing.subplots()
    for (way, count), of_arm in turns.items():
        latencies = np.sort(np.concatenate(_latencies(of_arm)))
        share = np.arange(1, len(latencies) + 1) / len(latencies)
        axes.plot(latencies, share, label=f"{way}, {count}")
    axes.set_xlabel("latency, ms")
    axes.set_ylabel("share of deliveries")
    axes.set_ylim(0, 1.01)
    axes.set_xlim(left=0)
    title = (
        f"{FRAME_BYTES / 1000:g} kB at {FPS} fps over {LINK_BITS_PER_SECOND / 1e6:g} Mbit/s, by subscriptions"
    )
    axes.set_title(title)
    axes.legend(frameon=False)


SUBSCRIBERS: Final = Experiment(
    name="subscribers",
    summary="1 and 32 subscriptions to one camera over a link of 100 Mbit/s",
    needs="nothing",
    seconds_quick=50,
    seconds_full=330,
    run=_run,
)
