"""Measures what more processors are worth to the stages of the recognition pipelines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import numpy as np

from mez_bench.arms import in_turn
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Experiment, Outcome
from mez_bench.footage import demo_video
from mez_bench.report import columns, figure
from mez_bench.run import ROOT, Run
from mez_bench.stage_work import STAGES, Plan
from mez_bench.stats import Values, interval, mean, median, ratio_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER: Final = {"detect faces": 0.84, "embed faces": 0.64}
"""The paper's time with two cores, as a share of that with one: of ingest/detect, and of identification."""

LOADED_SECONDS_MAX: Final = 120.0

_HELP: Final = """\
Measures how long the stages of `mez pipeline run faces` and `objects` take for a frame, if a
process may use one, two, four or more processors (Figures 5 and 12 of the AI Tax paper, Richins
et al. 2021). Beside it: as many processes with one processor each.

  detect faces    JPEG decoding, dlib's detector, one thumbnail for each face
  embed faces     JPEG decoding, dlib's network for one face
  detect objects  JPEG decoding, NanoDet in ONNX Runtime

The networks are real, and a face is on each frame. There is no bus in it.
"""

_EXAMPLES: Final = """\
examples:
  mez bench scaling            ten rounds of 4 s for each stage and number of processors
  mez bench scaling --quick    two rounds of 1 s
"""

Times = dict[tuple[str, int, str], list[Values]]
"""By stage, processors and arm: milliseconds of each frame, by round."""

ONE: Final = "one process"
MANY: Final = "processes of one processor"


def _run(run: Run) -> Outcome:
    rounds, seconds = (2, 1.0) if run.quick else (10, 4.0)
    processors = sorted(os.sched_getaffinity(0))
    counts = [1]
    while counts[-1] * 2 <= len(processors):
        counts.append(counts[-1] * 2)
    if len(counts) == 1:
        raise ExperimentError("this machine has one processor: nothing can be compared")
    arms = [(stage, count, ONE) for stage in STAGES for count in counts]
    arms += [(stage, count, MANY) for stage in STAGES for count in counts[1:]]
    run.expect(rounds * len(arms))
    times: Times = {arm: [] for arm in arms}
    rates: Times = {arm: [] for arm in arms}
    for number in range(rounds):
        for arm in in_turn(arms, number):
            stage, count, how = arm
            used = processors[:count]
            parts = [used] if how == ONE else [[processor] for processor in used]
            got = _play(run, stage, parts, seconds)
            times[arm].append(np.concatenate(got))
            rates[arm].append(np.array([sum(1000 / ms.mean() for ms in got)]))
            run.step(f"{stage}, {count} processors, {how}")
    outcome = _outcome(times, rates)
    outcome.parameters = {"processors": len(processors), "rounds": rounds, "seconds_per_round": seconds}
    return outcome


def _play(run: Run, stage: str, parts: Sequence[Sequence[int]], seconds: float) -> list[Values]:
    """Work on these processors, one process for each part. Returns the milliseconds of its frames."""
    with run.apart():
        children = []
        for part in parts:
            child = run.children.start(
                stage,
                [sys.executable, "-P", "-m", "mez_bench.stage_work"],
                {"PYTHONPATH": str(ROOT / "bench")},
            )
            child.tell(json.dumps(asdict(Plan(stage, part, str(demo_video())))))
            children.append(child)
        for child in children:
            child.ready(LOADED_SECONDS_MAX)
        for child in children:
            child.tell(f"{seconds}")
        return [np.array(child.answer(LOADED_SECONDS_MAX)["ms"]) for child in children]


def _outcome(times: Times, rates: Times) -> Outcome:
    outcome = Outcome()
    table = columns(
        "stage", "processors", "ms a frame", "÷ one processor", "frames/s", "frames/s of as many processes"
    )
    for (stage, count, how), rounds in times.items():
        key = (stage, count, how)
        took, rate = interval(rounds, median), interval(rates[key], mean)
        outcome.rows.append(
            {
                "stage": stage,
                "processors": count,
                "arm": how,
                "ms_p50": took.median,
                "frames_per_second": rate.median,
            }
        )
        if how != ONE:
            continue
        name = stage.replace(" ", "_")
        outcome.metrics[f"{name}_ms_p50_{count}"] = took
        share = many = ""
        if count > 1:
            ratio = ratio_interval(rounds, times[stage, 1, ONE], median)
            outcome.metrics[f"{name}_time_share_{count}"] = ratio
            share, many = figure(ratio.median), figure(interval(rates[stage, count, MANY], mean).median)
        table.add_row(stage, f"{count}", figure(took.median), share, figure(rate.median), many)
    table.caption = "one process, which may use so many processors; last column: processes of one each"
    outcome.tables = [table]
    outcome.notes = [
        "the paper's time with two cores, ÷ one: 0.84 for ingest and detection of faces, 0.64 for "
        "identification, nearly 0.5 for detection of objects",
        "every stage decodes a JPEG first, with one thread; processors may be threads of one core",
    ]
    outcome.plot = lambda drawing: _plot(drawing, times)
    return outcome


def _plot(drawing: Figure, times: Times) -> None:
    axes = drawing.subplots()
    for stage in STAGES:
        points = {
            count: median(np.concatenate(rounds))
            for (of, count, how), rounds in times.items()
            if of == stage and how == ONE
        }
        axes.plot(list(points), [took / points[1] for took in points.values()], marker="o", label=stage)
        if stage in PAPER:
            axes.plot([2], [PAPER[stage]], marker="x", color="black", linestyle="none")
    axes.plot(
        list(points), [1 / count for count in points], color="black", linewidth=0.8, label="1 ÷ processors"
    )
    axes.plot([], [], marker="x", color="black", linestyle="none", label="the paper, two cores")
    axes.set_xlabel("processors of the process")
    axes.set_ylabel("time for a frame ÷ that with one processor")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


SCALING: Final = Experiment(
    name="scaling",
    summary="what more processors are worth to the stages of the recognition pipelines",
    needs="the package's extras faces and onnx, and the demo's video (fetched once)",
    seconds_quick=60,
    seconds_full=900,
    run=_run,
    description=_HELP,
    examples=_EXAMPLES,
)
