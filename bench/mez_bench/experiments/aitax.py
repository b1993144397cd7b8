"""Measures what faster AI does to a pipeline: compute is emulated, buses and drives are real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table

from mez_bench import report
from mez_bench.acceleration import paper
from mez_bench.aitax import drives
from mez_bench.aitax.judged import DISTURBED_SHARE, MACHINE_FULL_SHARE
from mez_bench.aitax.model import Compared, Larger, compared, larger
from mez_bench.aitax.plan import USED_SHARE, Load
from mez_bench.aitax.settings import PARTS, SEED, Point, Setting, measure, settings, stable_max_of
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.run import Run
from mez_bench.stats import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORKERS: Final = 4
SECONDS: Final = 10.0
SECONDS_QUICK: Final = 4.0
RUNS_MAX: Final = 3
BUSES: Final = ("mez", "kafka")
DISK_BOUND: Final = 10
"""The factor at which payloads alone reach the limit of a drive."""

_HELP: Final = """\
Measures which speedup of AI a pipeline's bus can follow, with the method of the AI
Tax paper (Richins et al. 2021, sections 5.2 to 5.5 and 7.1): compute is a wait of
the measured time divided by the factor, records are bytes of the measured size, one
face a frame. The buses are those of pipelines (docs/pipelines.md), between real
processes.

Equal for both buses: frames, records, workers busy for 0.6 of their time at every
factor, drives whose limit is ten times what the payloads of factor 1 take, and
durability:
  memory    both keep records in memory: Mez without a store, Kafka as it is, with
            its files in memory
  disk      both on a limited drive. Kafka syncs each record before it acknowledges
            it (flush.messages=1); without that it acknowledges from the page cache.
            Mez also acknowledges after the sync (--durability sync), but hands a
            record out earlier. So a record counts as completed once it is worked on
            and durable. Records seen not to be durable after they were acknowledged
            are counted
Only in full runs:
  replicas  Kafka with three brokers, a drive and a replica each
  sizes     thumbnails of 1/2, 1/4 and 1/8 of the bytes (Figure 15 c)
  drives    drives two, three and four times as fast (Figure 15 a)

A run is stable if the interval of the slope of latency holds 0 and at least 0.999
of the records are completed. In a full run, one that is not is run twice more.
A row is marked `machine` if this machine's processors were busy for 0.9 of the time
or more: the machine may be what bounds it. It is marked `disturbed` if other programs
used more than a quarter of them. Runs that were not disturbed decide; where there is
none, what was not stable is undecided.
"""

_EXAMPLES: Final = """\
examples:
  mez bench aitax --quick                 memory and disk, a few factors
  mez bench aitax --only disk             all factors on disk
  sudo .venv/bin/mez bench aitax          all; limited drives need root
"""


def _run(run: Run) -> Outcome:
    chosen = run.parts(PARTS)
    if run.quick and not run.subject.only:
        chosen = ("memory", "disk")
    notes = []
    missing = drives.unavailable()
    if missing is not None:
        notes.append(f"NOT RUN: all parts but memory: {missing}")
        run.say(notes[0])
        chosen = tuple(part for part in chosen if part == "memory")
    if not chosen:
        raise ExperimentError(f"no part can be run: {missing}")
    groups = [_groups(part, quick=run.quick) for part in chosen]
    run.expect(sum(len(one.factors) for part in groups for group in part for one in group))
    seconds = SECONDS_QUICK if run.quick else SECONDS
    points: list[Point] = []
    for part in groups:
        for group in part:
            with run.apart():
                points += measure(run, group, WORKERS, seconds, 1 if run.quick else RUNS_MAX)
    return _outcome(points, seconds, notes)


def _groups(part: str, *, quick: bool) -> list[list[Setting]]:
    """Return the settings of a part, grouped by those that are compared with each other."""
    groups: dict[tuple[int, float], list[Setting]] = {}
    for one in settings(part, quick=quick):
        groups.setdefault((one.drives, one.size_share), []).append(one)
    return list(groups.values())


def _outcome(points: list[Point], seconds: float, notes: list[str]) -> Outcome:
    load = Load(WORKERS)
    against = compared(points, WORKERS)
    written = [
        one.ran.written_times
        for one in points
        if one.setting.bus == "kafka" and one.ran.written_times is not None
    ]
    clusters = larger(min(written)) if written else []
    outcome = Outcome(
        parameters={
            "first_seed": SEED,
            "workers": WORKERS,
            "producers": load.producers,
            "cameras_and_partitions": load.cameras,
            "used_share": USED_SHARE,
            "record_bytes": load.record_bytes,
            "records_per_second_at_1": load.records_per_second,
            "drive_bytes_per_second": load.drive_bytes_per_second,
            "run_s": seconds,
        },
        metrics=_metrics(points, against, clusters),
        rows=[*(_row(one) for one in points), *(_model_row(one) for one in against)],
        targets=[
            Target("mez_stable_speedup_max", ">=", 0.9 * DISK_BOUND, full_only=True),
            Target("ratio_stable_speedup_max", ">=", 1),
            Target("ratio_stable_speedup_max_memory", ">=", 2, full_only=True),
        ],
        tables=[*_point_tables(points), _share_table(points), *_model_tables(against, clusters)],
        notes=[*notes, *_notes(points)],
    )
    outcome.plot = lambda drawing: _plot(drawing, points)
    return outcome


# ---- figures ---------------------------------------------------------------------------------------------


def _metrics(
    points: Sequence[Point], against: Sequence[Compared], clusters: Sequence[Larger]
) -> dict[str, Interval]:
    figures: dict[str, float] = {}
    for part, ending in (("disk", ""), ("memory", "_memory")):
        if not any(one.setting.part == part for one in points):
            continue
        largest = {bus: stable_max_of(points, bus, part) for bus in BUSES}
        for bus in BUSES:
            figures[f"{bus}_stable_speedup_max{ending}"] = largest[bus]
        if largest["kafka"]:
            figures[f"ratio_stable_speedup_max{ending}"] = largest["mez"] / largest["kafka"]
        for one in points:
            if one.setting.part == part and one.factor in paper.WAITING_SHARES:
                share = one.ran.judged.waiting_share
                if share is not None:
                    figures[f"{one.setting.bus}_waiting_share_at_{one.factor:g}{ending}"] = share
    for bus in BUSES:
        mine = [one.ran for one in points if one.setting.bus == bus and one.setting.part == "disk"]
        if mine:
            figures[f"{bus}_acknowledged_not_durable_max"] = max(ran.judged.not_durable_max for ran in mine)
    if against:
        figures["model_points"] = len(against)
        figures["model_points_reproduced"] = sum(one.stable == one.point.is_stable for one in against)
        figures["model_points_reproduced_with_bytes_written"] = sum(
            one.written_stable == one.point.is_stable for one in against
        )
        figures["drive_trial_share_of_limit_min"] = min(
            one.point.trial_bytes_per_second / one.point.drive_bytes_per_second for one in against
        )
    for cluster in clusters:
        point = cluster.point
        if (point.brokers, point.drives, point.factor) in ((3, 1, 6), (3, 1, 8)):
            figures[f"model_stable_at_{point.factor}"] = float(cluster.stable)
    figures["points"] = len(points)
    for mark in ("machine", "disturbed"):
        figures[f"points_marked_{mark}"] = sum(one.mark == mark for one in points)
    return {name: Interval.exactly(value) for name, value in figures.items()}


def _row(point: Point) -> dict[str, Cell]:
    setting, ran = point.setting, point.ran
    told, verdict = ran.judged, ran.judged.verdict
    return {
        "kind": "measured",
        "part": setting.part,
        "bus": setting.bus,
        "on_disk": setting.on_disk,
        "brokers": setting.brokers,
        "drives": setting.drives,
        "size_share": setting.size_share,
        "factor": point.factor,
        "stable": point.is_stable if point.is_decided else None,
        "runs": len(point.runs),
        "runs_stable": sum(one.judged.is_stable for one in point.runs),
        "slope_s_per_s": None if verdict is None else verdict.slope,
        "slope_low_s_per_s": None if verdict is None else verdict.slope_low,
        "completed_share": told.completed_share,
        "end_to_end_ms": told.whole_ms,
        "end_to_end_ms_p99": told.whole_ms_p99,
        "waiting_share": told.waiting_share,
        "waiting_share_bound": told.bound_share,
        "durable_after_ms": told.durable_ms,
        "not_durable_when_acknowledged_share": told.not_durable_share,
        "not_durable_when_acknowledged_max": told.not_durable_max,
        "worked_on_twice": told.twice,
        "drive_bytes_per_second": point.drive_bytes_per_second,
        "drive_trial_bytes_per_second": point.trial_bytes_per_second,
        "drive_written_share": ran.written_share,
        "written_times": ran.written_times,
        "machine_share": ran.machine_share,
        "bus_share_of_machine": ran.bus_share,
        "clients_share_of_machine": ran.clients_share,
        "others_share_of_machine": ran.others_share,
        "mark": point.mark,
        "faults": "; ".join(ran.faults),
    }


def _model_row(one: Compared) -> dict[str, Cell]:
    return {
        "kind": "model",
        "setting": str(one.point.setting),
        "factor": one.point.factor,
        "stable_measured": one.point.is_stable,
        "busy_share": one.busy_share,
        "stable_by_payloads": one.stable,
        "busy_share_with_bytes_written": one.written_busy_share,
        "stable_by_bytes_written": one.written_stable,
    }


def _notes(points: Sequence[Point]) -> list[str]:
    full, disturbed = (sum(one.mark == mark for one in points) for mark in ("machine", "disturbed"))
    notes = [
        "waiting: from made until a worker has the record, as a share of due to done; bound: waiting for a "
        "free worker alone",
        "drives: ext4 with fast commits on a loop device in memory, limited by blkio.throttle; the payloads "
        "of factor 1 take a tenth of the limit. Journal and indexes come on top: see `written`",
        "Kafka: one camera per partition, equally many partitions per worker, batches that grow while a "
        "producer waits; the pipeline's reader commits after each record",
        "source of times, sizes and shares: D. Richins et al., AI Tax: The Hidden Cost of AI Data Center "
        "Applications, ACM TOCS 37 (2021)",
    ]
    if full:
        notes.insert(
            0,
            f"in {full} of {len(points)} rows this machine's processors were busy for {MACHINE_FULL_SHARE:g} "
            "of the time or more (marked): these rows may show the limit of the machine, not of the bus",
        )
    if disturbed:
        notes.insert(
            0,
            f"in {disturbed} of {len(points)} rows other programs used more than {DISTURBED_SHARE:g} of the "
            "processors' time (marked): unstable rows are undecided there. Run them again on an idle machine",
        )
    return notes


# ---- tables ----------------------------------------------------------------------------------------------


def _point_tables(points: Sequence[Point]) -> list[Table]:
    tables = []
    for part in PARTS:
        mine = [one for one in points if one.setting.part == part]
        if not mine:
            continue
        columns = ("times", "stable", "done", "grows ms/s", "mean ms", "p99 ms", "waiting (bound)")
        table = report.columns(part, *columns, "durable ms", "written", "machine: bus + clients", "")
        for one in mine:
            table.add_row(*_cells(one))
        tables.append(table)
    return tables


def _cells(point: Point) -> tuple[str, ...]:
    ran, told = point.ran, point.ran.judged
    slope = "" if told.verdict is None else f"{told.verdict.slope * 1000:.1f}"
    written = "" if ran.written_share is None else f"{ran.written_share:.2f}"
    waiting = "" if told.waiting_share is None else f"{told.waiting_share:.3f}"
    return (
        str(point.setting),
        f"{point.factor:g}",
        "stable" if point.is_stable else f"[yellow]{_unstable(point)}[/yellow]",
        f"{told.completed_share:.4f}",
        slope,
        _ms(told.whole_ms),
        _ms(told.whole_ms_p99),
        f"{waiting} ({told.bound_share:.3f})",
        _ms(told.durable_ms),
        written,
        f"{ran.machine_share:.2f}: {ran.bus_share:.2f} + {ran.clients_share:.2f}",
        f"[yellow]{point.mark}[/yellow]" if point.mark else "",
    )


def _unstable(point: Point) -> str:
    return "unstable" if point.is_decided else "undecided"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _share_table(points: Sequence[Point]) -> Table:
    table = report.columns(
        "waiting, share of end to end", *(f"{factor:g} times" for factor in paper.WAITING_SHARES)
    )
    table.add_row("paper (Kafka)", *(f"{share:.3f}" for share in paper.WAITING_SHARES.values()))
    for part in ("disk", "memory"):
        for bus in BUSES:
            found = {
                one.factor: one.ran.judged.waiting_share
                for one in points
                if (one.setting.part, one.setting.bus) == (part, bus)
            }
            shares = [found.get(factor) for factor in paper.WAITING_SHARES]
            if any(share is not None for share in shares):
                cells = ("" if share is None else f"{share:.3f}" for share in shares)
                table.add_row(f"{bus}, {part}", *cells)
    return table


def _model_tables(against: Sequence[Compared], clusters: Sequence[Larger]) -> list[Table]:
    words = {True: "stable", False: "unstable"}
    tables = []
    if against:
        table = report.columns(
            "drives: measured and by model", "times", "measured", "payloads, busy", "bytes written, busy", ""
        )
        for one in against:
            table.add_row(
                str(one.point.setting),
                f"{one.point.factor:g}",
                words[one.point.is_stable],
                f"{words[one.stable]} {one.busy_share:.2f}",
                f"{words[one.written_stable]} {one.written_busy_share:.2f}",
                "" if one.written_stable == one.point.is_stable else "[yellow]differs[/yellow]",
            )
        tables.append(table)
    if clusters:
        table = report.columns(
            "the paper's clusters by model", "times", "model", "each record synced", "paper"
        )
        for cluster in clusters:
            point = cluster.point
            table.add_row(
                f"{point.brokers} brokers x {point.drives} drives",
                f"{point.factor}",
                words[cluster.stable],
                words[cluster.stable_flushed],
                words[point.stable],
            )
        tables.append(table)
    return tables


# ---- picture ---------------------------------------------------------------------------------------------


def _plot(drawing: Figure, points: Sequence[Point]) -> None:
    latency, waiting = drawing.subplots(1, 2)
    for place, (part, bus) in enumerate((part, bus) for part in ("disk", "memory") for bus in BUSES):
        mine = [one for one in points if (one.setting.part, one.setting.bus) == (part, bus)]
        if mine:
            _curve(latency, mine, "whole_ms", f"C{place}", f"{bus}, {part}")
            _curve(waiting, mine, "waiting_share", f"C{place}", f"{bus}, {part}")
    waiting.plot(list(paper.WAITING_SHARES), list(paper.WAITING_SHARES.values()), "k--", lw=1, label="paper")
    for axes in (latency, waiting):
        axes.set_xscale("log", base=2)
        axes.set_xticks((1, 2, 4, 8, 16, 32), ("1", "2", "4", "8", "16", "32"))
        axes.set_xlabel("AI faster by (x: unstable)")
        axes.legend(frameon=False, fontsize=7)
    latency.set_yscale("log")
    latency.set_ylabel("end to end, mean ms")
    waiting.set_ylabel("waiting, share of end to end")
    waiting.set_ylim(0, 1)


def _curve(axes: Axes, points: Sequence[Point], what: str, colour: str, name: str) -> None:
    known = [one for one in points if getattr(one.ran.judged, what) is not None]
    values = [getattr(one.ran.judged, what) for one in known]
    axes.plot([one.factor for one in known], values, "-", lw=1, color=colour, label=name)
    for one, value in zip(known, values, strict=True):
        axes.plot(one.factor, value, "o" if one.is_stable else "x", ms=4, color=colour)


AITAX: Final = Experiment(
    name="aitax",
    summary="which speedup of AI a bus can follow: emulated compute, real buses, limited drives",
    needs="Java, Maven; root for drives",
    seconds_quick=180,
    seconds_full=1800,
    run=_run,
    description=_HELP,
    examples=_EXAMPLES,
)
