"""A hall of cameras with H.264 sources on one host: an edge, 16 camera brokers, and an application."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

import mez as mez_client
from mez_bench import viewer
from mez_bench.errors import ExperimentError
from mez_bench.footage import FPS, SIZE, h264, profile
from mez_bench.systems.mez import Brokers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mez_bench.children import Child
    from mez_bench.experiment import Cell
    from mez_bench.run import Run

CAMERAS: Final = 16
LOG_BYTES: Final = 64 << 20

STARTED_AT_ONCE: Final = 4
"""Cameras that are started at once. More would wait for each other on a host with few processors."""

START_SECONDS_MAX: Final = 60.0

STEP_S: Final = 1.0
ON_TIME_MIN: Final = 0.95
"""The share of the published frames that must come on time."""

STEPS_MIN: Final = 3
"""The number of such steps in a row after which frames count as on time."""

SETTLE_SECONDS_MAX: Final = 120.0
ANSWER_SECONDS_MAX: Final = 60.0
"""How long an answer of the application may take on a busy host."""

PARAMETERS: Final[Mapping[str, Cell | Sequence[Cell]]] = {
    "cameras": CAMERAS,
    "width": SIZE[0],
    "height": SIZE[1],
    "fps": FPS,
    "source": "the demo's video as H.264 of 1.5 Mbit/s, passed through",
    "latency_ms": viewer.LATENCY_MS,
    "accuracy": viewer.FLOOR,
    "log_bytes": LOG_BYTES,
}
"""For the result of an experiment."""


class Hall:
    """An edge with a page, and its cameras.

    Args:
        run: The run that they belong to.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        source = h264(run)
        self.brokers = Brokers(run, LOG_BYTES, edge_words=("--web", "127.0.0.1:0"))
        self._rungs = run.folder / "profile.json"
        self._rungs.write_text(json.dumps(profile("h264")))
        names = [f"hall/cam{number:02}" for number in range(CAMERAS)]
        self._cameras: list[Child] = []
        for at in range(0, CAMERAS, STARTED_AT_ONCE):
            # The source is encoded once; each camera only copies packets from its file.
            started = [
                self.brokers.dial_with(self.brokers.link_address, source, name=name, camera=name, wait=False)
                for name in names[at : at + STARTED_AT_ONCE]
            ]
            for camera in started:
                camera.ready(START_SECONDS_MAX)
            self._cameras += started

    def application(self) -> Child:
        """Start an application with a contract on all cameras, which decodes nothing (`viewer.py`)."""
        words = [sys.executable, str(Path(viewer.__file__)), self.brokers.socket, str(self.brokers.keys)]
        child = self._run.children.start("application", [*words, str(self._rungs), "0"])
        child.ready()
        return child

    def cpu_ns(self) -> tuple[int, int]:
        """Return the processor time of the edge and of all cameras, with their helper processes."""
        edge = self.brokers.edge
        cameras = sum(camera.cpu_ns() + camera.helpers_cpu_ns() for camera in self._cameras)
        return edge.cpu_ns() + edge.helpers_cpu_ns(), cameras

    def link_bytes(self) -> int:
        """Return the payload bytes of all cameras that have crossed their links."""
        cameras = mez_client.cameras(edge=self.brokers.socket, keys=self.brokers.keys)
        return sum(camera.link_bytes for camera in cameras)


@dataclass(frozen=True, slots=True)
class Step:
    """About a second of an application.

    Attributes:
        at_s: When the step ended, in seconds after some event; negative before the event.
        on_time_share: Frames that came within the latency bound, divided by published frames.
        cameras_cores: Processor time of all camera brokers, divided by elapsed time.
    """

    at_s: float
    on_time_share: float
    cameras_cores: float


def punctual_s(steps: Sequence[Step]) -> float | None:
    """Return when enough frames began to be on time: when the first of `STEPS_MIN` good steps in a row began.

    Args:
        steps: Successive steps since the event. `None` is returned if there are no such steps.
    """
    for at in range(len(steps) - STEPS_MIN + 1):
        if all(step.on_time_share >= ON_TIME_MIN for step in steps[at : at + STEPS_MIN]):
            return max(0.0, steps[at].at_s - STEP_S)
    return None


class Watched:
    """An application of a hall whose frames are counted step by step.

    Args:
        hall: The hall.
        application: The application.
    """

    def __init__(self, hall: Hall, application: Child) -> None:
        self._hall = hall
        self._application = application
        self._application.ask("begin", ANSWER_SECONDS_MAX)
        self._asked = time.monotonic()
        _, self._cpu_ns = hall.cpu_ns()

    def step(self, event: float) -> Step:
        """Count for a step. `event`: the time of the event, by `time.monotonic()`."""
        time.sleep(STEP_S)
        # On a busy host the answer may take long. Frames that come meanwhile count for the next step.
        read = self._application.ask("end", ANSWER_SECONDS_MAX)
        now = time.monotonic()
        took_s, self._asked = now - self._asked, now
        _, cpu_ns = self._hall.cpu_ns()
        cores, self._cpu_ns = (cpu_ns - self._cpu_ns) / 1e9 / took_s, cpu_ns
        on_time = int(np.count_nonzero(np.array(read["ages_ms"], float) <= viewer.LATENCY_MS))
        return Step(now - event, on_time / (CAMERAS * FPS * took_s), cores)

    def until_punctual(self, seconds_max: float) -> list[Step]:
        """Count until frames are on time, or for `seconds_max`. Times are those since the call."""
        called, steps = time.monotonic(), list[Step]()
        while punctual_s(steps) is None and time.monotonic() - called < seconds_max:
            steps.append(self.step(called))
        return steps

    def settle(self) -> float:
        """Wait until frames are on time after the start of the application, and return how long that took.

        Raises:
            ExperimentError: It took more than `SETTLE_SECONDS_MAX`.
        """
        took_s = punctual_s(self.until_punctual(SETTLE_SECONDS_MAX))
        if took_s is None:
            raise ExperimentError(
                f"frames are still late {SETTLE_SECONDS_MAX:.0f} s after the start of the application; "
                "is the machine busy with other work?"
            )
        return took_s
