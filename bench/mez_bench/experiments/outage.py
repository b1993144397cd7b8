"""Measures recovery from outages: links are cut, brokers are killed, a camera changes its address."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

import mez as mez_client
from mez_bench.children import Child
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.footage import FPS, motion_jpeg
from mez_bench.reading import Reading
from mez_bench.relay import Relay
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval
from mez_bench.systems.mez import CAMERA, Brokers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOG_BYTES: Final = 64 << 20
LATENCY_MS: Final = 200.0
"""Latency bound of the contract whose states are recorded."""

WAYS: Final = ("quic", "tcp")
CUTS_S: Final = (0.1, 1.0, 10.0, 60.0)
CUTS_QUICK_S: Final = (0.1, 1.0, 10.0)
DOWN_S: Final = 1.0
"""How long a killed broker stays down before it is started again."""

SETTLE_S: Final = 1.5
"""Time before and after each outage, in which the contract's state recovers."""

RESUME_S_MAX: Final = 30.0

FRAMES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Taken:
    """A frame that the application got.

    Attributes:
        at_s: When it arrived, by `time.monotonic`.
        captured_s: When it was captured, by the same clock; `None` while the clock offset is unknown.
        skipped: Frames skipped before it, by reason.
        state: State of the contract.
    """

    at_s: float
    captured_s: float | None
    skipped: Mapping[str, int]
    state: str


@dataclass(slots=True)
class Application(Reading):
    """A subscription that is read on a thread of its own.

    Attributes:
        frames: The frames that arrived.
        states: The contract's events: time and new state.
    """

    edge: str
    frames: list[Taken] = field(default_factory=list)
    states: list[tuple[float, str]] = field(default_factory=list)

    def _on_event(self, event: mez_client.Event) -> None:
        if event.kind == "contract" and event.state is not None:
            self.states.append((time.monotonic(), event.state))

    def _subscribe(self) -> mez_client.Subscription:
        return mez_client.subscribe(CAMERA, edge=self.edge, latency_ms=LATENCY_MS, on_event=self._on_event)

    def _take(self, frame: mez_client.Frame) -> None:
        now = time.monotonic()
        captured = None if frame.age_ms is None else now - frame.age_ms / 1e3
        self.frames.append(Taken(now, captured, dict(frame.skipped), frame.contract.state))
        # Never back to false: `stop` sets it from another thread.
        if len(self.frames) >= FRAMES_MAX:
            self._stopping = True


@dataclass(frozen=True, slots=True)
class Spell:
    """The effects of an outage.

    Attributes:
        way: Transport of the link.
        what: The kind of outage.
        resumed_s: Time from the outage's end until a frame that was captured later; `None`: none came.
        gap_s: The longest time without a frame.
        skipped: Frames skipped meanwhile, by reason.
        states: The contract's states meanwhile, with the seconds since the outage began.
        dialled: Connections that the camera made meanwhile.
    """

    way: str
    what: str
    resumed_s: float | None
    gap_s: float
    skipped: Mapping[str, int]
    states: Sequence[tuple[float, str]]
    dialled: int


class Site:
    """Both brokers over one kind of link, with an application that subscribes."""

    def __init__(self, run: Run, way: str, source: str) -> None:
        self._run, self.way, self._source = run, way, source
        self.brokers = Brokers(run, LOG_BYTES, f"mez-{way}")
        self.relay = Relay(self.brokers.link_address)
        self.camera = self._dial()
        self.application = Application(self.brokers.socket)
        self.application.start()
        deadline = time.monotonic() + RESUME_S_MAX
        while not any(taken.captured_s for taken in self.application.frames):
            if self.application.failure is not None or time.monotonic() > deadline:
                raise ExperimentError(f"{way}: no frame is delivered ({self.application.failure})")
            time.sleep(0.05)

    def _dial(self) -> Child:
        return self.brokers.dial_with(self.relay.address, self._source, self.way, f"camera {self.way}")

    def cut(self, seconds: float) -> Spell:
        """Cut the link for this long."""

        def fault() -> None:
            self.relay.cut()
            time.sleep(seconds)
            self.relay.restore()

        return self._suffer(f"link cut for {seconds:g} s", fault)

    def kill_camera(self) -> Spell:
        """Kill the camera broker and start it again."""

        def fault() -> None:
            os.kill(self.camera.pid, signal.SIGKILL)
            self._run.children.stop(self.camera)
            time.sleep(DOWN_S)
            self.camera = self._dial()

        return self._suffer("camera broker killed", fault)

    def kill_edge(self) -> Spell:
        """Kill the edge broker and start it again."""

        def fault() -> None:
            os.kill(self.brokers.edge.pid, signal.SIGKILL)
            self._run.children.stop(self.brokers.edge)
            time.sleep(DOWN_S)
            self.brokers.start_edge()

        return self._suffer("edge broker killed", fault)

    def move(self) -> Spell:
        """Change the address at which the edge sees the camera."""
        return self._suffer("camera's address changed", self.relay.move)

    def _suffer(self, what: str, fault: Callable[[], None]) -> Spell:
        frames, states = self.application.frames, self.application.states
        time.sleep(SETTLE_S)
        begun, first, first_state, dialled = (
            time.monotonic(),
            len(frames),
            len(states),
            self.relay.connections,
        )
        fault()
        ended = time.monotonic()
        resumed = None
        while resumed is None and time.monotonic() < ended + RESUME_S_MAX:
            time.sleep(0.02)
            if self.application.failure is not None:
                failure = self.application.failure
                raise ExperimentError(f"{self.way}, {what}: the subscription ended: {failure}") from failure
            resumed = next((t.at_s for t in frames[first:] if t.captured_s and t.captured_s > ended), None)
        time.sleep(SETTLE_S)
        during = frames[max(0, first - 1) :]
        times = [taken.at_s for taken in during]
        skipped: Counter[str] = Counter()
        for taken in during[1:]:
            skipped.update(taken.skipped)
        return Spell(
            way=self.way,
            what=what,
            resumed_s=None if resumed is None else resumed - ended,
            gap_s=float(np.diff(times).max()) if len(times) > 1 else RESUME_S_MAX,
            skipped=skipped,
            states=[(at - begun, state) for at, state in states[first_state:]],
            dialled=self.relay.connections - dialled,
        )

    def stop(self) -> None:
        """Stop the application and the relay, which are no processes of the run."""
        self.application.stop()
        self.relay.stop()


def _run(run: Run) -> Outcome:
    cuts = CUTS_QUICK_S if run.quick else CUTS_S
    rounds = 1 if run.quick else 3
    run.step("starting", done=0)
    # No log lines about lost connections: the table shows them.
    logging.getLogger("mez").setLevel(logging.ERROR)
    source = motion_jpeg(run)
    sites = [Site(run, way, source) for way in WAYS]
    spells: list[Spell] = []
    try:
        run.expect(rounds * (len(cuts) + 3))
        for _ in range(rounds):
            for seconds in cuts:
                run.step(f"cuts of {seconds:g} s", done=0)
                spells += _at_once(sites, partial(Site.cut, seconds=seconds))
                run.step(f"cuts of {seconds:g} s")
            run.step("changing the camera's address", done=0)
            spells.append(sites[WAYS.index("quic")].move())
            run.step("killing brokers")
            # In this thread: the kernel ends a process together with the thread that started it.
            spells += [site.kill_camera() for site in sites]
            run.step("killing brokers")
            spells += [site.kill_edge() for site in sites]
            run.step("killing brokers")
    finally:
        for site in sites:
            site.stop()
    return _outcome(spells, rounds)


def _at_once(sites: Sequence[Site], step: Callable[[Site], Spell]) -> list[Spell]:
    """Run a step on both kinds of link in parallel, because it mostly waits."""
    with ThreadPoolExecutor(len(sites)) as pool:
        return list(pool.map(step, sites))


def _outcome(spells: Sequence[Spell], rounds: int) -> Outcome:
    outcome = Outcome()
    for spell in spells:
        resumed_ms = 1e3 * (RESUME_S_MAX if spell.resumed_s is None else spell.resumed_s)
        row: dict[str, Cell] = {
            "link": spell.way,
            "outage": spell.what,
            "resumed_ms": resumed_ms,
            "gap_ms": spell.gap_s * 1e3,
            "skipped": sum(spell.skipped.values()),
            "reasons": ", ".join(f"{count} {reason}" for reason, count in sorted(spell.skipped.items())),
            "states": ", ".join(f"{state} at {at:.2f} s" for at, state in spell.states),
            "connections_made": spell.dialled,
        }
        outcome.rows.append(row)
    for name in dict.fromkeys((str(row["link"]), str(row["outage"])) for row in outcome.rows):
        of = [row for row in outcome.rows if (row["link"], row["outage"]) == name]
        slowest = max(float(row["resumed_ms"] or 0.0) for row in of)
        metric = f"{name[0]}_{_word(name[1])}_resumed_ms_max"
        outcome.metrics[metric] = Interval.exactly(slowest)
        outcome.targets.append(Target(metric, "<=", 2000.0))
    moved = [
        spell.dialled for spell in spells if (spell.way, spell.what) == ("quic", "camera's address changed")
    ]
    outcome.metrics["quic_connections_made_after_address_change"] = Interval.exactly(max(moved))
    outcome.targets.append(Target("quic_connections_made_after_address_change", "==", 0))
    outcome.parameters = {"fps": FPS, "latency_ms": LATENCY_MS, "rounds": rounds, "down_s": DOWN_S}
    outcome.tables = [_table(outcome.rows)]
    outcome.plot = lambda drawing: _plot(drawing, outcome.rows)
    outcome.notes = [
        "resumed: from the end of the outage (the link is back; the killed broker serves again) until the "
        "application has a frame that was captured after the end",
        "the link is cut by a relay in user space: TCP bytes wait in the kernels of both ends, and continue "
        "at once when the link is back. On a path that drops packets they would wait for TCP's "
        "retransmission timer, or for the camera's next connection",
    ]
    return outcome


def _word(what: str) -> str:
    return what.replace("'s", "").replace(" ", "_").replace(".", "_")


def _table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("link", "outage"):
        table.add_column(column, no_wrap=True)
    for column in ("resumed ms", "gap ms", "dialled"):
        table.add_column(column, justify="right")
    for column in ("skipped", "contract"):
        table.add_column(column, overflow="fold")
    for row in rows:
        numbers = [figure(float(row[name] or 0.0)) for name in ("resumed_ms", "gap_ms", "connections_made")]
        words = [str(row[name]) for name in ("reasons", "states")]
        table.add_row(str(row["link"]), str(row["outage"]), *numbers, *words)
    return table


def _plot(drawing: Figure, rows: Sequence[Mapping[str, Cell]]) -> None:
    axes = drawing.subplots()
    names = list(dict.fromkeys(str(row["outage"]) for row in rows))
    for place, way in enumerate(WAYS):
        of = [
            [float(r["resumed_ms"] or 0.0) for r in rows if (r["link"], r["outage"]) == (way, n)]
            for n in names
        ]
        heights = [max(values, default=0.0) for values in of]
        axes.barh([at + (place - 0.5) * 0.4 for at in range(len(names))], heights, height=0.38, label=way)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvline(2000, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("milliseconds from the end of the outage until delivery resumes")
    axes.legend(frameon=False)


OUTAGE: Final = Experiment(
    name="outage",
    summary="links cut, brokers killed, an address changed: when delivery resumes, which frames are skipped",
    needs="ffmpeg, the demo's video (fetched once)",
    seconds_quick=60,
    seconds_full=420,
    run=_run,
)
