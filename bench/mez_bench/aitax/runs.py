"""Runs a schedule on a bus, with producers and workers in processes of their own, and collects the stamps."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from mez_bench.aitax import part
from mez_bench.aitax.durable import Watch
from mez_bench.aitax.judged import DISTURBED_SHARE, Judged, Stamps, judged, place_in_stream
from mez_bench.aitax.part import PIPELINE, STAGE, Task
from mez_bench.aitax.plan import Load, Schedule, schedule
from mez_bench.aitax.sites import Site
from mez_bench.children import Child
from mez_bench.errors import ExperimentError
from mez_bench.run import Run
from mez_bench.stats import Values

PROCESSES: Final = 2
"""Processes of producers, and of workers. Members share processes, as they wait nearly all the time."""
WARM_ROUNDS_MAX: Final = 60
WARM_COUNT: Final = 4
BEGIN_S: Final = 0.3
GRACE_S: Final = 2.0
"""Records count as completed until this long after the last one was due."""
ANSWER_S: Final = 60.0
_NAMES: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class Ran:
    """A run.

    Attributes:
        judged: The judgement of the run.
        machine_share: Share of all processors' time that all programs used while records were offered.
        bus_share: Share of this time that the brokers used.
        clients_share: Share of this time that producers and workers used.
        written_share: Bytes written to all drives meanwhile, as a share of their limits; `None`: no drives.
        written_times: Bytes written for each byte of a record and replica; `None`: no drives.
        faults: Errors of producers that gave up.
    """

    judged: Judged
    machine_share: float
    bus_share: float
    clients_share: float
    written_share: float | None
    written_times: float | None
    faults: tuple[str, ...]

    @property
    def others_share(self) -> float:
        """Share of all processors' time that programs outside the experiment used."""
        return max(0.0, self.machine_share - self.bus_share - self.clients_share)

    @property
    def is_disturbed(self) -> bool:
        """Other programs used so much that an unstable run proves nothing."""
        return self.others_share > DISTURBED_SHARE


def run_once(run: Run, site: Site, load: Load, factor: float, seconds: float, seed: int) -> Ran:
    """Offer records to a bus for a while.

    Args:
        run: The run of the experiment.
        site: The bus.
        load: What is offered at factor 1.
        factor: By how much compute is faster.
        seconds: For how long frames are due.
        seed: Seed of the times at which cameras begin.
    """
    plan = schedule(load, factor, seconds, np.random.default_rng(seed))
    name, cameras = f"{PIPELINE}{next(_NAMES)}", load.names()
    folder = run.folder / name
    folder.mkdir()
    site.topic(name, cameras)
    watch = site.watch(cameras)
    try:
        crew = _Crew(run, site, load, plan, name, folder, cameras)
        try:
            warmed = crew.warm()
            return crew.measure(seconds, watch, warmed)
        finally:
            crew.stop()
    finally:
        if watch is not None:
            watch.close()
        site.drop(name)


class _Crew:
    """The producers and the workers of a run."""

    def __init__(
        self, run: Run, site: Site, load: Load, plan: Schedule, name: str, folder: Path, cameras: list[str]
    ) -> None:
        self._run, self._site, self._load, self._plan = run, site, load, plan
        self._folder, self._cameras = folder, cameras
        planned = folder / "schedule.npz"
        np.savez(planned, made_s=plan.made_s, camera=plan.camera, producers=plan.producers)
        common = {
            "name": name,
            "edge": site.edge,
            "servers": site.servers,
            "replication": site.brokers,
            "cameras": tuple(cameras),
            "schedule": str(planned),
            "service_s": plan.service_s,
            "record_bytes": load.record_bytes,
        }
        self._children: list[Child] = []
        self._workers = [self._start("identify", some, common) for some in parts(load.workers)]
        self._producers = [self._start("produce", some, common) for some in parts(plan.producers)]
        for child in self._children:
            child.ready(ANSWER_S)

    def _start(self, role: str, members: tuple[int, ...], common: dict[str, object]) -> tuple[Child, Path]:
        out = self._folder / f"{role}-{members[0]}.npz"
        task = Task(role=role, members=members, out=str(out), **common)  # type: ignore[arg-type]
        child = self._run.children.start(
            f"{self._folder.name} {role} {members[0]}", [sys.executable, "-P", part.__file__]
        )
        child.tell(json.dumps(asdict(task)))
        self._children.append(child)
        return child, out

    def warm(self) -> int:
        """Send warm-up records until every worker has had some; return how many of each camera."""
        sent, rounds = 0, 0
        for rounds in range(1, WARM_ROUNDS_MAX + 1):
            sent += sum(child.ask(f"warm {WARM_COUNT}", ANSWER_S)["sent"] for child, _ in self._producers)
            taken: list[int] = []
            end = time.monotonic() + ANSWER_S
            while sum(taken) < sent:
                if time.monotonic() > end:
                    raise ExperimentError(f"{sum(taken)} of {sent} warm-up records came in {ANSWER_S:.0f} s")
                time.sleep(0.05)
                taken = [
                    count for child, _ in self._workers for count in child.ask("taken", ANSWER_S)["taken"]
                ]
            if min(taken) > 0:
                return rounds * WARM_COUNT
        raise ExperimentError(f"a worker got none of {sent} warm-up records; records by worker: {taken}")

    def measure(self, seconds: float, watch: Watch | None, warmed: int) -> Ran:
        """Offer the records, and judge the run."""
        start_ns = time.monotonic_ns() + round(BEGIN_S * 1e9)
        for child, _ in self._producers:
            child.tell(f"begin {start_ns}")
        time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
        before, used_ns, had = _machine(), self._used_ns(), self._written_bytes()
        time.sleep(seconds)
        after, ended_ns, written = _machine(), self._used_ns(), self._written_bytes() - had
        end_s = seconds + GRACE_S
        time.sleep(max(0.0, start_ns / 1e9 + end_s - time.monotonic()))
        faults: list[str] = []
        for child, _ in (*self._producers, *self._workers):
            faults += child.ask("end", ANSWER_S)["faults"]
        if watch is not None:
            watch.close()
        stamps = self._stamps(start_ns, watch, warmed)
        result = judged(stamps, self._plan.bound_s(self._load.workers), self._plan.service_s, end_s)
        whole_s = sum(after) - sum(before)
        busy_s = whole_s - (after[1] - before[1])
        bus, clients = ((end - begin) / 1e9 for begin, end in zip(used_ns, ended_ns, strict=True))
        limit = sum(drive.limit_bytes_per_second for drive in self._site.drives) * seconds
        acked = np.count_nonzero(stamps.acked_s <= seconds) * self._load.record_bytes * self._site.brokers
        return Ran(
            result,
            busy_s / whole_s,
            bus / whole_s,
            clients / whole_s,
            written / limit if limit else None,
            written / acked if limit and acked else None,
            tuple(faults),
        )

    def _written_bytes(self) -> int:
        return sum(drive.written_bytes() for drive in self._site.drives)

    def _used_ns(self) -> tuple[int, int]:
        return self._site.cpu_ns(), sum(child.cpu_ns() for child in self._children)

    def _stamps(self, start_ns: int, watch: Watch | None, warmed: int) -> Stamps:
        plan, count = self._plan, len(self._plan.due_s)
        acked_ns = sum(np.load(out)["acked_ns"] for _, out in self._producers)
        rows = np.concatenate([np.load(out)["rows"] for _, out in self._workers])
        # For a record that was worked on twice, the first time counts.
        rows = rows[np.argsort(rows[:, 2], kind="stable")]
        numbers, first = np.unique(rows[:, 0], return_index=True)
        fetched_ns, done_ns = np.zeros(count, np.int64), np.zeros(count, np.int64)
        fetched_ns[numbers], done_ns[numbers] = rows[first, 1], rows[first, 2]
        durable_s = missing_s = None
        if watch is not None:
            places = place_in_stream(plan.camera) + warmed
            logs = [watch.progress[f"{self._cameras[camera]}/{STAGE}"] for camera in plan.camera]
            kept = list(zip(logs, map(int, places), strict=True))
            durable_ns = np.array([log.moment_ns(place) for log, place in kept], np.int64)
            missing_ns = np.array([log.missing_ns(place) for log, place in kept], np.int64)
            durable_s, missing_s = _seconds(durable_ns, start_ns), _seconds(missing_ns, start_ns)
        return Stamps(
            plan.due_s,
            plan.made_s,
            _seconds(acked_ns, start_ns),
            _seconds(fetched_ns, start_ns),
            _seconds(done_ns, start_ns),
            durable_s,
            missing_s,
            len(rows) - len(numbers),
        )

    def stop(self) -> None:
        """End all processes."""
        for child in reversed(self._children):
            self._run.children.stop(child)


def parts(count: int) -> list[tuple[int, ...]]:
    """Distribute members over processes."""
    found = [tuple(range(first, count, PROCESSES)) for first in range(PROCESSES)]
    return [members for members in found if members]


def _seconds(stamps_ns: np.ndarray, start_ns: int) -> Values:
    return np.where(stamps_ns > 0, (stamps_ns - start_ns) / 1e9, np.nan)


def _machine() -> Sequence[float]:
    """Return seconds of all processors since the start: busy, and idle (waiting for disks included)."""
    user, nice, system, idle, waiting, interrupts, soft, stolen, *_ = (
        int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    # The kernel reports ticks of a hundredth of a second.
    return (user + nice + system + interrupts + soft + stolen) / 100, (idle + waiting) / 100
