"""Measures between real brokers over emulated links that contracts mean what they say."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from rich.table import Table

import mez as mez_client
from mez.demo.channel import Channel, Scenario
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.footage import demo_video
from mez_bench.run import ROOT, Run
from mez_bench.stats import Interval
from mez_bench.systems.mez import CAMERA, Brokers

SCENARIOS: Final = ROOT / "crates" / "testbed" / "scenarios"
PROFILE: Final = ROOT / "python" / "mez" / "profiles" / "pedestrian-hog-vtest.json"
LOG_BYTES: Final = 64 << 20
SETTLE_S: Final = 2.0
"""The first seconds of a link do not count: nothing is known of it yet."""

AFTER_CUT_S: Final = 1.5
ROUNDS: Final = 5
ROUNDS_QUICK: Final = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What a subscription of a scenario asks for."""

    name: str
    latency_ms: float
    accuracy: float
    priority: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A frame that an application got: when, in the scenario's time; how old it was; its contract's state."""

    at_s: float
    age_ms: float
    state: str


@dataclass(slots=True)
class Application:
    """A subscription that is read on a thread of its own."""

    edge: str
    asked: Asked
    frames: list[Taken] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    began_s: float | None = None
    failure: BaseException | None = None
    stopping: bool = False
    thread: threading.Thread | None = None

    def start(self) -> None:
        """Subscribe."""
        self.thread = threading.Thread(target=self._read, name=self.asked.name, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Unsubscribe."""
        self.stopping = True
        if self.thread is not None:
            self.thread.join(10)

    def _on_event(self, event: mez_client.Event) -> None:
        if event.kind == "contract" and event.state == "infeasible":
            self.reasons.append(event.reason or "")

    def _read(self) -> None:
        asked = self.asked
        try:
            with mez_client.subscribe(
                CAMERA,
                edge=self.edge,
                latency_ms=asked.latency_ms,
                accuracy=asked.accuracy,
                priority=asked.priority,
                profile=PROFILE,
                on_event=self._on_event,
            ) as subscription:
                while not self.stopping:
                    try:
                        frame = subscription.next(timeout=0.2)
                    except mez_client.WaitTimeoutError:
                        continue
                    if self.began_s is not None and frame.age_ms is not None:
                        at_s = time.monotonic() - self.began_s
                        self.frames.append(Taken(at_s, frame.age_ms, frame.contract.state))
        except BaseException as failure:
            self.failure = failure

    def on_time(self) -> int:
        """Count the frames within the bound, once the link is known."""
        return sum(taken.age_ms <= self.asked.latency_ms for taken in self.frames if taken.at_s >= SETTLE_S)


def _played(run: Run, scenario: str, asked: Sequence[Asked], name: str) -> tuple[list[Application], Scenario]:
    """Run a scenario's first camera over its emulated link, with these subscriptions."""
    # The profile that comes with Mez was measured with frames of this video.
    source = str(demo_video())
    with run.apart():
        brokers = Brokers(run, LOG_BYTES, name)
        path = SCENARIOS / f"{scenario}.toml"
        channel = Channel(str(path), brokers.link_address, run.folder / "channel.log")
        applications = [Application(brokers.socket, one) for one in asked]
        try:
            brokers.dial_with(channel.scenario.links[0].address, source)
            for application in applications:
                application.start()
            time.sleep(1.0)
            began_s = time.monotonic()
            channel.begin()
            for application in applications:
                application.began_s = began_s
            while time.monotonic() < began_s + channel.scenario.seconds:
                time.sleep(0.1)
                for application in applications:
                    if application.failure is not None:
                        raise ExperimentError(f"{scenario}: a subscription ended") from application.failure
        finally:
            for application in applications:
                application.stop()
            channel.stop()
        return applications, channel.scenario


FIRST: Final = Asked("first", 45.0, 0.85, 1)
SECOND: Final = Asked("second", 1000.0, 0.95, 0)
CUT: Final = Asked("people", 150.0, 0.9, 0)
"""As in the scenarios' files."""


def _priority(run: Run, number: int, outcome: Outcome) -> tuple[int, int]:
    """Count what the first contract keeps alone, and beside one of lower priority."""
    (alone,), _ = _played(run, "priority", [FIRST], f"alone{number}")
    run.step("a first contract alone")
    both, _ = _played(run, "priority", [FIRST, SECOND], f"both{number}")
    run.step("beside one of lower priority")
    beside, second = both
    outcome.rows.append(
        {
            "scenario": "priority",
            "round": number,
            "on_time_alone": alone.on_time(),
            "on_time_beside": beside.on_time(),
            "frames_second": len(second.frames),
            "reason_second": next((why for why in second.reasons if "no setting keeps" in why), ""),
        }
    )
    return alone.on_time(), beside.on_time()


def _cuts(run: Run, number: int, outcome: Outcome) -> tuple[int, int]:
    """Count cuts, and those after which the first delivered frame is on time."""
    (application,), scenario = _played(run, "cut", [CUT], f"cut{number}")
    run.step("a link that is cut")
    steps = scenario.links[0].steps
    restored = [at_s for (_, before), (at_s, _) in pairwise(steps) if before == 0]
    newest = 0
    for at_s in restored:
        after = [taken for taken in application.frames if at_s <= taken.at_s <= at_s + AFTER_CUT_S]
        stale = next(
            (place for place, taken in enumerate(after) if taken.age_ms <= CUT.latency_ms), len(after)
        )
        newest += bool(after) and stale == 0
        outcome.rows.append(
            {
                "scenario": "cut",
                "round": number,
                "restored_s": at_s,
                "first_age_ms": after[0].age_ms if after else None,
                "stale_before": stale,
                "first_after_ms": 1e3 * (after[0].at_s - at_s) if after else None,
            }
        )
    return len(restored), newest


def _run(run: Run) -> Outcome:
    rounds = ROUNDS_QUICK if run.quick else ROUNDS
    # Each run of `priority` takes half a minute, and there are two: a quick run has no time for them.
    with_priority = 0 if run.quick else rounds
    run.expect(2 * with_priority + rounds)
    outcome = Outcome(parameters={"rounds": rounds})
    kept = [_priority(run, number, outcome) for number in range(with_priority)]
    cuts = [_cuts(run, number, outcome) for number in range(rounds)]
    made, newest = (sum(counts) for counts in zip(*cuts, strict=True))
    outcome.metrics = {"first_after_cut_is_newest": Interval.exactly(newest / max(made, 1))}
    outcome.targets = [Target("first_after_cut_is_newest", "==", 1)]
    outcome.tables = [
        _table(outcome.rows, "cut", ("restored_s", "first_age_ms", "stale_before", "first_after_ms")),
    ]
    if kept:
        alone, beside = (sum(counts) for counts in zip(*kept, strict=True))
        outcome.metrics["priority_kept_share"] = Interval.exactly(beside / max(alone, 1))
        outcome.targets.append(Target("priority_kept_share", ">=", 0.95))
        outcome.tables.append(
            _table(outcome.rows, "priority", ("on_time_alone", "on_time_beside", "frames_second"))
        )
    outcome.notes = [
        "priority_kept_share: frames of the first contract on time beside a contract of lower priority, of "
        "those that it has alone on the same link",
        "first_after_cut_is_newest: share of cuts after which the first delivered frame is within the bound",
    ]
    return outcome


def _table(rows: Sequence[Mapping[str, Cell]], scenario: str, columns: Sequence[str]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1), title=scenario, title_justify="left")
    for column in ("round", *columns):
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        if row["scenario"] == scenario:
            cells = (row[column] for column in ("round", *columns))
            table.add_row(*(f"{cell:.0f}" if isinstance(cell, float) else f"{cell}" for cell in cells))
    return table


CONTRACTS: Final = Experiment(
    name="contracts",
    summary="contracts between real brokers over emulated links: what priority keeps, what comes after a cut",
    needs="ffmpeg, the demo's video (fetched once)",
    seconds_quick=45,
    seconds_full=600,
    run=_run,
)
