"""Measures the cost of a log on disk, and how fast it is recovered: the second half of `mez bench log`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from rich.table import Table

from mez_bench.children import mez
from mez_bench.experiment import Cell, Target
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, percentile, ratio_interval

FRAME_BYTES: Final = (3_000, 64_000, 500_000)
GATED_BYTES: Final = 500_000
PUBLISH_FPS: Final = 60.0
PUBLISH_CALLS: Final = 25
"""Calls of a turn: half a second, so that a pause or a busy minute of the machine affects all arms."""
BLOCK_TURNS: Final = 10
"""One turn of the slow disk is as long as this many turns, which together have a p99 of their own."""
PUBLISH_ARMS: Final = ("publish_off", "publish_on", "publish_slow")
TARGETS: Final = (
    Target("publish_p99_ratio_disk_on", "<=", 1.1),
    Target("publish_p99_ratio_slow_disk", "<=", 1.1),
    Target("recovery_s_per_gb", "<=", 1.0),
    Target("encryption_cpu_s_per_gb", "<=", 1.5),
    Target("disk_ratio_64kb", "<=", 1.01),
    Target("disk_ratio_3kb", "<=", 1.05),
)
NOTES: Final = (
    "publishing: turns of half a second with the disk off and on, of five seconds with the slow disk. The "
    "slow disk writes a tenth of the published bytes, so it misses frames, and the log reports that it is "
    "degraded",
    "recovery reads from the disk, or from the system's cache where the metric says cached; both include "
    "checksums, decryption and memory for all frames",
)


@dataclass(frozen=True, slots=True)
class Persistence:
    """The measurements of the log on disk."""

    parameters: dict[str, Cell | Sequence[Cell]]
    metrics: dict[str, Interval]
    rows: list[dict[str, Cell]]
    table: Table


def turns(run: Run) -> int:
    """Return how many turns a run has."""
    publishing = 2 * _publish_rounds(run) + _publish_rounds(run) // BLOCK_TURNS
    return publishing + _rounds(run) * 4 * len(FRAME_BYTES)


def measure(run: Run) -> Persistence:
    """Measure the log on disk, in the folder of the run's results."""
    rounds, publish_rounds = _rounds(run), _publish_rounds(run)
    turn_bytes = (64 << 20) if run.quick else (512 << 20)
    command = mez(
        "measure",
        "store",
        "--folder",
        f"{run.folder}",
        "--rounds",
        f"{rounds}",
        "--publish-rounds",
        f"{publish_rounds}",
        "--calls",
        f"{PUBLISH_CALLS}",
        "--fps",
        f"{PUBLISH_FPS}",
        "--publish-frame-bytes",
        f"{GATED_BYTES}",
        "--frame-bytes",
        ",".join(map(str, FRAME_BYTES)),
        "--turn-bytes",
        f"{turn_bytes}",
    )
    rows = list(_lines(run, command))
    return Persistence(
        parameters={
            "store_rounds": rounds,
            "store_publish_rounds": publish_rounds,
            "store_publish_calls_per_turn": PUBLISH_CALLS,
            "store_publish_fps": PUBLISH_FPS,
            "store_frame_bytes": list(FRAME_BYTES),
            "store_turn_bytes": turn_bytes,
        },
        metrics=_metrics(rows),
        rows=[_summary(row) for row in rows],
        table=_table(rows),
    )


def _rounds(run: Run) -> int:
    return 4 if run.quick else 20


def _publish_rounds(run: Run) -> int:
    return 20 if run.quick else 200


def _lines(run: Run, command: Sequence[str]) -> Iterator[dict[str, Any]]:
    child = run.children.start("measure store", command)
    while (line := child.line(seconds_max=120)) is not None:
        turn: dict[str, Any] = json.loads(line)
        run.step(f"{turn['arm']}, {turn['frame_bytes'] / 1000:g} kB")
        yield turn


def _summary(row: Mapping[str, Any]) -> dict[str, Cell]:
    """Return a turn without the times of its calls."""
    cells = {name: value for name, value in row.items() if name != "calls_ns"}
    if "calls_ns" in row:
        cells |= {"calls": len(row["calls_ns"]), "p99_ns": float(np.percentile(row["calls_ns"], 99))}
    return cells


def _of(rows: Sequence[Mapping[str, Any]], arm: str, **only: bool | int) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["arm"] == arm and all(row[key] == only[key] for key in only)]


def _calls(rows: Sequence[Mapping[str, Any]], arm: str) -> list[Values]:
    """Return microseconds, in blocks of as many calls as a turn of the slow disk has."""
    every = np.concatenate([np.array(row["calls_ns"], dtype=np.float64) for row in _of(rows, arm)]) / 1e3
    return np.split(every, len(every) // (BLOCK_TURNS * PUBLISH_CALLS))


def _by_block(calls: Sequence[Values]) -> list[Values]:
    return [np.array([np.percentile(values, 99)]) for values in calls]


def _per_gb(rows: Sequence[Mapping[str, Any]], key: str) -> list[Values]:
    # Nanoseconds per byte are seconds per gigabyte.
    return [np.array([row[key] / row["payload_bytes"]]) for row in rows]


def _metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    off, on, slow = (_calls(rows, arm) for arm in PUBLISH_ARMS)
    p99 = percentile(99)
    metrics = {
        "publish_p99_ratio_disk_on": ratio_interval(on, off, p99),
        "publish_p99_ratio_slow_disk": ratio_interval(slow, off, p99),
        # A pause of the machine raises the figures above of one arm. Here each block of 250 calls counts
        # once.
        "publish_p99_ratio_disk_on_by_block": ratio_interval(_by_block(on), _by_block(off), median),
        "publish_p99_ratio_slow_disk_by_block": ratio_interval(_by_block(slow), _by_block(off), median),
        "publish_us_p99_disk_off": interval(off, p99),
        "publish_us_p99_disk_on": interval(on, p99),
        "publish_us_p99_slow_disk": interval(slow, p99),
        "publish_us_p50_disk_off": interval(off, median),
        "publish_us_p50_disk_on": interval(on, median),
        "slow_disk_frames_lost": Interval.exactly(sum(row["lost"] for row in _of(rows, "publish_slow"))),
    }
    for size in sorted(FRAME_BYTES, key=lambda size: size != GATED_BYTES):
        suffix = "" if size == GATED_BYTES else f"_{size // 1000}kb"
        cold = _of(rows, "recover", frame_bytes=size, cached=False)
        warm = _of(rows, "recover", frame_bytes=size, cached=True)
        write = _of(rows, "write", frame_bytes=size)
        metrics |= {
            f"recovery_s_per_gb{suffix}": interval(_per_gb(cold, "ns"), median),
            f"recovery_s_per_gb_cached{suffix}": interval(_per_gb(warm, "ns"), median),
            f"encryption_cpu_s_per_gb{suffix}": interval(
                _per_gb(_of(rows, "seal", frame_bytes=size), "cpu_ns"), median
            ),
            f"writer_cpu_s_per_gb{suffix}": interval(_per_gb(write, "cpu_ns"), median),
            f"disk_ratio_{size // 1000}kb": interval(_per_gb(write, "disk_bytes"), median),
        }
    return metrics


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("log on disk, s per GB")
    for size in FRAME_BYTES:
        table.add_column(f"{size / 1000:g} kB", justify="right")
    cells: list[tuple[str, str, str, dict[str, bool]]] = [
        ("seal, processor", "seal", "cpu_ns", {}),
        ("write, processor", "write", "cpu_ns", {}),
        ("recover from disk", "recover", "ns", {"cached": False}),
        ("recover from cache", "recover", "ns", {"cached": True}),
    ]
    for name, arm, key, only in cells:
        values = [_per_gb(_of(rows, arm, frame_bytes=size, **only), key) for size in FRAME_BYTES]
        table.add_row(name, *(figure(median(np.concatenate(value))) for value in values))
    return table
