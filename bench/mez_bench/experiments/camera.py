"""Measures the cost of a camera broker: passing Motion JPEG and H.264 through, and re-encoding frames."""

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
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.footage import FPS, SIZE, h264, motion_jpeg, profile
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
"""Arms with a camera that gives Motion JPEG."""

H264_IDLE: Final = "H.264 source, nobody subscribed"
H264_PASSED: Final = "H.264 source, passed through"
H264_DECODED: Final = "H.264 source, decoded and made H.264"
H264_ARMS: Final = (H264_IDLE, H264_PASSED, H264_DECODED)
"""Arms with a camera that gives H.264. The last one starts the broker with `--decode`. All have the ladder
`h264`, and a link that carries everything."""

ALL: Final = (*ARMS, *H264_ARMS)

IDLE_MS_MAX: Final = 0.3
"""Limit of the cost per frame of an H.264 source without subscribers: nothing is decoded."""

PASSED_SHARE_MAX: Final = 0.2
"""Limit of the cost of passing an H.264 source through, as a share of decoding and encoding it."""

_NAMES: Final = {
    H264_IDLE: "h264_source_idle",
    H264_PASSED: "h264_source_passed_through",
    H264_DECODED: "h264_source_decoded",
}
"""Names of arms in metrics."""

SETTLE_SECONDS: Final = 2.0
"""Time before the measurement of a turn: the log fills, the profile arrives, codecs start."""

FRAME_SECONDS_MAX: Final = 15.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A camera broker's cost over some seconds.

    Attributes:
        cpu_ms_per_frame: Processor time of the broker, for each frame published.
        all_ms_per_frame: This time, plus that of ffmpeg, which reads the source.
        core_share: Processor time of the broker, as a share of one core.
        rss_mb: Resident memory at the end, the log's budget included.
        bytes_per_frame: Mean size of the frames that arrived, if any.
    """

    cpu_ms_per_frame: float
    all_ms_per_frame: float
    core_share: float
    rss_mb: float
    bytes_per_frame: float


def _run(run: Run) -> Outcome:
    rounds, seconds = (1, 3.0) if run.quick else (5, 15.0)
    run.step("starting", done=0)
    # At the start of a turn, contracts fail for a moment. That needs no log line.
    logging.getLogger("mez").setLevel(logging.ERROR)
    sources = {**dict.fromkeys(ARMS, motion_jpeg(run)), **dict.fromkeys(H264_ARMS, h264(run))}
    run.expect(rounds * len(ALL))
    turns: dict[str, list[Turn]] = {arm: [] for arm in ALL}
    brokers = Brokers(run, LOG_BYTES)
    for number in range(rounds):
        for arm in in_turn(ALL, number):
            run.step(arm, done=0)
            turns[arm].append(_turn(run, brokers, sources[arm], arm, seconds))
            run.step(arm)
    outcome = _outcome(turns)
    outcome.parameters = {
        "width": SIZE[0],
        "height": SIZE[1],
        "fps": FPS,
        "source": "a file through ffmpeg, whose processor time counts only in with_ffmpeg figures",
        "link": "loopback, QUIC",
        "log_bytes": LOG_BYTES,
        "rounds": rounds,
        "seconds_per_round": seconds,
    }
    return outcome


def _turn(run: Run, brokers: Brokers, source: str, arm: str, seconds: float) -> Turn:
    # A new broker for every turn, since a process may keep memory that it once had.
    words = ("--decode",) if arm == H264_DECODED else ()
    camera = brokers.dial_with(brokers.link_address, source, words=words)
    try:
        if arm in (IDLE, H264_IDLE):
            time.sleep(SETTLE_SECONDS)
            begun, cpu_ns, helpers_ns = time.monotonic(), camera.cpu_ns(), camera.helpers_cpu_ns()
            time.sleep(seconds)
            sizes = [0]
        else:
            floor, ladder = (None, None) if arm == PASSED else (FLOOR, profile(_ladder(arm)))
            with mez_client.subscribe(
                CAMERA, edge=brokers.socket, latency_ms=LATENCY_MS, accuracy=floor, profile=ladder
            ) as frames:
                settled = time.monotonic() + SETTLE_SECONDS
                patience = settled + FRAME_SECONDS_MAX
                while time.monotonic() < settled or not _is_of(frames.next(timeout=10), arm):
                    if time.monotonic() > patience:
                        raise ExperimentError(
                            f"{arm}: no frame of this ladder arrived in {FRAME_SECONDS_MAX:g} s"
                        )
                begun, cpu_ns, helpers_ns = time.monotonic(), camera.cpu_ns(), camera.helpers_cpu_ns()
                sizes = []
                while time.monotonic() < begun + seconds:
                    sizes.append(frames.next(timeout=10).payload.nbytes)
        took_s, used_ns = time.monotonic() - begun, camera.cpu_ns() - cpu_ns
        all_ns = used_ns + camera.helpers_cpu_ns() - helpers_ns
        return Turn(
            cpu_ms_per_frame=used_ns / 1e6 / (took_s * FPS),
            all_ms_per_frame=all_ns / 1e6 / (took_s * FPS),
            core_share=used_ns / 1e9 / took_s,
            rss_mb=camera.memory()[0],
            bytes_per_frame=float(np.mean(sizes)),
        )
    finally:
        run.children.stop(camera)


def _is_of(frame: mez_client.Frame, arm: str) -> bool:
    if arm == H264_PASSED:
        return frame.rung == "original" and frame.encoding == "h264"
    return frame.rung == "original" if arm == PASSED else frame.rung.startswith(_ladder(arm))


def _ladder(arm: str) -> str:
    return "h264" if arm in H264_ARMS else arm


def _outcome(turns: Mapping[str, Sequence[Turn]]) -> Outcome:
    outcome = Outcome()
    cpu = {arm: [np.array([turn.cpu_ms_per_frame]) for turn in of_arm] for arm, of_arm in turns.items()}
    whole = {arm: [np.array([turn.all_ms_per_frame]) for turn in of_arm] for arm, of_arm in turns.items()}
    for arm, of_arm in turns.items():
        name = _NAMES.get(arm, arm.replace(" ", "_"))
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
        if arm in H264_ARMS:
            outcome.metrics[f"{name}_with_ffmpeg_cpu_ms_per_frame"] = interval(whole[arm], median)
        for number, turn in enumerate(of_arm):
            row: dict[str, Cell] = {"arm": arm, "round": number, "cpu_ms_per_frame": turn.cpu_ms_per_frame}
            row |= {"with_ffmpeg_cpu_ms_per_frame": turn.all_ms_per_frame}
            row |= {"core_share": turn.core_share, "rss_mb": turn.rss_mb}
            outcome.rows.append({**row, "delivered_bytes_per_frame": turn.bytes_per_frame})
    outcome.metrics["h264_source_passed_through_share_of_decoded"] = ratio_interval(
        whole[H264_PASSED], whole[H264_DECODED], median
    )
    outcome.targets = [
        Target("h264_source_idle_cpu_ms_per_frame", "<=", IDLE_MS_MAX),
        Target("h264_source_passed_through_share_of_decoded", "<=", PASSED_SHARE_MAX),
    ]
    outcome.tables = [_table(turns)]
    panels = {
        label: {arm: [getattr(turn, name) for turn in of_arm] for arm, of_arm in turns.items()}
        for name, label in (
            ("cpu_ms_per_frame", "processor time per frame, ms"),
            ("rss_mb", "resident memory, MB"),
        )
    }
    outcome.plot = lambda drawing: bars(drawing, panels)
    outcome.notes = ["delivered_bytes_per_frame: bytes that applications get; for video, the edge's still"]
    return outcome


def _table(turns: Mapping[str, Sequence[Turn]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("frames")
    for column in ("CPU ms per frame", "with ffmpeg", "of a core", "MB resident"):
        table.add_column(column, justify="right")
    for arm, of_arm in turns.items():
        cpu, whole, core, rss = (
            float(np.median([getattr(turn, name) for turn in of_arm]))
            for name in ("cpu_ms_per_frame", "all_ms_per_frame", "core_share", "rss_mb")
        )
        table.add_row(arm, figure(cpu), figure(whole), f"{core:.1%}", figure(rss))
    return table


CAMERA_COST: Final = Experiment(
    name="camera",
    summary="processor time and memory of a camera broker that passes frames through, or makes JPEG or H.264",
    needs="ffmpeg with libx264, the demo's video (fetched once)",
    seconds_quick=60,
    seconds_full=720,
    run=_run,
)
