"""Measures what a camera broker costs its host: passing Motion JPEG through, and encoding frames smaller."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.table import Table

import mez as mez_client
from mez_bench.arms import bars, in_turn
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome
from mez_bench.footage import FPS, SIZE, motion_jpeg, profile
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, ratio_interval
from mez_bench.systems.mez import CAMERA, Brokers

LOG_BYTES: Final = 32 << 20
LATENCY_MS: Final = 150.0
FLOOR: Final = 0.9

IDLE: Final = "nobody subscribed"
PASSED: Final = "passed through"
ARMS: Final = (IDLE, PASSED, "jpeg", "h264")

SETTLE_SECONDS: Final = 2.0
"""Before a turn is measured: the log fills, the profile comes, codecs make their first frames."""

FRAME_SECONDS_MAX: Final = 15.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A camera broker's cost over some seconds.

    Attributes:
        cpu_ms_per_frame: Processor time of the broker, for each frame published.
        core_share: The same as a share of one core.
        rss_mb: Resident memory at the end, the log's budget included.
        bytes_per_frame: Of the frames that came, if any.
    """

    cpu_ms_per_frame: float
    core_share: float
    rss_mb: float
    bytes_per_frame: float


def _run(run: Run) -> Outcome:
    rounds, seconds = (1, 7.0) if run.quick else (5, 15.0)
    run.step("starting", done=0)
    # Contracts of a moment, in a turn that begins, are nothing to be told.
    logging.getLogger("mez").setLevel(logging.ERROR)
    source = motion_jpeg(run)
    run.expect(rounds * len(ARMS))
    turns: dict[str, list[Turn]] = {arm: [] for arm in ARMS}
    brokers = Brokers(run, LOG_BYTES)
    for number in range(rounds):
        for arm in in_turn(ARMS, number):
            run.step(arm, done=0)
            turns[arm].append(_turn(run, brokers, source, arm, seconds))
            run.step(arm)
    outcome = _outcome(turns)
    outcome.parameters = {
        "width": SIZE[0],
        "height": SIZE[1],
        "fps": FPS,
        "source": "Motion JPEG of a file through ffmpeg, whose own time is not counted",
        "link": "loopback, QUIC",
        "log_bytes": LOG_BYTES,
        "rounds": rounds,
        "seconds_per_round": seconds,
    }
    return outcome


def _turn(run: Run, brokers: Brokers, source: str, arm: str, seconds: float) -> Turn:
    # A broker of its own for every turn, since memory that was once taken may be kept.
    camera = brokers.dial_with(brokers.link_address, source)
    try:
        if arm == IDLE:
            time.sleep(SETTLE_SECONDS)
            begun, cpu_ns = time.monotonic(), camera.cpu_ns()
            time.sleep(seconds)
            sizes = [0]
        else:
            floor, ladder = (None, None) if arm == PASSED else (FLOOR, profile(arm))
            with mez_client.subscribe(
                CAMERA, edge=brokers.socket, latency_ms=LATENCY_MS, accuracy=floor, profile=ladder
            ) as frames:
                settled = time.monotonic() + SETTLE_SECONDS
                patience = settled + FRAME_SECONDS_MAX
                while time.monotonic() < settled or not _is_of(frames.next(timeout=10), arm):
                    if time.monotonic() > patience:
                        raise ExperimentError(
                            f"{arm}: no frame of this ladder came in {FRAME_SECONDS_MAX:g} s"
                        )
                begun, cpu_ns = time.monotonic(), camera.cpu_ns()
                sizes = []
                while time.monotonic() < begun + seconds:
                    sizes.append(frames.next(timeout=10).payload.nbytes)
        took_s, used_ns = time.monotonic() - begun, camera.cpu_ns() - cpu_ns
        return Turn(
            cpu_ms_per_frame=used_ns / 1e6 / (took_s * FPS),
            core_share=used_ns / 1e9 / took_s,
            rss_mb=camera.memory()[0],
            bytes_per_frame=float(np.mean(sizes)),
        )
    finally:
        run.children.stop(camera)


def _is_of(frame: mez_client.Frame, arm: str) -> bool:
    return frame.rung == "original" if arm == PASSED else frame.rung.startswith(arm)


def _outcome(turns: Mapping[str, Sequence[Turn]]) -> Outcome:
    outcome = Outcome()
    cpu = {arm: [np.array([turn.cpu_ms_per_frame]) for turn in of_arm] for arm, of_arm in turns.items()}
    for arm, of_arm in turns.items():
        name = arm.replace(" ", "_")
        core: list[Values] = [np.array([turn.core_share]) for turn in of_arm]
        rss: list[Values] = [np.array([turn.rss_mb]) for turn in of_arm]
        outcome.metrics[f"{name}_cpu_ms_per_frame"] = interval(cpu[arm], median)
        outcome.metrics[f"{name}_core_share"] = interval(core, median)
        outcome.metrics[f"{name}_rss_mb"] = interval(rss, median)
        if arm in ("jpeg", "h264"):
            outcome.metrics[f"{name}_cpu_ratio_to_passed_through"] = ratio_interval(
                cpu[arm], cpu[PASSED], median
            )
            more = np.median([turn.rss_mb for turn in of_arm]) - np.median([t.rss_mb for t in turns[PASSED]])
            outcome.metrics[f"{name}_rss_mb_above_passed_through"] = Interval.exactly(float(more))
        for number, turn in enumerate(of_arm):
            row: dict[str, Cell] = {"arm": arm, "round": number, "cpu_ms_per_frame": turn.cpu_ms_per_frame}
            row |= {"core_share": turn.core_share, "rss_mb": turn.rss_mb}
            outcome.rows.append({**row, "delivered_bytes_per_frame": turn.bytes_per_frame})
    outcome.tables = [_table(turns)]
    panels = {
        label: {arm: [getattr(turn, name) for turn in of_arm] for arm, of_arm in turns.items()}
        for name, label in (
            ("cpu_ms_per_frame", "processor time a frame, ms"),
            ("rss_mb", "resident memory, MB"),
        )
    }
    outcome.plot = lambda drawing: bars(drawing, panels)
    outcome.notes = ["delivered_bytes_per_frame is what applications get: of video, the edge's still of it"]
    return outcome


def _table(turns: Mapping[str, Sequence[Turn]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("frames")
    for column in ("CPU ms a frame", "of a core", "MB resident"):
        table.add_column(column, justify="right")
    for arm, of_arm in turns.items():
        cpu, core, rss = (
            float(np.median([getattr(turn, name) for turn in of_arm]))
            for name in ("cpu_ms_per_frame", "core_share", "rss_mb")
        )
        table.add_row(arm, figure(cpu), f"{core:.1%}", figure(rss))
    return table


CAMERA_COST: Final = Experiment(
    name="camera",
    summary="processor time and memory of a camera broker that passes frames through, or makes JPEG or H.264",
    needs="ffmpeg, the demo's video (fetched once)",
    seconds_quick=50,
    seconds_full=420,
    run=_run,
)
