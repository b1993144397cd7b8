"""Tells people what is waited for: once, when the reason changes, each minute, and when it is over."""

import time
from collections.abc import Callable
from typing import Final

AGAIN_S: Final = 60.0
"""How often it is told for how long something has been waited for, in seconds."""

CHANGE_S: Final = 5.0
"""How long a reason stands before another one is told, in seconds."""


class Waits:
    """What is told of one thing that may have to wait.

    Args:
        tell: Told what people should know: a sentence.
        waits: How the sentences begin: `detect waits`.
        goes_on: What is said at the end: `detect goes on`.
        clock: Seconds that do not jump.
    """

    def __init__(
        self,
        tell: Callable[[str], object],
        waits: str,
        goes_on: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._waits = waits
        self._goes_on = goes_on
        self._clock = clock
        self._why = ""
        self._since_s = self._told_s = 0.0

    def hear(self, why: str) -> None:
        """Hear why it waits now; empty: it does not. To be called often."""
        now_s = self._clock()
        if not why:
            if self._why:
                self._why = ""
                self._tell(f"{self._goes_on}, after {now_s - self._since_s:.0f} s")
        elif not self._why:
            self._since_s = now_s
            self._say(why, self._waits)
        elif now_s - self._told_s >= (AGAIN_S if why == self._why else CHANGE_S):
            self._say(why, f"{self._waits}, for {now_s - self._since_s:.0f} s by now")

    def _say(self, why: str, begins: str) -> None:
        self._why, self._told_s = why, self._clock()
        self._tell(f"{begins}: {why}")
