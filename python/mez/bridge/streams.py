"""Takes frames of cameras and records of derived streams from the edge, and settles them behind Kafka."""

import threading
from functools import partial
from typing import Any, Final

import mez
from mez._frame import Frame
from mez.bridge import message as messages
from mez.bridge.file import Bridge, Stream
from mez.bridge.lane import LOOK_S, Lane
from mez.bridge.reader import CONNECT_S, Board, Reader
from mez.errors import EndedError, WaitTimeoutError

AGAIN_AFTER_S: Final = 86_400.0
TRIES: Final = 100
"""The edge's bounds for records that are with a member. Kafka may be away for long. A record that waits for
it is not to be given twice, or to become a dead letter, meanwhile."""

_LIVE_EVENTS: Final = ("camera_up", "camera_down", "disconnected", "reconnected", "group")
_NOTED_EVENTS: Final = ("contract", "source")
"""Events that are notes as well, where the edge keeps notes."""


class StreamReader(Reader):
    """Reads one stream, in a thread of its own.

    Args:
        bridge: The bridge.
        stream: The stream.
        lane: Where its messages go.
        board: Told of what happens.
    """

    def __init__(self, bridge: Bridge, stream: Stream, lane: Lane, board: Board) -> None:
        super().__init__(f"stream.{stream.name}", board)
        self._bridge = bridge
        self._stream = stream
        self._lane = lane
        self._subscription: mez.Subscription | None = None
        # Frames on their way to Kafka, as the edge gave them last. One that it gives again goes once; what is
        # settled is what it gave last.
        self._held: dict[tuple[str, int, int], Frame] = {}
        self._lock = threading.Lock()
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

    def leave(self) -> None:
        """Leave the group. What is not settled is given again."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def read(self) -> None:
        """Take frames, until the end is wished or the edge ends the subscription."""
        if self._subscription is None:
            self.open()
        subscription = self._subscription
        assert subscription is not None, "it was opened"
        while not self._over.is_set():
            try:
                frame = subscription.next(LOOK_S)
            except WaitTimeoutError:
                continue
            except EndedError:
                self.leave()
                return
            self._note_gaps(frame)
            message = messages.of_frame(frame, self._bridge.name)
            if self._stream.is_every:
                key = (frame.camera, frame.epoch, frame.sequence)
                if self._is_held(key, frame):
                    continue
                message.done = partial(self._settle, key)
            if not self._lane.put(message, self._over.is_set):
                return

    def _is_held(self, key: tuple[str, int, int], frame: Frame) -> bool:
        with self._lock:
            is_held = key in self._held
            self._held[key] = frame
        return is_held

    def _settle(self, key: tuple[str, int, int]) -> None:
        """Kafka has it: nobody needs to get it again."""
        with self._lock:
            frame = self._held.pop(key)
        frame.done()

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
