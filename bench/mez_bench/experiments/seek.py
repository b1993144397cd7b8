"""Measures how long it takes to show any instant of a log of video, and to join a chain in the middle."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from rich.table import Table

import mez
from mez_bench import viewer
from mez_bench.children import mez as command
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.footage import FPS, SIZE, motion_jpeg, profile
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, percentile
from mez_bench.systems.mez import CAMERA, Brokers

MEMORY_BYTES: Final = 8 << 20
"""Memory of each broker: half a minute of the log, so that most of the log is on disk only."""
MEMORY_BYTES_QUICK: Final = 1 << 20
"""Memory of each broker in a quick run, whose log is half a minute long."""
LINK_BITS_PER_SECOND: Final = 20_000_000
QUEUE_BYTES_MAX: Final = 1 << 20
SEED: Final = 24
SPAN_SECONDS: Final = 2.0
"""Time span of a reading, which ends with its first frame."""


def _run(run: Run) -> Outcome:
    seconds, looks, entries = (30.0, 60, 6) if run.quick else (600.0, 300, 30)
    memory_bytes = MEMORY_BYTES_QUICK if run.quick else MEMORY_BYTES
    run.step("starting", done=0)
    source = motion_jpeg(run)
    rungs = run.folder / "profile.json"
    rungs.write_text(json.dumps(profile("h264")))
    store = run.folder / "store"
    brokers = Brokers(run, memory_bytes, edge_words=("--store", str(store)))
    up = ("--to", brokers.link_address, "--bits-per-second", f"{LINK_BITS_PER_SECOND}")
    link = run.children.start(
        "link", command("measure", "link", *up, "--queue-bytes-max", f"{QUEUE_BYTES_MAX}")
    )
    camera = brokers.dial_with(link.ready(), source)
    words = [sys.executable, str(Path(viewer.__file__)), brokers.socket, str(brokers.keys), str(rungs), "1"]
    wants = run.children.start("program", words)
    wants.ready()
    run.expect(int(seconds) + entries + looks + 1)
    time.sleep(2.0)
    begun = time.time()
    for _ in range(int(seconds)):
        time.sleep(1.0)
        run.step("recording")
    entered = [_timed(run, "entering", lambda: _enter(brokers)) for _ in range(entries)]
    ended = time.time()
    run.children.stop(wants)
    run.children.stop(camera)
    chance = random.Random(SEED)
    instants = [chance.uniform(begun, ended - 1.0) for _ in range(looks)]
    edge_ns, own_ns = brokers.edge.cpu_ns(), time.process_time_ns()
    shown = [_timed(run, "looking", partial(_look, brokers, at)) for at in instants]
    edge_ns, own_ns = brokers.edge.cpu_ns() - edge_ns, time.process_time_ns() - own_ns
    run.children.stop(brokers.edge)
    sizes, export_s = _export(run, brokers, store)
    run.step("exporting")
    outcome = _outcome(shown, entered)
    outcome.metrics["seek_cpu_ms"] = Interval.exactly((edge_ns + own_ns) / 1e6 / looks)
    outcome.metrics["seek_cpu_ms_edge"] = Interval.exactly(edge_ns / 1e6 / looks)
    outcome.metrics["export_s"] = Interval.exactly(export_s)
    begins, others = ([size for size, first in sizes if first is of] for of in (True, False))
    outcome.metrics["beginning_kb"] = Interval.exactly(float(np.mean(begins)) / 1e3)
    outcome.metrics["other_frame_kb"] = Interval.exactly(float(np.mean(others)) / 1e3)
    outcome.metrics["frames_per_beginning"] = Interval.exactly(len(sizes) / len(begins))
    outcome.parameters = {
        "width": SIZE[0],
        "height": SIZE[1],
        "fps": FPS,
        "source": "the demo's video as Motion JPEG, sent as H.264",
        "last_hop": "Unix socket and shared memory",
        "link_bits_per_second": LINK_BITS_PER_SECOND,
        "memory_bytes": memory_bytes,
        "log_seconds": seconds,
        "log_frames": len(sizes),
        "looks": looks,
        "entries": entries,
        "seed": SEED,
    }
    return outcome


def _timed(run: Run, what: str, act: Callable[[], float]) -> float:
    """Run an action, and return the milliseconds that it reports."""
    took = act()
    run.step(what)
    return took


def _look(brokers: Brokers, at: float) -> float:
    """Return the milliseconds from the request for an instant to the pixels."""
    begun = time.perf_counter()
    reading = mez.read(
        CAMERA,
        since=datetime.fromtimestamp(at, UTC),
        until=datetime.fromtimestamp(at + SPAN_SECONDS, UTC),
        held_only=True,
        edge=brokers.socket,
        keys=brokers.keys,
    )
    with reading as frames:
        frame = next(iter(frames), None)
        if frame is None:
            raise ExperimentError(f"the log has no frame of {at}")
        frame.image.shape  # noqa: B018
        took = (time.perf_counter() - begun) * 1e3
    apart = frame.captured.timestamp() - at
    if not 0.0 <= apart <= SPAN_SECONDS / 2:
        raise ExperimentError(f"asked for {at}, got a frame {apart:.3f} s later")
    return took


def _enter(brokers: Brokers) -> float:
    """Return the milliseconds that a program waits for a picture if it joins in the middle of a chain."""
    begun = time.perf_counter()
    with mez.subscribe("**", edge=brokers.socket, keys=brokers.keys) as frames:
        for frame in frames:
            frame.image.shape  # noqa: B018
            return (time.perf_counter() - begun) * 1e3
    raise ExperimentError("no frame arrived")


def _export(run: Run, brokers: Brokers, store: Path) -> tuple[list[tuple[int, bool]], float]:
    """Export the log without encoding it again.

    Return the bytes of each frame, whether it begins a chain, and how many seconds the export took.
    """
    made = run.folder / "log.mp4"
    begun = time.perf_counter()
    words = ("store", "export", CAMERA, str(made), "--store", str(store), "--keys", str(brokers.keys))
    done = subprocess.run(command(*words, "--codec", "copy"), capture_output=True, text=True, check=False)
    took = time.perf_counter() - begun
    if done.returncode != 0:
        raise ExperimentError(f"mez store export: {done.stderr.strip()}")
    probe = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-of", "json", str(made)]
    probe += ["-show_entries", "packet=size,flags"]
    said = subprocess.run(probe, capture_output=True, text=True, check=True)
    packets = json.loads(said.stdout)["packets"]
    return [(int(packet["size"]), packet["flags"].startswith("K")) for packet in packets], took


def _outcome(shown: Sequence[float], entered: Sequence[float]) -> Outcome:
    outcome = Outcome()
    looks: list[Values] = [np.array([took]) for took in shown]
    for name, statistic in (("p50", median), ("p95", percentile(95))):
        outcome.metrics[f"seek_ms_{name}"] = interval(looks, statistic)
    outcome.metrics["seek_ms_max"] = Interval.exactly(max(shown))
    outcome.metrics["enter_ms_p50"] = interval([np.array([took]) for took in entered], median)
    outcome.metrics["enter_ms_max"] = Interval.exactly(max(entered))
    outcome.targets = [Target("seek_ms_max", "<=", 100)]
    for took in shown:
        row: dict[str, Cell] = {"what": "look", "ms": took}
        outcome.rows.append(row)
    outcome.rows += [{"what": "enter", "ms": took} for took in entered]
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for label in ("what", "p50 ms", "p95 ms", "max ms"):
        table.add_column(label, justify="left" if label == "what" else "right")
    for label, values in (("any instant of the log", shown), ("a program that joins", entered)):
        table.add_row(label, *(figure(float(np.percentile(values, rank))) for rank in (50, 95, 100)))
    outcome.tables = [table]
    outcome.notes = [
        "seek: from the request for an instant to the pixels of the next frame, each by a new reading",
        "seek_cpu_ms: processor time of the edge and of the program per seek, on average",
        "seek_cpu_ms_edge: the edge's part of seek_cpu_ms",
        "enter: from the subscription to the first pixels, in the middle of a chain",
    ]
    return outcome


SEEK: Final = Experiment(
    name="seek",
    summary="how long it takes to show any instant of a log of video, and to join a chain in the middle",
    needs="ffmpeg, the demo's video (fetched once)",
    seconds_quick=60,
    seconds_full=720,
    run=_run,
)
