"""Computes by theory what faster AI does to a recognition pipeline: no bus is run.

Shares of AI are the paper's, and the measured ones of the user's own pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez_bench import report
from mez_bench.acceleration import paper
from mez_bench.acceleration.amdahl import delay_growth_ms_per_s, frames_max, speedup
from mez_bench.acceleration.brokers import Cluster, paper_rate, verdict
from mez_bench.acceleration.own import Shares, shares
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.queueing import (
    lognormal,
    mg1_wait_mean_s,
    mmc_wait_mean_s,
    poisson,
    steady,
    streams,
    waits,
)
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FACTORS: Final = (1.0, 2.0, 4.0, 6.0, 8.0, 9.0, 10.0, 12.0, 16.0, 24.0, 32.0)
WORKERS: Final = (1, 2, 4, 8, 16, 56)
USED_SHARE: Final = 0.6
"""Used share of the workers' time, as in the emulation."""
FIRST_SEED: Final = 1_000_001
PLAYED_S: Final = 10.0
PLAYED_S_QUICK: Final = 4.0
CLUSTERS: Final = ((3, 1), (3, 2), (3, 3), (3, 4), (4, 1), (6, 1), (8, 1))
"""Brokers, and drives per broker (Figure 15 a and b)."""
SIZES: Final = (1.0, 1 / 2, 1 / 4, 1 / 8)
"""Sizes of a thumbnail, as shares of the paper's bytes (Figure 15 c)."""
SETS: Final = (1, 2, 4, 6, 8, 12, 16)
"""Frames in a set, which are sent together (Figure 14)."""
KINDS: Final = (("streams", "constant"), ("Poisson", "constant"), ("Poisson", "measured spread"))
"""Arrivals and service times. The first is the emulation's, the last is nearest to real video."""

_HELP: Final = """\
Says what theory gives for a pipeline whose AI gets faster, before any bus is run:

  - Amdahl's bound: how much faster each stage gets if only its AI does (Figure 9 of
    the AI Tax paper, Richins et al. 2021);
  - waiting that no bus can avoid: records wait for a free worker. A simulation with
    the same arrivals (M/G/c), checked against the closed forms of M/M/c and M/G/1;
  - when the drives of brokers are full, for 3 to 8 brokers with 1 to 4 drives and
    for smaller thumbnails (Figure 15). Nothing is fitted: the drive's rate and
    latency, the size of a record and one published load. The table says of each
    setting whether the paper found the same;
  - the delay of ingestion, where sending a set of frames takes longer than its
    interval (Figure 14).

Nothing is measured here. With --events, Amdahl's bound is also that of your own
pipeline, by the shares of AI that its events say. docs/cost.md says what the models
leave out.
"""

_EXAMPLES: Final = """\
examples:
  mez bench acceleration             ten seeds; about half a minute
  mez bench acceleration --quick     fewer records
  mez bench acceleration --check     fails if a published figure is missed
  mez bench acceleration --events events   also for the pipeline that wrote these events
"""


@dataclass(frozen=True, slots=True)
class Waited:
    """Waiting for workers, as a share of the time from end to end."""

    arrivals: str
    services: str
    workers: int
    share_mean: Interval
    share_p99: Interval


@dataclass(frozen=True, slots=True)
class Judged:
    """A cluster at a factor, by the model and by the paper."""

    point: paper.Point
    busy_share: float
    written_share: float
    stable: bool
    slope: float
    completed_share: float

    @property
    def agrees(self) -> bool:
        """The model and the paper agree."""
        return self.stable == self.point.stable


def _run(run: Run) -> Outcome:
    own = None if run.subject.events is None else shares(run.subject.events)
    rounds = 5 if run.quick else 10
    records = 10_000 if run.quick else 50_000
    run.expect(len(WORKERS) + len(paper.POINTS) + 1)
    error = _closed_form_error(rounds, records)
    run.step("closed forms")
    waited = []
    for workers in WORKERS:
        waited.extend(_waited(workers, rounds, records))
        run.step(f"{workers} workers")
    judged = []
    for point in paper.POINTS:
        judged.append(_judge(point, 3, PLAYED_S_QUICK if run.quick else PLAYED_S))
        run.step(f"{point.brokers} brokers, {point.drives} drives, {point.factor} times")
    outcome = Outcome(
        parameters={
            "first_seed": FIRST_SEED,
            "rounds": rounds,
            "records": records,
            "used_share": USED_SHARE,
            "record_bytes": paper.RECORD_BYTES,
            "records_per_second_at_1": paper_rate(),
            "drive_bytes_per_second": paper.WRITE_BYTES_PER_SECOND,
            "drive_write_latency_s": paper.WRITE_LATENCY_S,
        },
        metrics=_metrics(error, waited, judged),
        rows=[
            *(_waited_row(one) for one in waited),
            *(_judged_row(one) for one in judged),
            *_factor_rows(),
            *(_own_rows(own) if own is not None else ()),
        ],
        targets=[
            Target("amdahl_error_max", "<=", 0.01),
            Target("closed_form_error_max", "<=", 0.05),
            Target("stable_at_6", "==", 1),
            Target("stable_at_8", "==", 0),
        ],
        tables=[
            _amdahl_table(),
            *([_own_table(own)] if own is not None else ()),
            _waited_table(waited),
            _judged_table(judged),
            _limits_table(),
            _sets_table(),
        ],
        notes=[*_notes(judged), *(_own_notes(own) if own is not None else ())],
    )
    outcome.plot = lambda drawing: _plot(drawing, waited, judged)
    return outcome


def _closed_form_error(rounds: int, records: int) -> float:
    """Return the largest difference between simulated means and closed forms, as a share of the latter."""
    errors = []
    for workers in (1, 2, 8):
        rate = USED_SHARE * workers
        found = []
        for seed in range(rounds):
            random = np.random.default_rng(FIRST_SEED + seed)
            arrivals = poisson(rate, records, random)
            found.append(steady(waits(arrivals, random.exponential(1.0, records), workers)))
        errors.append(float(np.mean(np.concatenate(found))) / mmc_wait_mean_s(rate, 1.0, workers) - 1)
    found = []
    for seed in range(rounds):
        random = np.random.default_rng(FIRST_SEED + seed)
        found.append(steady(waits(poisson(USED_SHARE, records, random), np.ones(records), 1)))
    errors.append(float(np.mean(np.concatenate(found))) / mg1_wait_mean_s(USED_SHARE, 1.0, 0.0) - 1)
    return max(abs(error) for error in errors)


def _waited(workers: int, rounds: int, records: int) -> list[Waited]:
    service_s, p99_s = (ms / 1000 for ms in paper.STAGES_MS["identification"])
    before_s = (paper.STAGES_MS["ingestion"][0] + paper.STAGES_MS["detection"][0]) / 1000
    rate = USED_SHARE * workers / service_s
    producers = max(1, round(rate * paper.STAGES_MS["detection"][0] / 1000))
    arrivals: Mapping[str, Callable[[np.random.Generator], Values]] = {
        "streams": lambda random: streams(producers, producers / rate, records, random),
        "Poisson": lambda random: poisson(rate, records, random),
    }
    services: Mapping[str, Callable[[np.random.Generator], Values]] = {
        "constant": lambda _: np.full(records, service_s),
        "measured spread": lambda random: lognormal(service_s, p99_s, records, random),
    }
    found = []
    for arriving, serving in KINDS:
        means, p99s = [], []
        for seed in range(rounds):
            random = np.random.default_rng(FIRST_SEED + seed)
            served = services[serving](random)
            waiting = waits(arrivals[arriving](random), served, workers)
            whole = before_s + steady(waiting + served)
            waiting = steady(waiting)
            means.append(np.array([waiting.mean() / whole.mean()]))
            p99s.append(np.array([np.percentile(waiting, 99) / np.percentile(whole, 99)]))
        found.append(Waited(arriving, serving, workers, interval(means, mean), interval(p99s, mean)))
    return found


def _judge(point: paper.Point, seeds: int, seconds: float) -> Judged:
    cluster = Cluster(point.brokers, point.drives)
    offered = paper_rate() * point.factor
    found = [verdict(cluster, offered, seconds, FIRST_SEED + seed) for seed in range(seeds)]
    return Judged(
        point,
        cluster.busy_share(offered),
        cluster.written_share(offered),
        # A majority, because one stable run in twenty has a slope above zero by chance.
        sum(one.is_stable for one in found) * 2 > seeds,
        float(np.median([one.slope for one in found])),
        float(np.median([one.completed_share for one in found])),
    )


def factor_max(cluster: Cluster) -> float:
    """Return the factor at which the drives of a cluster are busy all the time, at the paper's load."""
    return cluster.records_per_second_max() / paper_rate()


def _metrics(error: float, waited: Sequence[Waited], judged: Sequence[Judged]) -> dict[str, Interval]:
    amdahl = max(
        abs(speedup(paper.AI_SHARE[stage], factor) / told - 1) for stage, factor, told in paper.SPEEDUPS
    )
    alone = {one.point.factor: one for one in judged if (one.point.brokers, one.point.drives) == (3, 1)}
    metrics = {
        "amdahl_error_max": Interval.exactly(amdahl),
        "closed_form_error_max": Interval.exactly(error),
        "stable_at_6": Interval.exactly(alone[6].stable),
        "stable_at_8": Interval.exactly(alone[8].stable),
        "factor_max_3_brokers_1_drive": Interval.exactly(factor_max(Cluster(3, 1))),
        "written_share_at_8": Interval.exactly(alone[8].written_share),
        "paper_points": Interval.exactly(len(judged)),
        "paper_points_reproduced": Interval.exactly(sum(one.agrees for one in judged)),
    }
    for one in waited:
        if one.services == "measured spread":
            metrics[f"bound_waiting_share_mean_{one.workers}_workers"] = one.share_mean
            metrics[f"bound_waiting_share_p99_{one.workers}_workers"] = one.share_p99
    return metrics


def _waited_row(one: Waited) -> dict[str, Cell]:
    return {
        "kind": "waiting",
        "arrivals": one.arrivals,
        "services": one.services,
        "workers": one.workers,
        "share_mean": one.share_mean.median,
        "share_p99": one.share_p99.median,
    }


def _judged_row(one: Judged) -> dict[str, Cell]:
    return {
        "kind": "cluster",
        "brokers": one.point.brokers,
        "drives": one.point.drives,
        "factor": one.point.factor,
        "busy_share": one.busy_share,
        "written_share": one.written_share,
        "slope_s_per_s": one.slope,
        "completed_share": one.completed_share,
        "stable": one.stable,
        "stable_in_paper": one.point.stable,
        "section": one.point.where,
    }


def _factor_rows() -> list[dict[str, Cell]]:
    return [
        {
            "kind": "limit",
            "brokers": brokers,
            "drives": drives,
            "size_share": size,
            "factor_max": factor_max(Cluster(brokers, drives, paper.RECORD_BYTES * size)),
        }
        for brokers, drives in CLUSTERS
        for size in SIZES
    ]


def _notes(judged: Sequence[Judged]) -> list[str]:
    missed = [
        f"{one.point.brokers} brokers, {one.point.drives} drives, {one.point.factor} times"
        for one in judged
        if not one.agrees
    ]
    return [
        "nothing here was measured, and no bus was run",
        "waiting: for a free worker alone, as a share of end to end: the minimum of any bus with the same "
        "arrivals, in order. streams: each producer sends at a fixed interval; measured spread: lognormal "
        "with the paper's mean and p99",
        "drives: no constant is fitted. The model differs from the paper at: "
        + ("; ".join(missed) or "nothing")
        + ". Three of these load each drive as much as 3 brokers with 1 drive at 8 times, which the paper "
        "calls unstable; 8 brokers at 32 times would write all that a drive can write, without any latency",
        "source: D. Richins et al., AI Tax: The Hidden Cost of AI Data Center Applications, ACM TOCS 37 "
        "(2021)",
    ]


def _amdahl_table() -> Table:
    factors = (*FACTORS, math.inf)
    table = report.columns("Amdahl's bound: AI times", *(f"{factor:g}" for factor in factors))
    for stage, share in paper.AI_SHARE.items():
        table.add_row(stage, *(f"{speedup(share, factor):.2f}" for factor in factors))
    means = {stage: ms[0] for stage, ms in paper.STAGES_MS.items()}
    whole = sum(means.values())
    table.add_row(
        "all three stages in series",
        *(
            f"{whole / sum(ms / speedup(paper.AI_SHARE[stage], factor) for stage, ms in means.items()):.2f}"
            for factor in factors
        ),
    )
    return table


def _own(own: Shares) -> dict[str, float]:
    return {**own.stages, "end to end, waiting unchanged": own.whole}


def _own_table(own: Shares) -> Table:
    factors = (*FACTORS, math.inf)
    table = report.columns(
        f"the same for {own.pipeline}, by measured shares: AI times", *(f"{factor:g}" for factor in factors)
    )
    for name, share in _own(own).items():
        table.add_row(f"{name} (AI {share:.1%})", *(f"{speedup(share, factor):.2f}" for factor in factors))
    return table


def _own_rows(own: Shares) -> list[dict[str, Cell]]:
    return [
        {
            "part": "own",
            "pipeline": own.pipeline,
            "stage": name,
            "ai_share": share,
            "factor": None if math.isinf(factor) else factor,
            "faster": speedup(share, factor),
        }
        for name, share in _own(own).items()
        for factor in (*FACTORS, math.inf)
    ]


def _own_notes(own: Shares) -> list[str]:
    told = [f"{own.pipeline}: shares of AI from the events of {own.records} records"]
    if own.unmarked:
        told.append(f"{own.pipeline}: stages without a mark of AI are not faster: {', '.join(own.unmarked)}")
    return told


def _waited_table(waited: Sequence[Waited]) -> Table:
    table = report.columns(
        f"waiting for a worker, workers {USED_SHARE:g} busy: share of end to end",
        *(f"{workers}" for workers in WORKERS),
    )
    for arriving, serving in dict.fromkeys((one.arrivals, one.services) for one in waited):
        chosen = [one for one in waited if (one.arrivals, one.services) == (arriving, serving)]
        name = f"{arriving}, {serving}"
        table.add_row(f"{name}, mean", *(f"{one.share_mean.median:.3f}" for one in chosen))
        table.add_row(f"{name}, p99", *(f"{one.share_p99.median:.3f}" for one in chosen))
    return table


def _judged_table(judged: Sequence[Judged]) -> Table:
    columns = ("drive busy", "bytes written", "completed", "latency grows, ms/s", "model", "paper", "")
    table = report.columns("brokers x drives, factor", *columns)
    words = {True: "stable", False: "unstable"}
    for one in judged:
        table.add_row(
            f"{one.point.brokers} x {one.point.drives}, {one.point.factor} times",
            f"{one.busy_share:.2f}",
            f"{one.written_share:.2f}",
            f"{one.completed_share:.3f}",
            f"{one.slope * 1000:.2f}",
            words[one.stable],
            words[one.point.stable],
            "" if one.agrees else "[yellow]differs[/yellow]",
        )
    return table


def _limits_table() -> Table:
    table = report.columns(
        "factor at which drives are full; thumbnails of", *(f"{size:g} of the bytes" for size in SIZES)
    )
    for brokers, drives in CLUSTERS:
        limits = (factor_max(Cluster(brokers, drives, paper.RECORD_BYTES * size)) for size in SIZES)
        table.add_row(f"{brokers} brokers x {drives} drives", *(f"{limit:.1f}" for limit in limits))
    return table


def _sets_table() -> Table:
    most = frames_max(paper.FRAME_MS, paper.INTERVAL_MS)
    table = report.columns(f"object detection: frames in a set, at most {most:.1f} in time", *map(str, SETS))
    table.add_row("sending a set, ms", *(f"{frames * paper.FRAME_MS:.1f}" for frames in SETS))
    growth = (delay_growth_ms_per_s(frames, paper.FRAME_MS, paper.INTERVAL_MS) for frames in SETS)
    table.add_row("ingestion falls behind, ms/s", *(f"{value:.0f}" for value in growth))
    needed = (min(paper.FRAME_MS, paper.INTERVAL_MS / frames) for frames in SETS)
    table.add_row("allowed ms to send a frame", *(f"{value:.2f}" for value in needed))
    return table


def _plot(drawing: Figure, waited: Sequence[Waited], judged: Sequence[Judged]) -> None:
    amdahl, waiting, drives = drawing.subplots(1, 3)
    factors = np.geomspace(1, 64, 60)
    for stage, share in paper.AI_SHARE.items():
        amdahl.plot(factors, [speedup(share, factor) for factor in factors], lw=1.2, label=stage)
    for stage, factor, told in paper.SPEEDUPS:
        if math.isfinite(factor):
            amdahl.plot(
                factor, told, "k.", ms=5, label="paper" if (stage, factor) == ("detection", 8) else None
            )
    amdahl.set_xscale("log", base=2)
    amdahl.set_xticks((1, 4, 16, 64), ("1", "4", "16", "64"))
    amdahl.set_xlabel("AI faster by")
    amdahl.set_ylabel("stage faster by")
    amdahl.set_title("Amdahl's bound", fontsize=9)
    amdahl.legend(frameon=False, fontsize=7)
    for arriving, serving in dict.fromkeys((one.arrivals, one.services) for one in waited):
        chosen = [one for one in waited if (one.arrivals, one.services) == (arriving, serving)]
        shares = [one.share_mean.median for one in chosen]
        waiting.plot(
            [one.workers for one in chosen], shares, "o-", ms=3, lw=1, label=f"{arriving}, {serving}"
        )
    waiting.set_xscale("log", base=2)
    waiting.set_xticks(WORKERS, [f"{workers}" for workers in WORKERS])
    waiting.set_xlabel("workers")
    waiting.set_ylabel("mean waiting, share of end to end")
    waiting.set_title(f"waiting for a worker, {USED_SHARE:g} busy", fontsize=9)
    waiting.legend(frameon=False, fontsize=7)
    _plot_drives(drives, judged)


def _plot_drives(axes: Axes, judged: Sequence[Judged]) -> None:
    for place, (brokers, drives) in enumerate(CLUSTERS):
        cluster = Cluster(brokers, drives)
        busy = [cluster.busy_share(paper_rate() * factor) for factor in (1, 32)]
        axes.plot((1, 32), busy, lw=1, color=f"C{place}", label=f"{brokers} x {drives}")
        for one in judged:
            if (one.point.brokers, one.point.drives) == (brokers, drives):
                marker = "o" if one.point.stable else "x"
                axes.plot(one.point.factor, one.busy_share, marker, ms=4, color=f"C{place}")
    axes.axhline(1, color="0.3", lw=0.8, ls="--")
    axes.set_ylim(0, 2.2)
    axes.set_xlabel("AI faster by")
    axes.set_ylabel("share of a drive's time used by writes")
    axes.set_title("brokers x drives; x: unstable in the paper", fontsize=8)
    axes.legend(fontsize=7, loc="upper left", ncols=2)


ACCELERATION: Final = Experiment(
    name="acceleration",
    summary="what faster AI does to a pipeline, by theory: Amdahl's bound, waiting, drives of brokers",
    needs="nothing",
    seconds_quick=10,
    seconds_full=30,
    run=_run,
    is_virtual=True,
    description=_HELP,
    examples=_EXAMPLES,
)
