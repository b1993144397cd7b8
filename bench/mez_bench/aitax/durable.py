"""Watches how far an edge's logs are durable: `@log.progress` in its state folder (docs/log-format.md)."""

from __future__ import annotations

import bisect
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.02
"""Interval between two looks. The noted times at which records became durable are late by up to this."""
_DURABLE_WORD: Final = 1


@dataclass(slots=True)
class Progress:
    """When the durable count of a log grew: the looks that saw it, and the looks before them.

    Attributes:
        moments_ns: When a look had found a larger count.
        counts: The counts that these looks found.
        before_ns: When the look before each of them began.
        looked_ns: When the last look began.
    """

    moments_ns: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    before_ns: list[int] = field(default_factory=list)
    looked_ns: int = 0

    def note(self, begun_ns: int, moment_ns: int, count: int) -> None:
        """Note the durable count that was read between two moments."""
        if not self.counts or count > self.counts[-1]:
            self.moments_ns.append(moment_ns)
            self.counts.append(count)
            self.before_ns.append(self.looked_ns)
        self.looked_ns = begun_ns

    def moment_ns(self, index: int) -> int:
        """Return when the record with this index was first seen to be durable; 0: never."""
        at = bisect.bisect_right(self.counts, index)
        return self.moments_ns[at] if at < len(self.counts) else 0

    def missing_ns(self, index: int) -> int:
        """Return when the record with this index was last seen not to be durable; 0: never."""
        at = bisect.bisect_right(self.counts, index)
        return self.before_ns[at] if at < len(self.counts) else self.looked_ns


class Watch:
    """Watches the logs of streams, in a thread, until it is closed.

    Args:
        state: The edge's folder for state.
        streams: Names of the streams.
    """

    def __init__(self, state: Path, streams: list[str]) -> None:
        self.progress = {stream: Progress() for stream in streams}
        self._paths = {stream: state / "edge" / stream / "@log.progress" for stream in streams}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_S):
            for stream, path in self._paths.items():
                begun_ns = time.monotonic_ns()
                try:
                    count = durable_count(path.read_text())
                except OSError:
                    continue
                if count is not None:
                    self.progress[stream].note(begun_ns, time.monotonic_ns(), count)

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join()


def durable_count(text: str) -> int | None:
    """Return the number of durable records in the file's text; `None` if the file has none yet."""
    words = text.split()
    return int(words[_DURABLE_WORD]) if len(words) > _DURABLE_WORD else None
