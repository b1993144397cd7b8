"""Measures the cost of video for an edge that keeps it, and for its host: processor time, bytes on disk."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.table import Table

from mez_bench import viewer
from mez_bench.arms import bars, in_turn
from mez_bench.children import Child, mez
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.footage import FPS, SIZE, motion_jpeg, profile
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median
from mez_bench.systems.mez import Brokers

LOG_BYTES: Final = 32 << 20
LINK_BITS_PER_SECOND: Final = 20_000_000
QUEUE_BYTES_MAX: Final = 1 << 20

OURS: Final = "ours"
SHARED: Final = "shared"
IN_EDGE: Final = "in_edge"
STILLS: Final = "stills"
ACCEPTED: Final[Mapping[str, tuple[str, ...]]] = {OURS: (), SHARED: (), IN_EDGE: (), STILLS: ("jpeg",)}
"""Encodings that programs accept; none: the library's default, which accepts video. With `OURS` each program
decodes for itself, with `SHARED` a process beside the edge decodes for all, with `IN_EDGE` the edge's process
does. `STILLS` are programs without a decoder."""

SHARING: Final[Mapping[str, tuple[str, str]]] = {
    OURS: ("off", "process"),
    SHARED: ("1", "process"),
    IN_EDGE: ("1", "edge"),
    STILLS: ("off", "process"),
}
"""From how many readers on the edge decodes a camera once for all of them, and in which process."""

COUNTS: Final = (1, 2, 4, 8)
EVERY: Final = (1, 3)
"""Programs decode every frame, or every third."""


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """Some programs of one kind.

    Attributes:
        kind: How frames reach the programs: a key of `ACCEPTED`.
        count: Number of programs.
        every: They decode one frame in this many.
    """

    kind: str
    count: int
    every: int = 1

    def __str__(self) -> str:
        rest = "" if self.every == 1 else f", each {self.every}rd frame"
        return f"{self.count} {self.kind}{rest}"

    @property
    def key(self) -> str:
        """The arm's name in metrics."""
        return f"{self.kind}_{self.count}" + ("" if self.every == 1 else f"_each_{self.every}")


ARMS: Final = (
    *(Arm(kind, count, every) for every in EVERY for kind in (OURS, SHARED, IN_EDGE) for count in COUNTS),
    *(Arm(STILLS, count) for count in (COUNTS[0], COUNTS[-1])),
)

ARMS_QUICK: Final = (
    *(Arm(kind, count) for kind in (OURS, SHARED) for count in (1, 8)),
    Arm(IN_EDGE, 8),
    Arm(STILLS, 8),
)

EDGE_MS_BEFORE: Final = {1: 5.4, 8: 6.0}
"""The edge's CPU ms per frame, by number of programs, when it still decoded all frames and kept JPEG."""

SHARE_OF_BEFORE_MAX: Final = 1 / 3
"""Limit as a share of `EDGE_MS_BEFORE`. One program decodes for itself, and eight share a decoder."""

SETTLE_SECONDS: Final = 4.0
"""Time before the measurement of a turn: the profile arrives, and all programs join a chain."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Some seconds of some programs that read the same camera.

    Attributes:
        edge_ms: Processor time of the edge, per frame of the camera.
        beside_ms: Processor time of the process that decodes beside the edge, per frame of the camera.
        host_ms: Processor time of both and of all programs together, per frame of the camera.
        program_ms: Processor time of one program, per frame that it got.
        came_as: The encoding of most frames.
        frames: Frames that a program got, on average.
        skipped: Frames that a program did not get, on average.
        age_ms: Median age of a frame when the program had it, averaged over programs.
    """

    edge_ms: float
    beside_ms: float
    host_ms: float
    program_ms: float
    came_as: str
    frames: float
    skipped: float
    age_ms: float


def _run(run: Run) -> Outcome:
    rounds, seconds, all_arms = (1, 5.0, ARMS_QUICK) if run.quick else (5, 15.0, ARMS)
    arms = _chosen(all_arms, run.subject.only)
    run.step("starting", done=0)
    source = motion_jpeg(run)
    rungs = run.folder / "profile.json"
    rungs.write_text(json.dumps(profile("h264")))
    store = run.folder / "store"
    settings = run.folder / "edge.toml"
    _share(settings, arms[0])
    brokers = Brokers(run, LOG_BYTES, edge_words=("--store", str(store), "--config", str(settings)))
    link = run.children.start(
        "link",
        mez(
            *("measure", "link", "--to", brokers.link_address),
            *("--bits-per-second", f"{LINK_BITS_PER_SECOND}", "--queue-bytes-max", f"{QUEUE_BYTES_MAX}"),
        ),
    )
    camera = brokers.dial_with(link.ready(), source)
    run.expect(rounds * len(arms))
    turns: dict[Arm, list[Turn]] = {arm: [] for arm in arms}
    for number in range(rounds):
        for arm in in_turn(arms, number):
            run.step(str(arm), done=0)
            _share(settings, arm)
            os.kill(brokers.edge.pid, signal.SIGHUP)
            turns[arm].append(_turn(run, brokers, str(rungs), arm, seconds))
            run.step(str(arm))
    crossed = int(link.ask("")["up"]["bytes"])
    run.children.stop(camera)
    # A log that is closed properly has all its frames on disk.
    run.children.stop(brokers.edge)
    on_disk = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    outcome = _outcome(turns, on_disk / crossed)
    outcome.parameters = {
        "width": SIZE[0],
        "height": SIZE[1],
        "fps": FPS,
        "source": "the demo's video as Motion JPEG, sent as H.264",
        "last_hop": "Unix socket and shared memory",
        "link_bits_per_second": LINK_BITS_PER_SECOND,
        "bytes_crossed": crossed,
        "bytes_on_disk": on_disk,
        "log_bytes": LOG_BYTES,
        "rounds": rounds,
        "seconds_per_round": seconds,
    }
    return outcome


def _chosen(arms: Sequence[Arm], only: Sequence[str]) -> Sequence[Arm]:
    """Return the arms of these kinds, or with these names."""
    chosen = [arm for arm in arms if not only or {arm.kind, arm.key} & set(only)]
    unknown = set(only) - {name for arm in arms for name in (arm.kind, arm.key)}
    if unknown:
        names = ", ".join(arm.key for arm in arms)
        raise ExperimentError(f"--only {','.join(sorted(unknown))}: no such part; choose from {names}")
    return chosen


def _share(settings: Path, arm: Arm) -> None:
    shared_from, shared_in = SHARING[arm.kind]
    lines = (f'shared_pictures_from = "{shared_from}"', f'shared_pictures_in = "{shared_in}"')
    settings.write_text("\n".join(('role = "edge"', *lines, "")))


def _turn(run: Run, brokers: Brokers, rungs: str, arm: Arm, seconds: float) -> Turn:
    words = [sys.executable, str(Path(viewer.__file__)), brokers.socket, str(brokers.keys), rungs]
    words += [str(arm.every), *ACCEPTED[arm.kind]]
    programs: list[Child] = []
    try:
        for number in range(arm.count):
            programs.append(run.children.start(f"program {number}", words))
        for program in programs:
            program.ready()
        time.sleep(SETTLE_SECONDS)
        for program in programs:
            program.ask("begin")
        begun, edge_ns = time.monotonic(), brokers.edge.cpu_ns()
        beside_ns = brokers.edge.helpers_cpu_ns()
        programs_ns = sum(program.cpu_ns() for program in programs)
        time.sleep(seconds)
        took_s, edge_ns = time.monotonic() - begun, brokers.edge.cpu_ns() - edge_ns
        beside_ns = brokers.edge.helpers_cpu_ns() - beside_ns
        programs_ns = sum(program.cpu_ns() for program in programs) - programs_ns
        answers = [program.ask("end") for program in programs]
    finally:
        for program in programs:
            run.children.stop(program)
    frames = [int(answer["frames"]) for answer in answers]
    if min(frames) < seconds * FPS / 4:
        raise ExperimentError(f"{arm}: a program got only {min(frames)} frames in {seconds:g} s")
    encodings = answers[0]["encodings"]
    return Turn(
        edge_ms=edge_ns / 1e6 / (took_s * FPS),
        beside_ms=beside_ns / 1e6 / (took_s * FPS),
        host_ms=(edge_ns + beside_ns + programs_ns) / 1e6 / (took_s * FPS),
        program_ms=programs_ns / 1e6 / sum(frames),
        came_as=max(encodings, key=encodings.get),
        frames=sum(frames) / arm.count,
        skipped=sum(int(answer["skipped"]) for answer in answers) / arm.count,
        age_ms=sum(float(answer["age_ms_p50"]) for answer in answers) / arm.count,
    )


def _outcome(turns: Mapping[Arm, Sequence[Turn]], disk_ratio: float) -> Outcome:
    outcome = Outcome()
    for arm, of_arm in turns.items():
        for name in ("edge_ms", "beside_ms", "host_ms", "program_ms", "age_ms"):
            values: list[Values] = [np.array([getattr(turn, name)]) for turn in of_arm]
            metric = "age_ms_p50" if name == "age_ms" else f"{name.removesuffix('_ms')}_cpu_ms_per_frame"
            outcome.metrics[f"{arm.key}_{metric}"] = interval(values, median)
        for number, turn in enumerate(of_arm):
            row: dict[str, Cell] = {"readers": arm.kind, "count": arm.count, "every": arm.every}
            row |= {"round": number, "host_cpu_ms_per_frame": turn.host_ms}
            row |= {"came_as": turn.came_as, "frames": turn.frames, "skipped": turn.skipped}
            row |= {"edge_cpu_ms_per_frame": turn.edge_ms, "program_cpu_ms_per_frame": turn.program_ms}
            row |= {"beside_cpu_ms_per_frame": turn.beside_ms}
            outcome.rows.append({**row, "age_ms_p50": turn.age_ms})
    outcome.metrics["disk_ratio"] = Interval.exactly(disk_ratio)
    bounds = {
        f"{arm.key}_edge_cpu_ms_per_frame": SHARE_OF_BEFORE_MAX * EDGE_MS_BEFORE[arm.count]
        for arm in (Arm(OURS, 1), Arm(SHARED, 8))
        if arm in turns
    }
    outcome.targets = [Target("disk_ratio", "<=", 1.1)]
    outcome.targets += [Target(name, "<=", bound) for name, bound in bounds.items()]
    outcome.tables = [_table(turns)]
    panels = {
        f"{what}, CPU ms per frame": {
            str(arm): [getattr(turn, f"{what}_ms") for turn in of_arm] for arm, of_arm in turns.items()
        }
        for what in ("host", "edge")
    }
    outcome.plot = lambda drawing: bars(drawing, panels)
    outcome.notes = [
        "readers: ours: each program decodes video itself; shared: a process beside the edge decodes for all "
        "of them; in_edge: the edge's own process decodes; stills: programs without a decoder get JPEG",
        "host: the edge, the process beside it and all programs together, per frame of the camera",
        "disk_ratio: bytes of the edge's store after the run, divided by all bytes that crossed the link. "
        "The store includes its indices and seals, the link its headers",
    ]
    return outcome


def _table(turns: Mapping[Arm, Sequence[Turn]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("readers")
    table.add_column("encoding")
    labels = ("host, CPU ms per frame", "edge", "beside", "per program", "age p50 ms", "frames", "skipped")
    for label in labels:
        table.add_column(label, justify="right")
    for arm, of_arm in turns.items():
        cells = [
            figure(float(np.median([getattr(turn, name) for turn in of_arm])))
            for name in ("host_ms", "edge_ms", "beside_ms", "program_ms", "age_ms", "frames", "skipped")
        ]
        table.add_row(str(arm), of_arm[0].came_as, *cells)
    return table


KEPT: Final = Experiment(
    name="kept",
    summary="cost of video for an edge that keeps it, and its host: processor time with 1 to 8 readers, disk",
    needs="ffmpeg, the demo's video (fetched once)",
    seconds_quick=60,
    seconds_full=3000,
    run=_run,
)
