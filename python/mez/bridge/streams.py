"""Takes frames of cameras and records of derived streams from the edge, and settles them behind Kafka."""

import threading
from functools import partial
from typing import Any, Final, Protocol

import mez
from mez._frame import Frame
from mez.bridge import message as messages
from mez.bridge.file import Bridge, Stream
from mez.bridge.lane import LOOK_S, Lane
from mez.errors import BusyError, ConnectError, EndedError, Error, WaitTimeoutError

CONNECT_S: Final = 5.0
"""How long an edge is dialled before it counts as away, in seconds."""

AWAY_S: Final = 1.0
REFUSED_S: Final = 5.0
"""How long it takes until an edge that was away, or has refused, is asked again, in seconds."""

AGAIN_AFTER_S: Final = 86_400.0
TRIES: Final = 100
"""The edge's bounds for records that are with a member. Kafka may be away for long. A record that waits for
it is not to be given twice, or to become a dead letter, meanwhile."""

_LIVE_EVENTS: Final = ("camera_up", "camera_down", "disconnected", "reconnected", "group")
_NOTED_EVENTS: Final = ("contract", "source")
"""Events that are notes as well, where the edge keeps notes."""


class Board(Protocol):
    """What readers tell the bridge."""

    def tell(self, sentence: str) -> None:
        """Tell people something."""

    def event(self, kind: str, camera: str | None, **told: Any) -> None:  # noqa: ANN401, plain values
        """Send an event of the bridge."""

    def lose(self, count: int) -> None:
        """Count records that were at the edge and never came."""


class StreamReader:
    """Reads one stream, in a thread of its own.

    Args:
        bridge: The bridge.
        stream: The stream.
        lane: Where its messages go.
        board: Told of what happens.
    """

    def __init__(self, bridge: Bridge, stream: Stream, lane: Lane, board: Board) -> None:
        self._bridge = bridge
        self._stream = stream
        self._lane = lane
        self._board = board
        self._over = threading.Event()
        self._subscription: mez.Subscription | None = None
        # Frames that are on their way to Kafka, so that one that the edge gives again goes once.
        self._held: set[tuple[str, int, int]] = set()
        self._thread = threading.Thread(target=self._run, name=f"bridge-{stream.name}", daemon=True)
        self.skipped = 0

    def open(self) -> None:
        """Subscribe.

        Raises:
            Error: As `mez.subscribe`.
        """
        stream, options = self._stream, dict(self._stream.contract)
        if stream.is_every:
            options |= {
                "group": self._bridge.group(stream.name),
                "deliver": "every",
                "at_once": self._bridge.unconfirmed_max,
                "open_max": max(1000, self._bridge.unconfirmed_max),
                "again_after": AGAIN_AFTER_S,
                "tries": TRIES,
            }
        else:
            # Stills: a picture of a video is of no use without those before it.
            options |= {"deliver": "newest", "accept": []}
        self._subscription = mez.subscribe(
            stream.cameras,
            edge=list(self._bridge.edge) or None,
            keys=self._bridge.keys,
            application=f"bridge {self._bridge.name}",
            connect_timeout=CONNECT_S,
            on_event=self._hear,
            **options,
        )

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more from the edge. What is on its way is settled until `close`."""
        self._over.set()

    def close(self) -> None:
        """Leave the group, once reading has stopped. What is not settled is given again."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join()
        if self._subscription is not None:
            self._subscription.close()

    def _run(self) -> None:
        trouble = ""
        while not self._over.is_set():
            try:
                if self._subscription is None:
                    self.open()
                self._read()
                trouble = ""
            except EndedError:
                self._leave()
            except Error as error:
                self._leave()
                if str(error) != trouble:
                    trouble = str(error)
                    self._board.tell(f"stream.{self._stream.name}: {error}; trying again")
                is_away = isinstance(error, ConnectError | BusyError)
                self._over.wait(AWAY_S if is_away else REFUSED_S)

    def _leave(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _read(self) -> None:
        subscription = self._subscription
        assert subscription is not None, "it was opened before"
        while not self._over.is_set():
            try:
                frame = subscription.next(LOOK_S)
            except WaitTimeoutError:
                continue
            self._note_gaps(frame)
            key = (frame.camera, frame.epoch, frame.sequence)
            if key in self._held:
                continue
            message = messages.of_frame(frame, self._bridge.name)
            if self._stream.is_every:
                self._held.add(key)
                message.done = partial(self._settle, key, frame)
            if not self._lane.put(message, self._over.is_set):
                return

    def _settle(self, key: tuple[str, int, int], frame: Frame) -> None:
        """Kafka has it: nobody needs to get it again."""
        frame.done()
        self._held.discard(key)

    def _note_gaps(self, frame: Frame) -> None:
        lost = {why: count for why, count in frame.skipped.items() if why in messages.LOST_REASONS}
        self.skipped += frame.skipped_count - sum(lost.values())
        if lost:
            self._board.lose(sum(lost.values()))
            self._board.event("lost", frame.camera, stream=self._stream.name, counts=lost)
        if frame.not_held is not None:
            gap = frame.not_held
            told = {"since_ns": gap.since_ns, "until_ns": gap.until_ns, "reason": gap.reason}
            self._board.event("not_held", frame.camera, stream=self._stream.name, **told)

    def _hear(self, event: mez.Event) -> None:
        kinds = _LIVE_EVENTS if self._bridge.notes else _LIVE_EVENTS + _NOTED_EVENTS
        if event.kind in kinds:
            told: dict[str, Any] = {"stream": self._stream.name, "reason": event.reason}
            state = event.source.state if event.source is not None else event.state
            if state is not None:
                told["state"] = state
            self._board.event(event.kind, event.camera, **told)
