"""Keeps the workers of an engine running on this host, and reports their status."""

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mez._commands import Teller
from mez._crew import Crew, Job
from mez._processes import mez_command
from mez._waits import Waits
from mez.engine.errors import EngineError
from mez.engine.worker import Work

LOOK_S: Final = 0.1
"""How often the supervisor checks its workers and Ctrl-C, in seconds."""

PROGRESS_S: Final = 10.0
"""The interval of progress lines, in seconds."""

ANSWER_WITHIN_S: Final = 5.0
"""How long an engine may work on a frame before it is killed, in seconds."""

DENIED_MAX: Final = 256
"""The most missing rights that are remembered as reported."""

STOP_S: Final = 1.0
"""How long workers may take at the end to finish their current frames, in seconds."""


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an engine's workers.

    Attributes:
        at_ns: The time of this status, in nanoseconds since 1970-01-01 UTC.
        pids: The processes that have joined the group.
        taken: Frames that the workers got since the start.
        answered: Answers that the edge has accepted.
        answered_per_s: Answers per second since the previous line.
        refused: Frames that the engine did not answer with a picture.
        work_ms: The mean time in the engine since the start, in milliseconds. `None` before the first frame.
        age_ms: The mean age of frames when a worker got them, in milliseconds. `None` if it is unknown.
        restarts: How often workers were restarted.
        last_refusal: Why a frame was last refused. Empty if none was.
    """

    at_ns: int
    pids: tuple[int, ...]
    taken: int
    answered: int
    answered_per_s: float
    refused: int
    work_ms: float | None
    age_ms: float | None
    restarts: int
    last_refusal: str

    def line(self) -> str:
        """For people."""
        parts = [f"{self.answered_per_s:.3g} answers/s"]
        if self.work_ms is not None:
            parts.append(f"{self.work_ms:.3g} ms each")
        if self.age_ms is not None:
            parts.append(f"of frames {self.age_ms:.3g} ms old")
        parts.append(f"{self.refused} refused")
        return ", ".join(parts) + (f"; last refusal: {self.last_refusal}" if self.last_refusal else "")


class Supervisor:
    """An engine that runs.

    Args:
        work: Its work.
        workers: Number of processes.
        answer_within_s: How long it may work on a frame, in seconds.
        place: The folder for logs.
        teller: Prints lines for people.
        progress_s: The interval of progress lines, in seconds. 0: only at the end.
    """

    def __init__(
        self,
        work: Work,
        workers: int,
        answer_within_s: float,
        place: Path,
        teller: Teller,
        progress_s: float = PROGRESS_S,
    ) -> None:
        self._work = work
        self._teller = teller
        self._progress_s = progress_s
        job = Job("engine", workers, lambda number, hand: _command(work, hand), answer_within_s)
        self._crew = Crew([job], place / "logs", teller.tell, EngineError)
        self._waits = Waits(teller.tell, "the engine waits", "the engine continues")
        self._denied: deque[str] = deque(maxlen=DENIED_MAX)
        self._shown = (time.monotonic(), 0)

    def run(self, end: Callable[[], bool]) -> int:
        """Run until the end is requested.

        Returns:
            The exit status: 0 if no worker had to be killed at the end.

        Raises:
            EngineError: The engine cannot be loaded, or the edge gives it no right to watch or to answer.
        """
        posts = self._crew.posts
        killed = []
        try:
            self._crew.start(posts)
            self._teller.tell(
                f"{self._work.engine} answers {self._work.cameras} in group {self._work.group}: "
                f"{len(posts)} {'worker' if len(posts) == 1 else 'workers'} on {self._work.device}"
            )
            while not end():
                self._crew.watch(LOOK_S)
                self._hear()
                if self._progress_s and time.monotonic() - self._shown[0] >= self._progress_s:
                    self._show()
        finally:
            self._crew.leave_ended()
            killed = self._crew.stop(posts, time.monotonic() + STOP_S)
        self._show()
        return 1 if killed else 0

    def _hear(self) -> None:
        """Report that workers wait, or lack a right.

        Raises:
            EngineError: A right is missing, and no frame was answered yet: a mistake in the configuration.
                After a first answer, the engine continues, because other cameras may be allowed.
        """
        report = self._crew.waiting(self._crew.posts)
        if report is not None and report.is_refused and not self._sum("done"):
            raise EngineError(report.away)
        reports = [post.report for post in self._crew.posts if post.report.away]
        for denied in (report.away for report in reports if report.is_refused):
            # Reported once, without an end: other cameras are answered meanwhile.
            if denied not in self._denied:
                self._denied.append(denied)
                self._teller.tell(f"frames are not answered: {denied}")
        self._waits.hear(next((report.away for report in reports if not report.is_refused), ""))

    def _show(self) -> None:
        status = self.status()
        self._teller.show(asdict(status), status.line())
        self._shown = (time.monotonic(), status.answered)

    def status(self) -> Status:
        """The status of the workers."""
        posts = self._crew.posts
        before_s, answered_before = self._shown
        answered, waited = self._sum("done"), self._sum("waited")
        taken, work_ns = self._sum("taken"), self._sum("work_ns")
        return Status(
            at_ns=time.time_ns(),
            pids=tuple(post.child.pid for post in posts if post.child.ready and post.child.pid is not None),
            taken=taken,
            answered=answered,
            answered_per_s=round((answered - answered_before) / max(time.monotonic() - before_s, 1e-9), 3),
            refused=self._sum("failed"),
            work_ms=round(work_ns / taken / 1e6, 3) if work_ns else None,
            age_ms=round(self._sum("waited_ns") / waited / 1e6, 3) if waited else None,
            restarts=sum(post.restarts for post in posts),
            last_refusal=next((post.report.last_error for post in posts if post.report.last_error), ""),
        )

    def _sum(self, name: str) -> int:
        return sum(post.count(name) for post in self._crew.posts)


def _command(work: Work, hand: Path) -> list[str]:
    """The command line of a worker."""
    words = ["engine", "worker", work.engine, str(hand), "--cameras", work.cameras]
    words += ["--group", work.group, "--device", work.device, "--draw", work.draw]
    words.append("--fresh" if work.fresh else "--no-fresh")
    for name, value in (("edge", work.edge), ("keys", work.keys), ("latency-ms", work.latency_ms)):
        if value is not None:
            words += [f"--{name}", os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    return mez_command(*words)
