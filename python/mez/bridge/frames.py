"""Reads frames of cameras and records of derived streams from the edge, for bridges of every kind."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import mez
from mez._frame import Frame
from mez.bridge.reader import CONNECT_S, LOOK_S, Board, Reader
from mez.errors import EndedError, WaitTimeoutError

AGAIN_AFTER_S: Final = 86_400.0
TRIES: Final = 100
"""The edge's bounds for records that were given to a member. The target of a bridge may be away for long.
Meanwhile, a waiting record must not be given twice, or become a dead letter."""

LOST_REASONS: Final = frozenset({"evicted", "not_held", "damaged"})
"""Reasons for frames that the edge had, but dropped before it gave them."""

LIVE_EVENTS: Final = ("camera_up", "camera_down", "disconnected", "reconnected", "group")
NOTED_EVENTS: Final = ("contract", "source")
"""Events that are also notes, if the edge keeps notes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The stream that is read from an edge.

    Attributes:
        name: The table of the bridge's file that wants it, for people: `stream.NAME` or `out.NAME`.
        stream: The stream's name.
        cameras: The cameras or derived streams.
        contract: The arguments of `mez.subscribe` that make its contract.
        group: The group as whose member every frame that crosses the link is read. `None`: read the newest.
        at_once: The most frames of the group that are not settled.
        edge: The edges; empty: the defaults.
        keys: The folder of keys.
        application: The application's name at the edge.
    """

    name: str
    stream: str
    cameras: str
    contract: Mapping[str, Any]
    group: str | None
    at_once: int
    edge: tuple[str, ...]
    keys: Path | None
    application: str


class FrameReader(Reader):
    """Reads one stream, in its own thread.

    Args:
        wanted: The stream.
        board: Gets messages, events and counts.
        events: The kinds of events that the board gets.
    """

    def __init__(self, wanted: Wanted, board: Board, events: tuple[str, ...]) -> None:
        super().__init__(wanted.name, board)
        self._wanted = wanted
        self._events = events
        self._is_new = False
        self._subscription: mez.Subscription | None = None
        self.skipped = 0

    def take(self, frame: Frame) -> bool:
        """Take a frame. `False`: the bridge is to end."""
        raise NotImplementedError

    def renew(self, contract: Mapping[str, Any]) -> None:
        """Read with another contract from now on. For any thread.

        Args:
            contract: The arguments of `mez.subscribe` that make it.
        """
        self._wanted = replace(self._wanted, contract=contract)
        self._is_new = True

    def open(self) -> None:
        """Subscribe.

        Raises:
            Error: As `mez.subscribe`.
        """
        self._is_new = False
        wanted = self._wanted
        options = dict(wanted.contract)
        if wanted.group is not None:
            options |= {
                "group": wanted.group,
                "deliver": "every",
                "at_once": wanted.at_once,
                "open_max": max(1000, wanted.at_once),
                "again_after": AGAIN_AFTER_S,
                "tries": TRIES,
            }
        else:
            # Stills, because a frame of a video cannot be decoded without the previous frames.
            options |= {"deliver": "newest", "accept": []}
        self._subscription = mez.subscribe(
            wanted.cameras,
            edge=list(wanted.edge) or None,
            keys=wanted.keys,
            application=wanted.application,
            connect_timeout=CONNECT_S,
            on_event=self._hear,
            **options,
        )

    def leave(self) -> None:
        """Leave the group. Records that are not settled are given again."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def read(self) -> None:
        """Take frames until the bridge is to end, the contract changes, or the edge ends the subscription."""
        if self._subscription is None:
            self.open()
        subscription = self._subscription
        assert subscription is not None, "it was opened"
        while not self._over.is_set():
            if self._is_new:
                self.leave()
                return
            try:
                frame = subscription.next(LOOK_S)
            except WaitTimeoutError:
                continue
            except EndedError:
                self.leave()
                return
            self._note_gaps(frame)
            if not self.take(frame):
                return

    def _note_gaps(self, frame: Frame) -> None:
        lost = {why: count for why, count in frame.skipped.items() if why in LOST_REASONS}
        self.skipped += frame.skipped_count - sum(lost.values())
        stream = self._wanted.stream
        if lost:
            self._board.lose(sum(lost.values()))
            self._board.event("lost", frame.camera, stream=stream, counts=lost)
        if frame.not_held is not None:
            gap = frame.not_held
            told = {"since_ns": gap.since_ns, "until_ns": gap.until_ns, "reason": gap.reason}
            self._board.event("not_held", frame.camera, stream=stream, **told)

    def _hear(self, event: mez.Event) -> None:
        if event.kind in self._events:
            told: dict[str, Any] = {"stream": self._wanted.stream, "reason": event.reason}
            state = event.source.state if event.source is not None else event.state
            if state is not None:
                told["state"] = state
            self._board.event(event.kind, event.camera, **told)
