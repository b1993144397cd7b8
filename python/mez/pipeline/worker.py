"""A worker: a process that takes records of one stage, works on them, and sends the results.

Delivery is at least once: a record is settled only after the bus has confirmed everything that was made of
it. If the process ends before that, the record is given again.
"""

import contextlib
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from mez import _modules
from mez._hand import Hand
from mez._processes import READY_WORD
from mez._reports import TOO_LARGE, Report, Reports, memory_mib
from mez.pipeline import buses
from mez.pipeline import record as records
from mez.pipeline.bus import Delivery, Reader, Terms, Writer
from mez.pipeline.errors import BusAwayError, BusError, BusRefusedError
from mez.pipeline.events import Events
from mez.pipeline.file import Pipeline, Stage
from mez.pipeline.function import Function
from mez.pipeline.record import Record
from mez.pipeline.replies import Replies

if TYPE_CHECKING:
    from mez.pipeline.otlp import Traces

LOOK_S: Final = 0.2
"""How long a worker waits for a record before it checks whether it should end, in seconds."""

AWAY_PAUSE_S: Final = 0.25
"""The pause between tries while a bus is away, in seconds."""

REFUSED_PAUSE_S: Final = 1.0
"""The pause between tries while a bus refuses this worker, in seconds."""

_log = logging.getLogger("mez")

T = TypeVar("T")


class GivenUpError(Exception):
    """The worker was asked to end while it waited for a bus. Its record is not settled: it is given again."""


class Worker:
    """Works on the records of a stage until it is asked to end.

    Args:
        stage: The stage.
        name: Its name, for hops and people: `detect-0`.
        function: What the stage does.
        hand: The page for the identity of the record that it works on.
        is_last: Whether no other stage reads the records that this stage makes.
        replies: The way back to the cameras.
        events: Gets the hops of records that end here. `None`: no events.
        traces: Gets the spans of this stage. `None`: no spans.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        function: Function,
        hand: Hand,
        is_last: bool,
        replies: Replies,
        events: Events | None = None,
        traces: "Traces | None" = None,
    ) -> None:
        self.report = Report()
        self.wished = False
        self.stage = stage
        self._name = f"{name}@{socket.gethostname()}"
        self._function = function
        self._hand = hand
        self._events = events
        self._traces = traces
        self._is_last = is_last
        self._replies = replies
        # When the function began to work. 0: it does not work.
        self._since_s = 0.0

    def work(self, reader: Reader, writer: Writer) -> None:
        """Take records until the worker is asked to end, or exceeds its memory limit.

        Raises:
            GivenUpError: The worker was asked to end while a bus was away, or refused.
        """
        while not self.wished and not self.is_too_large():
            delivery = self.patiently(lambda: reader.next(LOOK_S), "waiting for the bus to read a record")
            if delivery is not None:
                self.handle(delivery, writer)

    def handle(self, delivery: Delivery, writer: Writer) -> None:
        """Work on one record, and settle it."""
        record, report = delivery.record, self.report
        records.begin(record)
        report.taken += 1
        waited_ns = records.waited_ns(record)
        if waited_ns is not None:
            report.waited += 1
            report.waited_ns += waited_ns
        report.in_hand = record.id
        self._hand.hold(record.id)
        try:
            self._try(record, delivery, writer)
        finally:
            report.in_hand = ""
            self._hand.hold("")

    def _try(self, record: Record, delivery: Delivery, writer: Writer) -> None:
        report = self.report
        began_ns = time.monotonic_ns()
        self._since_s = began_ns / 1e9
        try:
            made = self._function(record, self.stage.name, self._name)
        except Exception as error:
            self._fail(delivery, _modules.told(error))
            return
        finally:
            self._since_s = 0.0
            report.work_ns += time.monotonic_ns() - began_ns
        try:
            self.patiently(lambda: writer.send(made), "waiting for the bus to send the results")
        except BusError as error:
            self._fail(delivery, str(error))
            return
        self._replies.send(record, records.replies(record))
        delivery.done()
        report.done += 1
        report.made += len(made)
        self._told(record, made)

    def _told(self, record: Record, made: Sequence[Record]) -> None:
        """Record the hops of a record that is settled, in events and spans."""
        if self._events is None and self._traces is None:
            return
        confirmed_ns = time.monotonic_ns()
        # If the function made no records, the record itself ends here.
        ways = [(one, one.hops) for one in made] or [
            (record, records.finish(record, record, self.stage.name, 0, self._name).hops)
        ]
        for _, hops in ways:
            hops[-1].at["confirmed"] = confirmed_ns
        if self._traces is not None:
            self._traces.worked(ways)
        if self._events is not None and (self._is_last or not made):
            self._events.ended(ways)

    def _fail(self, delivery: Delivery, error: str) -> None:
        self.report.failed += 1
        self.report.last_error = error
        _log.warning("%s: try %d failed: %s", delivery.record.id, delivery.record.attempt, error)
        delivery.failed(error)

    def patiently(self, call: Callable[[], T], what: str) -> T:
        """Try until the bus is reachable and does not refuse. The runner reports the wait to people.

        Raises:
            GivenUpError: The worker was asked to end meanwhile.
            BusError: Trying again does not help.
        """
        report = self.report
        while True:
            try:
                answer = call()
            except (BusAwayError, BusRefusedError) as error:
                if str(error) != report.away:
                    _log.warning("%s: %s", what, error)
                report.is_refused = isinstance(error, BusRefusedError)
                report.away = str(error)
                until_s = time.monotonic() + (REFUSED_PAUSE_S if report.is_refused else AWAY_PAUSE_S)
                while not self.wished and time.monotonic() < until_s:
                    time.sleep(AWAY_PAUSE_S)
                if self.wished:
                    raise GivenUpError from error
                continue
            report.away, report.is_refused = "", False
            return answer

    def is_too_large(self) -> bool:
        """Whether it exceeds the memory limit of its stage."""
        limit = self.stage.memory_mib_max
        return limit is not None and memory_mib() > limit

    def now(self) -> Report:
        """The current report."""
        report = self.report
        report.memory_mib = round(memory_mib(), 1)
        since_s = self._since_s
        report.in_hand_s = round(time.monotonic() - since_s, 3) if since_s else 0.0
        return report


def main(pipeline: Pipeline, name: str, number: int, hand: Path) -> int:
    """Run as worker `number` of a stage, in its own process.

    It prints `ready` once it has joined its group, then its report twice a second. What the stage's function
    prints goes to the log.

    Returns:
        The exit status: 0 if it was asked to end, `TOO_LARGE`, or 1 with the reason in the log.
    """
    reports = Reports()
    stage = pipeline.stages[name]
    assert stage.run is not None, "only stages with run have workers"
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    events = None if pipeline.events is None else Events(pipeline.events, pipeline.name, f"{name}-{number}")
    function = Function(stage.run, pipeline.path.parent, stage.options)
    is_last = not pipeline.readers(name)
    replies = Replies(pipeline.edge, pipeline.keys, f"{pipeline.name}.{name}-{number}")
    traces = None if pipeline.otlp is None else _traces(pipeline.name, pipeline.otlp)
    worker = Worker(stage, f"{name}-{number}", function, Hand(hand), is_last, replies, events, traces)

    def wish(*_: object) -> None:
        worker.wished = True

    signal.signal(signal.SIGTERM, wish)
    reports.keep_saying(worker.now)
    with (
        contextlib.closing(function),
        contextlib.closing(replies),
        contextlib.ExitStack() as open_ones,
        contextlib.suppress(GivenUpError),
    ):
        _run(worker, pipeline, number, reports, open_ones)
    if traces is not None:
        traces.close()
    reports.say(worker.now().line())
    return TOO_LARGE if worker.is_too_large() and not worker.wished else 0


def _run(
    worker: Worker, pipeline: Pipeline, number: int, reports: Reports, open_ones: contextlib.ExitStack
) -> None:
    stage = worker.stage
    read_on, bus = buses.of(pipeline, stage.reads_on), buses.of(pipeline, stage.bus)
    for one in (read_on, bus):
        open_ones.callback(one.close)
    writer = worker.patiently(lambda: bus.writer(stage.name, plain=stage.plain), "waiting for the bus")
    terms = Terms(stage.name, number, stage.tries, stage.ordered)
    reader = worker.patiently(lambda: read_on.reader(stage.source, terms), "waiting for the bus")
    open_ones.callback(writer.close)
    # Closed first, so that a record that is not settled is given to another worker at once.
    open_ones.callback(reader.close)
    reports.say(READY_WORD)
    worker.work(reader, writer)


def _traces(pipeline: str, endpoint: str) -> "Traces":
    # Imported here, because it loads an HTTP client, which few pipelines need.
    from mez.pipeline.otlp import Traces

    return Traces(pipeline, endpoint)
