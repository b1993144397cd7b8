"""Emulates the links of a scenario between the demo's cameras and its edge.

Each camera has a relay of its own, or all share one. Scenario files (docs/scenarios.md) also run in the
deterministic simulation. Root rights are not needed.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from mez._processes import LEASH, ProcessError, mez_command

ANSWER_SECONDS_MAX: Final = 10.0

LINKS_MAX: Final = 16
"""The most cameras of one demo. Each is a process with a video decoder of its own."""


@dataclass(frozen=True, slots=True)
class Link:
    """A camera's link.

    Attributes:
        camera: Its name.
        address: Where the relay takes its datagrams, `HOST:PORT`.
        fps: Frames per second of the camera.
        steps: Bits per second, each from a time in seconds on; 0 while the link is cut.
    """

    camera: str
    address: str
    fps: float
    steps: Sequence[tuple[float, int]]

    def megabits_at(self, at_s: float) -> float:
        """Return what it carries at a time of the scenario, in Mbit/s."""
        place = bisect_right(self.steps, at_s, key=lambda step: step[0])
        return self.steps[max(place - 1, 0)][1] / 1e6


@dataclass(frozen=True, slots=True)
class Scenario:
    """The content of a scenario file.

    Attributes:
        name: Its name.
        about: Its description, in a sentence.
        seconds: How long it lasts.
        links: A link for each camera in the subscription.
        cameras: The pattern of the subscription.
        latency_ms: The latency bound asked for; `None` for none.
        accuracy: The accuracy floor asked for; `None` for none.
        edge_channels: Declared channels that cameras share, as for `mez edge --channel`.
        shared: The cameras that share one queue. Its rate is for all of them together.
    """

    name: str
    about: str
    seconds: float
    links: Sequence[Link]
    cameras: str
    latency_ms: float | None
    accuracy: float | None
    edge_channels: Sequence[str] = ()
    shared: Sequence[str] = ()

    def worse_at_s(self) -> list[float]:
        """Return the times at which the rate of some link falls below two thirds of its last rate.

        Links with many steps are left out: they change all the time, so a camera cannot settle.
        """
        times = set()
        for link in self.links:
            if len(link.steps) > 32:
                continue
            for (_, before), (at_s, after) in zip(link.steps, link.steps[1:], strict=False):
                if after < before * 2 / 3:
                    times.add(at_s)
        return sorted(times)


class Channel:
    """The running relays.

    Args:
        scenario: A file, or the name of a scenario that comes with Mez.
        edge: Where the edge listens for cameras, `HOST:PORT`.
        log: File for errors.

    Raises:
        ProcessError: There is no such scenario, or it is invalid; or this build of Mez has no emulator.
    """

    def __init__(self, scenario: str, edge: str, log: Path) -> None:
        path = Path(scenario)
        word = str(path.resolve()) if path.is_file() else scenario
        command = mez_command("measure", "emulate", "--scenario", word, "--to", edge)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("MEZ_")},
                process_group=0,
            )
        assert self._process.stdout is not None, "asked for above"
        self._lines: queue.Queue[str] = queue.Queue(64)
        threading.Thread(
            target=_read, args=(self._process.stdout, self._lines), name="output of the channel", daemon=True
        ).start()
        try:
            self.scenario = _scenario(json.loads(self._line()))
            if len(self.scenario.links) > LINKS_MAX:
                self.stop()
                raise ProcessError(
                    f"--scenario {scenario} has {len(self.scenario.links)} cameras; the demo runs at most "
                    f"{LINKS_MAX}; leave some out"
                )
        except queue.Empty:
            self.stop()
            said = log.read_text(errors="replace").strip().removeprefix("mez: ").removeprefix(f"{word}: ")
            if "unrecognized subcommand" in said:
                said = "this build of Mez has no emulator; in a checkout, build one with make demo"
            raise ProcessError(f"--scenario {scenario}: {said or 'the emulator does not answer'}") from None

    def begin(self) -> None:
        """Start the scenario's time. Until then, links have the rates of its beginning."""
        self._ask("begin")

    def open(self) -> None:
        """Remove the limits of all links."""
        self._ask("open")

    def late_ms_max(self) -> float:
        """Return the longest time by which a datagram came later than the scenario says, in milliseconds.

        It is a delay of this machine. If it is not small compared with the latency bound, other work
        disturbed the run.
        """
        return max(float(way["late_ms_max"]) for link in self._ask("") for way in link.values())

    def stop(self) -> None:
        """End it. Does nothing if it has ended."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, word: str) -> list[Mapping[str, Any]]:
        assert self._process.stdin is not None, "asked for above"
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
            answer: list[Mapping[str, Any]] = json.loads(self._line())
        except (OSError, queue.Empty):
            raise ProcessError("the emulated channel ended, so the cameras cannot reach the edge") from None
        return answer

    def _line(self) -> str:
        line = self._lines.get(timeout=ANSWER_SECONDS_MAX)
        if not line:
            raise queue.Empty
        return line


def _read(output: IO[str], lines: "queue.Queue[str]") -> None:
    """Put every line into the queue, and an empty one at the end."""
    with output:
        for line in output:
            lines.put(line)
    lines.put("")


def _scenario(said: Mapping[str, Any]) -> Scenario:
    first: Mapping[str, Any] = next(iter(said["subscriptions"]), {})
    return Scenario(
        name=said["name"],
        about=said["about"],
        seconds=said["seconds"],
        links=[
            Link(
                camera=camera["name"],
                address=camera["address"],
                fps=camera["frames_per_second"],
                steps=[(float(at_s), int(rate)) for at_s, rate in camera["bits_per_second"]],
            )
            for camera in said["cameras"]
            # Other cameras would send nothing.
            if camera["wanted"]
        ],
        cameras=first.get("cameras", "**"),
        latency_ms=first.get("latency_ms"),
        accuracy=first.get("accuracy"),
        edge_channels=said["edge_channels"],
        shared=[
            said["cameras"][place]["name"] for place in said["shared"] if said["cameras"][place]["wanted"]
        ],
    )
