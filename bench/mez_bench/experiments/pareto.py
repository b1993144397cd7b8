"""Measures how many bytes each family of rungs needs for the same accuracy."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from rich.table import Table

from mez.errors import Error
from mez.profile import tables
from mez.profile.crew import Crew
from mez.profile.document import Profile, frontier
from mez.profile.families import Family, family, family_of
from mez.profile.interval import interval_95
from mez.profile.make import Made, ceiling_of, make
from mez.profile.search import Plan
from mez_bench import x264
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.footage import demo_video
from mez_bench.profiling import APP, FRAMES_QUICK, WORKERS, Progress, frames_of, job
from mez_bench.run import CACHE, Run
from mez_bench.stats import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOORS: Final = (0.90, 0.95, 0.96, 0.98)

FAMILIES: Final = ("h264", "tiles", "jpeg", "five-knobs")
"""Families of Mez. The five knobs are the paper's, with lossless coding; live links use the others."""

OWN: Final = ("h264", "tiles", "jpeg")
BASELINE: Final = "x264"

STEPS: Final = (0.905, 0.945, 0.955, 0.965, 0.975, 0.985)
"""Accuracies by screening whose cheapest rungs are measured on all frames: around the floors, because
screening has errors."""

ROUNDS_MAX: Final = 1
"""Rounds of neighbours of the shortlist. One is enough: the shortlist comes from wider searches."""

ACCURACY_MIN: Final = 0.88
"""The search leaves out rungs with a lower accuracy, which is clearly below the lowest floor."""

SHORTLIST: Final = Path(__file__).with_name("pareto_shortlist.json")
"""Rungs near the best of each family and video, from earlier searches: a full run begins with them and
measures them all, a quick one measures the first two of each and searches nothing."""

QUICK_RUNGS: Final = 2

PAN: Final = "crop=512:432:x='abs(mod(2*n\\,512)-256)':y='abs(mod(2*n\\,288)-144)'"
"""A window of the video that moves by two pixels a frame, there and back: a camera that pans."""

TARGETS: Final = {
    "": {"ratio_096_best_five_knobs": 0.03, "ratio_096_best_x264_fixed_qp": 0.5},
    "_pan": {"ratio_096_best_five_knobs": 0.125, "ratio_096_best_x264_fixed_qp": 0.67},
}

_NAMES: Final = {"five-knobs": "five_knobs", BASELINE: "x264_fixed_qp"}
"""Names of families in metrics, where they differ from the family's own name."""


@dataclass(frozen=True)
class _Cheapest:
    """Bytes of a family's cheapest rung at or above a floor, and in every resample.

    Attributes:
        rung: The cheapest rung.
        bytes: Its bytes per published frame.
        resampled: The bytes of the cheapest rung in every resample; of the most accurate rung where none
            reaches the floor.
    """

    rung: str
    bytes: float
    resampled: npt.NDArray[np.float64]

    def interval(self) -> Interval:
        low, high = interval_95(self.resampled)
        return Interval(self.bytes, min(low, self.bytes), max(high, self.bytes))

    def ratio(self, below: _Cheapest) -> Interval:
        value = self.bytes / below.bytes
        low, high = interval_95(self.resampled / below.resampled)
        return Interval(value, min(low, value), max(high, value))


def _run(run: Run) -> Outcome:
    video = demo_video()
    missing = x264.available()
    notes = [
        f"accuracy: {APP} on the delivered frame compared with the published frame (JPEG q95), micro-F1, "
        "IoU 0.5; with hysteresis, or strict",
        "bytes: mean over all published frames, with key frames every ten seconds, also for x264 "
        "(ultrafast, zerolatency)",
        "intervals: block bootstrap over frames, with the same draws for all rungs; if no rung reaches the "
        "floor in a draw, the family's most accurate rung counts",
    ]
    if missing is not None:
        notes.append(f"SKIPPED x264: {missing}")
    outcome = Outcome(parameters={"frames": frames_of(run), "app": APP, "video": video.name})
    shortlist: dict[str, dict[str, list[str]]] = json.loads(SHORTLIST.read_text())
    made: dict[str, Made] = {}
    for suffix, source in (("", video), ("_pan", _panning(video, run))):
        run.say(f"{'panning' if suffix else 'static'} video")
        made[suffix] = _profile(run, source, shortlist[suffix or "_static"], missing is None)
        _metrics(outcome, made[suffix], suffix)
    published = _published(run, notes)
    outcome.tables = [_table(outcome, made)]
    outcome.targets = [
        Target(f"{metric}{suffix}", "<=", bound)
        for suffix, bounds in TARGETS.items()
        for metric, bound in bounds.items()
    ]
    if run.quick:
        notes.append(f"quick: {QUICK_RUNGS} stored rungs of each family on {FRAMES_QUICK} frames, no search")
    outcome.notes = notes
    outcome.plot = lambda drawing: _plot(drawing, made, published)
    return outcome


def _panning(video: Path, run: Run) -> Path:
    """Return the panning video; made once, with a lossless codec."""
    made = CACHE / "vtest-pan.mkv"
    if not made.exists():
        if shutil.which("ffmpeg") is None:
            raise ExperimentError("ffmpeg is not installed; it is needed to make the panning video")
        made.parent.mkdir(parents=True, exist_ok=True)
        unfinished = run.folder / made.name
        words = ["ffmpeg", "-v", "error", "-i", str(video), "-vf", PAN, "-c:v", "ffv1", str(unfinished)]
        finished = subprocess.run(words, capture_output=True, text=True, check=False)
        if finished.returncode != 0:
            raise ExperimentError(f"ffmpeg cannot make the panning video: {finished.stderr[-300:]}")
        shutil.move(unfinished, made)
    return made


def _profile(run: Run, source: Path, shortlist: Mapping[str, Sequence[str]], with_x264: bool) -> Made:
    frames = frames_of(run)
    names = [*FAMILIES, BASELINE] if with_x264 else list(FAMILIES)
    try:
        with Crew(job(run, source, {BASELINE: x264.CODER}), WORKERS) as crew:
            width = crew.lead.footage.width
            if run.quick:
                rungs = [rung for name in names for rung in shortlist[name][:QUICK_RUNGS]]
                return make(crew, [], Progress(run), frames, rungs)
            grids = [_grid(name, width) for name in names]
            plans = {
                name: Plan(tuple(shortlist[name]), ROUNDS_MAX, ACCURACY_MIN, steps=STEPS) for name in names
            }
            every = [rung for name in names for rung in shortlist[name]]
            return make(crew, grids, Progress(run), frames, every, plans)
    except Error as error:
        raise ExperimentError(str(error)) from error


def _grid(name: str, width: int) -> Family:
    return x264.grid(width) if name == BASELINE else family(name, width)


def _metrics(outcome: Outcome, made: Made, suffix: str) -> None:
    about = made.profile.about
    for strict in (False, True):
        ending = f"{suffix}_strict" if strict else suffix
        ceiling = ceiling_of(about, strict)
        if ceiling is not None and ceiling.low is not None and ceiling.high is not None:
            outcome.metrics[f"detector_ceiling{ending}"] = Interval(ceiling.value, ceiling.low, ceiling.high)
        for floor in FLOORS:
            at = f"{round(floor * 100):03}"
            found = {name: _cheapest(made, (name,), floor, strict) for name in (*FAMILIES, BASELINE)}
            found["best"] = _cheapest(made, OWN, floor, strict)
            for name, cheapest in found.items():
                if cheapest is not None:
                    outcome.metrics[f"bytes_{at}_{_NAMES.get(name, name)}{ending}"] = cheapest.interval()
                    outcome.rows.append(
                        {
                            "video": suffix.removeprefix("_") or "static",
                            "strict": strict,
                            "accuracy_min": floor,
                            "family": name,
                            "rung": cheapest.rung,
                            "bytes": cheapest.bytes,
                        }
                    )
            best = found["best"]
            for name in ("five-knobs", BASELINE):
                against = found[name]
                if best is not None and against is not None:
                    outcome.metrics[f"ratio_{at}_best_{_NAMES[name]}{ending}"] = best.ratio(against)


def _cheapest(made: Made, families: Sequence[str], floor: float, strict: bool) -> _Cheapest | None:
    """Return the cheapest rung of these families at or above a floor."""
    rungs = [rung for rung in made.profile.rungs if (rung.family or family_of(rung.rung)) in families]
    if not rungs:
        return None
    rungs.sort(key=lambda rung: rung.bytes_per_published_frame)
    verdicts = [made.judge.verdict(made.measurements[rung.rung]) for rung in rungs]
    sizes = np.array([rung.bytes_per_published_frame for rung in rungs])
    reached = np.array([verdict.accuracy(strict) >= floor for verdict in verdicts])
    if not reached.any():
        return None
    decides = int(reached.argmax())
    resampled = np.array([verdict.resampled(made.judge.drawn, strict) for verdict in verdicts])
    reaches = np.nan_to_num(resampled) >= floor
    # The rung with the fewest bytes that reaches the floor, else the most accurate rung.
    chosen = np.where(reaches.any(axis=0), reaches.argmax(axis=0), np.nan_to_num(resampled).argmax(axis=0))
    return _Cheapest(rungs[decides].rung, float(sizes[decides]), sizes[chosen])


def _published(run: Run, notes: list[str]) -> dict[str, Profile]:
    """Return the knob tables of the authors of Mez, if `--data` has them."""
    folder = run.data / "mez-tables" if run.data is not None else None
    if folder is None or not folder.is_dir():
        notes.append(
            "SKIPPED the authors' tables: no folder mez-tables; name its parent with --data DIR or "
            "MEZ_BENCH_DATA"
        )
        return {}
    profiles = {path.stem: tables.load(path) for path in sorted(folder.glob("*.csv"))}
    notes.append(f"published: {tables.SOURCE}")
    return profiles


def _table(outcome: Outcome, made: Mapping[str, Made]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("video", "family"):
        table.add_column(column)
    for floor in FLOORS:
        table.add_column(f"bytes at {floor:.2f}", justify="right")
        table.add_column("rung", style="dim")
    for suffix in made:
        video = suffix.removeprefix("_") or "static"
        for name in (*FAMILIES, BASELINE):
            cells: list[str] = []
            for floor in FLOORS:
                row: dict[str, Any] | None = next(
                    (
                        row
                        for row in outcome.rows
                        if (row["video"], row["strict"], row["accuracy_min"], row["family"])
                        == (video, False, floor, name)
                    ),
                    None,
                )
                cells += ["-", ""] if row is None else [f"{row['bytes']:,.0f}", str(row["rung"])]
            table.add_row(video, name, *cells)
    return table


def _plot(drawing: Figure, made: Mapping[str, Made], published: Mapping[str, Profile]) -> None:
    panels = drawing.subplots(1, 3 if published else 2, sharey=True)
    for axes, (suffix, one) in zip(panels, made.items(), strict=False):
        _panel(axes, {"": one.profile}, "panning" if suffix else "static")
        ceiling = ceiling_of(one.profile.about)
        if ceiling is not None:
            axes.axhline(ceiling.value, color="0.5", lw=0.8, ls=":")
    if published:
        _panel(panels[2], published, "published tables (OpenPose, 1080p)")
    panels[0].set_ylabel("accuracy with hysteresis")
    panels[0].set_ylim(0.8, 1.005)


def _panel(axes: Axes, profiles: Mapping[str, Profile], title: str) -> None:
    for name, profile in profiles.items():
        for one in profile.families:
            best = frontier([rung for rung in profile.rungs if rung.family == one])
            sizes = [rung.bytes_per_published_frame for rung in best]
            axes.plot(
                sizes, [rung.accuracy_normalised.value for rung in best], "o-", ms=3, lw=1, label=name or one
            )
    axes.set_xscale("log")
    axes.set_xlabel("bytes per published frame")
    axes.set_title(title, fontsize=9)
    axes.legend(frameon=False, fontsize=7, loc="lower right")


PARETO: Final = Experiment(
    name="pareto",
    summary="bytes against accuracy for each family of rungs, with a people detector on a real video",
    needs="the demo's video; ffmpeg with libx264 for the baseline",
    seconds_quick=60,
    seconds_full=1800,
    run=_run,
)
