"""Keeps workers running: starts them, starts them again with back-off, kills those that hang."""

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from mez._hand import held
from mez._processes import Child, Exit
from mez._reports import TOO_LARGE, UNUSABLE, Report
from mez.errors import Error

BACKOFF_FIRST_S: Final = 0.2
"""The pause before a worker is started again, the first time."""

BACKOFF_S_MAX: Final = 10.0
"""The longest pause. It doubles with each life in which a worker did nothing."""

SILENT_S_MAX: Final = 5.0
"""How much longer than one piece of work may take a worker may be silent before it counts as hung."""

STOP_S_MAX: Final = 2.0
"""How long after the deadline a worker that was asked to end may run before it is killed."""

# The fields of `Report` that are summed over the restarts of a worker.
_COUNTS: Final = ("taken", "done", "failed", "made", "work_ns", "waited", "waited_ns")


@dataclass(frozen=True, slots=True)
class Job:
    """A task for one or several identical workers.

    Attributes:
        name: Its name; that of its first worker is `NAME-0`.
        workers: How many work on it.
        command: Returns the command line of a worker for its number and the path of its page (`Hand`).
        work_s_max: How long it may work on one record or frame before it is killed, in seconds.
        memory_mib_max: A worker that uses more memory than this is restarted. `None`: no limit.
    """

    name: str
    workers: int
    command: Callable[[int, Path], list[str]]
    work_s_max: float
    memory_mib_max: float | None = None


@dataclass(slots=True)
class Post:
    """The place of a worker: its current process, and its history over restarts.

    Attributes:
        job: Its job.
        number: Which of its workers, from 0.
        child: The process.
        hand: The page with the identity of the record that it works on.
        report: Its last report.
        reported_at_s: When the last report came, by `time.monotonic`.
        restarts: How often it was restarted.
        note: Why it last ended, for people. Empty if it never ended.
    """

    job: Job
    number: int
    child: Child
    hand: Path
    report: Report = field(default_factory=Report)
    reported_at_s: float = 0.0
    restarts: int = 0
    note: str = ""
    idle_lives: int = 0
    restart_at_s: float | None = None
    why_killed: str = ""
    before: dict[str, int] = field(default_factory=dict)

    def count(self, name: str) -> int:
        """A count of the report, summed over all restarts."""
        value: int = getattr(self.report, name)
        return self.before.get(name, 0) + value

    def hear(self, line: str) -> None:
        """Take a report. Other lines are ignored: the worker printed them before it redirected its output."""
        try:
            told: dict[str, Any] = json.loads(line)
            self.report = Report(**{of.name: told[of.name] for of in fields(Report)})
        except (ValueError, TypeError, KeyError):
            return
        self.reported_at_s = time.monotonic()

    def end_life(self) -> None:
        """Add the counts of the ended process to the sums, and reset the report."""
        if self.report.done or self.report.failed:
            self.idle_lives = 0
        for name in _COUNTS:
            self.before[name] = self.count(name)
        self.report = Report()


class Crew:
    """Workers on this host, as processes.

    All calls come from one thread, which lives as long as the workers: they end with it.

    Args:
        jobs: The jobs.
        logs: The folder for what workers log, a file for each.
        tell: Called with a sentence for people.
        unusable: The error to raise if a worker exits with `UNUSABLE`: restarting it does not help.
    """

    def __init__(
        self, jobs: Iterable[Job], logs: Path, tell: Callable[[str], object], unusable: type[Error]
    ) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._tell = tell
        self._unusable = unusable
        self._again = True
        self.posts = [self._post(job, number, logs) for job in jobs for number in range(job.workers)]

    def _post(self, job: Job, number: int, logs: Path) -> Post:
        name = f"{job.name}-{number}"
        hand = logs / f"{name}.hand"
        command = job.command(number, hand)
        post: Post

        def hear(line: str) -> None:
            post.hear(line)

        child = Child(name, command, logs / f"{name}.log", environment=os.environ, on_line=hear)
        post = Post(job, number, child, hand)
        return post

    def of(self, jobs: Iterable[str]) -> list[Post]:
        """The workers of these jobs."""
        wanted = set(jobs)
        return [post for post in self.posts if post.job.name in wanted]

    def waiting(self, posts: Iterable[Post]) -> Report | None:
        """The report of a worker that waits for its bus or edge. `None` if no worker waits.

        A worker that is refused takes precedence over one whose bus or edge is away.
        """
        reports = (post.report for post in posts if post.report.away)
        return max(reports, key=lambda report: report.is_refused, default=None)

    def start(self, posts: Sequence[Post]) -> None:
        """Start workers that were not started yet."""
        for post in posts:
            self._start(post)

    def _start(self, post: Post) -> None:
        post.restart_at_s = None
        post.reported_at_s = time.monotonic()
        post.child.start()

    def watch(self, seconds: float) -> None:
        """Wait for at most `seconds`, or until a worker ends. Restart the workers that are due.

        Raises:
            Error: Of the type `unusable`: a worker cannot run, and restarting it does not help.
        """
        now = time.monotonic()
        due = [post.restart_at_s for post in self.posts if post.restart_at_s is not None]
        alive = [post.child for post in self.posts if post.child.pid is not None]
        select.select(alive, [], [], max(0.0, min([now + seconds, *due]) - now))
        for post in self.posts:
            if post.child.pid is not None:
                exited = post.child.poll()
                if exited is not None:
                    self._ended(post, exited)
                else:
                    self._kill_if_hung(post)
            elif post.restart_at_s is not None and time.monotonic() >= post.restart_at_s:
                post.restarts += 1
                self._start(post)

    def _ended(self, post: Post, exited: Exit) -> None:
        name = post.child.name
        if not self._again:
            post.end_life()
            return
        if exited.status == UNUSABLE:
            raise self._unusable(f"{name} cannot run.{post.child.last_words()}")
        in_hand = held(post.hand)
        post.hand.unlink(missing_ok=True)
        post.idle_lives += 1
        post.end_life()
        pause_s = min(BACKOFF_FIRST_S * 2 ** (post.idle_lives - 1 if post.idle_lives else 0), BACKOFF_S_MAX)
        post.restart_at_s = exited.at_s + pause_s
        if exited.status == TOO_LARGE:
            post.note = f"used more than {post.job.memory_mib_max} MiB of memory"
        else:
            post.note = post.why_killed or str(exited)
        post.why_killed = ""
        at = f" while processing {in_hand}" if in_hand and in_hand not in post.note else ""
        said = post.child.last_words() if exited.status > 0 and exited.status != TOO_LARGE else ""
        self._tell(f"{name} {post.note}{at}; it restarts in {pause_s:g} s.{said}")

    def _kill_if_hung(self, post: Post) -> None:
        limit_s = post.job.work_s_max
        silent_s = time.monotonic() - post.reported_at_s
        if post.report.in_hand_s > limit_s:
            post.why_killed = f"worked for more than {limit_s:g} s on {post.report.in_hand}, and was killed"
        elif silent_s > limit_s + SILENT_S_MAX and post.child.ready:
            post.why_killed = f"sent no report for {silent_s:.0f} s, and was killed"
        else:
            return
        pid = post.child.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def leave_ended(self) -> None:
        """Restart no worker from now on: the crew is about to stop."""
        self._again = False
        for post in self.posts:
            post.restart_at_s = None

    def stop(self, posts: Sequence[Post], until_s: float) -> list[Post]:
        """Ask workers to finish their current record and to end.

        Args:
            posts: The workers.
            until_s: The deadline by `time.monotonic`. `STOP_S_MAX` later, workers that still run are killed.

        Returns:
            The workers that had to be killed.
        """
        for post in posts:
            post.child.ask_to_stop()
        killed = []
        until_s = max(until_s, time.monotonic()) + STOP_S_MAX
        for post in posts:
            if not post.child.stop(max(until_s - time.monotonic(), 0.0)):
                killed.append(post)
            post.child.close()
        return killed
