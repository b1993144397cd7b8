"""Sends bursts of frames through a system of processes, and collects what arrived."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mez_bench.children import Child
from mez_bench.errors import ExperimentError
from mez_bench.stats import Values

LEAD_NS: Final = 100_000_000
"""Time from the command to the first frame, in which the programs read the payload."""

WARM_SECONDS_MAX: Final = 15.0
"""How long a system may take until it delivers every frame of a burst."""


@dataclass(slots=True)
class System:
    """A publisher, a subscriber, and the brokers between them.

    Attributes:
        name: Its name in results and messages.
        publisher: The program that sends bursts.
        subscriber: The program that receives bursts.
        brokers: The brokers between them, by name.
        details: Versions and settings to report.
    """

    name: str
    publisher: Child
    subscriber: Child
    brokers: Mapping[str, Child]
    details: dict[str, str] = field(default_factory=dict)

    @property
    def processes(self) -> dict[str, Child]:
        """All processes, in the order in which a frame passes them."""
        return {"publisher": self.publisher, **self.brokers, "subscriber": self.subscriber}


@dataclass(frozen=True, slots=True)
class Burst:
    """The result of a burst, without its first frames.

    Attributes:
        latency_ms: Time from due to received: a row for each subscription, NaN for lost frames.
        corrupt: Frames that arrived with wrong bytes, or twice.
        late_ms: How late the publisher's calls were. The latencies include this time.
        call_ms: How long each call took.
        cpu_ms_per_frame: Processor time per frame, by process.
        page_faults_per_frame: Page faults per frame, by process.
    """

    latency_ms: NDArray[np.float64]
    corrupt: int
    late_ms: Values
    call_ms: Values
    cpu_ms_per_frame: dict[str, float]
    page_faults_per_frame: dict[str, float]

    @property
    def received_ms(self) -> Values:
        """The latencies of all frames that arrived."""
        flat: Values = self.latency_ms[~np.isnan(self.latency_ms)]
        return flat

    @property
    def lost(self) -> int:
        """How many frames did not arrive."""
        return int(np.isnan(self.latency_ms).sum())


class Driver:
    """Sends bursts through systems, one at a time."""

    def __init__(self) -> None:
        self._number = 0

    def subscriptions(self, system: System, count: int) -> None:
        """Make the subscriber have this many subscriptions."""
        system.subscriber.ask(f"subscriptions {count}")

    def warm(self, system: System, payload: Path, subscriptions: int = 1) -> None:
        """Send short bursts until one arrives whole. Everything is then connected."""
        deadline = time.monotonic() + WARM_SECONDS_MAX
        while True:
            burst = self.burst(system, payload, 0.02, frames=5, first=0, subscriptions=subscriptions)
            if burst.lost == 0:
                return
            if time.monotonic() > deadline:
                words = "".join(f"\n{child.name}:{child.last_words()}" for child in system.processes.values())
                raise ExperimentError(f"{system.name} does not deliver: {burst.lost} frames lost.{words}")

    def burst(
        self,
        system: System,
        payload: Path,
        interval_s: float,
        frames: int,
        first: int,
        subscriptions: int = 1,
        wait_s: float = 10,
    ) -> Burst:
        """Send a burst.

        Args:
            system: The system to send through.
            payload: File with the content of every frame.
            interval_s: Time from one frame to the next.
            frames: Number of frames that are measured.
            first: Number of warm-up frames before them.
            subscriptions: Number of subscriptions of the subscriber.
            wait_s: How long after the last frame is due the programs may take to answer.
        """
        self._number += 1
        interval_ns = round(interval_s * 1e9)
        first_ns = time.monotonic_ns() + LEAD_NS
        total = first + frames
        command = f"burst {self._number} {first_ns} {interval_ns} {total} {payload}"
        system.subscriber.tell(command)
        system.publisher.tell(command)
        # Read the usage midway between two frames, when every process has finished the earlier one.
        _sleep_until(first_ns + first * interval_ns - min(interval_ns // 2, LEAD_NS // 2))
        before = _usage(system)
        patience_s = total * interval_s + wait_s
        published = system.publisher.answer(patience_s)
        received = system.subscriber.answer(patience_s)
        if published["burst"] != self._number or received["burst"] != self._number:
            raise ExperimentError(f"{system.name}: a program answered for another burst; did it hang?")
        after = _usage(system)
        latency_ns = np.array(received["latency_ns"], np.float64).reshape(subscriptions, total)
        return Burst(
            latency_ms=latency_ns[:, first:] / 1e6,
            corrupt=int(received["corrupt"]) + int(received["duplicate"]),
            late_ms=np.array(published["late_ns"][first:], np.float64) / 1e6,
            call_ms=np.array(published["call_ns"][first:], np.float64) / 1e6,
            cpu_ms_per_frame={name: (after[name][0] - before[name][0]) / 1e6 / frames for name in before},
            page_faults_per_frame={name: (after[name][1] - before[name][1]) / frames for name in before},
        )


def _usage(system: System) -> dict[str, tuple[int, int]]:
    return {name: (child.cpu_ns(), child.page_faults()) for name, child in system.processes.items()}


def _sleep_until(due_ns: int) -> None:
    time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
