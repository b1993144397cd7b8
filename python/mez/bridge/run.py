"""Runs a bridge: readers take records from the edge, and this thread takes Kafka's confirmations."""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from mez._commands import Teller
from mez._interrupt import Interrupt
from mez._notes import Note
from mez.bridge import message as messages
from mez.bridge.file import Bridge
from mez.bridge.groups import Watch
from mez.bridge.lane import Lane
from mez.bridge.message import Message
from mez.bridge.notes import NotesReader, Place
from mez.bridge.outlet import Outlet
from mez.bridge.reader import Reader
from mez.bridge.status import Status, StreamStatus
from mez.bridge.streams import StreamReader
from mez.pipeline.errors import BusAwayError, BusError
from mez.pipeline.kafka_client import Link

POLL_S: Final = 0.1
"""How long one poll for Kafka's confirmations takes, in seconds."""

PREPARE_S: Final = 5.0
"""How often to try again to create topics, in seconds."""

SILENT_S: Final = 3.0
"""How long Kafka may confirm nothing before this is reported, in seconds."""

EVENTS_MAX: Final = 1000
"""The most unconfirmed events and results. Further events of the bridge itself are dropped and counted."""

EVENTS_BYTES_MAX: Final = 16 << 20


class Run:
    """A bridge that runs.

    Args:
        bridge: The bridge.
        place: The folder for its state.
        teller: Prints lines for people.
        progress_s: The interval of status lines, in seconds. 0: only at the end.
    """

    def __init__(self, bridge: Bridge, place: Path, teller: Teller, progress_s: float) -> None:
        self._bridge = bridge
        self._teller = teller
        self._progress_s = progress_s
        self._link = Link(bridge.kafka)
        size = bridge.unconfirmed_bytes_max * len(bridge.streams) + 2 * EVENTS_BYTES_MAX
        self._outlet = Outlet(
            self._link, bridge.dead, bytes_max=size, tell=self.tell, hear_of_dead=self._hear_of_dead
        )
        self._events = self._lane("events", bridge.events, EVENTS_MAX, EVENTS_BYTES_MAX)
        self._lanes = [self._events, self._outlet.dead]
        self._readers: dict[str, StreamReader] = {}
        for stream in bridge.streams.values():
            lane = self._lane(stream.name, stream.topic, bridge.unconfirmed_max, bridge.unconfirmed_bytes_max)
            self._lanes.append(lane)
            self._readers[stream.name] = StreamReader(bridge, stream, lane, self)
        self._notes: NotesReader | None = None
        if bridge.notes is not None:
            self._results = self._lane("results", bridge.notes.results, EVENTS_MAX, EVENTS_BYTES_MAX)
            self._lanes.append(self._results)
            self._notes = NotesReader(bridge.wanted_notes(), self, self, place)
        self._watch = Watch(bridge, self)
        self._is_over: Callable[[], bool] = lambda: False
        self._state = "starting"
        self._lost = 0
        self._events_dropped = 0
        self._prepare_at_s = 0.0
        self._trouble = ""
        self._shown = (time.monotonic(), 0, 0)
        self._confirmed = (time.monotonic(), 0)
        self._is_silent = False

    def run(self, end: Interrupt) -> int:
        """Run until the end is requested, then wait for confirmations, unless Kafka is away.

        Returns:
            The exit status: 0 if all records that were sent are confirmed, and Kafka is reachable; else 1.

        Raises:
            Error: The edge refuses. If it is away, this is not an error: the bridge tries again.
            BusError: Kafka refuses this client.
        """
        self._is_over = end
        try:
            self._open()
            self._state = "running"
            if not end():
                self.tell(f"the bridge {self._bridge.name} runs: {_described(self._bridge)}")
                self.event("started", None)
            while not end():
                self._step()
            return self._drain()
        finally:
            self._close()

    # ---- the board of the readers -------------------------------------------------------------------------

    def tell(self, sentence: str) -> None:
        """Print a sentence for people."""
        self._teller.tell(sentence)

    def event(self, kind: str, camera: str | None, **told: Any) -> None:  # noqa: ANN401, plain values
        """Send an event of the bridge, if there is room for it."""
        if not self._events.offer(messages.own_event(kind, camera, self._bridge.name, **told)):
            self._events_dropped += 1

    def lose(self, count: int) -> None:
        """Count records that the edge dropped before it gave them."""
        self._lost += count

    def take_note(
        self,
        note: Note,
        camera: str,
        at: Place,
        done: Callable[[], None],
        is_over: Callable[[], bool],
    ) -> bool:
        """Put a result or an event into its lane."""
        if note.reply is not None:
            message, lane = messages.of_result(note, camera, at, self._bridge.name), self._results
        else:
            message, lane = messages.of_event(note, camera, at, self._bridge.name), self._events
        message.done = done
        return lane.put(message, is_over)

    def _hear_of_dead(self, message: Message, error: str) -> None:
        camera = message.headers.get("mez-camera") or None
        self.event("dead_letter", camera, record=message.id, bytes=message.size, error=error)

    # ---- the course of a run ------------------------------------------------------------------------------

    def _open(self) -> None:
        """Join the groups, so that frames cross the link and wait at the edge, even while Kafka is away."""
        self._try_to_prepare(is_first=True)
        for reader in self._everybody():
            reader.open_or_tell()
            reader.start()
        self._watch.start()

    def _step(self) -> None:
        for reader in self._everybody():
            if reader.failure is not None:
                raise reader.failure
        if self._outlet.wants_topics and time.monotonic() >= self._prepare_at_s:
            self._try_to_prepare(is_first=False)
        self._outlet.poll(POLL_S)
        for lane in self._lanes:
            lane.pump()
        self._outlet.forget_refusals(self._lanes)
        self._listen()
        if self._progress_s and time.monotonic() - self._shown[0] >= self._progress_s:
            self._show()

    def _try_to_prepare(self, *, is_first: bool) -> None:
        """Create the topics. If the cluster is away or refuses, this is tried again."""
        self._prepare_at_s = time.monotonic() + PREPARE_S
        try:
            self._outlet.prepare(self._bridge.topics, self._is_over)
            self._trouble = ""
        except BusError as error:
            if is_first and not isinstance(error, BusAwayError) and not self._outlet.is_ready:
                raise
            if str(error) != self._trouble:
                self._trouble = str(error)
                self.tell(f"{error}; records wait at the edge; trying again")

    def _listen(self) -> None:
        """Report once when Kafka stops confirming records, and when it confirms them again."""
        now_s = time.monotonic()
        count = sum(lane.counts.records for lane in self._lanes)
        if count != self._confirmed[1] or not self._unconfirmed():
            self._confirmed = (now_s, count)
            if self._is_silent:
                self._is_silent = False
                self._link.reached()
                self.tell("Kafka confirms records again")
        elif now_s - self._confirmed[0] > SILENT_S and not self._is_silent:
            self._is_silent = True
            self.tell(f"Kafka {self._silence()}; records wait at the edge")

    def _silence(self) -> str:
        because = f": {self._link.heard}" if self._link.heard else ""
        return f"at {','.join(self._bridge.kafka.servers)} does not confirm records{because}"

    def _drain(self) -> int:
        """Take no more records, and wait for confirmations, unless Kafka is away."""
        self._state = "draining"
        for reader in self._everybody():
            reader.stop()
        if self._is_away:
            self.tell("Kafka is away; ending without waiting for it")
        elif self._unconfirmed():
            self.tell(
                f"waiting for {self._unconfirmed()} records to be confirmed, at most "
                f"{self._bridge.drain_s:g} s; Ctrl-C again ends at once"
            )
        until_s = time.monotonic() + self._bridge.drain_s
        while self._unconfirmed() and not self._is_away and time.monotonic() < until_s:
            self._step()
        return 1 if self._unconfirmed() or self._is_away else 0

    @property
    def _is_away(self) -> bool:
        """Whether Kafka has not answered yet, or has stopped confirming records."""
        return self._is_silent or not self._outlet.is_ready

    def _close(self) -> None:
        newest = {name for name, reader in self._readers.items() if not self._bridge.streams[name].is_every}
        open_ones = {lane.name: lane.unconfirmed for lane in self._lanes}
        gone = sum(count for name, count in open_ones.items() if name in newest)
        left = self._unconfirmed() - gone
        for lane in self._lanes:
            lane.close()
        for reader in self._everybody():
            reader.close()
        self._watch.close()
        self._outlet.close()
        was_running, self._state = self._state != "starting", "ended"
        if was_running:
            status = self._show()
            again = f"; {left} unconfirmed records are sent again at the next start" if left else ""
            again += f"; {gone} unconfirmed newest frames are not sent again" if gone else ""
            waiting = self._watch.left() if left or self._is_away else ""
            again += f"; {waiting}" if waiting else ""
            dropped = f", {self._events_dropped} events dropped" if self._events_dropped else ""
            self.tell(
                f"ended: {status.records} records ({status.bytes / 1e6:.4g} MB) are in Kafka, {status.lost} "
                f"lost, {status.dead} dead letters{dropped}{again}"
            )

    # ---- status -------------------------------------------------------------------------------------------

    def _show(self) -> Status:
        """Print the status, and return it."""
        status = self.status()
        self._teller.show(asdict(status), status.line())
        return status

    def status(self) -> Status:
        """The status. Rates are since the previous status."""
        told = Status(self._bridge.name, self._state, time.time_ns(), lost=self._lost)
        for lane in self._lanes:
            of, counts = StreamStatus(), lane.counts
            of.records, of.bytes, of.dead = counts.records, counts.bytes, counts.dead
            of.unconfirmed = lane.unconfirmed
            if lane.name in self._readers:
                of.waiting = self._watch.waiting.get(lane.name)
                of.skipped = self._readers[lane.name].skipped
            told.streams[lane.name] = of
            told.records += of.records
            told.bytes += of.bytes
            told.unconfirmed += of.unconfirmed
            told.dead += of.dead
        known = [count for count in self._watch.waiting.values() if count is not None]
        told.waiting = sum(known) if known or not self._watch.waiting else None
        now_s = time.monotonic()
        seconds = max(1e-9, now_s - self._shown[0])
        told.records_per_s = (told.records - self._shown[1]) / seconds
        told.bytes_per_s = (told.bytes - self._shown[2]) / seconds
        self._shown = (now_s, told.records, told.bytes)
        if self._trouble:
            told.kafka = self._trouble
        elif self._is_silent:
            told.kafka = self._silence()
        return told

    def _unconfirmed(self) -> int:
        return sum(lane.unconfirmed for lane in self._lanes)

    def _everybody(self) -> list[Reader]:
        notes = [self._notes] if self._notes is not None else []
        return [*self._readers.values(), *notes]

    def _lane(self, name: str, topic: str, count_max: int, bytes_max: int) -> Lane:
        return Lane(name, topic, self._outlet, count_max=count_max, bytes_max=bytes_max)


def _described(bridge: Bridge) -> str:
    """The streams and their topics, in a line."""
    parts = [
        f"{stream.cameras} ({'every' if stream.is_every else 'newest'}) -> {stream.topic}"
        for stream in bridge.streams.values()
    ]
    if bridge.notes is not None:
        parts.append(f"results of {bridge.notes.cameras} -> {bridge.notes.results}")
    return "; ".join([*parts, f"events -> {bridge.events}"])
