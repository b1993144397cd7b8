"""Runs the scenario `interference` with cameras that give H.264, of several encoder settings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from rich.table import Table

from mez._processes import mez_command
from mez.profile import shipped
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.footage import BRANDS, demo_video, h264_of
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval

SCENARIO: Final = "interference"
FLOOR: Final = 0.95
"""The accuracy floor of the scenario."""

ON_TIME_MIN: Final = 0.98
"""Target for the share of published frames on time, outside the times announced as infeasible."""

QUICK: Final = ("slices",)
QUICK_SECONDS: Final = 25
QUICK_SCORED: Final = 4
SECONDS_MAX: Final = 900.0


def _run(run: Run) -> Outcome:
    brands = run.parts(tuple(BRANDS))
    if run.quick and not run.subject.only:
        brands = QUICK
    run.step("encoding the video", done=0)
    videos = {brand: h264_of(run, brand) for brand in brands}
    run.expect(len(brands))
    figures = {}
    for brand in brands:
        run.step(brand, done=0)
        figures[brand] = _demo(run, brand, videos[brand])
        run.step(brand)
    return _outcome(figures, run.quick)


def _demo(run: Run, brand: str, video: str) -> Mapping[str, object]:
    profile = shipped.find("pedestrian-hog", demo_video())
    if profile is None:
        raise ExperimentError("this checkout has no profile of the demo's video")
    result = run.folder / f"{brand}.json"
    command = mez_command("demo", "--scenario", SCENARIO, "--headless", "--video", video)
    command += ["--profile", str(profile), "--json", str(result), "--out", str(run.folder / brand)]
    if run.quick:
        command += ["--seconds", f"{QUICK_SECONDS}", "--score", f"{QUICK_SCORED}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    if finished.returncode != 0 or not result.exists():
        raise ExperimentError(
            f"the demo failed with {brand}: {(finished.stderr or finished.stdout).strip()[-400:]}"
        )
    figures: Mapping[str, object] = json.loads(result.read_text())
    return figures


def _outcome(figures: Mapping[str, Mapping[str, object]], quick: bool) -> Outcome:
    outcome = Outcome()
    for brand, of_brand in figures.items():
        row: dict[str, Cell] = {"brand": brand}
        for name, key in _FIGURES.items():
            value = of_brand.get(key)
            if isinstance(value, int | float):
                row[name] = float(value)
                outcome.metrics[f"{brand}_{name}"] = Interval.exactly(float(value))
        rungs = of_brand.get("frames_by_rung")
        if isinstance(rungs, dict) and rungs:
            row["passed_share"] = rungs.get("original", 0) / sum(rungs.values())
        outcome.rows.append(row)
        outcome.targets += [
            Target(f"{brand}_on_time_share", ">=", ON_TIME_MIN, full_only=True),
            Target(f"{brand}_accuracy", ">=", FLOOR, full_only=True),
        ]
    outcome.parameters = {"scenario": SCENARIO, "brands": list(figures), "quick": quick}
    outcome.tables = [_table(outcome.rows)]
    return outcome


_FIGURES: Final = {
    "on_time_share": "on_time_share_of_published",
    "accuracy": "accuracy_normalised",
    "accuracy_strict": "accuracy_normalised_strict",
    "latency_ms_p95": "latency_ms_p95",
    "published_bytes": "published_bytes",
    "link_bytes": "link_bytes",
}
"""Names of metrics, with the demo's names for them."""


def _table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("encoder")
    names = ("on_time_share", "accuracy", "accuracy_strict", "latency_ms_p95", "passed_share")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        cells = [row.get(name) for name in names]
        table.add_row(
            str(row["brand"]), *(figure(float(cell)) if cell is not None else "-" for cell in cells)
        )
    return table


SOURCES: Final = Experiment(
    name="sources",
    summary="the contract of the scenario interference, with H.264 sources of several encoder settings",
    needs="ffmpeg with libx264, the demo's video (fetched once)",
    seconds_quick=60,
    seconds_full=600,
    run=_run,
)
