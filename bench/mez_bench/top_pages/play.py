"""Plays one setting of the knobs, or Mez's own choice, and scores every window."""

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import mez as mez_client
from mez.apps import web_log
from mez.demo.channel import Channel
from mez_bench.children import Child, Children
from mez_bench.contracts.links import Rates, written
from mez_bench.errors import ExperimentError
from mez_bench.reading import Reading
from mez_bench.run import Place
from mez_bench.systems.mez import Brokers
from mez_bench.top_pages import servers

LOG_BYTES: Final = 32 << 20
PATTERN: Final = "log/*"
AFTER_S: Final = 1.0
"""How long the last records may take."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is the same for all settings.

    Attributes:
        seed: Seed of the requests.
        windows: How many windows are published.
        links: The rates of each server's link.
        bound_ms: The latency bound.
        floor: The accuracy floor of the contract.
        profile: The profile of the knobs.
    """

    seed: int
    windows: int
    links: Sequence[Rates]
    bound_ms: float
    floor: float
    profile: Path

    @property
    def names(self) -> list[str]:
        """The names of the servers' streams."""
        return [f"log/web{number}" for number in range(len(self.links))]

    @property
    def seconds(self) -> float:
        """How long it takes to publish all windows."""
        return self.windows * web_log.WINDOW_S


@dataclass(frozen=True, slots=True)
class Taken:
    """A record that the application got.

    Attributes:
        server: Index of its server.
        window: Number of its window.
        age_ms: Its age on arrival.
        rung: The rung that was applied to it.
        link_bytes: Its bytes on the link.
        counts: Pages with their requests.
    """

    server: int
    window: int
    age_ms: float
    rung: str
    link_bytes: int
    counts: list[Any]


@dataclass(slots=True)
class Reader(Reading):
    """Reads the records of all servers on a thread of its own."""

    edge: str
    plan: Plan
    is_adaptive: bool
    frames: list[tuple[int, int, float, str, int, list[Any]]] = field(default_factory=list)

    def taken(self, began_ns: int) -> list[Taken]:
        """Return the records that arrived, with window numbers from the beginning."""
        window_ns = round(web_log.WINDOW_S * 1e9)
        return [
            Taken(server, (captured_ns - began_ns) // window_ns - 1, age_ms, rung, size, counts)
            for server, captured_ns, age_ms, rung, size, counts in self.frames
        ]

    def _subscribe(self) -> mez_client.Subscription:
        plan = self.plan
        contract: dict[str, Any] = (
            {"accuracy": plan.floor, "profile": plan.profile} if self.is_adaptive else {}
        )
        return mez_client.subscribe(PATTERN, edge=self.edge, latency_ms=plan.bound_ms, **contract)

    def _take(self, frame: mez_client.Frame) -> None:
        if frame.age_ms is None:
            return
        place = self.plan.names.index(frame.camera)
        size = frame.link_bytes if frame.link_bytes is not None else len(frame.payload)
        self.frames.append((place, frame.captured_ns, frame.age_ms, frame.rung, size, frame.data))


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a setting.

    Attributes:
        plan: The plan that was played.
        taken: The records that the application got.
        late_ms_max: Largest delay that the emulator of the links itself caused.
    """

    plan: Plan
    taken: Sequence[Taken]
    late_ms_max: float

    def accuracy(
        self, true: Sequence[Sequence[str]], from_window: int, until_window: int
    ) -> np.ndarray[Any, Any]:
        """Return the accuracy of each window's list at its deadline.

        If a server's record was late or missing, its newest earlier record that was on time counts.

        Args:
            true: The true list of each window.
            from_window: The first window that is scored.
            until_window: The first window after it that is not scored.
        """
        newest: dict[int, Taken] = {}
        timely = sorted(
            (one for one in self.taken if one.age_ms <= self.plan.bound_ms), key=lambda one: one.window
        )
        scores, at = [], 0
        for window in range(until_window):
            while at < len(timely) and timely[at].window <= window:
                newest[timely[at].server] = timely[at]
                at += 1
            if window >= from_window:
                found = web_log.top_pages([one.counts for one in newest.values()])
                scores.append(web_log.agreement(true[window], found))
        return np.array(scores)

    def on_time_share(self, from_window: int, until_window: int) -> float:
        """Return the share of published records that arrived within the bound."""
        on_time = sum(
            from_window <= one.window < until_window and one.age_ms <= self.plan.bound_ms
            for one in self.taken
        )
        return on_time / ((until_window - from_window) * len(self.plan.links))

    def ages(self, from_window: int, until_window: int) -> list[float]:
        """Return the ages of the records that arrived."""
        return [one.age_ms for one in self.taken if from_window <= one.window < until_window]


def true_lists(seed: int, count: int, windows: int) -> list[list[str]]:
    """Return the true list of each window."""
    traffic = web_log.Traffic(seed, count)
    return [web_log.top_pages(traffic.window(number)) for number in range(windows)]


def scenario(plan: Plan, folder: Path) -> Path:
    """Write the scenario of a plan's links, each with a rate of its own."""
    names = [f"bench/cam{number}" for number in range(len(plan.links))]
    return written(
        folder / "links.toml",
        {
            "name": "top_pages",
            "seconds": plan.seconds + AFTER_S,
            "link": {"one_way_delay_ms": 5, "queue_kilobytes": 16},
            "camera": [
                {
                    "name": name,
                    "link": {
                        "megabits_per_second": rates[0][1],
                        "one_way_delay_ms": 5,
                        "queue_kilobytes": 16,
                    },
                }
                for name, rates in zip(names, plan.links, strict=True)
            ],
            "subscription": [{"name": "top", "cameras": "bench/*"}],
            "change": [
                {"at_s": at_s, "camera": name, "megabits_per_second": megabits}
                for name, rates in zip(names, plan.links, strict=True)
                for at_s, megabits in rates[1:]
            ],
        },
    )


def play(root: Path, plan: Plan, rung: str | None, stopping: threading.Event) -> Played:
    """Play a plan with one rung for all records, or with `None` leave the choice to Mez.

    Args:
        root: Where the folder of the play is created.
        plan: The plan.
        rung: The rung.
        stopping: Ends the play early.
    """
    folder = Path(tempfile.mkdtemp(prefix="top-", dir=root))
    with Children(folder) as children:
        brokers = Brokers(Place(folder, children), LOG_BYTES)
        channel = Channel(str(scenario(plan, folder)), brokers.link_address, folder / "channel.log")
        reader = Reader(brokers.socket, plan, rung is None)
        try:
            child = publish(children, brokers, plan, rung, [link.address for link in channel.scenario.links])
            reader.start()
            # The subscription needs time to reach the servers, and their connections to settle.
            time.sleep(1.5)
            channel.begin()
            began_ns = int(child.ask("begin")["began_ns"])
            wait(reader, plan.seconds + AFTER_S, stopping)
            late_ms_max = channel.late_ms_max()
        finally:
            reader.stop()
            channel.stop()
    return Played(plan, reader.taken(began_ns), late_ms_max)


def publish(
    children: Children, brokers: Brokers, plan: Plan, rung: str | None, addresses: Sequence[str]
) -> Child:
    """Start the servers, and wait until they are connected."""
    edges = [f"{name}={address}" for name, address in zip(plan.names, addresses, strict=True)]
    words = [
        str(brokers.keys),
        str(brokers.folder),
        f"{plan.seed}",
        f"{plan.windows}",
        rung or servers.ADAPTIVE,
    ]
    child = children.start("servers", [sys.executable, "-P", servers.__file__, *words, *edges])
    child.ready(seconds_max=60)
    return child


def wait(reader: Reader, seconds: float, stopping: threading.Event) -> None:
    """Wait for so long, unless the reader fails or the experiment is stopped."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if stopping.wait(0.1):
            raise ExperimentError("the experiment was stopped")
        if reader.failure is not None:
            raise ExperimentError(f"a subscription ended: {reader.failure}") from reader.failure
