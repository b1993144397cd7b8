"""Divides a channel between two applications of different kind: by equal bandwidth, and by equal accuracy."""

from __future__ import annotations

import csv
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import mez as mez_client
from mez.apps import web_log
from mez.demo.channel import Channel
from mez_bench.children import Children, mez
from mez_bench.contracts.links import written
from mez_bench.contracts.part import Subject, subject, table
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.experiments.knobs_data import profiles
from mez_bench.reading import Reading
from mez_bench.run import Place, Run
from mez_bench.stats import Interval, interval, mean
from mez_bench.systems.mez import Brokers
from mez_bench.top_pages.play import AFTER_S, LOG_BYTES, Plan, Played, Reader, publish, true_lists, wait

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALLOCATIONS: Final[Mapping[str, str]] = {"equal bandwidth": "hall:bandwidth", "equal accuracy": "hall"}
"""The channel as it is declared to the edge, with its goal."""

BANDWIDTH, ACCURACY = ALLOCATIONS
PEOPLE: Final = "pedestrians"
TOP: Final = "top-k"
CAMERAS: Final = "cam/*"
LOGS: Final = "log/*"
EACH: Final = 2
"""Number of cameras, and of servers of the log."""

CHANNEL_MBPS: Final = 0.3
BEFORE_MBPS: Final = 2.4
NARROW_FROM_S: Final = 3.0
SETTLE_S: Final = 4.0
BOUND_MS: Final = 250.0
FLOOR: Final = 0.5
FPS: Final = 10.0
QUEUE_KILOBYTES: Final = 16
SECONDS: Final = 40
SECONDS_QUICK: Final = 10
ROUNDS: Final = 5
SEEDS: Final = 20
SEEDS_QUICK: Final = 3
FIRST_SEED: Final = 1_000_001
PROFILED: Final = 40
PROFILED_QUICK: Final = 30

FOLDER: Final = "awstream-mot"
FILES: Final[Mapping[str, str]] = {BANDWIDTH: "eq-bw-mot.log", ACCURACY: "eq-acc-mot.log"}
FROM_SAMPLE: Final = 20
"""From this sample on, both published runs have settled on the shared link."""

PUBLISHED_OTHER: Final[Mapping[str, tuple[float, float, float]]] = {
    BANDWIDTH: (2823, 458, 0.777),
    ACCURACY: (3749, 207, 0.813),
}
"""Figures of augmented reality, which shared the link with pedestrian detection: kbit/s, mean latency in ms,
F1. As published by the authors; the folder has no log of it."""


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one application on the channel.

    Attributes:
        where: `world`, `brokers` or `published`.
        allocation: How the channel was divided.
        application: Name of the application.
        accuracy: Accuracy of the frames that arrived; for the top-k, of the list at each window's deadline.
        on_time_share: Share of published frames that arrived within the bound; `None` where unknown.
        kilobits_per_second: Payload on the channel; `None` where unknown.
        latency_ms: Mean age in published logs, else the 95th percentile.
        seed: Seed of the run.
    """

    where: str
    allocation: str
    application: str
    accuracy: float
    on_time_share: float | None
    kilobits_per_second: float | None
    latency_ms: float | None
    seed: int = 0


def _run(run: Run) -> Outcome:
    rounds, seeds = (1, SEEDS_QUICK) if run.quick else (ROUNDS, SEEDS)
    run.expect(2 + (rounds + 1) * len(ALLOCATIONS))
    run.step("profiling", done=0)
    found, _, _ = profiles(PROFILED_QUICK if run.quick else PROFILED, EACH, exhaustive=False)
    path = run.folder / "top-pages.json"
    path.write_bytes(found.to_bytes())
    run.step("in the world")
    rows = [row for allocation in ALLOCATIONS for row in _world(run, allocation, seeds)]
    filmed = subject(run)
    for seed in range(rounds):
        for allocation in ALLOCATIONS:
            run.step(f"between brokers: {allocation}")
            rows += _brokers(run, filmed, path, allocation, 21 + seed)
    rows += _published(run)
    return _outcome(run, rows, rounds, seeds)


def _outcome(run: Run, rows: Sequence[Row], rounds: int, seeds: int) -> Outcome:
    metrics: dict[str, Interval] = {}
    for where in ("world", "brokers"):
        of_place = [row for row in rows if row.where == where]
        for allocation in ALLOCATIONS:
            for application in (PEOPLE, TOP):
                named = f"accuracy_{where}_{allocation}_{application}".replace(" ", "_").replace("-", "_")
                metrics[named] = _mean(of_place, allocation, application)
        gains = [worse[1] - worse[0] for worse in _worse(of_place)]
        metrics[f"worse_gain_{where}"] = interval([np.array([gain]) for gain in gains], mean)
    shown = _summary(rows)
    return Outcome(
        parameters={
            "channel_mbps": CHANNEL_MBPS,
            "cameras": EACH,
            "log_servers": EACH,
            "bound_ms": BOUND_MS,
            "accuracy_floor": FLOOR,
            "rounds": rounds,
            "world_seeds": seeds,
            "seconds": SECONDS_QUICK if run.quick else SECONDS,
        },
        metrics=metrics,
        rows=[_cells(row) for row in rows],
        targets=[
            Target("worse_gain_world", ">=", 0.0),
            Target("worse_gain_brokers", ">=", 0.0, full_only=True),
        ],
        tables=[table(shown, "", list(shown[0]))],
        notes=[
            "worse_gain: accuracy of the worse application with equal accuracy, minus its accuracy with "
            "equal bandwidth",
            "pedestrians: accuracy of the delivered rungs, by the profile. Top-k: Kendall's tau at each "
            "window's deadline; in the world, accuracy of the rungs by the profile",
            "latency: 95th percentile; the mean for published logs. Published: AWStream (Zhang et al. 2018), "
            "pedestrians and augmented reality on one bottleneck",
        ],
        plot=lambda drawing: _plot(drawing, rows),
    )


def _mean(rows: Sequence[Row], allocation: str, application: str) -> Interval:
    chosen = [row for row in rows if (row.allocation, row.application) == (allocation, application)]
    return interval([np.array([row.accuracy]) for row in chosen], mean)


def _worse(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """Return the accuracy of the worse application with either allocation, for each run."""

    def lowest(allocation: str, seed: int) -> float:
        return min(row.accuracy for row in rows if (row.allocation, row.seed) == (allocation, seed))

    seeds = sorted({row.seed for row in rows})
    return [(lowest(BANDWIDTH, seed), lowest(ACCURACY, seed)) for seed in seeds]


# --- in the world ---


def _world(run: Run, allocation: str, seeds: int) -> list[Row]:
    seconds = SECONDS_QUICK + 10 if run.quick else SECONDS
    from_s = NARROW_FROM_S + SETTLE_S
    expected = {"from_s": from_s, "until_s": seconds, "frames_min": 1}
    document = _scenario(
        allocation,
        seconds,
        {
            CAMERAS: {"footage": "street", "frames_per_second": FPS},
            LOGS: {"footage": "top_pages", "frames_per_second": 1 / web_log.WINDOW_S},
        },
    )
    contract = {"latency_ms": BOUND_MS, "accuracy": FLOOR}
    document["subscription"] = [
        {"name": PEOPLE, "cameras": CAMERAS, "profile": "street", **contract},
        {"name": TOP, "cameras": LOGS, "profile": "top_pages", **contract},
    ]
    document["expect"] = [{"subscription": name, **expected} for name in (PEOPLE, TOP)]
    path = written(run.folder / f"world-{allocation.replace(' ', '-')}.toml", document)
    words = ("--scenario", f"{path}", "--seed", f"{FIRST_SEED}", "--seeds", f"{seeds}", "--seen")
    child = run.children.start("measure world", mez("measure", "world", *words))
    found = []
    while (line := child.line(seconds_max=120)) is not None:
        seen: dict[str, Any] = json.loads(line)
        if seen["kind"] != "seen":
            continue
        application = (PEOPLE, TOP)[seen["expectation"]]
        per_second = FPS if application == PEOPLE else 1 / web_log.WINDOW_S
        published = EACH * per_second * (seconds - from_s)
        found.append(
            Row(
                "world",
                allocation,
                application,
                seen["accuracy"] or 0.0,
                min(seen["on_time"] / published, 1.0),
                None,
                seen["age_ms_p95"],
                seen["seed"],
            )
        )
    return found


def _scenario(allocation: str, seconds: float, streams: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a scenario whose streams share one queue, declared to the edge as a channel."""
    cameras = [
        {"name": pattern.replace("*", f"{number}"), **about}
        for pattern, about in streams.items()
        for number in range(EACH)
    ]
    return {
        "name": "shares",
        "seconds": seconds,
        "edge_channels": [_channel(allocation)],
        "link": {
            "shared": "queue",
            "megabits_per_second": BEFORE_MBPS,
            "one_way_delay_ms": 5,
            "queue_kilobytes": QUEUE_KILOBYTES,
        },
        "camera": cameras,
        "change": [
            {"at_s": NARROW_FROM_S, "camera": camera["name"], "megabits_per_second": CHANNEL_MBPS}
            for camera in cameras[:1]
        ],
    }


def _channel(allocation: str) -> str:
    return f"{ALLOCATIONS[allocation]}={CAMERAS},{LOGS}"


# --- between brokers ---


@dataclass(slots=True)
class People(Reading):
    """Reads the cameras on a thread of its own."""

    edge: str
    profile: Path
    frames: list[tuple[str, int, float, float, float, int]] = field(default_factory=list)

    def _subscribe(self) -> mez_client.Subscription:
        return mez_client.subscribe(
            CAMERAS, edge=self.edge, latency_ms=BOUND_MS, accuracy=FLOOR, profile=self.profile
        )

    def _take(self, frame: mez_client.Frame) -> None:
        if frame.age_ms is None or frame.expected_accuracy is None:
            return
        at_s, size = time.monotonic(), frame.link_bytes or len(frame.payload)
        kept = (frame.camera, frame.sequence, at_s, frame.age_ms, frame.expected_accuracy, size)
        self.frames.append(kept)

    def row(self, allocation: str, seed: int, from_s: float, until_s: float) -> Row:
        """Return the figures between two times of `time.monotonic`."""
        mine = [frame for frame in self.frames if from_s <= frame[2] < until_s]
        if not mine:
            raise ExperimentError(f"{allocation}: no frame of a camera arrived in the measured time")
        published = sum(
            max(sequences) - min(sequences) + 1
            for camera in {frame[0] for frame in mine}
            for sequences in [[frame[1] for frame in mine if frame[0] == camera]]
        )
        ages = [frame[3] for frame in mine]
        return Row(
            "brokers",
            allocation,
            PEOPLE,
            float(np.mean([frame[4] for frame in mine])),
            sum(age <= BOUND_MS for age in ages) / published,
            sum(frame[5] for frame in mine) * 8e-3 / (until_s - from_s),
            float(np.percentile(ages, 95)),
            seed,
        )


def _brokers(run: Run, filmed: Subject, profile: Path, allocation: str, seed: int) -> list[Row]:
    seconds = SECONDS_QUICK if run.quick else SECONDS
    windows = round(seconds / web_log.WINDOW_S)
    plan = Plan(seed, windows, [[(0.0, BEFORE_MBPS)]] * EACH, BOUND_MS, FLOOR, profile)
    folder = run.folder / f"{allocation.replace(' ', '-')}-{seed}"
    folder.mkdir()
    document = _scenario(allocation, seconds + AFTER_S, {CAMERAS: {"frames_per_second": FPS}, LOGS: {}})
    document["subscription"] = [{"name": "all", "cameras": "**"}]
    with Children(folder) as children:
        brokers = Brokers(Place(folder, children), LOG_BYTES, edge_words=("--channel", _channel(allocation)))
        channel = Channel(
            str(written(folder / "links.toml", document)), brokers.link_address, folder / "channel.log"
        )
        people, top = People(brokers.socket, filmed.profile), Reader(brokers.socket, plan, is_adaptive=True)
        try:
            addresses = [link.address for link in channel.scenario.links]
            for number, address in enumerate(addresses[:EACH]):
                name = CAMERAS.replace("*", f"{number}")
                brokers.dial_with(address, str(filmed.video), name=f"camera {number}", camera=name, fps=FPS)
            servers = publish(children, brokers, plan, None, addresses[EACH:])
            people.start()
            top.start()
            time.sleep(1.5)
            channel.begin()
            began_s = time.monotonic()
            began_ns = int(servers.ask("begin")["began_ns"])
            wait(top, plan.seconds + AFTER_S, threading.Event())
            if people.failure is not None:
                raise ExperimentError(f"a subscription ended: {people.failure}") from people.failure
            late_ms_max = channel.late_ms_max()
        finally:
            people.stop()
            top.stop()
            channel.stop()
    played = Played(plan, top.taken(began_ns), late_ms_max)
    from_s = NARROW_FROM_S + SETTLE_S
    return [
        people.row(allocation, seed, began_s + from_s, began_s + seconds),
        _top_row(played, allocation, seed, round(from_s / web_log.WINDOW_S)),
    ]


def _top_row(played: Played, allocation: str, seed: int, first: int) -> Row:
    windows = played.plan.windows
    true = true_lists(seed, EACH, windows)
    ages = played.ages(first, windows)
    sizes = sum(one.link_bytes for one in played.taken if first <= one.window < windows)
    return Row(
        "brokers",
        allocation,
        TOP,
        float(np.mean(played.accuracy(true, first, windows))),
        played.on_time_share(first, windows),
        sizes * 8e-3 / ((windows - first) * web_log.WINDOW_S),
        float(np.percentile(ages, 95)) if ages else None,
        seed,
    )


# --- as published ---


def _published(run: Run) -> list[Row]:
    """Return the figures that AWStream's authors published, or report that they are missing."""
    if run.data is None:
        run.say(
            "[bold red]SKIPPED[/bold red] the published figures: shares needs the logs of AWStream's "
            f"authors (github.com/awstream/data); name the parent of {FOLDER} with --data DIR or "
            "MEZ_BENCH_DATA"
        )
        return []
    missing = [name for name in FILES.values() if not (run.data / FOLDER / name).is_file()]
    if missing:
        lacks = f"{run.data / FOLDER} lacks {', '.join(missing)}"
        run.say(f"[bold red]SKIPPED[/bold red] the published figures: {lacks}")
        return []
    rows = []
    for allocation, name in FILES.items():
        with (run.data / FOLDER / name).open(newline="") as file:
            samples = [[float(cell) for cell in line[1:]] for line in csv.reader(file) if line]
        settled = np.array([sample[1:] for sample in samples if sample[0] >= FROM_SAMPLE])
        rate, latency_ms, f1 = settled.mean(axis=0).tolist()
        rows.append(Row("published", allocation, PEOPLE, f1, None, rate, latency_ms))
        rate, latency_ms, f1 = PUBLISHED_OTHER[allocation]
        rows.append(Row("published", allocation, "augmented reality", f1, None, rate, latency_ms))
    return rows


# --- tables and plot ---


def _cells(row: Row) -> dict[str, str | float | int | None]:
    return {
        "where": row.where,
        "allocation": row.allocation,
        "application": row.application,
        "accuracy": row.accuracy,
        "on_time_share": row.on_time_share,
        "kilobits_per_second": row.kilobits_per_second,
        "latency_ms": row.latency_ms,
        "seed": row.seed,
    }


def _summary(rows: Sequence[Row]) -> list[dict[str, str | float | int | None]]:
    """Return the means of all runs."""
    keys = list(dict.fromkeys((row.where, row.allocation, row.application) for row in rows))
    shown = []
    for key in keys:
        mine = [row for row in rows if (row.where, row.allocation, row.application) == key]
        cells = _cells(mine[0])
        del cells["seed"]
        for name in ("accuracy", "on_time_share", "kilobits_per_second", "latency_ms"):
            known = [value for row in mine if (value := _cells(row)[name]) is not None]
            cells[name] = float(np.mean([float(value) for value in known])) if known else None
        shown.append(cells)
    return shown


def _plot(drawing: Figure, rows: Sequence[Row]) -> None:
    places = list(dict.fromkeys(row.where for row in rows))
    for axes, where in zip(np.atleast_1d(drawing.subplots(1, len(places), sharey=True)), places, strict=True):
        mine = [row for row in rows if row.where == where]
        applications = list(dict.fromkeys(row.application for row in mine))
        for at, allocation in enumerate(ALLOCATIONS):
            values = [_mean(mine, allocation, application).median for application in applications]
            axes.bar(np.arange(len(values)) + 0.4 * at, values, 0.38, label=allocation)
        axes.set_xticks(np.arange(len(applications)) + 0.2, applications, fontsize=7)
        axes.set_title(where)
        axes.set_ylim(0.5, 1)
    axes.legend(frameon=False, fontsize=7)


SHARES: Final = Experiment(
    name="shares",
    summary="pedestrians and a top-k share a channel: equal bandwidth compared with equal accuracy",
    needs="the demo's video (fetched once); --data DIR with awstream-mot/ for the published figures",
    seconds_quick=60,
    seconds_full=640,
    run=_run,
)
