"""Takes frames and records from the edge, and settles them when Kafka has confirmed them."""

import threading
from functools import partial

from mez._frame import Frame
from mez.bridge import message as messages
from mez.bridge.file import Bridge, Stream
from mez.bridge.frames import LIVE_EVENTS, NOTED_EVENTS, FrameReader, Wanted
from mez.bridge.lane import Lane
from mez.bridge.reader import Board


class StreamReader(FrameReader):
    """Reads one stream into a lane.

    Args:
        bridge: The bridge.
        stream: The stream.
        lane: The lane for its messages.
        board: Gets messages, events and counts.
    """

    def __init__(self, bridge: Bridge, stream: Stream, lane: Lane, board: Board) -> None:
        wanted = Wanted(
            f"stream.{stream.name}",
            stream.name,
            stream.cameras,
            stream.contract,
            bridge.group(stream.name) if stream.is_every else None,
            bridge.unconfirmed_max,
            bridge.edge,
            bridge.keys,
            f"bridge {bridge.name}",
        )
        super().__init__(wanted, board, LIVE_EVENTS if bridge.notes else LIVE_EVENTS + NOTED_EVENTS)
        self._bridge = bridge.name
        self._is_every = stream.is_every
        self._lane = lane
        # Frames on their way to Kafka, as the edge gave them last. A frame that the edge gives again is sent
        # once, and the newest delivery of it is settled.
        self._held: dict[tuple[str, int, int], Frame] = {}
        self._lock = threading.Lock()

    def take(self, frame: Frame) -> bool:
        """Put a frame into the lane when there is room."""
        message = messages.of_frame(frame, self._bridge)
        if self._is_every:
            key = (frame.camera, frame.epoch, frame.sequence)
            if self._is_held(key, frame):
                return True
            message.done = partial(self._settle, key)
        return self._lane.put(message, self._over.is_set)

    def _is_held(self, key: tuple[str, int, int], frame: Frame) -> bool:
        with self._lock:
            is_held = key in self._held
            self._held[key] = frame
        return is_held

    def _settle(self, key: tuple[str, int, int]) -> None:
        """Settle a frame that Kafka has confirmed."""
        with self._lock:
            frame = self._held.pop(key)
        frame.done()
