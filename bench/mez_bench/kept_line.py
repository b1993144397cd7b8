"""Plays a camera over several lines: with a contract through Mez, and unchanged through DDS alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import cv2
import numpy as np

import mez as mez_client
from mez_bench.bursts import Driver
from mez_bench.experiment import Cell
from mez_bench.footage import FPS, motion_jpeg, profile
from mez_bench.line import ADDRESSES, Line
from mez_bench.payload import write_jpeg
from mez_bench.run import Run
from mez_bench.stats import Values, percentile
from mez_bench.systems import dds
from mez_bench.systems.mez import CAMERA, Brokers

LINES: Final = ((100_000_000, 0.0), (20_000_000, 0.0), (6_000_000, 0.0), (6_000_000, 0.02))
"""Rates in bits per second, and the share of packets that is lost. The last one is like a phone's."""

QUICK_LINES: Final = LINES[-2:]
LATENCY_MS: Final = 250.0
FLOOR: Final = 0.9
LOG_BYTES: Final = 48 << 20
SETTLE_S: Final = 3.0
"""Time before the measurement: the camera gets the profile, and the policy learns the line."""

SECONDS: Final = {True: 4.0, False: 15.0}
"""Duration of a measurement, by whether the run is quick."""

CONTRACT: Final = "mez, contract"
ALONE: Final = "cyclone"


def rows(run: Run, cable: Line) -> list[dict[str, Cell]]:
    """Play the camera over each line, through Mez and through DDS."""
    source, made = motion_jpeg(run), []
    for rate, lost in QUICK_LINES if run.quick else LINES:
        for name, play in ((CONTRACT, _contract), (ALONE, _alone)):
            cable.limit(rate, lost)
            with run.apart():
                ages_ms, seconds, accuracy = play(run, cable, source, rate)
            made.append(_row((rate, lost), name, ages_ms, seconds, accuracy))
            run.step(f"{name} at {rate / 1e6:g} Mbit/s, {lost:.0%} lost")
    return made


def _row(
    line: tuple[int, float], name: str, ages_ms: Values, seconds: float, accuracy: float
) -> dict[str, Cell]:
    came = len(ages_ms) > 0
    return {
        "line_mbit_per_s": line[0] / 1e6,
        "packets_lost": line[1],
        "arm": name,
        "per_s": len(ages_ms) / seconds,
        "on_time_per_s": int((ages_ms <= LATENCY_MS).sum()) / seconds,
        "age_ms_p50": percentile(50)(ages_ms) if came else None,
        "age_ms_p95": percentile(95)(ages_ms) if came else None,
        "accuracy": accuracy,
    }


def _contract(run: Run, cable: Line, source: str, _rate: float) -> tuple[Values, float, float]:
    """Return the ages of frames, the measured seconds, and the mean accuracy by the profile."""
    brokers = Brokers(run, LOG_BYTES, host=ADDRESSES[1], within=cable.within(1))
    brokers.dial_with(brokers.link_address, source, within=cable.within(0))
    ages, accuracies = [], []
    subscribed = mez_client.subscribe(
        CAMERA, edge=brokers.socket, latency_ms=LATENCY_MS, accuracy=FLOOR, profile=profile("jpeg")
    )
    with subscribed as frames:
        begin_s = time.monotonic() + SETTLE_S
        end_s = begin_s + SECONDS[run.quick]
        while time.monotonic() < end_s:
            try:
                frame = frames.next(timeout=0.2)
            except mez_client.WaitTimeoutError:
                continue
            if time.monotonic() >= begin_s and frame.age_ms is not None:
                ages.append(frame.age_ms)
                accuracies.append(frame.expected_accuracy or 0.0)
    accuracy = float(np.mean(accuracies)) if accuracies else 0.0
    return np.array(ages, np.float64), SECONDS[run.quick], accuracy


def _alone(run: Run, cable: Line, source: str, rate: float) -> tuple[Values, float, float]:
    """Return the same for samples as large as the camera's frames, which DDS delivers unchanged."""
    count = int(cv2.VideoCapture(source).get(cv2.CAP_PROP_FRAME_COUNT))
    payload = write_jpeg(run.folder, Path(source).stat().st_size // count, dds.SIZE)
    arm, driver = dds.start(run, cable, dds.CYCLONE), Driver()
    driver.subscriptions(arm.system, 1)
    driver.warm(arm.system, payload)
    seconds = SECONDS[run.quick]
    frames = round((SETTLE_S + seconds) * FPS)
    # The writer waits for the line. It may carry only a part of what is offered, and lost packets again.
    wait_s = 10 + 4 * frames * payload.stat().st_size * 8 / rate
    burst = driver.burst(arm.system, payload, 1 / FPS, frames, first=0, wait_s=wait_s)
    ages_ms = burst.latency_ms[0]
    # Samples count if they arrived within the measured time, whenever they were published.
    at_s = np.arange(frames) / FPS + ages_ms / 1e3 - SETTLE_S
    return ages_ms[(at_s >= 0) & (at_s < seconds)], seconds, 1.0
