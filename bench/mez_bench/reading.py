"""Reads a subscription on a thread of its own, until it is asked to stop."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

import mez as mez_client

LOOK_S: Final = 0.2
"""How long the thread waits for a frame before it checks whether to stop."""

STOP_S_MAX: Final = 10.0


@dataclass(slots=True)
class Reading:
    """A thread that reads a subscription. Subclasses subscribe, and keep what they need of each frame.

    Attributes:
        failure: The exception that ended the thread, if any.
    """

    failure: BaseException | None = field(default=None, init=False)
    _stopping: bool = field(default=False, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the thread, which subscribes."""
        self._thread = threading.Thread(target=self._read, name="reading", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Unsubscribe, and end the thread."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join(STOP_S_MAX)

    def _subscribe(self) -> mez_client.Subscription:
        raise NotImplementedError

    def _take(self, frame: mez_client.Frame) -> None:
        raise NotImplementedError

    def _read(self) -> None:
        try:
            with self._subscribe() as subscription:
                while not self._stopping:
                    try:
                        frame = subscription.next(timeout=LOOK_S)
                    except mez_client.WaitTimeoutError:
                        continue
                    self._take(frame)
        except BaseException as failure:
            self.failure = failure
