"""Measures video samples on a slow line: the bridge to DDS, Mez's own publishers, Cyclone DDS alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from mez.bridge.dds import library
from mez.errors import MissingPackageError
from mez_bench import board, kept_line
from mez_bench.arms import bars, in_turn
from mez_bench.bursts import Burst, Driver
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.line import Line, line, sent_bytes
from mez_bench.payload import write_jpeg
from mez_bench.report import columns, figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, percentile, ratio_interval
from mez_bench.systems import dds
from mez_bench.systems.dds import BRIDGE, CYCLONE, MEZ, PYTHON, Arm

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

BYTES: Final = (17_600, 39_700, 65_400, 92_900, 307_200, 582_000, 921_600)
"""The sizes of samples in Bagley et al. 2017: of a phone, and of a Raspberry Pi 2."""

QUICK_BYTES: Final = (65_400, 307_200, 921_600)
LINE_BITS_PER_S: Final = 100_000_000
FPS_MAX: Final = 30.0
"""The rate of the paper's camera."""

PACED_SHARE: Final = 0.8
"""Offered share of the line. At this rate every arm can deliver all samples, so writes can be compared."""

FLOODED_SHARE: Final = 1.15
"""Offered share of the line: more than it carries."""

FLOODED_MIN_BYTES: Final = 300_000
FIRST_FRAMES: Final = 5
"""Warm-up frames of a burst, which do not count."""

SECONDS: Final = {True: 2.0, False: 5.0}
"""Duration of a burst, by whether the run is quick."""

ROUNDS: Final = {True: 1, False: 5}
OUTLIER: Final = 5.0
"""A write that takes more than this multiple of the median is an outlier."""

METER_S: Final = 0.02
SHARE_SPAN: Final = (0.2, 0.9)
"""The part of a burst's time in which the load of the line is measured, without start and end."""

PACED: Final = "paced"
FLOODED: Final = "flooded"
SAMPLES: Final = "samples"
CONTRACT: Final = "contract"
APART: Final = "apart"
BOARD: Final = "board"
PARTS: Final = (SAMPLES, CONTRACT, APART, BOARD)
QUICK_PARTS: Final = (SAMPLES, CONTRACT)
"""The parts of a quick run without `--only`."""

IS_APART: Final = " (apart)"
"""Ends the names of arms where Mez's caller and the threads that send have different processors."""

APART_BYTES_MAX: Final = 100_000
ON_BOARD: Final = " (board)"
"""Ends the name of an arm whose sender has the processor of a small board."""

BOARD_ARMS: Final = (MEZ, CYCLONE)
BOARD_PLANS: Final = ((PACED, 307_200), (FLOODED, 921_600))
BOARD_SHARE_MAX: Final = 0.24
"""The processor share of the Raspberry Pi 2 in the paper."""

_NAMES: Final = {size: f"{size // 1000}kb" for size in BYTES}


@dataclass(frozen=True, slots=True)
class Cast:
    """A burst through one arm.

    Attributes:
        burst: The burst.
        writes_ms: How long writes took.
        line_share: Load of the line, as a share of its rate.
        per_s: Samples that arrived per second.
        delivered: Share of the written samples that arrived.
    """

    burst: Burst
    writes_ms: Values
    line_share: float
    per_s: float
    delivered: float


Key = tuple[str, int, str]
"""Paced or flooded, bytes of a sample, and the arm."""

Casts = dict[Key, list[Cast]]


class Meter:
    """Samples how many bytes a host has sent over the cable.

    Args:
        pid: A process on this host.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: list[tuple[float, int]] = []
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample while the block runs."""
        thread = threading.Thread(target=self._look, name="meter", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def bits_per_s(self, begin_s: float, end_s: float) -> float:
        """Return the rate between two times of the monotonic clock."""
        seen = [each for each in self._seen if begin_s <= each[0] <= end_s]
        if len(seen) < 2:
            raise ExperimentError("the load of the cable was not sampled; is this machine too busy?")
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return (last - first) * 8 / (last_s - first_s)

    def _look(self) -> None:
        while not self._over.wait(METER_S):
            self._seen.append((time.monotonic(), sent_bytes(self._pid)))


def _run(run: Run) -> Outcome:
    try:
        library.path()
    except MissingPackageError as error:
        # The bridge would say so minutes from now.
        raise ExperimentError(f"{error}, or tools/setup --tests") from error
    parts = run.parts(PARTS)
    if run.quick and not run.subject.only:
        parts = QUICK_PARTS
    # Otherwise these parts would fail after the long ones.
    if BOARD in parts and (why := board.unavailable()):
        raise ExperimentError(f"{why}; or leave out the part {BOARD}: --only {SAMPLES},{CONTRACT},{APART}")
    if APART in parts and len(os.sched_getaffinity(0)) < 2:
        raise ExperimentError(f"the part {APART} needs two processors; leave it out with --only")
    sizes, rounds = QUICK_BYTES if run.quick else BYTES, ROUNDS[run.quick]
    plans = [(PACED, size) for size in sizes] + [
        (FLOODED, size)
        for size in sizes
        if size >= FLOODED_MIN_BYTES and not (run.quick and size < max(sizes))
    ]
    small_plans = [(PACED, size) for size in sizes if size <= APART_BYTES_MAX]
    lines = kept_line.QUICK_LINES if run.quick else kept_line.LINES
    steps = {
        SAMPLES: len(plans) * rounds * len(dds.ARMS),
        CONTRACT: 2 * len(lines),
        APART: len(small_plans) * rounds * 2,
        BOARD: 1 + len(BOARD_PLANS) * rounds * len(BOARD_ARMS),
    }
    run.expect(sum(steps[part] for part in parts))
    payloads = {size: write_jpeg(run.folder, size, dds.SIZE) for size in sizes}
    casts: Casts = {}
    memory: dict[str, float] = {}
    kept, small = [], None
    with line() as cable:
        # One arm at a time: on few processors, arms that run together would disturb each other.
        for number in range(rounds if SAMPLES in parts else 0):
            for name in in_turn(dds.ARMS, number):
                with run.apart():
                    _play(run, cable, name, plans, payloads, casts, memory)
        if CONTRACT in parts:
            kept = kept_line.rows(run, cable)
        for number in range(rounds if APART in parts else 0):
            for name in in_turn((MEZ, CYCLONE), number):
                with run.apart():
                    settle = _part_threads if name == MEZ else None
                    _play(run, cable, name + IS_APART, small_plans, payloads, casts, memory, settle)
        if BOARD in parts:
            small = board.calibrated()
            run.step("this machine compared with a Raspberry Pi 2")
            for number in range(rounds):
                for name in in_turn(BOARD_ARMS, number):
                    with board.quota(small.cores) as group, run.apart():
                        limit = partial(_limit, group)
                        _play(run, cable, name + ON_BOARD, BOARD_PLANS, payloads, casts, memory, limit)
    outcome = _outcome(run, casts, memory, rounds)
    if SAMPLES in parts:
        _judge(outcome, casts, memory)
        outcome.plot = lambda drawing: _plot(drawing, casts)
    if APART in parts:
        ratios = _write_ratios(casts, MEZ + IS_APART, CYCLONE + IS_APART)
        outcome.metrics["write_ratio_cyclone_max_apart"] = max(ratios.values(), key=lambda of: of.median)
    if small is not None:
        _judge_board(outcome, casts, small)
    if kept:
        outcome.rows += kept
        outcome.tables.append(_kept_table(kept))
        outcome.parameters |= {"latency_ms": kept_line.LATENCY_MS, "accuracy_floor": kept_line.FLOOR}
    return outcome


def _play(
    run: Run,
    cable: Line,
    name: str,
    plans: Sequence[tuple[str, int]],
    payloads: Mapping[int, Path],
    casts: Casts,
    memory: dict[str, float],
    settle: Callable[[int], None] | None = None,
) -> None:
    """Send all bursts of a round through one arm. `settle` is called with the process that sends."""
    cable.limit(LINE_BITS_PER_S)
    arm, driver = dds.start(run, cable, name.split(" ")[0]), Driver()
    driver.subscriptions(arm.system, 1)
    driver.warm(arm.system, payloads[min(payloads)])
    if settle is not None:
        settle(arm.sender.pid)
    for pace, size in plans:
        casts.setdefault((pace, size, name), []).append(
            _cast(arm, driver, payloads[size], size, pace, SECONDS[run.quick])
        )
        run.step(f"{name}, {pace}, {figure(size / 1000)} kB")
    memory[name] = max(memory.get(name, 0.0), arm.sender.memory()[1])


def _limit(group: Path, pid: int) -> None:
    """Put a process into a control group."""
    (group / "cgroup.procs").write_text(str(pid))


def _part_threads(pid: int) -> None:
    """Bind the first thread of a process to one processor, and its other threads to another one."""
    processors = sorted(os.sched_getaffinity(0))
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {processors[0 if int(thread.name) == pid else 1]})


def _fps(pace: str, size: int) -> float:
    whole = LINE_BITS_PER_S / 8 / size
    return min(FPS_MAX, PACED_SHARE * whole) if pace == PACED else FLOODED_SHARE * whole


def _cast(arm: Arm, driver: Driver, payload: Path, size: int, pace: str, seconds: float) -> Cast:
    fps = _fps(pace, size)
    frames = max(10, round(fps * seconds))
    arm.writes_ms()
    meter = Meter(arm.sender.pid)
    begun_s = time.monotonic()
    with meter.running():
        burst = driver.burst(arm.system, payload, 1 / fps, frames, FIRST_FRAMES)
    if burst.corrupt:
        raise ExperimentError(f"{arm.system.name}: {burst.corrupt} samples arrived with wrong bytes")
    latencies = burst.latency_ms[0]
    at_s = (np.arange(frames) / fps + latencies / 1e3)[~np.isnan(latencies)]
    if len(at_s) < 3:
        raise ExperimentError(f"{arm.system.name}: of {frames} samples only {len(at_s)} arrived")
    lasted_s = (frames + FIRST_FRAMES) / fps
    load = meter.bits_per_s(begun_s + SHARE_SPAN[0] * lasted_s, begun_s + SHARE_SPAN[1] * lasted_s)
    told = arm.writes_ms()
    writes_ms = burst.call_ms if told is None else np.array(told[FIRST_FRAMES:], np.float64)
    per_s = (len(at_s) - 1) / float(at_s[-1] - at_s[0])
    return Cast(burst, writes_ms, load / LINE_BITS_PER_S, per_s, len(at_s) / frames)


def _outcome(run: Run, casts: Casts, memory: Mapping[str, float], rounds: int) -> Outcome:
    outcome = Outcome(
        parameters={
            "line_bits_per_s": LINE_BITS_PER_S,
            "rounds": rounds,
            "seconds": SECONDS[run.quick],
            "paced_share": PACED_SHARE,
            "fps_max": FPS_MAX,
            "flooded_share": FLOODED_SHARE,
        },
        rows=[_row(key, of) for key, of in casts.items()],
    )
    outcome.tables = [_table(outcome.rows)] if casts else []
    outcome.notes = [
        "a write: until the call of the library returns. Cyclone DDS and the bridge send within the call, "
        "and wait for the line; Mez's publisher puts the frame into its log, and its threads send",
        "line_share: bytes with IP and Ethernet headers, without the preamble and the gap between packets, "
        "as a share of the token bucket's rate, which counts the same bytes",
        "Mez sends over QUIC with TLS 1.3 and delivers the newest frame; DDS is not encrypted. flooded: more "
        "samples than the line carries: Mez skips old ones, a DDS writer waits",
        "Cyclone DDS keeps 10 samples and waits without limit; the bridge keeps the newest and waits 0.1 s",
        "with a contract: video of 720p at 15 frames per second; the accuracies of its rungs are assumed, "
        "not measured. DDS alone has samples of the same size as the camera's frames",
        "rss_mb: peak memory of the process that writes; with Mez it includes a log of "
        f"{figure(dds.LOG_BYTES / 1e6)} MB",
        "apart: with Mez, the thread that calls and those that send are bound to different processors",
    ]
    return outcome


def _judge(outcome: Outcome, casts: Casts, memory: Mapping[str, float]) -> None:
    metrics, targets = outcome.metrics, outcome.targets
    for name, ending in ((MEZ, ""), (BRIDGE, "_bridge"), (CYCLONE, "_cyclone")):
        flooded = casts[FLOODED, 921_600, name]
        paced = casts[PACED, 307_200, name]
        for metric, values, bound in (
            (f"line_share_921kb{ending}", [cast.line_share for cast in flooded], 0.95),
            (f"samples_per_second_921kb{ending}", [cast.per_s for cast in flooded], 12.0),
            (f"samples_per_second_307kb{ending}", [cast.per_s for cast in paced], 29.5),
        ):
            metrics[metric] = interval([np.array([value]) for value in values], median)
            if name == MEZ:
                targets.append(Target(metric, ">=", bound))
    ratios = _write_ratios(casts, MEZ, CYCLONE)
    worst = max(ratios, key=lambda size: ratios[size].median)
    metrics["write_ratio_cyclone_max"] = ratios[worst]
    targets.append(Target("write_ratio_cyclone_max", "<=", 1.0))
    outcome.parameters["write_ratio_cyclone_max_bytes"] = worst
    for name in dds.ARMS:
        metrics[f"rss_mb_{name}"] = Interval.exactly(memory[name])


def _judge_board(outcome: Outcome, casts: Casts, small: board.Board) -> None:
    """Judge the processor share of the board: while the line is flooded, of all its cores."""
    metrics = outcome.metrics
    for name, ending in ((MEZ, ""), (CYCLONE, "_cyclone")):
        for (pace, size), of_size in zip(BOARD_PLANS, ("_307kb", ""), strict=True):
            of = casts[pace, size, name + ON_BOARD]
            shares = [np.array([_cpu_share(cast) / small.cores]) for cast in of]
            metrics[f"cpu_share_pi{of_size}{ending}"] = interval(shares, median)
        flooded = [np.array([cast.per_s]) for cast in casts[FLOODED, 921_600, name + ON_BOARD]]
        metrics[f"samples_per_second_921kb_pi{ending}"] = interval(flooded, median)
    outcome.targets.append(Target("cpu_share_pi", "<=", BOARD_SHARE_MAX))
    outcome.parameters |= {
        "board_cores_of_this_machine": small.cores,
        "board_mips": board.PUBLISHED_MIPS,
        "mips": small.mips,
    }
    outcome.notes.append(
        f"board: the sender has {small.cores:.2f} cores of this machine, as the {board.CORES} cores of a "
        "Raspberry Pi 2 by the benchmark of 7-Zip. cpu_share_pi counts all its cores; of one core, it is "
        f"{board.CORES} times as much. Its processor has no instructions for AES, this one has"
    )


def _cpu_share(cast: Cast) -> float:
    """Return the processor time per second of the sender, in cores of this machine."""
    written_per_s = cast.per_s / cast.delivered
    return cast.burst.cpu_ms_per_frame["publisher"] / 1e3 * written_per_s


def _write_ratios(casts: Casts, arm: str, other: str) -> dict[int, Interval]:
    """Return the ratio of the paced writes of two arms, for each size."""
    return {
        size: ratio_interval(_writes(of), _writes(casts[PACED, size, other]), median)
        for (pace, size, name), of in casts.items()
        if (pace, name) == (PACED, arm)
    }


def _writes(of: Sequence[Cast]) -> list[Values]:
    return [cast.writes_ms for cast in of]


def _row(key: Key, of: Sequence[Cast]) -> dict[str, Cell]:
    pace, size, name = key
    writes = np.concatenate(_writes(of))
    sender = BRIDGE if name == BRIDGE else "publisher"
    latencies = np.concatenate([cast.burst.received_ms for cast in of])
    return {
        "pace": pace,
        "sample_bytes": size,
        "arm": name,
        "offered_per_s": _fps(pace, size),
        "per_s": float(np.median([cast.per_s for cast in of])),
        "delivered": float(np.mean([cast.delivered for cast in of])),
        "line_share": float(np.median([cast.line_share for cast in of])),
        "write_ms_mean": float(writes.mean()),
        "write_ms_p50": median(writes),
        "write_ms_p99": percentile(99)(writes),
        "write_outliers": int((writes > OUTLIER * median(writes)).sum()),
        "writes": len(writes),
        "cpu_ms_per_sample": float(np.median([cast.burst.cpu_ms_per_frame[sender] for cast in of])),
        "latency_ms_p50": median(latencies),
    }


_COLUMNS: Final = {
    "per_s": "per s",
    "delivered": "delivered",
    "line_share": "line share",
    "write_ms_mean": "write ms",
    "write_ms_p99": "p99",
    "write_outliers": "outliers",
    "cpu_ms_per_sample": "cpu ms",
    "latency_ms_p50": "latency ms",
}
"""The columns of the table, by key of a row."""


def _table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    table = columns("", "kB", *_COLUMNS.values())
    table.columns[0].no_wrap = True
    for row in sorted(rows, key=lambda row: (str(row["pace"]) == FLOODED, int(row["sample_bytes"] or 0))):
        cells = [figure(float(f"{float(row[name] or 0.0):.3g}")) for name in _COLUMNS]
        table.add_row(f"{row['pace']} {row['arm']}", figure(float(row["sample_bytes"] or 0) / 1000), *cells)
    return table


def _kept_table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    numbers = ("per_s", "on_time_per_s", "age_ms_p50", "age_ms_p95", "accuracy")
    table = columns("", "Mbit/s", "lost", *(name.replace("_", " ") for name in numbers))
    for row in rows:
        cells = [figure(float(f"{float(row[name] or 0.0):.3g}")) for name in numbers]
        rate, lost = (float(row[name] or 0) for name in ("line_mbit_per_s", "packets_lost"))
        table.add_row(str(row["arm"]), figure(rate), f"{lost:.0%}", *cells)
    return table


def _plot(drawing: Figure, casts: Casts) -> None:
    panels = {
        f"median write at {figure(size / 1000)} kB, ms": {
            name: [median(cast.writes_ms) for cast in casts[PACED, size, name]] for name in dds.ARMS
        }
        for pace, size, first in casts
        if (pace, first) == (PACED, PYTHON)
    }
    bars(drawing, panels)


DDS: Final = Experiment(
    name="dds",
    summary="video samples on a line of 100 Mbit/s: the bridge to DDS, Mez, Cyclone DDS alone",
    needs="root and iproute2, for two hosts; two processors; Cyclone DDS, 7-Zip (tools/setup --tests); "
    "ffmpeg, the demo's video",
    seconds_quick=90,
    seconds_full=2000,
    run=_run,
)
