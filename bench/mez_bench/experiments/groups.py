"""Measures groups of readers: uneven work, the edge's cost for many members, and recovery after kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

import mez as mez_client
from mez import _native
from mez._processes import run_to_end
from mez_bench.arms import in_turn
from mez_bench.children import Child, mez
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, percentile, ratio_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED: Final = 44
PARTS: Final = ("latency", "cost", "kills")
CAMERAS: Final = 16
WORKERS: Final = 4
SHORT_MS: Final = 8.0
LONG_MS: Final = 128.0
LONG_ONE_IN: Final = 10
"""A worker waits `SHORT_MS` for a record, and `LONG_MS` for one record in `LONG_ONE_IN`."""

MEAN_MS: Final = SHORT_MS + (LONG_MS - SHORT_MS) / LONG_ONE_IN
LOAD: Final = 0.85
"""Offered work as a share of the workers' time, in the comparison of latencies."""

OVERLOAD: Final = 1.3
"""Offered work as a share of the workers' time, in the measurement of their utilisation."""

MEMBERS: Final = 64
COST_FPS: Final = 15.0
COST_PIXELS: Final = (256, 320, 3)
"""The payload is noise, whose JPEG has about 100 kB."""

KILL_WORKERS: Final = 4
KILL_CAMERAS: Final = 4
KILL_FPS: Final = 10.0
KILL_WORK_MS: Final = 60.0
PIXELS: Final = (48, 64, 3)
DRAIN_S_MAX: Final = 60.0
ASSIGNED: Final = "cameras assigned once"
GROUP: Final = "group"
WARM_UP_S: Final = 3.0
BLOCK: Final = 21
WORKERS_FIRST: Final = 14
"""Of `BLOCK` kills, the first `WORKERS_FIRST` are of workers, the others of the edge: redeliveries can be
timed only while the edge keeps running."""

UNSETTLED_S: Final = 3.0
"""Redeliveries are not timed within this time of a kill of the edge."""

WORKER: Final = """
import random, sys, threading, time
import mez
socket, pattern, group = sys.argv[1:4]
threads, mean_ms = int(sys.argv[4]), float(sys.argv[5])
options = {} if group == "-" else {"group": group, "again_after": 10.0, "tries": 100}
lock = threading.Lock()
def say(*words):
    with lock:
        print(*words, flush=True)
def work_s(frame):
    if mean_ms == 0:
        return 0.0
    draw = random.Random(f"{frame.camera} {frame.epoch} {frame.sequence}").random()
    return (128.0 if draw < 0.1 else 8.0) / 1e3 * mean_ms / 20.0
def run():
    edge = "unix://" + socket
    with mez.subscribe(pattern, edge=edge, deliver="every", connect_timeout=60, **options) as frames:
        say("begun")
        for frame in frames:
            got = time.monotonic_ns()
            say("got", frame.camera, frame.epoch, frame.sequence, got, frame.attempt)
            pause = work_s(frame)
            if pause:
                time.sleep(pause)
            age_ms = (time.time_ns() - frame.captured_ns) / 1e6
            say("done", frame.camera, frame.epoch, frame.sequence, time.monotonic_ns(), age_ms)
for _ in range(threads - 1):
    threading.Thread(target=run, daemon=True).start()
run()
"""
"""A worker: reports each record that it got and has done, and waits in between. Each thread is a member."""

Record = tuple[str, int, int]
"""Camera, epoch and sequence."""


@dataclass
class Worker:
    """A worker's process, and its reports so far."""

    child: Child
    got: list[tuple[Record, int, int]] = field(default_factory=list)
    done: list[tuple[Record, int, float]] = field(default_factory=list)
    begun: int = 0
    killed_ns: int | None = None

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                line = self.child.line(seconds_max=3600.0)
            except ExperimentError:
                # The process was killed.
                return
            if line is None:
                return
            word, *rest = line.split()
            if word == "begun":
                self.begun += 1
                continue
            record = (rest[0], int(rest[1]), int(rest[2]))
            if word == "got":
                self.got.append((record, int(rest[3]), int(rest[4])))
            else:
                self.done.append((record, int(rest[3]), float(rest[4])))

    def await_begun(self, members: int = 1) -> None:
        """Wait until its members have subscribed."""
        deadline = time.monotonic() + 120.0
        while self.begun < members:
            if time.monotonic() > deadline:
                raise ExperimentError(f"{self.child.name} did not subscribe.{self.child.last_words()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the worker (SIGKILL)."""
        self.killed_ns = time.monotonic_ns()
        os.kill(self.child.pid, signal.SIGKILL)
        self._thread.join(10.0)

    def unfinished(self) -> Record | None:
        """Return the record that it was working on when it was killed."""
        done = {record for record, *_ in self.done}
        return self.got[-1][0] if self.got and self.got[-1][0] not in done else None


class Site:
    """An edge, and cameras that publish all the time.

    Args:
        run: The run that it belongs to.
        name: Name of its folder.
        store: Whether the edge keeps logs on disk.
    """

    def __init__(self, run: Run, name: str, *, store: bool = False) -> None:
        self._run = run
        self._name = name
        self.folder = run.folder / name
        self.folder.mkdir()
        self.keys = self.folder / "keys"
        run_to_end("keys init", mez("keys", "init", "--site", "bench", "--keys", str(self.keys)))
        self.socket = self.folder / "edge.sock"
        self._listen = "127.0.0.1:0"
        self._store: tuple[str, ...] = ()
        if store:
            key = self.folder / "store.key"
            run_to_end("store key", mez("store", "key", "--file", str(key)))
            self._store = ("--store", str(self.folder / "store"), "--store-key", str(key))
        self.start_edge()

    def start_edge(self) -> None:
        """Start the edge; after the first start, at the same address."""
        self.edge = self._run.children.start(
            f"{self._name} edge",
            mez(
                *("edge", "--keys", str(self.keys), "--listen", self._listen, "--grpc", "off"),
                *("--enrol", "off", "--socket", str(self.socket), "--state", str(self.folder / "state")),
                *self._store,
            ),
        )
        said = dict(word.split("=", 1) for word in self.edge.ready().split())
        self._listen = self.link = said["link"]

    def kill_edge(self) -> None:
        """Kill the edge (SIGKILL)."""
        os.kill(self.edge.pid, signal.SIGKILL)
        self._run.children.stop(self.edge)

    def worker(self, pattern: str, group: str = "-", *, threads: int = 1, mean_ms: float = MEAN_MS) -> Worker:
        """Start a worker."""
        words = [sys.executable, "-c", WORKER, str(self.socket), pattern, group, str(threads), str(mean_ms)]
        return Worker(self._run.children.start("worker", words))

    @contextmanager
    def publishing(
        self, names: Sequence[str], fps: float, payload: bytes | None = None
    ) -> Iterator[list[mez_client.Publisher]]:
        """Publish with every camera at random intervals while the block runs."""
        stop = threading.Event()
        image: Any = np.zeros(PIXELS, np.uint8) if payload is None else payload
        with ExitStack() as stack:
            cameras = [
                stack.enter_context(
                    mez_client.publisher(
                        name,
                        edge=self.link,
                        keys=self.keys,
                        state=self.folder / "cameras",
                        memory_bytes=64 << 20,
                    )
                )
                for name in names
            ]
            for camera in cameras:
                camera.wait_connected(timeout=60)

            def publish(camera: mez_client.Publisher, seed: int) -> None:
                draw = random.Random(seed)
                while not stop.wait(draw.expovariate(fps)):
                    camera.send(image)

            threads = [
                threading.Thread(target=publish, args=(camera, SEED + at), daemon=True)
                for at, camera in enumerate(cameras)
            ]
            for thread in threads:
                thread.start()
            try:
                yield cameras
            finally:
                stop.set()
                for thread in threads:
                    thread.join()

    def group(self) -> dict[str, Any] | None:
        """Return the state of its only group; `None` if the edge does not answer."""
        command = mez("groups", "--json", "--edge", f"unix://{self.socket}")
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        lines = said.stdout.splitlines()
        known: dict[str, Any] | None = json.loads(lines[0]) if said.returncode == 0 and lines else None
        return known


# ---- uneven work -----------------------------------------------------------------------------------------


def _cameras(count: int) -> list[str]:
    """Return names of cameras, which assign them to workers."""
    return [f"bench/w{at % WORKERS}/c{at}" for at in range(count)]


def _begin(site: Site, arm: str) -> list[Worker]:
    """Start the workers of an arm."""
    patterns = [f"bench/w{at}/*" if arm == ASSIGNED else "bench/**" for at in range(WORKERS)]
    workers = [site.worker(pattern, "-" if arm == ASSIGNED else "detect") for pattern in patterns]
    for worker in workers:
        worker.await_begun()
    return workers


def _ages(run: Run, arm: str, number: int, seconds: float) -> Values:
    """Return the milliseconds from capture until the work was done, for the records of one round."""
    site = Site(run, f"ages-{arm.split()[0]}-{number}")
    fps = LOAD * WORKERS / (CAMERAS * MEAN_MS / 1e3)
    workers = _begin(site, arm)
    with site.publishing(_cameras(CAMERAS), fps):
        time.sleep(WARM_UP_S)
        counts = [len(worker.done) for worker in workers]
        time.sleep(seconds)
        ages = [age for at, worker in enumerate(workers) for *_, age in worker.done[counts[at] :]]
    _end(run, site, workers)
    return np.array(ages)


def _utilisation(run: Run, seconds: float) -> float:
    """Return the workers' utilisation while more work is offered than they can do."""
    site = Site(run, "utilisation")
    fps = OVERLOAD * WORKERS / (CAMERAS * MEAN_MS / 1e3)
    workers = _begin(site, GROUP)
    with site.publishing(_cameras(CAMERAS), fps):
        time.sleep(WARM_UP_S)
        begin_ns = time.monotonic_ns()
        time.sleep(seconds)
        end_ns = time.monotonic_ns()
    busy_ns = 0
    for worker in workers:
        done = {record: at_ns for record, at_ns, _ in worker.done}
        for record, got_ns, _ in worker.got:
            until_ns = min(done.get(record, end_ns), end_ns)
            busy_ns += max(0, until_ns - max(got_ns, begin_ns))
    _end(run, site, workers)
    return busy_ns / (WORKERS * (end_ns - begin_ns))


def _end(run: Run, site: Site, workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.kill()
        run.children.stop(worker.child)
    run.children.stop(site.edge)


# ---- what members cost -----------------------------------------------------------------------------------


def _cost(run: Run, group: str, members: int, number: int, seconds: float) -> float:
    """Return the edge's CPU time in microseconds per record that members, or one plain reader, got."""
    site = Site(run, f"cost-{members}-{number}")
    payload = np.random.default_rng(SEED).integers(0, 256, COST_PIXELS, np.uint8)
    frame = _native_jpeg(payload)
    worker = site.worker("bench/**", group, threads=members, mean_ms=0.0)
    worker.await_begun(members)
    with site.publishing(_cameras(CAMERAS), COST_FPS, frame):
        time.sleep(WARM_UP_S)
        count, used_ns = len(worker.done), site.edge.cpu_ns()
        time.sleep(seconds)
        done, used_ns = len(worker.done) - count, site.edge.cpu_ns() - used_ns
    _end(run, site, [worker])
    return used_ns / 1e3 / max(1, done)


def _native_jpeg(image: Any) -> bytes:  # noqa: ANN401, an array
    made: bytes = _native.encode_jpeg(image, 90)
    return made


# ---- kills -----------------------------------------------------------------------------------------------


@dataclass
class Kills:
    """The state after the kills."""

    workers: list[Worker]
    edges_ns: list[int]
    held: set[Record]
    group: Mapping[str, Any]

    def untold(self) -> set[Record]:
        """Return the held records since the group's first that no worker did and that are no dead letters."""
        done = {record for worker in self.workers for record, *_ in worker.done}
        first: dict[str, Record] = {}
        for worker in self.workers:
            for record, *_ in worker.got:
                first[record[0]] = min(first.get(record[0], record), record)
        dead = {
            (letter["camera"], letter["epoch"], letter["sequence"]) for letter in self.group["dead_letters"]
        }
        due = {record for record in self.held if record[0] in first and record >= first[record[0]]}
        return due - done - dead

    def redeliveries_s(self) -> list[float]:
        """Return how soon another worker got a killed worker's record, without kills of the edge nearby."""
        given = defaultdict(list)
        for worker in self.workers:
            for record, at_ns, _ in worker.got:
                given[record].append(at_ns)
        taken = []
        for worker in self.workers:
            left, killed_ns = worker.unfinished(), worker.killed_ns
            if left is None or killed_ns is None:
                continue
            if any(abs(killed_ns - at_ns) < UNSETTLED_S * 1e9 for at_ns in self.edges_ns):
                continue
            later = [at_ns for at_ns in given[left] if at_ns > killed_ns]
            if later:
                taken.append((min(later) - killed_ns) / 1e9)
        return taken

    def twice(self) -> tuple[int, int]:
        """Return how many records were done twice, and how many of these without a kill as the cause."""
        by: dict[Record, list[tuple[int, Worker]]] = defaultdict(list)
        for worker in self.workers:
            for record, at_ns, _ in worker.done:
                by[record].append((at_ns, worker))
        twice = {record: sorted(done, key=lambda of: of[0]) for record, done in by.items() if len(done) > 1}
        unexplained = 0
        for done in twice.values():
            (first_ns, worker), (again_ns, _) = done[0], done[-1]
            died = worker.killed_ns is not None and worker.killed_ns <= again_ns
            edge_died = any(first_ns - 1e9 <= at_ns <= again_ns for at_ns in self.edges_ns)
            unexplained += not died and not edge_died
        return len(twice), unexplained


def kills(run: Run, count: int) -> Kills:
    """Kill workers, and in a third of the kills the edge, under load; then let workers do the rest."""
    site, draw = Site(run, "kills", store=True), random.Random(SEED)
    names = [f"bench/c{at}" for at in range(KILL_CAMERAS)]

    def start() -> Worker:
        return site.worker("bench/*", "detect", mean_ms=KILL_WORK_MS)

    running = [start() for _ in range(KILL_WORKERS)]
    everybody, edges_ns = list(running), []
    for worker in running:
        worker.await_begun()
    with site.publishing(names, KILL_FPS):
        time.sleep(WARM_UP_S)
        for number in range(count):
            time.sleep(draw.uniform(0.2, 0.8))
            if number % BLOCK >= WORKERS_FIRST:
                edges_ns.append(time.monotonic_ns())
                site.kill_edge()
                time.sleep(draw.uniform(0.0, 0.3))
                site.start_edge()
            else:
                at = number % KILL_WORKERS
                running[at].kill()
                run.children.stop(running[at].child)
                running[at] = start()
                everybody.append(running[at])
            run.step("kill")
        time.sleep(2.0)
    group = _drained(site)
    held = {
        (frame.camera, frame.epoch, frame.sequence)
        for name in names
        for frame in mez_client.read(name, edge=f"unix://{site.socket}", held_only=True, timeout=60)
    }
    _end(run, site, running)
    return Kills(everybody, edges_ns, held, group)


def _drained(site: Site) -> Mapping[str, Any]:
    """Wait until no record is open or waiting."""
    deadline = time.monotonic() + DRAIN_S_MAX
    while True:
        group = site.group()
        if group is not None and all(lane["open"] == 0 and not lane["lag"] for lane in group["lanes"]):
            return group
        if time.monotonic() > deadline:
            raise ExperimentError(f"records are still open or waiting after {DRAIN_S_MAX:.0f} s: {group}")
        time.sleep(0.2)


# ---- the experiment --------------------------------------------------------------------------------------


def _run(run: Run) -> Outcome:
    chosen = run.subject.only or PARTS
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        raise ExperimentError(f"--only takes {', '.join(PARTS)}; {unknown[0]} is none of them")
    rounds, seconds, count = (1, 3.0, 4) if run.quick else (5, 20.0, 100)
    # The edge's cost varies more from start to start than within one: so more starts, and shorter ones.
    starts, start_s = (rounds, seconds) if run.quick else (2 * rounds, seconds / 2)
    steps = {"latency": 2 * rounds + 1, "cost": 2 * starts, "kills": count}
    run.expect(sum(steps[name] for name in chosen))
    outcome = Outcome(
        parameters={
            "parts": list(chosen),
            "cameras": CAMERAS,
            "workers": WORKERS,
            "load": LOAD,
            "work_ms": [SHORT_MS, LONG_MS],
            "long_one_in": LONG_ONE_IN,
            "kills": count,
            "seed": SEED,
        }
    )
    if "latency" in chosen:
        _latency(run, rounds, seconds, outcome)
    if "cost" in chosen:
        _members(run, starts, start_s, outcome)
    if "kills" in chosen:
        _killed(kills(run, count), count, outcome)
    return outcome


def _latency(run: Run, rounds: int, seconds: float, outcome: Outcome) -> None:
    """Measure how late work is done, and the workers' utilisation."""
    ages: dict[str, list[Values]] = {ASSIGNED: [], GROUP: []}
    for number in range(rounds):
        for arm in in_turn([ASSIGNED, GROUP], number):
            ages[arm].append(_ages(run, arm, number, seconds))
            run.step(arm)
    utilisation = _utilisation(run, seconds)
    run.step("utilisation")
    p95 = percentile(95)
    outcome.metrics |= {
        "p95_ratio_group": ratio_interval(ages[GROUP], ages[ASSIGNED], p95),
        "p95_ms_group": interval(ages[GROUP], p95),
        "p95_ms_assigned": interval(ages[ASSIGNED], p95),
        "utilisation_group": Interval.exactly(utilisation),
    }
    outcome.targets += [Target("p95_ratio_group", "<=", 0.7), Target("utilisation_group", ">=", 0.9)]
    for arm, of_arm in ages.items():
        together = np.concatenate(of_arm)
        outcome.rows.append(
            {
                "arm": arm,
                "records": len(together),
                "ms_p50": float(np.median(together)),
                "ms_p95": float(np.percentile(together, 95)),
            }
        )
    outcome.tables = [_table(outcome.rows)]
    outcome.plot = lambda drawing: _plot(drawing, ages)
    outcome.notes += [
        "work is emulated by waits, so that processors are free for the brokers; the time of a record is "
        "random, with its number as seed",
        f"assigned: each worker reads {CAMERAS // WORKERS} cameras by itself, with the same mean load",
    ]


def _members(run: Run, starts: int, seconds: float, outcome: Outcome) -> None:
    """Measure the edge's cost for many members."""
    costs: dict[int, list[Values]] = {1: [], MEMBERS: []}
    for number in range(starts):
        for members in in_turn([1, MEMBERS], number):
            group = "-" if members == 1 else "detect"
            costs[members].append(np.array([_cost(run, group, members, number, seconds)]))
            run.step("plain" if members == 1 else f"{members} members")
    outcome.metrics |= {
        f"cpu_ratio_group_{MEMBERS}": ratio_interval(costs[MEMBERS], costs[1], median),
        "cpu_us_plain": interval(costs[1], median),
    }
    outcome.targets.append(Target(f"cpu_ratio_group_{MEMBERS}", "<=", 1.2, full_only=True))


def _killed(left: Kills, count: int, outcome: Outcome) -> None:
    """Add the figures of the kills."""
    twice, unexplained = left.twice()
    redeliveries = left.redeliveries_s()
    outcome.metrics |= {
        "untold": Interval.exactly(len(left.untold())),
        "redelivery_s_max": Interval.exactly(max(redeliveries, default=0.0)),
        "done_twice": Interval.exactly(twice),
        "done_twice_unexplained": Interval.exactly(unexplained),
    }
    outcome.targets += [
        Target("untold", "==", 0),
        Target("redelivery_s_max", "<=", 2.0),
        Target("done_twice_unexplained", "==", 0),
    ]
    outcome.notes += [
        f"{count} kills, {len(left.edges_ns)} of them of the edge: {len(left.held)} records held, "
        f"{len(redeliveries)} redeliveries timed; since the last start of the edge: {left.group['account']}",
        "redelivery_s_max: from SIGKILL of a worker until another one has its record; kills within "
        f"{UNSETTLED_S:.0f} s of a kill of the edge do not count",
    ]


def _table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("workers", "records", "p50 ms", "p95 ms"):
        table.add_column(column, no_wrap=True, justify="left" if column == "workers" else "right")
    for row in rows:
        numbers = [figure(float(row[name] or 0.0)) for name in ("ms_p50", "ms_p95")]
        table.add_row(str(row["arm"]), str(row["records"]), *numbers)
    return table


def _plot(drawing: Figure, ages: Mapping[str, Sequence[Values]]) -> None:
    axes = drawing.subplots()
    for arm, rounds in ages.items():
        ordered = np.sort(np.concatenate(rounds))
        axes.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered), label=arm)
    axes.set_xlabel("milliseconds from capture until the work is done")
    axes.set_ylabel("share of records")
    axes.set_xscale("log")
    axes.legend(frameon=False, fontsize="small")


GROUPS: Final = Experiment(
    name="groups",
    summary="groups of readers: uneven work, the edge's cost for members, and recovery after kills",
    needs="nothing but the build",
    seconds_quick=60,
    seconds_full=900,
    run=_run,
)
