"""Systems across a cable between two hosts: Mez's publishers, the bridge to DDS, and Cyclone DDS alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mez.bridge.dds import library, types
from mez.bridge.dds.domain import Network
from mez_bench.bursts import System
from mez_bench.children import Child
from mez_bench.line import ADDRESSES, DEVICE, Line
from mez_bench.peers import cargo_program
from mez_bench.run import Run
from mez_bench.systems import python_publisher, timed_bridge
from mez_bench.systems.mez import CAMERA, Brokers

SIZE: Final = (640, 480)
LOG_BYTES: Final = 16 << 20
DOMAIN: Final = 47
TOPIC: Final = "rt/bench/cam/compressed"
SAMPLE_MIB_MAX: Final = 16
START_S_MAX: Final = 60.0

MEZ: Final = "mez"
PYTHON: Final = "mez_python"
BRIDGE: Final = "bridge"
CYCLONE: Final = "cyclone"
ARMS: Final = (MEZ, PYTHON, BRIDGE, CYCLONE)

_KIND: Final = types.COMPRESSED_IMAGE


@dataclass(frozen=True, slots=True)
class Arm:
    """A system across the cable.

    Attributes:
        system: The processes that bursts go through.
        sender: The process that writes to the cable.
        bridge: The bridge, if it is the sender.
    """

    system: System
    sender: Child
    bridge: Child | None = field(default=None)

    def writes_ms(self) -> list[float] | None:
        """Return how long the bridge's writes since the last call took, in ms; `None` without a bridge."""
        if self.bridge is None:
            return None
        self.bridge.tell("writes")
        while "write_ns" not in (told := self.bridge.answer()):
            pass
        return [nanoseconds / 1e6 for nanoseconds in told["write_ns"]]


def start(run: Run, line: Line, name: str) -> Arm:
    """Start one of `ARMS`. The first host sends, the second receives."""
    if name == CYCLONE:
        writer = _cyclone(run, line, 0, "write")
        return Arm(System(name, writer, _cyclone(run, line, 1, "read"), {}), writer)
    if name == BRIDGE:
        return _bridge(run, line)
    brokers = Brokers(run, LOG_BYTES, name, host=ADDRESSES[1], within=line.within(1))
    publisher = (
        _python(run, line, brokers)
        if name == PYTHON
        else brokers.publisher_within(brokers.link_address, size=SIZE, within=line.within(0))
    )
    return Arm(System(name, publisher, brokers.subscriber(), {"edge": brokers.edge}), publisher)


def _python(run: Run, line: Line, brokers: Brokers) -> Child:
    words = [*line.within(0), sys.executable, "-P", str(Path(python_publisher.__file__))]
    words += [CAMERA, brokers.link_address, str(brokers.keys), str(brokers.folder / "state"), f"{LOG_BYTES}"]
    child = run.children.start("publisher", words)
    child.ready(START_S_MAX)
    return child


def _bridge(run: Run, line: Line) -> Arm:
    """Start a camera, an edge and a bridge on the first host."""
    brokers = Brokers(run, LOG_BYTES, BRIDGE, within=line.within(0))
    publisher = brokers.publisher_within(brokers.link_address, size=SIZE, within=line.within(0))
    file = brokers.folder / "bridge.toml"
    file.write_text(
        f'[bridge]\nname = "bench"\n[mez]\nedge = "{brokers.socket}"\n'
        f'[dds]\ndomain = {DOMAIN}\ninterfaces = "{DEVICE}"\npeers = "{ADDRESSES[1]}"\n'
        f'sample_mib_max = {SAMPLE_MIB_MAX}\n[out.all]\ncameras = "bench/*"\n'
    )
    words = [
        sys.executable,
        "-P",
        str(Path(timed_bridge.__file__)),
        str(file),
        str(brokers.folder / "bridge"),
    ]
    bridge = run.children.start("bridge", [*line.within(0), *words])
    while "runs:" not in (bridge.line(START_S_MAX) or "ended"):
        pass
    reader = _cyclone(run, line, 1, "read")
    system = System(BRIDGE, publisher, reader, {"edge": brokers.edge, "bridge": bridge})
    return Arm(system, bridge, bridge)


def _cyclone(run: Run, line: Line, host: int, does: str) -> Child:
    """Start a participant of Cyclone DDS alone."""
    program = types.program(_KIND)
    network = Network(DOMAIN, (DEVICE,), (ADDRESSES[1 - host],), False, SAMPLE_MIB_MAX << 20)
    words = [*line.within(host), str(cargo_program(run, "cyclone")), does, str(library.path())]
    words += [f"{DOMAIN}", network.config(), TOPIC, types.dds_name(_KIND)]
    words += [_listed(program.size, program.align, program.count), _listed(*program.words)]
    child = run.children.start(f"cyclone {does}", words)
    child.ready(START_S_MAX)
    return child


def _listed(*numbers: int) -> str:
    return ",".join(map(str, numbers))
