"""Measures knobs of data: the top-k of a web log at a tenth of the link, and the cost of profiling it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez.apps import web_log
from mez.profile.document import Profile
from mez.profile.stream.make import Cost, frontier_gap, make
from mez.profile.stream.records import Record, Stream
from mez.profile.stream.task import Task
from mez_bench.contracts.links import Rates
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, mean, ratio_interval
from mez_bench.top_pages.play import Plan, Played, play, true_lists

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERVERS: Final = 4
SEEDS: Final = (11, 12, 13)
TRAINING_SEED: Final = 1
"""The profile is made from other requests than those of the plays."""

WINDOWS: Final = 160
WINDOWS_QUICK: Final = 48
PROFILED: Final = 60
PROFILED_QUICK: Final = 30
FULL_MBPS: Final = 1.2
"""Rate of a link at first: enough for nearly whole records."""

NARROW: Final = 0.1
NARROW_FROM_S: Final = 3.0
SETTLE_S: Final = 2.0
"""Windows are scored from this long after the link became narrow."""

WAVE_S: Final = 2.0
WAVES: Final = (0.5, 0.7, 1.0, 1.3, 1.5)
"""Factors of the narrow link's rate, in a random order. Their mean is 1."""

BOUND_MS: Final = 250.0
ON_TIME_SHARE_MIN: Final = 0.95
FLOOR: Final = 0.5
FIXED_QUICK: Final = 3
AT_ONCE: Final = 4
ADAPTIVE: Final = "Mez"


@dataclass(frozen=True, slots=True)
class Arm:
    """The result of one contender with one seed.

    Attributes:
        name: The rung, or `ADAPTIVE`.
        seed: The seed.
        scores: The accuracy of the list of each scored window, at its deadline.
        on_time_share: The share of the records of these windows that arrived within the bound.
        age_ms_p95: The 95th percentile of the age of records that arrived; `None` if none arrived.
        late_ms_max: Largest delay that the emulator of the links itself caused.
    """

    name: str
    seed: int
    scores: Values
    on_time_share: float
    age_ms_p95: float | None
    late_ms_max: float


def _run(run: Run) -> Outcome:
    run.step("profiling", done=0)
    profiled = PROFILED_QUICK if run.quick else PROFILED
    found, everything, cost = profiles(profiled, SERVERS)
    gap = frontier_gap(found, everything)
    path = run.folder / "top-pages.json"
    path.write_bytes(found.to_bytes())
    seeds = SEEDS[:1] if run.quick else SEEDS
    windows = WINDOWS_QUICK if run.quick else WINDOWS
    fixed = _fixed(everything, FIXED_QUICK if run.quick else None)
    plans = [_plan(seed, windows, path) for seed in seeds]
    run.expect(len(plans) * (len(fixed) + 1))
    arms = [arm for plan in plans for arm in _arms(run, plan, fixed)]
    by_name = {name: [arm.scores for arm in arms if arm.name == name] for name in [ADAPTIVE, *fixed]}
    best = _best(fixed, by_name)
    on_time = {name: np.mean([arm.on_time_share for arm in arms if arm.name == name]) for name in fixed}
    # If no fixed setting is on time often enough, the smallest one is taken.
    kept = _best([name for name in fixed if on_time[name] >= ON_TIME_SHARE_MIN] or fixed[:1], by_name)
    own = [arm for arm in arms if arm.name == ADAPTIVE]
    outcome = Outcome(
        parameters={
            "servers": SERVERS,
            "seeds": list(seeds),
            "windows": windows,
            "window_ms": web_log.WINDOW_S * 1e3,
            "bound_ms": BOUND_MS,
            "accuracy_floor": FLOOR,
            "link_mbps": f"{FULL_MBPS:g}, {FULL_MBPS * NARROW:g} on average from {NARROW_FROM_S:g} s on",
            "waves": list(WAVES),
            "records_profiled": profiled,
            "fixed": list(fixed),
            "best_fixed": best,
            "best_fixed_on_time": kept,
        },
        metrics={
            "ratio_best_fixed": ratio_interval(by_name[ADAPTIVE], by_name[best], mean),
            "ratio_best_fixed_on_time": ratio_interval(by_name[ADAPTIVE], by_name[kept], mean),
            "accuracy": interval(by_name[ADAPTIVE], mean),
            "accuracy_best_fixed": interval(by_name[best], mean),
            "on_time_share": interval([np.array([arm.on_time_share]) for arm in own], mean),
            "age_ms_p95": interval([np.array([arm.age_ms_p95 or 0.0]) for arm in own], mean),
            "frontier_gap_max": Interval.exactly(gap),
            "profiling_share": Interval.exactly(cost.share),
        },
        rows=[
            {
                "contender": arm.name,
                "seed": arm.seed,
                "accuracy": float(np.mean(arm.scores)),
                "on_time_share": arm.on_time_share,
                "age_ms_p95": arm.age_ms_p95,
                "links_late_ms_max": arm.late_ms_max,
            }
            for arm in arms
        ],
        targets=[
            Target("ratio_best_fixed", ">=", 1.0, full_only=True),
            Target("on_time_share", ">=", ON_TIME_SHARE_MIN, full_only=True),
            Target("frontier_gap_max", "<=", 0.02),
        ],
        tables=[_table(arms, [ADAPTIVE, *fixed])],
        notes=[
            "no published figures of AWStream's top-k are available: Mez is compared with the best fixed "
            "setting in hindsight",
            "accuracy: Kendall's tau of the list at each window's deadline with the true list (K^(p) of "
            "Fagin et al., p = 1/2); if a server's record was late, its newest timely record counts",
            "ratio_best_fixed_on_time: compared with the best fixed setting that has "
            f"{ON_TIME_SHARE_MIN:.0%} of its records on time",
            "fixed settings: the frontier of all rungs, on the same links and requests; a rung off the "
            "frontier sends more bytes for less accuracy",
            "frontier_gap_max: largest loss of accuracy of the search at equal bytes (within 1 %); "
            "profiling_share: results that the search made, as a share of all rungs on all records",
        ],
    )
    if run.quick:
        outcome.notes.append("a quick run tries few fixed settings, all at once, and judges no ratio")
    outcome.plot = lambda drawing: _plot(drawing, found, everything, arms)
    return outcome


def profiles(records: int, servers: int, exhaustive: bool = True) -> tuple[Profile, Profile, Cost]:
    """Profile requests of another seed than that of the plays.

    Args:
        records: Number of windows.
        servers: Number of servers.
        exhaustive: Also measure all rungs.

    Returns:
        The profile of the search, the profile of all rungs (or the first again), and the cost of the search.
    """
    traffic = web_log.Traffic(TRAINING_SEED, servers)
    streams = [
        Stream(
            f"web{server}",
            "",
            [
                Record(
                    f"web{server} window {number}",
                    web_log.record(traffic.counts(number, server)),
                    web_log.JSON,
                )
                for number in range(records)
            ],
        )
        for server in range(servers)
    ]
    task = Task("top_pages", "", web_log.top_pages, web_log.agreement)
    rate = 1 / web_log.WINDOW_S
    found = make(streams, web_log.KNOBS, task, records=records, per_second=rate)
    if not exhaustive:
        return found.profile, found.profile, found.cost
    everything = make(streams, web_log.KNOBS, task, records=records, per_second=rate, exhaustive=True)
    return found.profile, everything.profile, found.cost


def _best(names: Sequence[str], scores: Mapping[str, Sequence[Values]]) -> str:
    return max(names, key=lambda name: float(np.mean(np.concatenate(scores[name]))))


def _fixed(everything: Profile, count: int | None) -> list[str]:
    """Return the rungs of the frontier that a narrow link can carry at some time; the best is among them."""
    most = FULL_MBPS * NARROW * 1e6 / 8 * web_log.WINDOW_S * max(WAVES) * 2
    names = [
        rung.rung
        for rung in everything.frontier
        if rung.bytes.mean <= most and rung.accuracy_normalised.value >= FLOOR
    ]
    if count is None or len(names) <= count:
        return names
    return [names[place * (len(names) - 1) // (count - 1)] for place in range(count)]


def _plan(seed: int, windows: int, profile: Path) -> Plan:
    seconds = windows * web_log.WINDOW_S
    return Plan(
        seed=seed,
        windows=windows,
        links=[_link(seed, server, seconds) for server in range(SERVERS)],
        bound_ms=BOUND_MS,
        floor=FLOOR,
        profile=profile,
    )


def _link(seed: int, server: int, seconds: float) -> Rates:
    random = np.random.default_rng((seed, 7, server))
    rates = [(0.0, FULL_MBPS)]
    at_s = NARROW_FROM_S
    order: list[float] = []
    while at_s < seconds:
        # All factors in turn, so that every link is a tenth on average.
        order = order or random.permutation(WAVES).tolist()
        rates.append((at_s, FULL_MBPS * NARROW * order.pop()))
        at_s += WAVE_S
    return rates


def _arms(run: Run, plan: Plan, fixed: Sequence[str]) -> Iterator[Arm]:
    true = true_lists(plan.seed, SERVERS, plan.windows)
    first = round((NARROW_FROM_S + SETTLE_S) / web_log.WINDOW_S)
    stopping = threading.Event()
    contenders: list[str | None] = [None, *fixed]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for rung, played in zip(
                contenders,
                pool.map(lambda rung: play(run.folder, plan, rung, stopping), contenders),
                strict=True,
            ):
                name = rung or ADAPTIVE
                run.step(f"seed {plan.seed}: {name}")
                yield _arm(name, plan, played, true, first)
        except BaseException:
            stopping.set()
            pool.shutdown(cancel_futures=True)
            raise


def _arm(name: str, plan: Plan, played: Played, true: Sequence[Sequence[str]], first: int) -> Arm:
    ages = played.ages(first, plan.windows)
    return Arm(
        name=name,
        seed=plan.seed,
        scores=played.accuracy(true, first, plan.windows),
        on_time_share=played.on_time_share(first, plan.windows),
        age_ms_p95=float(np.percentile(ages, 95)) if ages else None,
        late_ms_max=played.late_ms_max,
    )


def _table(arms: Sequence[Arm], names: Sequence[str]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("setting", no_wrap=True)
    for column in ("accuracy", "on time", "age p95, ms"):
        table.add_column(column, justify="right")
    for name in names:
        of_name = [arm for arm in arms if arm.name == name]
        table.add_row(
            name,
            f"{np.mean(np.concatenate([arm.scores for arm in of_name])):.3f}",
            f"{np.mean([arm.on_time_share for arm in of_name]):.1%}",
            f"{np.mean([arm.age_ms_p95 or np.nan for arm in of_name]):.0f}",
        )
    return table


def _plot(drawing: Figure, found: Profile, everything: Profile, arms: Sequence[Arm]) -> None:
    frontier, scores = drawing.subplots(1, 2)
    frontier.plot(
        [rung.bytes.mean for rung in everything.rungs],
        [rung.accuracy_normalised.value for rung in everything.rungs],
        ".",
        color="0.7",
        label="all rungs",
    )
    best = found.frontier
    frontier.plot(
        [rung.bytes.mean for rung in best], [rung.accuracy_normalised.value for rung in best], label="found"
    )
    frontier.set_xscale("log")
    frontier.set_xlabel("bytes of a record")
    frontier.set_ylabel("accuracy")
    frontier.legend(frameon=False)
    for arm in arms:
        if arm.name == ADAPTIVE:
            scores.plot(
                np.arange(len(arm.scores)) * web_log.WINDOW_S, arm.scores, lw=0.8, label=f"seed {arm.seed}"
            )
    scores.set_xlabel("seconds at a tenth of the link")
    scores.legend(frameon=False)


KNOBS_DATA: Final = Experiment(
    name="knobs_data",
    summary="knobs of data: the top-k of a web log at a tenth of the link, and the cost of its profile",
    needs="nothing",
    seconds_quick=60,
    seconds_full=1400,
    run=_run,
)
