"""Defines the compared settings of buses, drives and records, and measures them factor by factor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mez_bench.acceleration import paper
from mez_bench.acceleration.brokers import Cluster
from mez_bench.acceleration.brokers import Drive as ModelDrive
from mez_bench.aitax import drives, sites
from mez_bench.aitax.judged import MACHINE_FULL_SHARE, majority, stable_max
from mez_bench.aitax.plan import Load
from mez_bench.aitax.runs import Ran, run_once
from mez_bench.aitax.sites import Site
from mez_bench.run import Run

SEED: Final = 26_006
UNSTABLE_MAX: Final = 2
"""After this many unstable factors in a row, a setting's larger factors are left out."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a bus.

    Attributes:
        part: The part of the experiment that it belongs to.
        bus: `mez` or `kafka`.
        factors: Factors by which compute is faster, in ascending order.
        on_disk: Whether records are kept on limited drives, or in memory.
        brokers: Number of brokers; each keeps all records.
        drives: Emulated number of drives per broker: the limit of its one drive is multiplied by this.
        size_share: Size of a record, as a share of the paper's thumbnail.
    """

    part: str
    bus: str
    factors: tuple[float, ...]
    on_disk: bool = True
    brokers: int = 1
    drives: int = 1
    size_share: float = 1.0

    def load(self, workers: int) -> Load:
        """Return the load at factor 1."""
        return Load(workers, round(paper.RECORD_BYTES * self.size_share))

    def __str__(self) -> str:
        """Return a short description."""
        words = [self.bus, "on disk" if self.on_disk else "in memory"]
        if self.brokers > 1:
            words.append(f"{self.brokers} brokers")
        if self.drives > 1:
            words.append(f"{self.drives} drives")
        if self.size_share < 1:
            words.append(f"1/{round(1 / self.size_share)} size")
        return ", ".join(words)


@dataclass(slots=True)
class Point:
    """A setting at a factor.

    Attributes:
        setting: The setting.
        factor: By how much compute was faster.
        runs: The runs: one, or `runs_max` of `measure` if the first was not stable.
        drive_bytes_per_second: Limit of a drive's rate; 0: there is no drive.
        trial_bytes_per_second: The drive's rate in its trial.
    """

    setting: Setting
    factor: float
    runs: list[Ran] = field(default_factory=list)
    drive_bytes_per_second: float = 0.0
    trial_bytes_per_second: float = 0.0

    @property
    def counting(self) -> list[Ran]:
        """The runs that decide: those that other programs did not disturb, or all if all were disturbed."""
        return [ran for ran in self.runs if not ran.is_disturbed] or self.runs

    @property
    def is_stable(self) -> bool:
        """Most of the runs that decide were stable."""
        return majority([ran.judged.is_stable for ran in self.counting])

    @property
    def is_decided(self) -> bool:
        """The point was stable, or it was unstable while no other program disturbed it."""
        return self.is_stable or not self.ran.is_disturbed

    @property
    def ran(self) -> Ran:
        """The run that represents the point: the first one that agrees with the majority."""
        return next(ran for ran in self.counting if ran.judged.is_stable == self.is_stable)

    @property
    def mark(self) -> str:
        """`machine`: the processors may have been the limit; `disturbed`: other programs used them."""
        if self.ran.is_disturbed:
            return "disturbed"
        return "machine" if self.ran.machine_share >= MACHINE_FULL_SHARE else ""

    def cluster(self, record_bytes: float) -> Cluster:
        """Return the model of its drives, which knows only the limit of their rate."""
        return Cluster(
            self.setting.brokers,
            1,
            record_bytes,
            self.setting.brokers,
            ModelDrive(self.drive_bytes_per_second, write_latency_s=0.0),
        )


def settings(part: str, *, quick: bool) -> list[Setting]:
    """Return the settings of a part; buses take turns."""
    both = ("mez", "kafka")
    if part == "memory":
        factors: tuple[float, ...] = (
            (1.0, 8.0, 32.0) if quick else (1.0, 2.0, 4.0, 6.0, 8.0, 9.0, 10.0, 16.0, 32.0, 64.0, 96.0, 128.0)
        )
        return [Setting(part, bus, factors, on_disk=False) for bus in both]
    if part == "disk":
        factors = (1.0, 6.0, 8.0) if quick else (1.0, 2.0, 4.0, 6.0, 8.0, 9.0, 10.0, 16.0)
        return [Setting(part, bus, factors) for bus in both]
    if part == "replicas":
        return [Setting(part, "kafka", (1.0, 2.0, 4.0, 6.0, 8.0), brokers=3)]
    if part == "sizes":
        shares = (1 / 2, 1 / 4, 1 / 8)
        return [Setting(part, bus, (8.0, 16.0, 32.0), size_share=share) for share in shares for bus in both]
    return [
        Setting(part, bus, factors, drives=count)
        for count, factors in ((2, (8.0, 16.0)), (3, (16.0, 24.0)), (4, (24.0, 32.0)))
        for bus in both
    ]


PARTS: Final = ("memory", "disk", "replicas", "sizes", "drives")


def measure(run: Run, chosen: Sequence[Setting], workers: int, seconds: float, runs_max: int) -> list[Point]:
    """Measure settings, which take turns factor by factor.

    Args:
        run: The run.
        chosen: Settings that are compared with each other.
        workers: Number of workers of the stage `identification`.
        seconds: For how long frames are due in a run.
        runs_max: The most runs of a factor that was not stable at first; 3 decides by majority.
    """
    points: list[Point] = []
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(_Place.open(run, one, workers, at)) for at, one in enumerate(chosen)]
        for factor in sorted({factor for one in chosen for factor in one.factors}):
            for place in places:
                if factor not in place.setting.factors:
                    continue
                if place.failed < UNSTABLE_MAX:
                    points.append(place.point(run, factor, workers, seconds, runs_max))
                run.step(f"{place.setting}, {factor:g} times")
    return points


@dataclass(slots=True)
class _Place:
    """A setting with its drives and, for Kafka, its brokers, which keep running from factor to factor."""

    setting: Setting
    folder: Path
    drives: list[drives.Drive]
    kafka: Site | None
    failed: int = 0
    edges: int = 0

    @classmethod
    @contextlib.contextmanager
    def open(cls, run: Run, setting: Setting, workers: int, number: int) -> Iterator[_Place]:
        """Mount the drives, and start Kafka's brokers."""
        folder = run.folder / f"{setting.part}-{number}"
        limit = setting.load(workers).drive_bytes_per_second * setting.drives
        with contextlib.ExitStack() as stack:
            mounted = [
                stack.enter_context(drives.drive(sites.data_folder(folder, broker), limit))
                for broker in range(1, setting.brokers + 1)
                if setting.on_disk
            ]
            folder.mkdir(exist_ok=True)
            kafka = None
            if setting.bus == "kafka":
                if not setting.on_disk:
                    stack.enter_context(drives.in_memory(sites.data_folder(folder, 1)))
                kafka = stack.enter_context(sites.kafka_site(run, folder, setting.brokers, mounted))
            yield cls(setting, folder, mounted, kafka)

    def point(self, run: Run, factor: float, workers: int, seconds: float, runs_max: int) -> Point:
        """Measure a factor."""
        point = Point(self.setting, factor)
        if self.drives:
            point.drive_bytes_per_second = self.drives[0].limit_bytes_per_second
            point.trial_bytes_per_second = min(one.trial_bytes_per_second for one in self.drives)
        for number in range(runs_max):
            point.runs.append(self._run(run, factor, workers, seconds, SEED + number))
            if number == 0 and point.is_stable:
                break
        self.failed = self.failed + 1 if point.is_decided and not point.is_stable else 0
        return point

    def _run(self, run: Run, factor: float, workers: int, seconds: float, seed: int) -> Ran:
        load = self.setting.load(workers)
        if self.kafka is not None:
            return run_once(run, self.kafka, load, factor, seconds, seed)
        # Each run has an edge of its own, so that the backlog of an overloaded edge is not the next run's.
        self.edges += 1
        drive = self.drives[0] if self.drives else None
        with sites.mez_site(run, self.folder / f"edge{self.edges}", drive) as site:
            return run_once(run, site, load, factor, seconds, seed)


def stable_max_of(points: Sequence[Point], bus: str, part: str) -> float:
    """Return the largest factor up to which a bus was stable in a part; undecided factors do not count."""
    mine = [one for one in points if (one.setting.bus, one.setting.part) == (bus, part) and one.is_decided]
    return stable_max({one.factor: one.is_stable for one in mine})
