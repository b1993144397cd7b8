"""An edge, and plays of devices and engines at it, each over a link of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import mez as mez_client
from mez_bench.children import Child, mez
from mez_bench.offload.networks import Network
from mez_bench.offload.plans import Captured, Devices, Engine, Got, Played, Worked
from mez_bench.run import ROOT, Run
from mez_bench.systems.mez import Brokers

LOG_BYTES: Final = 256 << 20
FPS: Final = 30.0
FIRST_RATE_MIN: Final = 1_000_000
"""In bits per second. Until the time of an emulated link begins, the link has its first rate. If that is less
than this, no device could connect: so the time begins before they do. Otherwise it begins with the play."""

GONE_S_MAX: Final = 20.0
"""How long it may take until the edge has noticed that a device is gone."""

TOLD_S_MAX: Final = 30.0
"""How long a process of a play may take to write its result."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The parameters of a play.

    Attributes:
        network: The link between the devices and the edge.
        pictures: The cameras' pictures (`plans.Devices.pictures`).
        engine: The plan of the engines. `play` fills in `pattern` and `edge`.
        seconds: Duration of the play.
        devices: Number of devices.
        engines: Number of engines.
        answer_ms: The latency bound of answers.
        quality: JPEG quality of frames that are encoded from pixels.
        tokens: As in `plans.Devices`.
        flashes_s: As in `plans.Devices`.
        seed: Seed of the link.
    """

    network: Network
    pictures: str
    engine: Engine
    seconds: float
    devices: int = 1
    engines: int = 1
    answer_ms: float = 1000.0
    quality: int = 95
    tokens: int | None = None
    flashes_s: Sequence[float] = ()
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Told:
    """The results of the processes of a play.

    Attributes:
        played: The result of the devices.
        worked: The results of the engines that still ran at the end.
        round_trip_ms: The network's round trip, as the edge measured it; `None`: it did not.
        link: Counts of the emulated link; `None` without one.
        cameras: The devices' names.
    """

    played: Played
    worked: list[Worked]
    round_trip_ms: float | None
    link: dict[str, Any] | None
    cameras: list[str]


class Site:
    """An edge at which plays take place, one after the other."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._brokers = Brokers(run, LOG_BYTES, "offload")
        self._plays = 0

    def play(self, asked: Asked, during: Callable[[list[Child]], None] | None = None) -> Told:
        """Run a play.

        Args:
            asked: The parameters.
            during: Called with the engines when the devices have begun. It removes engines that it ends.
        """
        self._plays += 1
        names = [f"bench/p{self._plays}/d{number}" for number in range(asked.devices)]
        with self._run.apart():
            link = self._link(asked)
            address = self._brokers.link_address
            begins_early = False
            if link is not None:
                about = link.answer()["cameras"][0]
                address = about["address"]
                begins_early = about["bits_per_second"][0][1] < FIRST_RATE_MIN
            engines = self._engines(asked)
            if link is not None and begins_early:
                link.ask("begin")
            devices = self._devices(asked, names, address)
            if link is not None:
                link.ask("begin")
            devices.tell("play")
            if during is not None:
                during(engines)
            else:
                time.sleep(asked.seconds / 2)
            # While the devices are connected: later the edge has no round trip of them.
            cameras = mez_client.cameras(f"bench/p{self._plays}/*", edge=self._brokers.socket)
            answered = devices.answer(asked.seconds + TOLD_S_MAX)
            passed: Any = None if link is None else link.ask("")
            told = Told(
                played=_played(answered),
                worked=[worked for engine in engines for worked in _worked(engine)],
                round_trip_ms=cameras[0].round_trip_time_ms if cameras else None,
                link=None if passed is None else passed[0],
                cameras=names,
            )
        self._forget(names)
        return told

    def cameras(self) -> list[str]:
        """Return the names of the cameras that the edge knows."""
        return [camera.camera for camera in mez_client.cameras(edge=self._brokers.socket)]

    def _forget(self, names: Sequence[str]) -> None:
        """Make the edge forget the devices of a play, because it knows at most 64 cameras."""
        for name in names:
            deadline = time.monotonic() + GONE_S_MAX
            while True:
                try:
                    mez_client.forget_camera(name, edge=self._brokers.socket)
                    break
                except mez_client.NotFoundError:
                    break
                except mez_client.BrokerError as error:
                    if error.reason != "CAMERA_CONNECTED" or time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)

    def _link(self, asked: Asked) -> Child | None:
        if asked.network.link is None:
            return None
        scenario = asked.network.scenario(self._run.folder, asked.seconds, FPS, asked.seed)
        words = ("measure", "emulate", "--scenario", str(scenario), "--to", self._brokers.link_address)
        return self._run.children.start("link", mez(*words))

    def _engines(self, asked: Asked) -> list[Child]:
        group = asked.engine.group
        plan = asdict(asked.engine) | {
            "pattern": f"bench/p{self._plays}/*",
            "edge": self._brokers.socket,
            # For a second after the last play, its engines are still members of their group.
            "group": group and f"{group}-{self._plays}",
        }
        engines = [self._start(f"engine {number}", "engine", plan) for number in range(asked.engines)]
        for engine in engines:
            engine.ready()
        return engines

    def _devices(self, asked: Asked, names: list[str], address: str) -> Child:
        plan = Devices(
            cameras=names,
            edge=address,
            keys=str(self._brokers.keys),
            state=str(self._run.folder / "state"),
            pictures=asked.pictures,
            fps=FPS,
            seconds=asked.seconds,
            answer_ms=asked.answer_ms,
            quality=asked.quality,
            tokens=asked.tokens,
            flashes_s=list(asked.flashes_s),
        )
        devices = self._start("devices", "device", asdict(plan))
        devices.ready()
        return devices

    def _start(self, name: str, module: str, plan: dict[str, Any]) -> Child:
        child = self._run.children.start(
            name,
            [sys.executable, "-P", "-m", f"mez_bench.offload.{module}"],
            {"PYTHONPATH": str(ROOT / "bench")},
        )
        child.tell(json.dumps(plan))
        return child


def kill_after(seconds: float, killed: list[int]) -> Callable[[list[Child]], None]:
    """Return a function that kills the first engine after this time, and adds the time to `killed`."""

    def kill(engines: list[Child]) -> None:
        time.sleep(seconds)
        killed.append(time.time_ns())
        os.kill(engines[0].pid, signal.SIGKILL)
        engines.pop(0)

    return kill


def _played(told: dict[str, Any]) -> Played:
    return Played(
        told["began_ns"],
        [Captured(**one) for one in told["captured"]],
        [Got(**one) for one in told["got"]],
        told["skipped"],
    )


def _worked(engine: Child) -> list[Worked]:
    told: Any = engine.ask("tell", TOLD_S_MAX)
    return [Worked(**one) for one in told]
