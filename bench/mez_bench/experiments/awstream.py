"""Replays AWStream's experiment from its published measurements: pedestrian detection on a narrowed link."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

from mez_bench.children import mez
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, ratio_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER: Final = "awstream-mot"
FILES: Final = ("mot.profile.csv", "mot.source.csv", "mot.stat.csv")
RTT_MS: Final = (20, 50, 70, 140)
BEGINS: Final = 30
BEGINS_QUICK: Final = 3
OWN: Final = "quantile"
AWSTREAM: Final = ("awstream_newest", "awstream_earlier")
TCP: Final = "fixed_tcp@h264/w1920/skip2/q20"
"""The authors' run without adaptation: the best row of their profile, through TCP."""
PUBLISHED: Final[Mapping[str, tuple[tuple[float, ...], float]]] = {
    "AWStream": ((53, 64, 78, 125, 229), 0.862),
    "JetStream++": ((156, 381, 598, 832, 1164), 0.823),
    "JetStream": ((495, 1436, 1535, 1688, 8923), 0.840),
    "HLS": ((2028, 2320, 2623, 2863, 3143), 0.094),
    "TCP, fixed": ((5604, 26176, 50679, 76011, 104138), 0.915),
}
"""5th, 25th, 50th, 75th and 95th percentile of the latency in the shaped window, in ms, and mean F1."""
NOT_RECOVERED_S: Final = 200.0
"""Recovery time of a run that had not recovered when the experiment ended."""
SCORES: Final = ("f1_deadline_aware", "f1_deadline_aware_all", "f1_delivered")
P50, P95 = 2, 4


@dataclass(slots=True)
class Runs:
    """All runs, by contender and round-trip time, in the order of their first frame in the recording."""

    rows: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, dict[str, Any]] = field(default_factory=dict)

    def contenders(self) -> list[str]:
        """Return the contenders."""
        return list(dict.fromkeys(name for name, _ in self.rows))

    def values(self, name: str, key: str, place: int | None = None) -> list[Values]:
        """Return the values of each beginning, at all round-trip times."""
        columns = [
            [_number(row[key] if place is None else row[key][place]) for row in self.rows[name, rtt_ms]]
            for rtt_ms in RTT_MS
        ]
        return [np.array(values) for values in zip(*columns, strict=True)]

    def figure(self, name: str, key: str, place: int | None = None) -> Interval:
        """Return the mean over beginnings and round-trip times."""
        return interval(self.values(name, key, place), _mean)

    def at(self, name: str, rtt_ms: int, key: str) -> float:
        """Return the mean at one round-trip time."""
        return float(np.mean([_number(row[key]) for row in self.rows[name, rtt_ms]]))

    def best_fixed(self, key: str) -> str:
        """Return the fixed configuration that is the best in hindsight."""
        fixed = [name for name in self.contenders() if name.startswith("fixed_")]
        return max(fixed, key=lambda name: self.figure(name, key).median)


def _number(value: float | None) -> float:
    return NOT_RECOVERED_S if value is None else value


def _mean(values: Values) -> float:
    return float(np.mean(values))


def _run(run: Run) -> Outcome:
    data = _data(run)
    if data is None:
        return _skipped()
    begins = BEGINS_QUICK if run.quick else BEGINS
    run.expect(begins)
    runs = _collect(run, data, begins)
    best = runs.best_fixed("f1_deadline_aware")
    best_all = runs.best_fixed("f1_deadline_aware_all")
    others = [*AWSTREAM, best]
    outcome = Outcome(
        parameters={
            "data": "github.com/awstream/data, MIT licence",
            "begins": begins,
            "rtt_ms": list(RTT_MS),
            "deadline_ms": 229,
            "shaped_window_s": "200 to 440",
            "link_mbps": "25, 7.5 from 200 s, 5 from 380 s, 25 from 440 s",
            "best_fixed": best,
            "best_fixed_all": best_all,
        },
        metrics=_metrics(runs, best, best_all, others),
        rows=[
            {
                "contender": name,
                "rtt_ms": rtt_ms,
                "begin": row["begin"],
                **{key: row[key] for key in SCORES},
                "timely_share": row["timely_share"],
                **{f"latency_ms_p{percent}": row["latency_ms"][place] for place, percent in PERCENTS},
                "recover_s": row["recover_s"],
            }
            for (name, rtt_ms), rows in runs.rows.items()
            for row in rows
        ],
        targets=[
            Target("f1_deadline_aware_ratio_best_other", ">=", 1.0),
            Target("f1_deadline_aware_ratio_awstream_newest", ">=", 1.0),
            Target("f1_deadline_aware_ratio_awstream_earlier", ">=", 1.0),
            Target("latency_ms_p50", "<=", 78),
            Target("latency_ms_p95", "<=", 229),
            Target("recover_s", "<=", 5),
            Target("unadapted_latency_p50_error", "<=", 0.05),
        ],
        tables=[_table(runs, best), _published()],
        notes=[
            "measurements: AWStream's authors (B. Zhang et al., SIGCOMM 2018), github.com/awstream/data, MIT "
            "licence; not part of this project",
            "f1_deadline_aware: every slot of 33 ms in the shaped window counts. A slot whose frame did not "
            "arrive within 229 ms is scored with the last timely result, by the F1 measured at that age",
            "a change of the configuration costs a key frame; the bytes of skipped frames are added to the "
            "sender's next frame; a camera knows only after encoding which frames of the recording are key "
            "frames",
            "latencies are computed from the means of each second, as in the authors' logs; best_fixed is "
            "chosen in hindsight, over TCP and with newest wins",
            "on this recording one configuration (1920 pixels, every third frame, quantiser 30) is the best "
            "at 7.5 and at 5 Mbit/s, so no policy can be much better in the window; f1_deadline_aware_all "
            "counts the whole experiment",
        ],
    )
    outcome.plot = lambda drawing: _plot(drawing, runs, best)
    return outcome


PERCENTS: Final = tuple(enumerate((5, 25, 50, 75, 95)))


def _data(run: Run) -> Path | None:
    """Return the folder with the measurements, or report that there is none."""
    if run.data is None:
        run.say(
            "[bold red]SKIPPED[/bold red]: awstream needs the measurements that its authors published "
            f"(github.com/awstream/data); name the parent of {FOLDER} with --data DIR or MEZ_BENCH_DATA"
        )
        return None
    folder = run.data / FOLDER
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        run.say(f"[bold red]SKIPPED[/bold red]: {folder} lacks {', '.join(missing)}")
        return None
    return folder


def _skipped() -> Outcome:
    return Outcome(
        parameters={"skipped": True},
        notes=["SKIPPED: nothing was measured: the published measurements are missing (--data)"],
    )


def _collect(run: Run, data: Path, begins: int) -> Runs:
    command = mez(
        *("measure", "awstream", "--data", f"{data}", "--begins", f"{begins}"),
        *("--rtt-ms", ",".join(map(str, RTT_MS)), "--seconds"),
    )
    child = run.children.start("measure awstream", command)
    runs = Runs()
    seen: set[int] = set()
    while (line := child.line(seconds_max=120)) is not None:
        row = json.loads(line)
        if row.pop("kind") == "seconds":
            runs.seconds[row["contender"]] = row
            continue
        if row["begin"] not in seen:
            seen.add(row["begin"])
            run.step(f"recording from frame {row['begin']}")
        runs.rows[row["contender"], row["rtt_ms"]].append(row)
    return runs


def _metrics(runs: Runs, best: str, best_all: str, others: Sequence[str]) -> dict[str, Interval]:
    metrics: dict[str, Interval] = {}
    names = {"": OWN, "awstream_newest_": AWSTREAM[0], "awstream_earlier_": AWSTREAM[1], "best_fixed_": best}
    for prefix, name in names.items():
        for key in (*SCORES, "timely_share", "recover_s"):
            metrics[f"{prefix}{key}"] = runs.figure(name, key)
        metrics[f"{prefix}latency_ms_p50"] = runs.figure(name, "latency_ms", P50)
        metrics[f"{prefix}latency_ms_p95"] = runs.figure(name, "latency_ms", P95)
        metrics[f"{prefix}frame_latency_ms_p95"] = runs.figure(name, "frame_latency_ms", P95)

    def ratio(other: str, key: str) -> Interval:
        return ratio_interval(runs.values(OWN, key), runs.values(other, key), _mean)

    best_other = max(others, key=lambda name: runs.figure(name, "f1_deadline_aware").median)
    metrics["f1_deadline_aware_ratio_best_other"] = ratio(best_other, "f1_deadline_aware")
    for name in AWSTREAM:
        metrics[f"f1_deadline_aware_ratio_{name}"] = ratio(name, "f1_deadline_aware")
    metrics["f1_deadline_aware_all_ratio_best_fixed"] = ratio(best_all, "f1_deadline_aware_all")
    (published, f1) = PUBLISHED["TCP, fixed"]
    for place, percent in PERCENTS:
        seen = runs.values(TCP, "latency_ms", place)
        scaled = [values / published[place] for values in seen]
        metrics[f"unadapted_latency_p{percent}_ratio_published"] = interval(scaled, _mean)
    median = PUBLISHED["TCP, fixed"][0][P50]
    off = [np.abs(values / median - 1.0) for values in runs.values(TCP, "latency_ms", P50)]
    metrics["unadapted_latency_p50_error"] = interval(off, _mean)
    scaled = [values / f1 for values in runs.values(TCP, "f1_delivered")]
    metrics["unadapted_f1_ratio_published"] = interval(scaled, _mean)
    return metrics


def _table(runs: Runs, best: str) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("F1, shaped, by round trip", no_wrap=True)
    for rtt_ms in RTT_MS:
        table.add_column(f"{rtt_ms} ms", justify="right")
    for column in ("all", "delivered", "timely", "p50, ms", "p95, ms", "recovery, s"):
        table.add_column(column, justify="right")
    fixed = [name for name in runs.contenders() if name.startswith("fixed_") and name not in (best, TCP)]
    fixed.sort(key=lambda name: -runs.figure(name, "f1_deadline_aware").median)
    for name in (OWN, *AWSTREAM, best, *fixed[:3], TCP):
        recover = runs.figure(name, "recover_s").median
        table.add_row(
            name,
            *(f"{runs.at(name, rtt_ms, 'f1_deadline_aware'):.4f}" for rtt_ms in RTT_MS),
            f"{runs.figure(name, 'f1_deadline_aware_all').median:.4f}",
            f"{runs.figure(name, 'f1_delivered').median:.3f}",
            f"{runs.figure(name, 'timely_share').median:.3f}",
            f"{runs.figure(name, 'latency_ms', P50).median:,.0f}",
            f"{runs.figure(name, 'latency_ms', P95).median:,.0f}",
            "never" if recover >= NOT_RECOVERED_S else f"{recover:.1f}",
        )
    return table


def _published() -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("published")
    for _, percent in PERCENTS:
        table.add_column(f"p{percent}, ms", justify="right")
    table.add_column("F1, delivered", justify="right")
    for name, (latencies, f1) in PUBLISHED.items():
        table.add_row(name, *(f"{latency:,.0f}" for latency in latencies), f"{f1:.3f}")
    return table


def _plot(drawing: Figure, runs: Runs, best: str) -> None:
    latency, rate, f1 = drawing.subplots(3, 1, sharex=True)
    for name in (OWN, "awstream_earlier", best, TCP):
        seconds = runs.seconds[name]
        at = np.arange(len(seconds["f1"])) + 0.5
        style = {"lw": 1.0, "label": name.replace("_", " ")}
        known = np.array([np.nan if value is None else value for value in seconds["latency_ms"]])
        latency.plot(at, known, **style)
        rate.plot(at, seconds["megabits"], **style)
        f1.plot(at, seconds["f1"], **style)
    latency.axhline(229, color="0.3", lw=0.8, ls=":")
    latency.set_yscale("log")
    latency.set_ylabel("latency, ms")
    rate.step((0, 200, 380, 440, 640), (25, 7.5, 5, 25, 25), where="post", color="0.6", lw=0.8, ls="--")
    rate.set_ylabel("Mbit/s")
    f1.set_ylabel("F1, deadline-aware")
    f1.set_xlabel("seconds")
    latency.legend(frameon=False, fontsize=7, ncols=4)


AWSTREAM_EXPERIMENT: Final = Experiment(
    name="awstream",
    summary="AWStream's experiment on its published measurements, against its own policy and fixed settings",
    needs="--data DIR with awstream-mot/ (github.com/awstream/data); skipped without it",
    seconds_quick=10,
    seconds_full=30,
    run=_run,
    is_virtual=True,
)
