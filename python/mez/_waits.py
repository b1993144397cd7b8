"""Reports waits to people: at the start, when the reason changes, each minute, and at the end."""

import time
from collections.abc import Callable
from typing import Final

AGAIN_S: Final = 60.0
"""How often an unchanged reason is reported again, in seconds."""

CHANGE_S: Final = 5.0
"""How long after a report a changed reason is reported at the earliest, in seconds."""


class Waits:
    """Reports the waits of one thing.

    Args:
        tell: Called with a sentence for people.
        waits: How the sentences begin: `detect waits`.
        goes_on: How the last sentence begins: `detect continues`.
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
        """Take the reason why it waits now. Empty: it does not wait. Call it often."""
        now_s = self._clock()
        if not why:
            if self._why:
                self._why = ""
                self._tell(f"{self._goes_on}, after {now_s - self._since_s:.0f} s")
        elif not self._why:
            self._since_s = now_s
            self._say(why, self._waits)
        elif now_s - self._told_s >= (AGAIN_S if why == self._why else CHANGE_S):
            self._say(why, f"{self._waits}, for {now_s - self._since_s:.0f} s so far")

    def _say(self, why: str, begins: str) -> None:
        self._why, self._told_s = why, self._clock()
        self._tell(f"{begins}: {why}")
