"""Reads the processor time and memory of a process from the kernel."""

import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

WINDOW_S: Final = 2.0
"""The time over which percentages are computed. The kernel counts ticks of 10 ms, so less is inaccurate."""

SAMPLES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process uses.

    Attributes:
        cpu_percent: Of one core, over the last `WINDOW_S` seconds; `None` with the first sample.
        rss_mb: Resident memory now, in megabytes (10^6 bytes).
    """

    cpu_percent: float | None
    rss_mb: float


class UsageMeter:
    """Samples a process that may be restarted: its process id may change between samples."""

    def __init__(self) -> None:
        self.rss_mb_max: float | None = None
        """The largest resident memory of all starts of the process; `None` before a sample."""
        self.cpu_seconds = 0.0
        """Processor time of all starts up to the last sample."""
        self._pid: int | None = None
        # Processor time and when it was read, oldest first.
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)

    def sample(self, pid: int | None) -> Usage | None:
        """Measure the process now; `None` if it does not run.

        Call it a few times a second: what a process uses after its last sample is not counted.
        """
        if pid is None:
            return None
        if pid != self._pid:
            self._pid = pid
            self._samples.clear()
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return None
        memory = {
            name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())
        }
        if "VmRSS" not in memory:
            # It has ended, and its parent has not waited for it yet.
            return None
        # The second field is the program's name in parentheses, which may contain spaces. Fields 14 and 15
        # are utime and stime.
        fields = stat.rpartition(")")[2].split()
        cpu_s, now = (int(fields[11]) + int(fields[12])) / TICKS_PER_S, time.monotonic()
        self.cpu_seconds += cpu_s - (self._samples[-1][0] if self._samples else 0.0)
        while len(self._samples) > 1 and self._samples[1][1] <= now - WINDOW_S:
            self._samples.popleft()
        percent = None
        if self._samples:
            cpu_before, before = self._samples[0]
            percent = 100 * (cpu_s - cpu_before) / max(now - before, 1e-3)
        self._samples.append((cpu_s, now))
        peak_mb = _megabytes(memory["VmHWM"])
        self.rss_mb_max = max(self.rss_mb_max or 0.0, peak_mb)
        return Usage(percent, _megabytes(memory["VmRSS"]))


def _megabytes(value: list[str]) -> float:
    """Read `['1234', 'kB']`, where the kernel's kB are 1024 bytes."""
    return int(value[0]) * 1024 / 1e6
