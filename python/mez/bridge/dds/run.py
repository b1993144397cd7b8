"""Runs a bridge to DDS: each stream has its own thread, and this one watches them and reports."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeAlias

from mez._commands import Teller
from mez._interrupt import Interrupt
from mez.bridge.dds.board import DdsStatus, StreamBoard
from mez.bridge.dds.domain import Participant
from mez.bridge.dds.errors import FenceError
from mez.bridge.dds.file import DdsBridge
from mez.bridge.dds.inward import InReader
from mez.bridge.dds.names import Names
from mez.bridge.dds.neighbours import PARTICIPANTS_MAX
from mez.bridge.dds.outward import DetectionWriter, OutReader
from mez.bridge.dds.requests import RequestReader
from mez.bridge.notes import NotesReader
from mez.bridge.reader import LOOK_S, Reader

_Counted: TypeAlias = OutReader | InReader | DetectionWriter | RequestReader

DETECTIONS: Final = "detections"
REQUESTS: Final = "requests"


class DdsRun:
    """A bridge to DDS that runs.

    Args:
        bridge: The bridge.
        place: The folder for its state.
        teller: Prints lines for people.
        progress_s: The interval of status lines, in seconds. 0: only at the end.

    Raises:
        DdsError: The domain cannot be entered.
        MissingPackageError: The library is not installed.
    """

    def __init__(self, bridge: DdsBridge, place: Path, teller: Teller, progress_s: float) -> None:
        self._bridge = bridge
        self._place = place
        self._teller = teller
        self._progress_s = progress_s
        self._participant = Participant(bridge.network, bridge.partition)
        self._readers: list[Reader] = []
        self._counted: dict[str, _Counted] = {}
        self._state = "starting"
        self._has_told_of_fence = False

    def run(self, end: Interrupt) -> int:
        """Run until the end is requested.

        Returns:
            The exit status.

        Raises:
            Error: The edge refuses. If it is away, this is not an error: the bridge tries again.
            DdsError: DDS refuses a topic.
        """
        try:
            self._open()
            self._state = "running"
            self._teller.tell(f"the bridge {self._bridge.name} runs: {described(self._bridge)}")
            self._teller.tell(unlocked(self._bridge))
            shown_s = time.monotonic()
            while not end():
                time.sleep(LOOK_S)
                self._look_around()
                for reader in self._readers:
                    if reader.failure is not None:
                        raise reader.failure
                if self._progress_s and time.monotonic() - shown_s >= self._progress_s:
                    shown_s = time.monotonic()
                    self._show(self.status())
            return 0
        finally:
            self._close()

    def status(self) -> DdsStatus:
        """The status. Rates are since the previous status."""
        streams = {name: of.status() for name, of in self._counted.items()}
        known = self._participant.neighbours.count
        return DdsStatus(self._bridge.name, self._state, time.time_ns(), known, streams)

    def _look_around(self) -> None:
        """Bound the number of participants, and report changes."""
        around = self._participant.neighbours
        try:
            if not around.look():
                return
        except FenceError as error:
            # Without the filter, the bridge continues, but its memory is not bounded.
            if not self._has_told_of_fence:
                self._has_told_of_fence = True
                self._teller.tell(
                    f"{around.count} participants are in the domain, but packets of others cannot be "
                    f"{'let in again' if around.is_closed else 'dropped'}: {error}; trying again"
                )
            return
        self._has_told_of_fence = False
        if around.is_closed:
            where = ", ".join(self._bridge.network.interfaces)
            self._teller.tell(
                f"{around.count} participants are in the domain; packets of others are dropped until there "
                f"are fewer than {PARTICIPANTS_MAX}; check which programs send on {where}"
            )
        else:
            self._teller.tell(f"{around.count} participants are in the domain; others are let in again")

    def _show(self, status: DdsStatus) -> None:
        self._teller.show(status.plain(), status.line())

    def _open(self) -> None:
        """Create all readers before any of them starts, so that nothing runs if a topic is refused."""
        bridge, taken = self._bridge, Names()
        outward: dict[str, OutReader] = {}
        for out in bridge.outs.values():
            board = StreamBoard(f"out.{out.name}", self._teller)
            outward[out.name] = OutReader(bridge, out, self._participant, taken, board)
            self._add(board.name, outward[out.name], outward[out.name])
        for of in bridge.ins.values():
            board = StreamBoard(f"in.{of.name}", self._teller)
            inward = InReader(bridge, of, self._participant, board)
            self._add(board.name, inward, inward)
        offering = {name: reader for name, reader in outward.items() if bridge.outs[name].offers}
        if offering:
            board = StreamBoard(REQUESTS, self._teller)
            requests = RequestReader(bridge.request_topic, offering, self._participant, board)
            self._add(board.name, requests, requests)
        if bridge.detections is not None:
            board = StreamBoard(DETECTIONS, self._teller)
            writer = DetectionWriter(self._participant, board)
            self._add(board.name, writer, NotesReader(bridge.wanted_notes(), writer, board, self._place))
        for reader in self._readers:
            reader.open_or_tell()
        for reader in self._readers:
            reader.start()

    def _add(self, name: str, counted: _Counted, reader: Reader) -> None:
        self._counted[name] = counted
        self._readers.append(reader)

    def _close(self) -> None:
        """End all readers and leave the domain, also if one of them cannot end in order."""
        for reader in self._readers:
            reader.stop()
        with ExitStack() as ending:
            ending.callback(self._participant.close)
            ending.callback(self._tell_of_the_end)
            for reader in reversed(self._readers):
                ending.callback(reader.close)

    def _tell_of_the_end(self) -> None:
        was_running, self._state = self._state == "running", "ended"
        if was_running:
            status = self.status()
            self._show(status)
            copied = ", ".join(f"{name} {of.frames}" for name, of in status.streams.items())
            self._teller.tell(f"ended: frames copied: {copied}")


def described(bridge: DdsBridge) -> str:
    """The streams and their topics, in a line."""
    parts = []
    for out in bridge.outs.values():
        way = "every" if out.is_every else "newest"
        parts.append(f"{out.cameras} ({way}) -> rt/NAME/{{{','.join(out.types)}}}")
    parts += [f"rt{of.topic} -> {of.camera}" for of in bridge.ins.values()]
    if bridge.detections is not None:
        parts.append(f"detections of {bridge.detections} -> rt/NAME/detections")
    if any(out.offers for out in bridge.outs.values()):
        parts.append(f"contracts can be requested on {bridge.request_topic}")
    return "; ".join(parts)


def unlocked(bridge: DdsBridge) -> str:
    """A warning about who can read and write topics."""
    network = bridge.network
    return (
        f"DDS domain {network.domain} is open on {', '.join(network.interfaces)}, without encryption or "
        "rights: any program that reaches these interfaces can read all topics, and write to topics that "
        "become cameras"
    )
