"""Measures where a frame's time goes, from its capture to the application: the stages of `frame.trace`."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

import mez as mez_client
from mez_bench.arms import in_turn
from mez_bench.children import mez
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.footage import FPS, SIZE, h264, h264_of_openh264, motion_jpeg, profile
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, percentile
from mez_bench.systems.mez import CAMERA, Brokers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINK_BITS_PER_SECOND: Final = 20_000_000
QUEUE_BYTES_MAX: Final = 1 << 20
LOG_BYTES: Final = 32 << 20
LATENCY_MS: Final = 100.0
FLOOR: Final = 0.9

AS_THEY_ARE: Final = "as they are"
PASSED: Final = "x264 source passed through"
PASSED_OPENH264: Final = "openh264 source passed through"
ARMS: Final = (AS_THEY_ARE, "jpeg", "h264", PASSED, PASSED_OPENH264)
"""Frames as the camera gives them, for an application without an accuracy floor; the two ladders; and frames
of two cameras that give H.264, with the second ladder, which is not needed."""

SOURCES: Final = {PASSED: "bench/h264", PASSED_OPENH264: "bench/openh264"}
"""The cameras that give H.264. The other one gives Motion JPEG."""

_NAMES: Final = {
    AS_THEY_ARE: "as_they_are",
    "jpeg": "jpeg",
    "h264": "h264",
    PASSED: "h264_source",
    PASSED_OPENH264: "openh264_source",
}
"""Names of arms in metrics, and of parts (`--only`)."""

TOTAL_MS_MAX: Final = {PASSED: (10.0, 15.0), PASSED_OPENH264: (10.0, 15.0), "h264": (14.0, 20.0)}
"""Targets of the total time: p50 and p95."""

FIRST_FRAMES: Final = 15
"""First frames of each turn, not counted: the camera gets the profile, and the policy learns the link."""

ROUND_SECONDS_MAX: Final = 60.0

PARTS: Final[Mapping[str, Sequence[str]]] = {
    "intake": ("published",),
    "waiting for the link": ("considered",),
    "controller": ("chosen", "queued"),
    "camera's codec": ("encoding", "encoded"),
    "network": ("sent", "arriving", "arrived"),
    "edge": ("decoded", "logged", "handed"),
    "application": ("received",),
    "application's decoder": ("taken", "opened"),
}
"""The stages that each part consists of. `queued` is the broker's work after the codec, and includes what the
controller learns from the frame. Frames that are not made smaller have no `considered`: their waiting is in
`queued`. Video is decoded by the time the frame is `taken`; its pixels are converted afterwards."""

Frames = dict[str, list[float]]
"""By part and for `total`: milliseconds of each frame."""


def _run(run: Run) -> Outcome:
    rounds, frames = (2, 45) if run.quick else (10, 150)
    parts = run.parts(tuple(_NAMES.values()))
    arms = tuple(arm for arm in ARMS if _NAMES[arm] in parts)
    run.step("starting", done=0)
    # At the start of a turn, contracts fail for a moment. That needs no log line.
    logging.getLogger("mez").setLevel(logging.ERROR)
    source = motion_jpeg(run)
    brokers = Brokers(run, LOG_BYTES)
    link = run.children.start(
        "link",
        mez(
            *("measure", "link", "--to", brokers.link_address),
            *("--bits-per-second", f"{LINK_BITS_PER_SECOND}", "--queue-bytes-max", f"{QUEUE_BYTES_MAX}"),
        ),
    )
    address = link.ready()
    brokers.dial_with(address, source)
    videos = {PASSED: h264, PASSED_OPENH264: h264_of_openh264}
    for arm in filter(SOURCES.__contains__, arms):
        brokers.dial_with(address, videos[arm](run), name=f"camera of {arm}", camera=SOURCES[arm])
    run.expect(rounds * len(arms))
    turns: dict[str, list[Frames]] = {arm: [] for arm in arms}
    errors_ms = []
    for turn in range(rounds):
        for arm in in_turn(arms, turn):
            run.step(arm, done=0)
            got, error_ms = _turn(brokers.socket, arm, frames)
            turns[arm].append(got)
            errors_ms.append(error_ms)
            run.step(arm)
    outcome = _outcome(turns)
    outcome.parameters = {
        "width": SIZE[0],
        "height": SIZE[1],
        "fps": FPS,
        "link_bits_per_second": LINK_BITS_PER_SECOND,
        "link_queue_bytes_max": QUEUE_BYTES_MAX,
        "latency_ms": LATENCY_MS,
        "accuracy": FLOOR,
        "parts": list(parts),
        "rounds": rounds,
        "frames_per_round": frames,
        "first_frames_not_counted": FIRST_FRAMES,
        "clock_error_ms_median": float(np.median(errors_ms)),
    }
    return outcome


def _turn(edge: str, arm: str, frames: int) -> tuple[Frames, float]:
    """Subscribe for this many frames; return their times, and the possible error of the clock offsets."""
    floor, ladder = (None, None) if arm == AS_THEY_ARE else (FLOOR, profile(_ladder(arm)))
    got: Frames = {name: [] for name in (*PARTS, "total")}
    error_ms = 0.0
    deadline = time.monotonic() + ROUND_SECONDS_MAX
    first = FIRST_FRAMES
    with mez_client.subscribe(
        SOURCES.get(arm, CAMERA),
        edge=edge,
        latency_ms=LATENCY_MS,
        accuracy=floor,
        profile=ladder,
    ) as subscription:
        while len(got["total"]) < frames:
            frame = subscription.next(timeout=10)
            if time.monotonic() > deadline:
                raise ExperimentError(
                    f"{arm}: {len(got['total'])} of {frames} frames arrived in {ROUND_SECONDS_MAX:g} s"
                )
            if not frame.trace.ms or not _is_of(frame, arm):
                continue
            if first > 0:
                first -= 1
                continue
            assert frame.image is not None, "decoding it is the last stage"
            steps = dict(frame.trace.steps())
            for part, stages in PARTS.items():
                got[part].append(sum(steps.get(stage, 0.0) for stage in stages))
            got["total"].append(frame.trace.ms["opened"])
            error_ms = max(error_ms, frame.trace.error_ms or 0.0)
    return got, error_ms


def _is_of(frame: mez_client.Frame, arm: str) -> bool:
    if arm in SOURCES:
        return frame.rung == "original" and frame.encoding == "h264"
    return frame.rung == "original" if arm == AS_THEY_ARE else frame.rung.startswith(arm)


def _ladder(arm: str) -> str:
    return "h264" if arm in SOURCES else arm


def _outcome(turns: Mapping[str, list[Frames]]) -> Outcome:
    outcome = Outcome()
    for arm, rounds in turns.items():
        of = {part: [np.array(frames[part]) for frames in rounds] for part in (*PARTS, "total")}
        name = _NAMES[arm]
        if arm != AS_THEY_ARE:
            outcome.metrics[f"{name}_controller_ms_p95"] = interval(of["controller"], percentile(95))
            outcome.metrics[f"{name}_controller_share"] = _share(of, "controller")
            outcome.metrics[f"{name}_pixel_work_ms_p50"] = interval(_pixel_work(of), median)
            outcome.metrics[f"{name}_pixel_work_ms_p95"] = interval(_pixel_work(of), percentile(95))
            outcome.targets += [
                Target(f"{name}_controller_ms_p95", "<=", 2.0),
                Target(f"{name}_controller_share", "<=", 0.05),
            ]
        outcome.metrics[f"{name}_network_share"] = _share(of, "network")
        outcome.metrics[f"{name}_total_ms_p50"] = interval(of["total"], median)
        outcome.metrics[f"{name}_total_ms_p95"] = interval(of["total"], percentile(95))
        if arm in TOTAL_MS_MAX:
            p50, p95 = TOTAL_MS_MAX[arm]
            outcome.targets += [
                Target(f"{name}_total_ms_p50", "<=", p50),
                Target(f"{name}_total_ms_p95", "<=", p95),
            ]
        outcome.rows += [_row(arm, part, of[part]) for part in (*PARTS, "total")]
    outcome.tables = [_table(outcome.rows)]
    outcome.plot = lambda drawing: _plot(drawing, turns)
    return outcome


def _share(of: Mapping[str, Sequence[Values]], part: str) -> Interval:
    """Return a part's share of the total time."""
    rounds = [np.array([each.sum() / total.sum()]) for each, total in zip(of[part], of["total"], strict=True)]
    return interval(rounds, median)


def _pixel_work(of: Mapping[str, Sequence[Values]]) -> list[Values]:
    codecs = zip(of["camera's codec"], of["application's decoder"], strict=True)
    return [camera + application for camera, application in codecs]


def _row(arm: str, part: str, rounds: Sequence[Values]) -> dict[str, Cell]:
    values = np.concatenate(rounds)
    row: dict[str, Cell] = {"arm": arm, "part": part, "frames": len(values), "ms_mean": float(values.mean())}
    for percent in (50, 95, 99):
        row[f"ms_p{percent}"] = float(np.percentile(values, percent))
    return row


def _table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    """Return a table with a row for each part, and the median and p95 of each arm as columns."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("part")
    known = {(row["arm"], row["part"]): row for row in rows}
    arms = tuple(arm for arm in ARMS if (arm, "total") in known)
    for arm in arms:
        table.add_column(f"{arm}, p50 ms", justify="right")
        table.add_column("p95 ms", justify="right")
    for part in (*PARTS, "total"):
        cells = []
        for arm in arms:
            row = known[arm, part]
            cells += [figure(float(row[f"ms_p{percent}"] or 0.0)) for percent in (50, 95)]
        table.add_row(part, *cells)
    return table


def _plot(drawing: Figure, turns: Mapping[str, list[Frames]]) -> None:
    axes = drawing.subplots()
    places = np.arange(len(turns))
    left = np.zeros(len(turns))
    for part in PARTS:
        # Means, since the means of the parts add up to the mean of the total.
        widths = np.array([np.mean(np.concatenate([f[part] for f in rounds])) for rounds in turns.values()])
        axes.barh(places, widths, left=left, label=part)
        left += widths
    axes.set_yticks(places, list(turns))
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds since the capture, mean")
    rate = LINK_BITS_PER_SECOND / 1e6
    axes.set_title(f"{SIZE[0]}x{SIZE[1]} at {FPS} frames per second over a link of {rate:g} Mbit/s")
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.12))


BREAKDOWN: Final = Experiment(
    name="breakdown",
    summary="where a frame's time goes, stage by stage, with the JPEG and the H.264 ladder",
    needs="ffmpeg with libx264, the demo's video (fetched once)",
    seconds_quick=60,
    seconds_full=660,
    run=_run,
)
