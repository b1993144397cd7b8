"""A hall of cameras with H.264 sources on one host: an edge, 16 camera brokers, and an application."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import mez as mez_client
from mez_bench import viewer
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
