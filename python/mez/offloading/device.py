"""Runs the engine on the device itself, on a thread, so that capturing continues meanwhile."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mez import _modules
from mez.engine import Engine, Image, picture

_log = logging.getLogger("mez")


@dataclass(frozen=True, slots=True)
class Work:
    """A frame for the engine.

    Attributes:
        number: Its number.
        image: Its pixels, which must not change.
        captured_ns: When it was captured, UTC.
        captured_s: The same, by `time.monotonic`.
    """

    number: int
    image: Image
    captured_ns: int
    captured_s: float


class OnDevice:
    """An engine on its own thread. At most one frame waits: a newer one replaces it.

    Args:
        engine: The engine.
        made: Called with the frame, its picture, and when the engine began and ended (`time.monotonic`).
        skipped: Called with the reason, for a frame that gets no picture: `replaced` or `engine_refused`.
    """

    def __init__(
        self,
        engine: Engine,
        made: Callable[[Work, Image, float, float], object],
        skipped: Callable[[str], object],
    ) -> None:
        self._engine = engine
        self._made = made
        self._skipped = skipped
        self._news = threading.Condition()
        self._waiting: Work | None = None
        self._over = self._works = False
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="mez offload: engine", daemon=True)
        self._thread.start()

    def take(self, work: Work) -> None:
        """Work on a frame as soon as the engine is free. It replaces a frame that waits."""
        with self._news:
            replaced, self._waiting = self._waiting, work
            self._news.notify()
        if replaced is not None:
            self._skipped("replaced")

    def close(self, timeout_s: float) -> None:
        """Take no more frames. Wait until the engine is done, at most `timeout_s`, because it may hang."""
        with self._news:
            self._over = True
            self._news.notify()
        self._thread.join(timeout_s)

    @property
    def is_idle(self) -> bool:
        """Whether no frame waits or is processed, and all pictures were passed to `made`."""
        with self._news:
            return self._waiting is None and not self._works

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting is not None or self._over)
                if self._over or self._waiting is None:
                    return
                work, self._waiting = self._waiting, None
                self._works = True
            self._work(work)
            with self._news:
                self._works = False

    def _work(self, work: Work) -> None:
        began_s = time.monotonic()
        try:
            # A copy, because an engine may paint in place, but the original is also sent and returned.
            made = picture(work.image, self._engine(np.array(work.image)))
        except Exception as error:
            self._skipped("engine_refused")
            self._tell(error)
        else:
            self._made(work, made, began_s, time.monotonic())

    def _tell(self, error: Exception) -> None:
        """Log the reason. A repeated reason is logged once."""
        why = _modules.told(error)
        if why != self._told:
            self._told = why
            _log.warning("the engine on this device refuses frames: %s", why)
