"""Measures publish → subscribe through both brokers on one machine, compared with peers and the floor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez_bench.arms import in_turn
from mez_bench.bursts import Burst, Driver, System
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.payload import write_jpeg
from mez_bench.peers import PeerError
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, percentile, ratio_interval
from mez_bench.systems import floor, mez, nats, zenoh

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYSTEMS: Final[Mapping[str, Callable[[Run], System]]] = {
    "mez": mez.start,
    "mez_tcp": mez.start_tcp,
    "floor": floor.start,
    "nats_leaf": nats.start_leaf,
    "mez_within": mez.start_within,
    "mez_within_tcp": mez.start_within_tcp,
    "nats": nats.start,
    "zenoh": zenoh.start,
}
OURS: Final = {"mez": "", "mez_tcp": "_tcp"}
"""Mez with its link over QUIC and over TCP, and the endings of their metrics' names."""
WITHIN: Final = {"mez_within": "_within", "mez_within_tcp": "_within_tcp"}
"""Mez with the camera broker in the publisher's process, and the endings of their metrics' names."""
PEERS_BOTH: Final = ("nats_leaf",)
"""Peers with a broker on both sides of the link, like `OURS`."""
PEERS_EDGE: Final = ("nats", "zenoh")
"""Peers with a broker at the edge only: one hop fewer, and no log at the camera. Compare with `WITHIN`."""

BYTES: Final = (100_000, 500_000, 1_000_000, 1_700_000)
FPS: Final = (5, 15)
GATED: Final = (1_000_000, 15)
"""The setting that targets apply to."""

FIRST_FRAMES: Final = 5
"""Warm-up frames of a burst: after a pause, TCP's congestion window is small, and caches are cold."""

P99_FRAMES_MIN: Final = 1000

FILL_BYTES: Final = mez.LOG_BYTES + (8 << 20)
FILL_BYTES_PER_S: Final = 50_000_000


@dataclass(frozen=True, slots=True)
class Setting:
    """One size and rate.

    Attributes:
        frame_bytes: Size of each frame.
        fps: Frames per second.
        frames: Frames of each burst that count.
        rounds: Bursts of each system.
    """

    frame_bytes: int
    fps: int
    frames: int
    rounds: int

    @property
    def key(self) -> tuple[int, int]:
        """Identifies the setting."""
        return self.frame_bytes, self.fps


Start = Sequence[Setting]
"""The settings that are measured in one start of all systems, in this order."""

GATED_STARTS: Final = 8
"""The memory layout of a start changes latencies by a few per cent, so a full run has several starts."""

QUICK: Final[Sequence[Start]] = ((Setting(*GATED, frames=14, rounds=4),),)
FULL: Final[Sequence[Start]] = (
    tuple(
        Setting(*GATED, frames=125, rounds=1)
        if (size, fps) == GATED
        else Setting(size, fps, frames=20 if fps == 15 else 10, rounds=5)
        for size in BYTES
        for fps in FPS
    ),
    *((Setting(*GATED, frames=125, rounds=1),) for _ in range(1, GATED_STARTS)),
)

Bursts = dict[tuple[int, int], dict[str, list[Burst]]]
"""Bursts by size and rate, and by system. A system is missing where it failed."""

Memory = dict[str, dict[str, tuple[float, float]]]
"""Memory of each process of each system in megabytes: at the end, and at most."""


def _run(run: Run) -> Outcome:
    starts = QUICK if run.quick else FULL
    outcome = Outcome()
    left_out: set[str] = set()
    bursts: Bursts = {}
    memory: Memory = {}
    run.expect(sum(setting.rounds for settings in starts for setting in settings) * len(SYSTEMS))
    for number, settings in enumerate(starts):
        with run.apart():
            systems = _start(run, outcome, left_out)
            driver = Driver()
            payloads = {
                setting.frame_bytes: write_jpeg(run.folder, setting.frame_bytes) for setting in settings
            }
            for system in systems:
                run.step(f"warming {system.name} up", done=0)
                driver.subscriptions(system, 1)
                for payload in payloads.values():
                    driver.warm(system, payload)
            for system in _measure(run, outcome, driver, systems, settings, payloads, bursts, number):
                left_out.add(system.name)
                systems.remove(system)
            if number == 0:
                memory = {s.name: {n: c.memory() for n, c in s.processes.items()} for s in systems}
                outcome.parameters |= {
                    f"{s.name}_{n}": value for s in systems for n, value in s.details.items()
                }
    for of_setting in bursts.values():
        # Systems are compared turn by turn, so all need equally many turns.
        most = max(map(len, of_setting.values()))
        for name in [name for name, of_system in of_setting.items() if len(of_system) < most]:
            del of_setting[name]
    _fill(outcome, starts[0], bursts, memory)
    outcome.parameters |= {
        "settings": [f"{s.frame_bytes} B at {s.fps} fps, {s.rounds} x {s.frames} frames" for s in starts[0]],
        "starts": len(starts),
        "first_frames_not_counted": FIRST_FRAMES,
    }
    return outcome


def _start(run: Run, outcome: Outcome, left_out: set[str]) -> list[System]:
    """Start all systems. One that cannot be built is left out from then on."""
    systems: list[System] = []
    for name, start in SYSTEMS.items():
        if name in left_out:
            continue
        run.step(f"starting {name}", done=0)
        try:
            systems.append(start(run))
        except PeerError as error:
            left_out.add(name)
            run.say(f"[bold red]SKIPPED {name}[/bold red]: {error}")
            outcome.notes.append(f"SKIPPED {name}: {str(error).splitlines()[0]}")
    return systems


def _measure(
    run: Run,
    outcome: Outcome,
    driver: Driver,
    systems: Sequence[System],
    settings: Start,
    payloads: Mapping[int, Path],
    bursts: Bursts,
    number: int,
) -> list[System]:
    """Send all bursts of a start, add them to `bursts`, and return the peers that failed."""
    running, failed = list(systems), list[System]()

    def through(system: System, setting: Setting, interval_s: float, frames: int, first: int) -> Burst | None:
        try:
            return driver.burst(system, payloads[setting.frame_bytes], interval_s, frames, first)
        except ExperimentError as error:
            _leave_out(system, setting, error, run, outcome)
            running.remove(system)
            failed.append(system)
            return None

    filled = 0
    for setting in settings:
        of_setting = bursts.setdefault(setting.key, {})
        for system in list(running) if setting.frame_bytes != filled else ():
            # Fill the logs with frames of this size first: in practice, logs are nearly always full.
            run.step(f"filling {system.name}", done=0)
            interval_s = setting.frame_bytes / FILL_BYTES_PER_S
            through(system, setting, interval_s, FILL_BYTES // setting.frame_bytes, 0)
        filled = setting.frame_bytes
        for turn in range(setting.rounds):
            # The order changes, so that no system always runs after the same one.
            for system in in_turn(running, number + turn):
                run.step(f"{system.name}, {setting.frame_bytes / 1000:g} kB at {setting.fps} fps", done=0)
                burst = through(system, setting, 1 / setting.fps, setting.frames, FIRST_FRAMES)
                if burst is not None:
                    of_setting.setdefault(system.name, []).append(burst)
                run.step(f"{system.name}", done=1)
    return failed


def _leave_out(system: System, setting: Setting, error: ExperimentError, run: Run, outcome: Outcome) -> None:
    """Go on without a peer that failed, rather than lose the results of the others.

    Raises:
        ExperimentError: The system is Mez or the floor. Without them there is nothing to compare.
    """
    if system.name not in PEERS_BOTH + PEERS_EDGE:
        raise error
    where = f"from {setting.frame_bytes / 1000:g} kB at {setting.fps} fps on"
    run.say(f"[bold red]LEFT OUT {system.name}[/bold red] {where}: {error}")
    outcome.notes.append(f"LEFT OUT {system.name} {where}: {' '.join(str(error).split())}")


def _fill(
    outcome: Outcome,
    settings: Start,
    bursts: Bursts,
    memory: Mapping[str, Mapping[str, tuple[float, float]]],
) -> None:
    for setting in settings:
        for name, of_system in bursts[setting.key].items():
            outcome.rows.append(_row(setting, name, of_system, memory.get(name, {})))
    gated = bursts[GATED]
    metrics = outcome.metrics
    latencies = {name: _latencies(of_system) for name, of_system in gated.items()}
    label = f"{GATED[0] // 1_000_000}mb"
    frames = sum(burst.latency_ms.size for burst in gated["mez"])
    percents = [50, 95, 99] if frames >= P99_FRAMES_MIN else [50, 95]
    for percent in percents:
        of_percent = functools.partial(interval, statistic=percentile(percent))
        for name, rounds in latencies.items():
            metrics[f"{name}_{label}_ms_p{percent}"] = of_percent(rounds)

        def beside_best(name: str, ours: str, peers: Sequence[str], percent: int = percent) -> None:
            medians = {
                peer: metrics[f"{peer}_{label}_ms_p{percent}"].median for peer in peers if peer in gated
            }
            if medians:
                best = min(medians, key=medians.__getitem__)
                metrics[name] = ratio_interval(latencies[ours], latencies[best], percentile(percent))

        for ours, suffix in OURS.items():
            beside_best(f"ratio_{label}_p{percent}_best_peer{suffix}", ours, PEERS_BOTH + PEERS_EDGE)
            beside_best(f"ratio_{label}_p{percent}_best_peer_both{suffix}", ours, PEERS_BOTH)
        for ours, suffix in WITHIN.items():
            beside_best(f"ratio_{label}_p{percent}_best_peer{suffix}", ours, PEERS_BOTH + PEERS_EDGE)
        for ours, suffix in OURS.items():
            metrics[f"ratio_{label}_p{percent}_floor{suffix}"] = ratio_interval(
                latencies[ours], latencies["floor"], percentile(percent)
            )
    metrics["frames_lost"] = Interval.exactly(_lost(bursts, "mez", fps=GATED[1]))
    metrics["frames_corrupt"] = Interval.exactly(
        sum(burst.corrupt for of_setting in bursts.values() for burst in of_setting["mez"])
    )
    for name, of_system in gated.items():
        if name != "mez":
            metrics[f"{name}_frames_lost"] = Interval.exactly(_lost(bursts, name, fps=GATED[1]))
        cpu: list[Values] = [np.array([sum(burst.cpu_ms_per_frame.values())]) for burst in of_system]
        metrics[f"{name}_cpu_ms_per_frame"] = interval(cpu, percentile(50))
    outcome.targets = [
        *(
            Target(f"ratio_{label}_p{percent}_best_peer{suffix}", "<=", 1.0, full_only=percent == 99)
            for percent in (50, 99)
            for suffix in ("_both", "_both_tcp", *WITHIN.values())
        ),
        *(
            target
            for suffix in OURS.values()
            for target in (
                Target(f"ratio_{label}_p50_best_peer{suffix}", "<=", 1.0),
                Target(f"ratio_{label}_p50_floor{suffix}", "<=", 1.7),
                Target(f"ratio_{label}_p99_best_peer{suffix}", "<=", 1.0, full_only=True),
            )
        ),
        Target("frames_lost", "==", 0),
        Target("mez_tcp_frames_lost", "==", 0),
        Target("frames_corrupt", "==", 0),
    ]
    outcome.tables = [_table(outcome.rows), _cpu_table(gated)]
    outcome.plot = lambda drawing: _plot(drawing, settings, bursts)


def _latencies(bursts: Sequence[Burst]) -> list[Values]:
    return [burst.received_ms for burst in bursts]


def _lost(bursts: Bursts, name: str, fps: int) -> int:
    return sum(
        burst.lost
        for key, of_setting in bursts.items()
        if key[1] == fps
        for burst in of_setting.get(name, ())
    )


def _row(
    setting: Setting, name: str, bursts: Sequence[Burst], memory: Mapping[str, tuple[float, float]]
) -> dict[str, Cell]:
    latencies = np.concatenate(_latencies(bursts))
    if not len(latencies):
        raise ExperimentError(f"{name} delivered no {setting.frame_bytes}-byte frame at {setting.fps} fps")
    row: dict[str, Cell] = {
        "system": name,
        "frame_bytes": setting.frame_bytes,
        "fps": setting.fps,
        "frames": sum(burst.latency_ms.size for burst in bursts),
        "frames_lost": sum(burst.lost for burst in bursts),
        "frames_corrupt": sum(burst.corrupt for burst in bursts),
    }
    for percent in (50, 95, 99):
        row[f"latency_ms_p{percent}"] = float(np.percentile(latencies, percent))
    row["latency_ms_max"] = float(latencies.max())
    row["publisher_late_ms_p50"] = float(np.median(np.concatenate([burst.late_ms for burst in bursts])))
    for process in bursts[0].cpu_ms_per_frame:
        cpu = [burst.cpu_ms_per_frame[process] for burst in bursts]
        faults = [burst.page_faults_per_frame[process] for burst in bursts]
        row[f"{process}_cpu_ms_per_frame"] = float(np.median(cpu))
        row[f"{process}_page_faults_per_frame"] = float(np.median(faults))
        if process in memory:
            row[f"{process}_rss_mb"], row[f"{process}_rss_mb_max"] = memory[process]
    return row


def _table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for name in ("kB", "fps", "system"):
        table.add_column(name, justify="left" if name == "system" else "right")
    for name in ("p50 ms", "p95 ms", "p99 ms", "max ms", "frames", "lost"):
        table.add_column(name, justify="right")
    before: tuple[Cell, Cell] | None = None
    for row in rows:
        key = (row["frame_bytes"], row["fps"])
        same, before = key == before, key
        of = [f"{_number(row['frame_bytes']) / 1000:g}", str(row["fps"])] if not same else ["", ""]
        latencies = [figure(_number(row[f"latency_ms_{name}"])) for name in ("p50", "p95", "p99", "max")]
        table.add_row(*of, str(row["system"]), *latencies, str(row["frames"]), str(row["frames_lost"]))
    return table


def _cpu_table(gated: Mapping[str, Sequence[Burst]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column(f"CPU ms per frame, {GATED[0] / 1000:g} kB at {GATED[1]} fps")
    names = ["publisher", "camera", "edge", "subscriber"]
    for name in (*names, "sum"):
        table.add_column(name, justify="right")
    table.add_column("page faults", justify="right")
    for system, bursts in gated.items():
        cpu = {
            n: float(np.median([b.cpu_ms_per_frame[n] for b in bursts])) for n in bursts[0].cpu_ms_per_frame
        }
        faults = float(np.median([sum(b.page_faults_per_frame.values()) for b in bursts]))
        cells = [figure(cpu[name]) if name in cpu else "" for name in names]
        table.add_row(system, *cells, figure(sum(cpu.values())), figure(faults))
    return table


def _number(cell: Cell) -> float:
    assert isinstance(cell, (int, float)), "a column of numbers"
    return float(cell)


def _plot(drawing: Figure, settings: Sequence[Setting], bursts: Bursts) -> None:
    axes = drawing.subplots()
    names = list(bursts[settings[0].key])
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        measured = [index for index, setting in enumerate(settings) if name in bursts[setting.key]]
        values = [np.concatenate(_latencies(bursts[settings[index].key][name])) for index in measured]
        at = [index + place * width for index in measured]
        medians = [float(np.median(latencies)) for latencies in values]
        tails = [float(np.percentile(latencies, 95)) for latencies in values]
        above = [tail - middle for tail, middle in zip(tails, medians, strict=True)]
        axes.bar(at, medians, width, yerr=[[0.0] * len(above), above], label=name, capsize=2)
    axes.set_xticks([index + 0.4 - width / 2 for index in range(len(settings))])
    axes.set_xticklabels([f"{setting.frame_bytes / 1000:g} kB\n{setting.fps} fps" for setting in settings])
    axes.set_ylabel("latency, ms: median, and up to p95")
    axes.set_title("publish → subscribe on one machine")
    axes.legend(frameon=False)


LOOPBACK: Final = Experiment(
    name="loopback",
    summary="publish → subscribe through both brokers as processes, with mutual TLS, compared with peers",
    needs="cargo for the floor and the peers, Go for nats-server; the first run builds them",
    seconds_quick=58,
    seconds_full=1600,
    run=_run,
)
