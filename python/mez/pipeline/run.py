"""Runs a pipeline on this host: starts the last stages first, and drains the first ones first."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mez._crew import Crew, Job, Post
from mez._interrupt import Interrupt
from mez._processes import mez_command
from mez._waits import Waits
from mez.errors import Error
from mez.pipeline import buses, status
from mez.pipeline.bus import Bus, Cameras, Made, Standing
from mez.pipeline.errors import BusAwayError, BusRefusedError, BusUnsureError, StageError
from mez.pipeline.file import Pipeline, Stage
from mez.pipeline.status import StageStatus, Status

LOOK_S: Final = 0.1
"""How often the runner checks its workers and Ctrl-C, in seconds."""

AWAY_PAUSE_S: Final = 0.5
"""The pause between tries while a bus is away at the start, in seconds."""

STATUS_S: Final = 1.0
"""How often the status is written, in seconds."""

STANDINGS_S: Final = 2.0
"""How often buses are asked for the number of waiting records, in seconds."""

ANSWER_S_MAX: Final = 2.0
"""How long the end waits for the answer to such a query, in seconds."""

READY_S_MAX: Final = 20.0
"""How long a stage waits until the stages that read it are ready, in seconds."""

RATE_S: Final = 5.0
"""The interval over which rates are averaged, in seconds."""

WAITING_TOLD: Final = 100
"""A warning is given when this many records wait for a stage, and again when the number doubles."""


class Run:
    """A pipeline that runs.

    Args:
        pipeline: The pipeline.
        place: The folder for status and logs.
        tell: Called with a sentence for people.
    """

    def __init__(self, pipeline: Pipeline, place: Path, tell: Callable[[str], object]) -> None:
        self._pipeline = pipeline
        self._place = place
        self._tell = tell
        jobs = [_job(pipeline, stage) for stage in pipeline.stages.values()]
        self._crew = Crew(jobs, place / "logs", tell, StageError)
        self._buses = {name: buses.of(pipeline, name) for name in _used(pipeline)}
        self._rates: dict[str, deque[tuple[float, int, int]]] = {name: deque() for name in pipeline.stages}
        self._waiting_told: dict[str, int] = {}
        self._bus_waits = Waits(tell, "the bus is away", "the bus answers again")
        self._count_waits = Waits(
            tell, "the number of waiting records is unknown", "the number of waiting records is known again"
        )
        self._stage_waits = {
            name: Waits(tell, f"{name} waits", f"{name} continues") for name in pipeline.stages
        }
        self._asking = _Asking(pipeline, self._buses)
        self._state = "starting"
        self._written_at_s = 0.0

    def run(self, end: Interrupt) -> int:
        """Run until the end is requested, then drain.

        Returns:
            The exit status: 0, or 1 if a worker had to be killed.

        Raises:
            StageError: A stage's function cannot be used.
            BusError: A bus refuses before the stage has done any work. Later, the stage waits, and reports
                this.
        """
        try:
            if not self._prepare(end):
                return 0
            self._start(end)
            self._state = "running"
            if not end():
                self._tell(f"{self._pipeline.name} runs: {_described(self._pipeline)}")
            while not end():
                self._look()
            return self._drain()
        finally:
            self._crew.leave_ended()
            self._crew.stop(self._crew.posts, 0.0)
            if self._asking.close():
                for bus in self._buses.values():
                    bus.close()
            self._state = "ended"
            self._write()

    def _prepare(self, end: Interrupt) -> bool:
        """Prepare the buses, and wait for those that are away. `False`: the end was requested meanwhile."""
        while not end():
            try:
                for name, bus in self._buses.items():
                    writes = [stage for stage in self._pipeline.stages.values() if stage.bus == name]
                    bus.prepare({stage.name: self._pipeline.readers(stage.name) for stage in writes}, end)
            except BusAwayError as error:
                self._bus_waits.hear(str(error))
                time.sleep(AWAY_PAUSE_S)
                continue
            self._bus_waits.hear("")
            return True
        return False

    def _start(self, end: Interrupt) -> None:
        """Start the last stages first: on the bus `mez`, groups only get records that come later."""
        for stage in reversed(list(self._pipeline.stages.values())):
            posts = self._crew.of([stage.name])
            self._crew.start(posts)
            limit_s = time.monotonic() + READY_S_MAX
            while not all(post.child.ready for post in posts) and not end():
                self._look()
                if time.monotonic() > limit_s:
                    self._tell(
                        f"{stage.name} is not ready after {READY_S_MAX:g} s; other stages start without it"
                    )
                    break

    def _look(self) -> None:
        self._crew.watch(LOOK_S)
        for name, waits in self._stage_waits.items():
            self._hear_of_waiting(name, waits)
        if time.monotonic() - self._written_at_s >= STATUS_S:
            self._write()

    def _hear_of_waiting(self, name: str, waits: Waits) -> None:
        """Report that workers wait for a bus.

        Raises:
            BusRefusedError: A worker is refused, and its stage has not done any work yet: a mistake in the
                configuration. A stage that has worked before waits until the right is given back.
        """
        posts = self._crew.of([name])
        report = self._crew.waiting(posts)
        if report is not None and report.is_refused and not _sum(posts, "done") and self._state != "draining":
            raise BusRefusedError(f"{name} cannot run: {report.away}")
        waits.hear("" if report is None else report.away)

    def _drain(self) -> int:
        """End the stages in order, each when no records wait for it any more, or the time is over."""
        self._state = "draining"
        self._tell(f"draining for at most {self._pipeline.drain_s:g} s; Ctrl-C again ends at once")
        until_s = time.monotonic() + self._pipeline.drain_s
        killed: list[Post] = []
        for stage in self._pipeline.stages.values():
            if stage.after is not None:
                self._await_empty(stage, until_s)
            posts = self._crew.of([stage.name])
            for post in posts:
                post.restart_at_s = None
            killed += self._crew.stop(posts, until_s)
            for post in posts:
                post.end_life()
        self._write()
        for post in killed:
            self._tell(f"{post.child.name} did not end, and was killed; its record is given again")
        self._tell_of_the_rest()
        return 1 if killed else 0

    def _await_empty(self, stage: Stage, until_s: float) -> None:
        while time.monotonic() < until_s:
            self._look()
            if not self._crew.of([stage.name]):
                return
            try:
                standing = _standings(self._pipeline, self._buses, [stage]).get(stage.name, Standing())
            except Error:
                continue
            if not standing.waiting and not standing.open:
                return

    def _tell_of_the_rest(self) -> None:
        try:
            left = _standings(self._pipeline, self._buses, list(self._pipeline.stages.values()))
        except Error as error:
            self._tell(f"ended; the number of waiting records is unknown: {error}")
            return
        waiting = {name: (of.waiting or 0) + (of.open or 0) for name, of in left.items()}
        rest = ", ".join(f"{count} for {name}" for name, count in waiting.items() if count)
        waits = f"waiting on the bus for the next start: {rest}" if rest else "nothing waits"
        self._tell(f"ended; {waits}")

    def _write(self) -> None:
        self._written_at_s = time.monotonic()
        standings, error = self._asking.last()
        fault = "" if error is None else str(error)
        if self._state in ("starting", "running"):
            # At the end, `_tell_of_the_rest` reports this.
            is_away = isinstance(error, BusAwayError) and not isinstance(error, BusUnsureError)
            self._bus_waits.hear(fault if is_away else "")
            self._count_waits.hear("" if is_away else fault)
        told = Status(self._pipeline.name, str(self._pipeline.path), self._state, os.getpid())
        for name in self._pipeline.stages:
            of = self._stage_status(name)
            of.stand(standings.get(name, Standing()))
            if fault and not of.note:
                of.note = fault
            self._warn(name, of)
            told.stages[name] = of
        status.write(self._place, told)

    def _stage_status(self, name: str) -> StageStatus:
        posts = self._crew.of([name])
        now_s = time.monotonic()
        taken, made = _sum(posts, "taken"), _sum(posts, "made")
        rates = self._rates[name]
        rates.append((now_s, taken, made))
        while now_s - rates[0][0] > RATE_S:
            rates.popleft()
        began_s, taken_then, made_then = rates[0]
        seconds = max(now_s - began_s, 1e-9)
        done, waited = _sum(posts, "done") + _sum(posts, "failed"), _sum(posts, "waited")
        away = next((post.report.away for post in posts if post.report.away), "")
        return StageStatus(
            workers=len(posts),
            ready=sum(post.child.ready for post in posts),
            taken_per_s=round((taken - taken_then) / seconds, 3),
            made_per_s=round((made - made_then) / seconds, 3),
            work_ms=round(_sum(posts, "work_ns") / done / 1e6, 3) if done else None,
            waited_ms=round(_sum(posts, "waited_ns") / waited / 1e6, 3) if waited else None,
            taken=taken,
            made=made,
            failed=_sum(posts, "failed"),
            restarts=sum(post.restarts for post in posts),
            memory_mib=round(sum(post.report.memory_mib for post in posts), 1),
            note=away or next((f"{post.child.name} {post.note}" for post in posts if post.note), ""),
        )

    def _warn(self, name: str, of: StageStatus) -> None:
        waiting = of.waiting or 0
        limit = self._waiting_told.get(name, WAITING_TOLD)
        if waiting >= limit:
            self._waiting_told[name] = 2 * waiting
            self._tell(f"{name} falls behind: {waiting} records wait; give it more workers, or publish less")
        elif waiting < WAITING_TOLD // 2:
            self._waiting_told.pop(name, None)


class _Asking:
    """Queries the buses regularly in its own thread, because an answer takes a while."""

    def __init__(self, pipeline: Pipeline, known: dict[str, Bus]) -> None:
        self._pipeline = pipeline
        self._buses = known
        self._lock = threading.Lock()
        self._found: dict[str, Standing] = {}
        self._fault: Error | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="standings", daemon=True)
        self._thread.start()

    def last(self) -> tuple[dict[str, Standing], Error | None]:
        """The result of the last query, and its error."""
        with self._lock:
            return dict(self._found), self._fault

    def _ask(self) -> None:
        while not self._over.wait(STANDINGS_S):
            found: dict[str, Standing] = {}
            fault = None
            try:
                found = _standings(self._pipeline, self._buses, list(self._pipeline.stages.values()))
            except Error as error:
                fault = error
            with self._lock:
                self._found, self._fault = found, fault

    def close(self) -> bool:
        """Stop the queries. `False`: one is still running, so the buses must not be closed."""
        self._over.set()
        self._thread.join(ANSWER_S_MAX)
        return not self._thread.is_alive()


def standings(pipeline: Pipeline) -> dict[str, Standing]:
    """The progress of the stages, queried from the buses now.

    Raises:
        BusAwayError: A bus cannot be reached.
        BusError: Its settings cannot be used.
    """
    known = {name: buses.of(pipeline, name) for name in _used(pipeline)}
    try:
        return _standings(pipeline, known, list(pipeline.stages.values()))
    finally:
        for bus in known.values():
            bus.close()


def _standings(pipeline: Pipeline, known: dict[str, Bus], stages: Sequence[Stage]) -> dict[str, Standing]:
    found: dict[str, Standing] = {}
    for name, bus in known.items():
        reads: dict[str, Cameras | Made] = {
            stage.name: stage.source for stage in stages if stage.reads_on == name
        }
        if reads:
            found |= bus.standings(reads)
    return found


def _used(pipeline: Pipeline) -> list[str]:
    stages = pipeline.stages.values()
    return sorted({stage.bus for stage in stages} | {stage.reads_on for stage in stages})


def _job(pipeline: Pipeline, stage: Stage) -> Job:
    def command(number: int, hand: Path) -> list[str]:
        return mez_command("pipeline", "worker", str(pipeline.path), stage.name, str(number), str(hand))

    return Job(stage.name, stage.workers, command, stage.again_after_s, stage.memory_mib_max)


def _sum(posts: Sequence[Post], name: str) -> int:
    return sum(post.count(name) for post in posts)


def _described(pipeline: Pipeline) -> str:
    return ", ".join(f"{stage.name} ({stage.workers})" for stage in pipeline.stages.values())
