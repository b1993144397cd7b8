"""Measures how long records wait between the stages of a recognition pipeline, on Mez's bus and on Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez_bench.acceleration import paper
from mez_bench.emulated.producers import Plan
from mez_bench.emulated.rounds import Shown, shown
from mez_bench.emulated.sites import Shape, Site, start_kafka, start_mez
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.queueing import excess, lognormal
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Statistic, Values, interval, mean, median, percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORKERS: Final = 4
CAMERAS: Final = 8
USED_SHARE: Final = 0.6
"""Share of the workers' time that is used."""
FIRST_SEED: Final = 1_000_001
BEGIN_S: Final = 0.5
"""Time from the command until the first frame may be due."""
CONSTANT: Final = "constant"
SPREAD: Final = "spread"
PARTS: Final = (CONSTANT, SPREAD)
INGESTION_S, DETECTION_S, IDENTIFICATION_S = (
    paper.STAGES_MS[stage][0] / 1000 for stage in ("ingestion", "detection", "identification")
)
STATISTICS: Final[Mapping[str, Statistic]] = {"mean": mean, "p99": percentile(99)}
COLOURS: Final = {"mez": "#0072b2", "kafka": "#e69f00"}

_HELP: Final = """\
Measures how long records wait between detection and identification of a face
recognition pipeline, on Mez's own bus and on a real Apache Kafka, side by side.

Compute is emulated as in the AI Tax paper (Richins et al. 2021): processes wait as
long as the paper's networks computed (ingestion 18.8 ms, detection 74.8 ms,
identification 131.5 ms), and a face has 37.3 kB. One face a frame; workers are
busy for 0.6 of their time. What is real is the bus, the pipeline's runner and its
workers (`mez pipeline run`).

  constant   each identification takes the mean, as in the paper's emulation
  spread     it takes as long as a lognormal of the paper's mean and p99 (380 ms)

Waiting is from when a record is given to the bus until a worker has it. Some of it
no bus can avoid: a record waits where all workers are busy. A simulation with the
same arrivals and the same work says how much that is. What a bus adds is shown as a
share of the time from end to end.

Durability is equal: both buses confirm a record when it is with the operating
system, so it survives a killed broker, and neither waits for the drive. Kafka runs
at its best: no linger, as many partitions as workers, cameras spread evenly over
them.
"""

_EXAMPLES: Final = """\
examples:
  mez bench pipeline                     ten rounds of 75 s on each bus, twice; an hour
  mez bench pipeline --quick             two short rounds, without the spread
  mez bench pipeline --only constant     one part
"""


@dataclass(frozen=True, slots=True)
class Size:
    """The length of a run."""

    rounds: int
    seconds: float
    warm_up_s: float


QUICK: Final = Size(2, 9.0, 3.0)
FULL: Final = Size(10, 75.0, 20.0)

Measured = Mapping[str, Sequence[Shown]]
"""The rounds, by bus."""


def _run(run: Run) -> Outcome:
    parts = run.parts(PARTS)
    if run.quick and not run.subject.only:
        parts = (CONSTANT,)
    size = QUICK if run.quick else FULL
    shape = Shape(WORKERS, CAMERAS, paper.AI_SHARE["identification"])
    run.expect(2 + len(parts) * size.rounds * 2)
    starts: Mapping[str, Callable[[Run, Shape], Site]] = {"mez": start_mez, "kafka": start_kafka}
    sites = []
    for name, start in starts.items():
        sites.append(start(run, shape))
        # Clients connect and join their groups with the first records.
        sites[-1].play(_plan(sites[-1].names, CONSTANT, 1, size.warm_up_s), size.warm_up_s)
        run.step(f"{name} runs")
    outcome = Outcome(
        parameters={
            "first_seed": FIRST_SEED,
            "workers": WORKERS,
            "cameras": CAMERAS,
            "used_share": USED_SHARE,
            "payload_bytes": paper.RECORD_BYTES,
            "rounds": size.rounds,
            "round_seconds": size.seconds,
            "durability": "confirmed when written to the log, without a sync, on both",
            "kafka": "1 broker, acks=all, linger.ms=0, 1 partition per worker, cameras spread evenly",
        },
        targets=[
            Target("mez_waiting_share_mean", "<=", 0.05),
            Target("mez_waiting_share_p99", "<=", 0.10, full_only=True),
            Target("ratio_e2e_mean_kafka", "<=", 1.0),
            Target("ratio_p99_kafka", "<=", 1.0, full_only=True),
            Target("mez_lost", "==", 0),
        ],
        notes=_notes(),
    )
    measured = {}
    for index, part in enumerate(parts):
        measured[part] = _measure(run, sites, part, size, 1 + index * size.rounds)
        _fill(outcome, part, measured[part])
    outcome.tables = [_table(measured)]
    outcome.plot = lambda drawing: _plot(drawing, measured)
    return outcome


def _measure(run: Run, sites: Sequence[Site], part: str, size: Size, before: int) -> Measured:
    found: dict[str, list[Shown]] = {site.bus: [] for site in sites}
    for number in range(size.rounds):
        # The order changes with every round, so that no bus is always first.
        for site in sites if number % 2 == 0 else sites[::-1]:
            plan = _plan(site.names, part, before + number + 1, size.seconds)
            played, ways = site.play(plan, size.seconds)
            found[site.bus].append(shown(ways, played.sent, WORKERS))
            run.step(f"{part}, round {number + 1} of {size.rounds} on {site.bus}")
    return found


def _plan(names: Sequence[str], part: str, number: int, seconds: float) -> Plan:
    """Return the plan of a round: the same for every bus, except for the names of cameras."""
    random = np.random.default_rng(FIRST_SEED + number)
    rate = USED_SHARE * WORKERS / IDENTIFICATION_S
    interval_s = len(names) / rate
    frames = int(seconds / interval_s)
    phases_s = random.uniform(0, interval_s, len(names))
    work_s = np.full((len(names), frames), IDENTIFICATION_S)
    if part == SPREAD:
        p99_s = paper.STAGES_MS["identification"][1] / 1000
        drawn = lognormal(IDENTIFICATION_S, p99_s, len(names) * frames, random)
        # With so few draws, their mean is off by some per cent, and so would be the workers' load.
        work_s = (drawn * IDENTIFICATION_S / drawn.mean()).reshape(len(names), frames)
    return Plan(
        number=number,
        begin_s=time.monotonic() + BEGIN_S,
        due_s={
            name: (phase_s + np.arange(frames) * interval_s).tolist()
            for name, phase_s in zip(names, phases_s, strict=True)
        },
        work_ms={name: (work * 1000).tolist() for name, work in zip(names, work_s, strict=True)},
        ingestion_s=INGESTION_S,
        detection_s=DETECTION_S,
        ai_share=paper.AI_SHARE["detection"],
        payload_bytes=paper.RECORD_BYTES,
    )


def _fill(outcome: Outcome, part: str, measured: Measured) -> None:
    """Add the figures of a part: medians over rounds, since the machine may be busy in one of them."""
    behind = "" if part == CONSTANT else f"_{part}"
    for bus, rounds in measured.items():
        added = [excess([one.waited], [one.bound], [one.whole]) for one in rounds]
        outcome.metrics |= {
            f"{bus}_waiting_share_mean{behind}": _median([one.share_mean.median for one in added]),
            f"{bus}_waiting_share_p99{behind}": _median([one.share_p99.median for one in added]),
        }
        for name, values in _values(rounds).items():
            for word, statistic in STATISTICS.items():
                figures = [statistic(of) * 1000 for of in values]
                outcome.metrics[f"{bus}_{name}_ms_{word}{behind}"] = _median(figures)
        lost = sum(one.lost for one in rounds)
        outcome.metrics[f"{bus}_lost{behind}"] = Interval.exactly(lost)
        outcome.rows += [_row(part, bus, number, one) for number, one in enumerate(rounds)]
    ours, theirs = (_values(measured[bus])["e2e"] for bus in ("mez", "kafka"))
    for name, word in (("ratio_e2e_mean_kafka", "mean"), ("ratio_p99_kafka", "p99")):
        of = STATISTICS[word]
        ratios = [of(mine) / of(other) for mine, other in zip(ours, theirs, strict=True)]
        outcome.metrics[f"{name}{behind}"] = _median(ratios)


def _values(rounds: Sequence[Shown]) -> dict[str, list[Values]]:
    return {
        "e2e": [one.whole for one in rounds],
        "waiting": [one.waited for one in rounds],
        "bound_waiting": [one.bound for one in rounds],
    }


def _median(figures: Sequence[float]) -> Interval:
    return interval([np.array([value]) for value in figures], median)


def _row(part: str, bus: str, number: int, one: Shown) -> dict[str, Cell]:
    row: dict[str, Cell] = {"part": part, "bus": bus, "round": number, "sent": one.sent, "lost": one.lost}
    for name, values in _values([one]).items():
        for percent in (50, 95, 99):
            row[f"{name}_ms_p{percent}"] = float(np.percentile(values[0], percent)) * 1000
        row[f"{name}_ms_mean"] = float(values[0].mean()) * 1000
        row[f"{name}_ms_max"] = float(values[0].max()) * 1000
    return row


def _notes() -> list[str]:
    whole = sum(ms for ms, _ in paper.STAGES_MS.values()) + paper.WAITING_MS[0]
    return [
        "compute is emulated; the buses, the runner and its workers are real, on this host",
        "bound: each record goes to the first free worker (D/D/c, and D/G/c with the spread), with the "
        "measured arrivals and work; first come, first served",
        "figures are medians of rounds, each without its first 20 %",
        "Mez: the edge with --store (encrypted) and --durability async. Kafka: its log without fsync "
        "(plaintext). Both confirm a record that survives a killed broker; a power cut may lose the last "
        "records of either",
        f"the paper: {whole:.0f} ms end to end, {paper.WAITING_MS[0]:.0f} ms of it waiting; p99 2.21 s "
        "(real video, 0 to 5 faces per frame, and a cluster)",
    ]


def _table(measured: Mapping[str, Measured]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("identification")
    table.add_column("bus")
    for column in ("e2e mean", "p99", "waiting mean", "p99", "bound mean", "p99", "lost"):
        table.add_column(column, justify="right")
    for part, buses in measured.items():
        for bus, rounds in buses.items():
            cells = []
            for values in _values(rounds).values():
                for statistic in STATISTICS.values():
                    cells.append(f"{median(np.array([statistic(of) for of in values])) * 1000:.1f}")
            lost = sum(one.lost for one in rounds)
            table.add_row(part, bus, *cells, figure(lost))
    table.caption = "milliseconds"
    return table


def _plot(drawing: Figure, measured: Mapping[str, Measured]) -> None:
    bars, tails = drawing.subplots(1, 2, width_ratios=(1, 1.3))
    part = next(iter(measured))
    _plot_means(bars, measured[part])
    for bus, rounds in measured[part].items():
        for name, style in (("waiting", "-"), ("bound_waiting", ":")):
            values = np.sort(np.concatenate(_values(rounds)[name])) * 1000
            above = 1 - np.arange(len(values)) / len(values)
            label = bus if style == "-" else f"bound, arrivals on {bus}"
            tails.plot(np.maximum(values, 0.1), above, style, lw=1.2, color=COLOURS[bus], label=label)
    tails.set_xscale("log")
    tails.set_yscale("log")
    tails.set_xlabel("waited more than, ms")
    tails.set_ylabel("share of records")
    tails.set_title(f"waiting for identification ({part} work)", fontsize=9)
    tails.legend(frameon=False, fontsize=7)


def _plot_means(axes: Axes, measured: Measured) -> None:
    names = [*measured, "paper"]
    stages = [("ingestion", INGESTION_S), ("detection", DETECTION_S)]
    below = np.zeros(len(names))
    waits_ms = [
        1000 * median(np.array([one.waited.mean() for one in rounds])) for rounds in measured.values()
    ]
    pieces = [(stage, [1000 * s] * len(names)) for stage, s in stages]
    pieces.append(("waiting", [*waits_ms, paper.WAITING_MS[0]]))
    pieces.append(("identification", [1000 * IDENTIFICATION_S] * len(names)))
    for (label, values), colour in zip(pieces, ("#8ecae6", "#0072b2", "#cc3311", "#009e73"), strict=True):
        axes.bar(names, values, bottom=below, width=0.6, color=colour, label=label)
        below += np.array(values)
    axes.set_ylabel("mean from end to end, ms")
    axes.set_ylim(0, float(below.max()) * 1.35)
    axes.legend(frameon=False, fontsize=7, ncols=2, loc="upper center")


PIPELINE: Final = Experiment(
    name="pipeline",
    summary="how long records wait between stages of a pipeline, on Mez's bus and on Kafka",
    needs="Java 17 and Maven (tools/setup --tests), confluent-kafka",
    seconds_quick=60,
    seconds_full=3600,
    run=_run,
    description=_HELP,
    examples=_EXAMPLES,
)
