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
"""Of producers, and of workers: members share processes, as they wait nearly all the time."""
WARM_ROUNDS_MAX: Final = 60
WARM_COUNT: Final = 4
BEGIN_S: Final = 0.3
GRACE_S: Final = 2.0
"""What a record may take after the last one was due, so that it counts as completed."""
ANSWER_S: Final = 60.0
_NAMES: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class Ran:
    """A run.

    Attributes:
        judged: How it went.
        machine_share: Of all processors' time, that was used by anybody while records were offered.
        bus_share: The same, by the brokers.
        clients_share: The same, by producers and workers.
        written_share: What was written to all drives meanwhile, of what they may write; `None`: no drives.
        written_times: How many bytes were written for each byte of a record and replica; `None`: no drives.
        faults: What producers were told when they gave up.
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
        """Of all processors' time, that programs which have nothing to do with it used."""
        return max(0.0, self.machine_share - self.bus_share - self.clients_share)

    @property
    def is_disturbed(self) -> bool:
        """Others used so much that an unstable run proves nothing."""
        return self.others_share > DISTURBED_SHARE


def run_once(run: Run, site: Site, load: Load, factor: float, seconds: float, seed: int) -> Ran:
    """Offer records to a bus for a while.

    Args:
        run: The run of the experiment.
        site: The bus.
        load: What is offered at factor 1.
        factor: By how much compute is faster.
        seconds: For how long frames are due.
        seed: Of the moments at which cameras begin.
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
        """Send records that do not count, until every worker has had some; return how many of each camera."""
        sent, rounds = 0, 0
        for rounds in range(1, WARM_ROUNDS_MAX + 1):
            sent += sum(child.ask(f"warm {WARM_COUNT}", ANSWER_S)["sent"] for child, _ in self._producers)
            taken: list[int] = []
            end = time.monotonic() + ANSWER_S
            while sum(taken) < sent:
                if time.monotonic() > end:
                    raise ExperimentError(f"{sum(taken)} of {sent} records came in {ANSWER_S:.0f} s")
                time.sleep(0.05)
                taken = [
                    count for child, _ in self._workers for count in child.ask("taken", ANSWER_S)["taken"]
                ]
            if min(taken) > 0:
                return rounds * WARM_COUNT
        raise ExperimentError(f"a worker got nothing of {sent} records: {taken}")

    def measure(self, seconds: float, watch: Watch | None, warmed: int) -> Ran:
        """Offer the records."""
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
        # Of a record that came twice, the first time counts.
        rows = rows[np.argsort(rows[:, 2], kind="stable")]
        numbers, first = np.unique(rows[:, 0], return_index=True)
        fetched_ns, done_ns = np.zeros(count, np.int64), np.zeros(count, np.int64)
        fetched_ns[numbers], done_ns[numbers] = rows[first, 1], rows[first, 2]
        durable_s = None
        if watch is not None:
            places = place_in_stream(plan.camera) + warmed
            durable_s = _seconds(
                np.array(
                    [
                        watch.progress[f"{self._cameras[camera]}/{STAGE}"].moment_ns(int(place))
                        for camera, place in zip(plan.camera, places, strict=True)
                    ],
                    np.int64,
                ),
                start_ns,
            )
        return Stamps(
            plan.due_s,
            plan.made_s,
            _seconds(acked_ns, start_ns),
            _seconds(fetched_ns, start_ns),
            _seconds(done_ns, start_ns),
            durable_s,
            len(rows) - len(numbers),
        )

    def stop(self) -> None:
        """End all."""
        for child in reversed(self._children):
            self._run.children.stop(child)


def parts(count: int) -> list[tuple[int, ...]]:
    """Share members among processes."""
    found = [tuple(range(first, count, PROCESSES)) for first in range(PROCESSES)]
    return [members for members in found if members]


def _seconds(stamps_ns: np.ndarray, start_ns: int) -> Values:
    return np.where(stamps_ns > 0, (stamps_ns - start_ns) / 1e9, np.nan)


def _machine() -> Sequence[float]:
    """Seconds of all processors since the start: busy, and idle (waiting for disks included)."""
    user, nice, system, idle, waiting, interrupts, soft, stolen, *_ = (
        int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    # Ticks of a hundredth of a second, by the kernel's interface to programs.
    return (user + nice + system + interrupts + soft + stolen) / 100, (idle + waiting) / 100
