"""Measures the cost of video on its way from the edge to a program: as the edge's stills, and as chains."""

from __future__ import annotations

import json
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
from mez_bench.children import Child
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome
from mez_bench.footage import FPS, SIZE, motion_jpeg, profile
from mez_bench.relay import Relay
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Values, interval, median, ratio_interval
from mez_bench.systems.mez import Brokers

LOG_BYTES: Final = 32 << 20

ARMS: Final[Mapping[str, tuple[str, ...]]] = {"stills": ("jpeg",), "chains": ()}
"""The encodings that the program accepts; none: the library's default, which accepts video."""

SETTLE_SECONDS: Final = 3.0
"""Time before the measurement of a turn: the profile arrives, and the program joins a chain."""

COLUMNS: Final = {
    "last_hop_bytes_per_frame": "bytes per frame",
    "edge_cpu_ms_per_frame": "edge, CPU ms per frame",
    "program_cpu_ms_per_frame": "program, CPU ms per frame",
    "age_ms_p50": "age p50 ms",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """Some seconds of one program.

    Attributes:
        values: By the names of `COLUMNS`. Bytes are all bytes on TCP, TLS and gRPC included, both ways.
        frames: Frames that the program got.
        skipped: Frames that it did not get.
    """

    values: Mapping[str, float]
    frames: int
    skipped: int


def _run(run: Run) -> Outcome:
    rounds, seconds = (2, 6.0) if run.quick else (6, 15.0)
    run.step("starting", done=0)
    source = motion_jpeg(run)
    rungs = run.folder / "profile.json"
    rungs.write_text(json.dumps(profile("h264")))
    brokers = Brokers(run, LOG_BYTES)
    brokers.dial_with(brokers.link_address, source)
    run.expect(rounds * len(ARMS))
    turns: dict[str, list[Turn]] = {arm: [] for arm in ARMS}
    with Relay(brokers.grpc_address) as relay:
        for number in range(rounds):
            for arm in in_turn(list(ARMS), number):
                run.step(arm, done=0)
                turns[arm].append(_turn(run, brokers, relay, str(rungs), arm, seconds))
                run.step(arm)
    outcome = _outcome(turns)
    outcome.parameters = {
        "width": SIZE[0],
        "height": SIZE[1],
        "fps": FPS,
        "source": "the demo's video as Motion JPEG, sent as H.264",
        "last_hop": "gRPC over TLS 1.3 on loopback",
        "log_bytes": LOG_BYTES,
        "rounds": rounds,
        "seconds_per_round": seconds,
    }
    return outcome


def _turn(run: Run, brokers: Brokers, relay: Relay, rungs: str, arm: str, seconds: float) -> Turn:
    words = [sys.executable, str(Path(viewer.__file__)), relay.address, str(brokers.keys), rungs, "1"]
    program = run.children.start("program", [*words, *ARMS[arm]])
    try:
        program.ready()
        time.sleep(SETTLE_SECONDS)
        program.ask("begin")
        begun = _counts(brokers, relay, program)
        time.sleep(seconds)
        answer = program.ask("end")
        ended = _counts(brokers, relay, program)
        frames = int(answer["frames"])
        expected = "jpeg" if ARMS[arm] else "h264"
        if frames == 0 or answer["encodings"].get(expected, 0) < frames / 2:
            raise ExperimentError(f"{arm}: less than half of the frames were {expected}: {answer}")
        each = [(after - before) / frames for before, after in zip(begun, ended, strict=True)]
        values = dict(zip(COLUMNS, [*each, float(answer["age_ms_p50"])], strict=True))
        return Turn(values, frames, int(answer["skipped"]))
    finally:
        run.children.stop(program)


def _counts(brokers: Brokers, relay: Relay, program: Child) -> tuple[float, float, float]:
    return relay.tcp_bytes, brokers.edge.cpu_ns() / 1e6, program.cpu_ns() / 1e6


def _outcome(turns: Mapping[str, Sequence[Turn]]) -> Outcome:
    outcome = Outcome()
    for name in COLUMNS:
        of: dict[str, list[Values]] = {
            arm: [np.array([turn.values[name]]) for turn in of_arm] for arm, of_arm in turns.items()
        }
        for arm, values in of.items():
            outcome.metrics[f"{arm}_{name}"] = interval(values, median)
        outcome.metrics[f"{name}_chains_to_stills"] = ratio_interval(of["chains"], of["stills"], median)
    for arm, of_arm in turns.items():
        for number, turn in enumerate(of_arm):
            row: dict[str, Cell] = {"arm": arm, "round": number, "frames": turn.frames}
            outcome.rows.append({**row, "skipped": turn.skipped, **turn.values})
    outcome.tables = [_table(turns)]
    panels = {
        label: {arm: [turn.values[name] for turn in of_arm] for arm, of_arm in turns.items()}
        for name, label in COLUMNS.items()
    }
    outcome.plot = lambda drawing: bars(drawing, panels)
    outcome.notes = ["no other program subscribes: an edge makes stills only if a program reads them"]
    return outcome


def _table(turns: Mapping[str, Sequence[Turn]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("frames arrive as")
    for label in COLUMNS.values():
        table.add_column(label, justify="right")
    for arm, of_arm in turns.items():
        medians = [float(np.median([turn.values[name] for turn in of_arm])) for name in COLUMNS]
        table.add_row(arm, *[figure(value) for value in medians])
    return table


CHAINS: Final = Experiment(
    name="chains",
    summary="bytes and processor time of video on its way to a remote program, as stills and as chains",
    needs="ffmpeg, the demo's video (fetched once)",
    seconds_quick=50,
    seconds_full=250,
    run=_run,
)
