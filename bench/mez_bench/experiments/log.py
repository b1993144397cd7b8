"""Measures the cost of the log: in memory, compared with plain copies of a program, and on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

from mez_bench.children import mez
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.experiments import store
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, ratio_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAME_BYTES: Final = (3_000, 100_000, 500_000)
GATED_BYTES: Final = 500_000
LOG_BYTES: Final = 256 << 20
READERS: Final = (1, 64)
WRITER_FPS: Final = 15.0
ARMS: Final = (
    "append",
    "copy_ring",
    "copy_new",
    "append_owned",
    "read",
    "read_plain",
    "get",
    "next",
    "at",
    "between",
)


@dataclass(frozen=True, slots=True)
class Turns:
    """Nanoseconds of processor time per operation, by arm, size and readers: for each start, its turns."""

    by_arm: Mapping[tuple[str, int, int], list[Values]]
    rows: list[dict[str, Any]]

    def of(self, arm: str, frame_bytes: int, readers: int = 0) -> list[Values]:
        """Return an arm's turns, start by start and in order."""
        return self.by_arm[arm, frame_bytes, readers]


def _run(run: Run) -> Outcome:
    starts, rounds = (3, 2) if run.quick else (5, 4)
    turn_bytes, writer_seconds = (96 << 20, 2.0) if run.quick else (256 << 20, 5.0)
    command = mez(
        "measure",
        "log",
        "--memory-bytes",
        f"{LOG_BYTES}",
        "--frame-bytes",
        ",".join(map(str, FRAME_BYTES)),
        "--rounds",
        f"{rounds}",
        "--turn-bytes",
        f"{turn_bytes}",
        "--readers",
        ",".join(map(str, READERS)),
        "--writer-fps",
        f"{WRITER_FPS}",
        "--writer-seconds",
        f"{writer_seconds}",
        "--writer-frame-bytes",
        f"{GATED_BYTES}",
    )
    run.expect(starts * rounds * (len(FRAME_BYTES) * len(ARMS) + len(READERS)) + store.turns(run))
    turns = _turns([list(_lines(run, command)) for _ in range(starts)])
    persistence = store.measure(run)
    outcome = Outcome(
        parameters={
            "log_bytes": LOG_BYTES,
            "frame_bytes": list(FRAME_BYTES),
            "starts": starts,
            "rounds_a_start": rounds,
            "turn_bytes": turn_bytes,
            "writer_fps": WRITER_FPS,
            "writer_seconds_per_turn": writer_seconds,
            "writer_frame_bytes": GATED_BYTES,
            "time": "processor time of the thread",
            **persistence.parameters,
        },
        metrics=_metrics(turns) | persistence.metrics,
        rows=turns.rows + persistence.rows,
        targets=[
            Target("append_ratio_memcpy", ">=", 0.8),
            Target("read_ratio_memcpy", ">=", 0.8),
            Target("writer_cpu_ratio_64_readers", "<=", 1.2),
            *store.TARGETS,
        ],
        tables=[_table(turns), persistence.table],
        notes=[
            "times are processor time of the working thread: no arm waits, and other work of the machine "
            "does not count",
            "every start of the program gets other memory. Its layout makes an arm faster by up to a quarter "
            "for the whole start, so the intervals resample starts",
            "append_ratio_memcpy compares, round by round, with the faster of copy_ring (into existing "
            "buffers, as many as the log holds frames) and copy_new (into a new vector in a bounded queue)",
            *store.NOTES,
        ],
    )
    outcome.plot = lambda drawing: _plot(drawing, turns)
    return outcome


def _lines(run: Run, command: Sequence[str]) -> Iterator[dict[str, Any]]:
    child = run.children.start("measure log", command)
    # A log of small frames takes a while to fill.
    while (line := child.line(seconds_max=120)) is not None:
        turn: dict[str, Any] = json.loads(line)
        run.step(f"{turn['arm']}, {turn['frame_bytes'] / 1000:g} kB")
        yield turn


def _turns(starts: Sequence[Sequence[dict[str, Any]]]) -> Turns:
    by_arm: dict[tuple[str, int, int], list[Values]] = {}
    for lines in starts:
        of_start: dict[tuple[str, int, int], list[float]] = {}
        for turn in lines:
            key = (str(turn["arm"]), int(turn["frame_bytes"]), int(turn.get("readers", 0)))
            of_start.setdefault(key, []).append(turn["cpu_ns"] / turn["operations"])
        for key, values in of_start.items():
            by_arm.setdefault(key, []).append(np.array(values))
    return Turns(by_arm, [turn | {"start": start} for start, lines in enumerate(starts) for turn in lines])


def _metrics(turns: Turns) -> dict[str, Interval]:
    metrics: dict[str, Interval] = {}
    for frame_bytes in sorted(FRAME_BYTES, key=lambda size: size != GATED_BYTES):
        suffix = "" if frame_bytes == GATED_BYTES else f"_{frame_bytes // 1000}kb"
        append = turns.of("append", frame_bytes)
        ring, new = turns.of("copy_ring", frame_bytes), turns.of("copy_new", frame_bytes)
        faster = [np.minimum(a, b) for a, b in zip(ring, new, strict=True)]
        metrics[f"append_ratio_memcpy{suffix}"] = ratio_interval(faster, append, median)
        metrics[f"append_ratio_copy_ring{suffix}"] = ratio_interval(ring, append, median)
        metrics[f"append_ratio_copy_new{suffix}"] = ratio_interval(new, append, median)
        metrics[f"read_ratio_memcpy{suffix}"] = ratio_interval(
            turns.of("read_plain", frame_bytes), turns.of("read", frame_bytes), median
        )
    one, many = (turns.of("writer", GATED_BYTES, readers) for readers in READERS)
    metrics["writer_cpu_ratio_64_readers"] = ratio_interval(many, one, median)
    metrics["writer_cpu_us_1_reader"] = interval([turn / 1e3 for turn in one], median)
    metrics["append_owned_us"] = interval(
        [turn / 1e3 for turn in turns.of("append_owned", GATED_BYTES)], median
    )
    for name, arm in (("zero_copy_reads_per_second", "get"), ("cursor_reads_per_second", "next")):
        metrics[name] = interval([1e9 / turn for turn in turns.of(arm, GATED_BYTES)], median)
    smallest = min(FRAME_BYTES)
    for name, arm in (("point_query_us", "at"), ("range_query_us", "between")):
        metrics[name] = interval([turn / 1e3 for turn in turns.of(arm, GATED_BYTES)], median)
        metrics[f"{name}_{smallest // 1000}kb"] = interval(
            [turn / 1e3 for turn in turns.of(arm, smallest)], median
        )
    return metrics


def _table(turns: Turns) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("microseconds per operation")
    for frame_bytes in FRAME_BYTES:
        table.add_column(f"{frame_bytes / 1000:g} kB", justify="right")
    for arm in ARMS:
        cells = [figure(median(np.concatenate(turns.of(arm, size))) / 1e3) for size in FRAME_BYTES]
        table.add_row(arm, *cells)
    return table


def _plot(drawing: Figure, turns: Turns) -> None:
    left, right = drawing.subplots(1, 2)
    for axes, arms, title in (
        (left, ("append", "copy_ring", "copy_new"), "append, and plain copies"),
        (right, ("read", "read_plain"), "reading every byte"),
    ):
        width = 0.8 / len(arms)
        for place, arm in enumerate(arms):
            values = [interval([turn / size for turn in turns.of(arm, size)], median) for size in FRAME_BYTES]
            # Nanoseconds per byte are seconds per gigabyte.
            at = [index + place * width for index in range(len(FRAME_BYTES))]
            errors = [[v.median - v.low for v in values], [v.high - v.median for v in values]]
            axes.bar(at, [v.median for v in values], width, yerr=errors, label=arm.replace("_", " "))
        axes.set_xticks([index + 0.4 - width / 2 for index in range(len(FRAME_BYTES))])
        axes.set_xticklabels([f"{size / 1000:g} kB" for size in FRAME_BYTES])
        axes.set_ylabel("seconds of processor time per gigabyte")
        axes.set_title(title)
        axes.legend(frameon=False)


LOG: Final = Experiment(
    name="log",
    summary="append, read and query the log, compared with plain copies of the same bytes; keep it on disk",
    needs="2 GB of memory; 2 GB in TMPDIR, which must be on the disk to measure",
    seconds_quick=60,
    seconds_full=900,
    run=_run,
)
