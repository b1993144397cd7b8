"""Reports of a worker to its supervisor: lines of JSON on the worker's standard output."""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

REPORT_S: Final = 0.5
"""How often a worker reports, in seconds."""

TOO_LARGE: Final = 75
"""The exit status of a worker that exceeded its memory limit, and asks to be restarted."""

UNUSABLE: Final = 76
"""The exit status of a worker whose file or function cannot be used: restarting it does not help."""


@dataclass(slots=True)
class Report:
    """What a worker has done since it was started.

    Attributes:
        taken: Records that it was given.
        done: Records that it settled.
        failed: Tries that failed.
        made: Records that its bus has confirmed.
        work_ns: Time in the stage's function.
        waited: Records whose waiting time for this worker is known.
        waited_ns: The sum of these waiting times.
        in_hand: The record that it works on; empty: none.
        in_hand_s: How long the stage's function has worked on it, in seconds. 0: the worker waits for a bus.
        away: Why it waits for a bus. Empty: it does not wait.
        is_refused: Whether it waits because the bus refuses it.
        memory_mib: The memory of the process, in MiB.
        last_error: The error of the last failed try.
    """

    taken: int = 0
    done: int = 0
    failed: int = 0
    made: int = 0
    work_ns: int = 0
    waited: int = 0
    waited_ns: int = 0
    in_hand: str = ""
    in_hand_s: float = 0.0
    away: str = ""
    is_refused: bool = False
    memory_mib: float = 0.0
    last_error: str = ""

    def line(self) -> str:
        """The report as a line of JSON."""
        return json.dumps(asdict(self))


class Reports:
    """The standard output of a worker, only for reports: other output goes to standard error."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._output = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._saying = threading.Lock()

    def say(self, line: str) -> None:
        """Print a line. Any thread may call it."""
        with self._saying, contextlib.suppress(BrokenPipeError):
            self._output.write(line + "\n")
            self._output.flush()

    def keep_saying(self, report: Callable[[], Report]) -> None:
        """Start a thread that prints a report every half second."""

        def keep() -> None:
            while True:
                time.sleep(REPORT_S)
                self.say(report().line())

        threading.Thread(target=keep, name="reports", daemon=True).start()


def memory_mib() -> float:
    """The memory of this process, in MiB. 0 if it is unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
