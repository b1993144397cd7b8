"""Measures the cost of rungs for a camera, how well byte budgets are kept, and the cost of a loss."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

from mez.demo.options import VIDEO
from mez_bench.children import mez
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.report import figure
from mez_bench.run import ROOT, Run
from mez_bench.stats import Interval, Values, interval, median

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH: Final = 1920
HEIGHT: Final = 1080
RUNGS: Final = (
    "tiles/q80/420",
    "tiles/w960/q80/420",
    "jpeg/w960/q70/444",
    "jpeg/q70/gray",
    "h264/w640/q32",
    "knobs/png",
    "knobs/q95",
    "knobs/s68/q95",
    "knobs/s50/q95",
    "knobs/s33/q95",
    "knobs/s25/q95",
    "knobs/gray/q95",
    "knobs/hsv/q95",
    "knobs/lab/q95",
    "knobs/luv/q95",
    "knobs/blur5/q95",
    "knobs/blur8/q95",
    "knobs/blur10/q95",
    "knobs/blur15/q95",
    "knobs/moving/q95",
    "knobs/contours/q95",
    "knobs/diff0/q95",
    "knobs/s33/gray/png",
)
DELAYS_BUDGET: Final = 3
DELAYS_RECOVERY: Final = 2
GATED_DELAY: Final = 0
PRINTED_SECONDS_MAX: Final = 180


@dataclass(slots=True)
class Lines:
    """The printed lines, by part."""

    ladder: Sequence[str] = ()
    encode: dict[tuple[str, str], list[Values]] = field(default_factory=lambda: defaultdict(list))
    decode: dict[str, list[Values]] = field(default_factory=lambda: defaultdict(list))
    sizes: dict[tuple[str, str], list[Values]] = field(default_factory=lambda: defaultdict(list))
    memory: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    budget: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    recovery: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def take(self, line: Mapping[str, Any]) -> None:
        """Add a line to its part."""
        match line["part"]:
            case "ladder":
                self.ladder = line["rungs"]
            case "encode":
                key = (str(line["rung"]), str(line["source"]))
                if line["cpu_ns"]:
                    self.encode[key].append(np.array(line["cpu_ns"]) / 1e6)
                    self.sizes[key].append(np.array(line["bytes"], dtype=np.float64))
            case "decode":
                if line["cpu_ns"]:
                    self.decode[str(line["rung"])].append(np.array(line["cpu_ns"]) / 1e6)
            case "memory":
                self.memory[str(line["rung"])] = line
            case "budget":
                self.budget[int(line["delay_frames"])] = line
            case "recovery":
                self.recovery[int(line["delay_frames"])] = line
            case part:
                raise ExperimentError(f"mez measure knobs printed an unknown part {part!r}; run make build")


def _run(run: Run) -> Outcome:
    video = ROOT / VIDEO
    if not video.is_file():
        raise ExperimentError(f"{video} is missing; fetch it with make demo-video")
    frames, rounds, budget_frames = (10, 2, 1000) if run.quick else (30, 6, 2400)
    lines = Lines()
    run.expect(DELAYS_BUDGET + DELAYS_RECOVERY + rounds)
    for line in _printed(run, _command(video, frames, rounds, budget_frames)):
        lines.take(line)
    targets = [
        Target("ladder_ms_p50_jpeg", "<=", 15),
        Target("ladder_ms_p50_raw", "<=", 5),
        Target("frames_over_cap_share", "<=", 0.01),
        Target("worst_over_cap", "<=", 1.25),
        Target("cap_use_mean", ">=", 0.75),
        Target("recovery_bytes_ratio_idr", "<=", 0.25),
    ]
    outcome = Outcome(
        parameters={
            "video": VIDEO.name,
            "width": WIDTH,
            "height": HEIGHT,
            "frames": frames,
            "rounds": rounds,
            "budget_frames": budget_frames,
            "default_ladder": list(lines.ladder),
            "time": "processor time of one thread",
        },
        metrics=_metrics(lines),
        rows=_rows(lines),
        targets=targets,
        tables=[_rung_table(lines), _budget_table(lines)],
        notes=[
            "ladder_ms_p50_jpeg and _raw: medians over all frames of all rungs of the default ladder except "
            "`original`; with a rung's name at the end: of this rung",
            "the video has 768x576 pixels and was enlarged: frames have fewer bytes than of a real 1080p "
            "camera",
            "budgets and recovery are measured at the video's own size; a cap binds where it forces a "
            "quantiser above 18; delays: frames until an acknowledgement arrives",
        ],
    )
    outcome.plot = lambda drawing: _plot(drawing, lines)
    return outcome


def _command(video: Path, frames: int, rounds: int, budget_frames: int) -> list[str]:
    return mez(
        "measure",
        "knobs",
        "--video",
        f"{video}",
        "--width",
        f"{WIDTH}",
        "--height",
        f"{HEIGHT}",
        "--frames",
        f"{frames}",
        "--rounds",
        f"{rounds}",
        "--budget-frames",
        f"{budget_frames}",
        "--rungs",
        ",".join(RUNGS),
    )


def _printed(run: Run, command: Sequence[str]) -> Iterator[dict[str, Any]]:
    child = run.children.start("measure knobs", command)
    rounds_seen = -1
    while (text := child.line(seconds_max=PRINTED_SECONDS_MAX)) is not None:
        line: dict[str, Any] = json.loads(text)
        round_ = int(line.get("round", rounds_seen))
        if line["part"] in ("budget", "recovery") or round_ > rounds_seen:
            run.step(f"{line['part']} {line.get('rung', '')}".strip())
            rounds_seen = round_
        yield line


def _metrics(lines: Lines) -> dict[str, Interval]:
    metrics: dict[str, Interval] = {}
    for source in ("jpeg", "raw"):
        rungs = [rung for rung in lines.ladder if rung != "original" and (rung, source) in lines.encode]
        rounds = [
            np.concatenate([lines.encode[rung, source][at] for rung in rungs])
            for at in range(len(lines.encode[rungs[0], source]))
        ]
        metrics[f"ladder_ms_p50_{source}"] = interval(rounds, median)
        for rung in rungs:
            within = interval(lines.encode[rung, source], median)
            metrics[f"ladder_ms_p50_{source}_{_word(rung)}"] = within
    gated = lines.budget[GATED_DELAY]
    for delay, line in sorted(lines.budget.items()):
        suffix = "" if line is gated else f"_delay_{delay}"
        metrics.update({f"{name}{suffix}": value for name, value in _budget(line).items()})
    for delay, line in sorted(lines.recovery.items()):
        suffix = "" if delay == GATED_DELAY else f"_delay_{delay}"
        ratio = np.array(line["recovery_bytes"], dtype=np.float64) / np.array(line["idr_bytes"])
        metrics[f"recovery_bytes_ratio_idr{suffix}"] = interval([ratio], lambda values: float(values.mean()))
        metrics[f"recovery_independent{suffix}"] = Interval.exactly(float(line["independent"]))
    for rung, line in lines.memory.items():
        if rung in lines.ladder:
            both = (line["encoder_bytes"] + line["decoder_bytes"]) / 1e6
            metrics[f"memory_mb_{_word(rung)}"] = Interval.exactly(float(both))
    return metrics


def _budget(line: Mapping[str, Any]) -> dict[str, Interval]:
    sizes, caps = (np.array(line[name], dtype=np.float64) for name in ("bytes", "cap"))
    use, binds = sizes / caps, np.array(line["quantiser"]) > line["finest"]
    return {
        "frames_over_cap_share": Interval.exactly(float((use > 1).mean())),
        "worst_over_cap": Interval.exactly(float(max(use.max(), 1.0)) if (use > 1).any() else 1.0),
        "cap_use_mean": interval(_seconds(use, binds), lambda values: float(values.mean())),
        "codings_per_frame": interval([np.array(line["attempts"])], lambda values: float(values.mean())),
        "budget_encode_ms_p50": interval([np.array(line["cpu_ns"]) / 1e6], median),
        "budget_encode_ms_p95": interval(
            [np.array(line["cpu_ns"]) / 1e6], lambda values: float(np.percentile(values, 95))
        ),
        "independent_frames": Interval.exactly(float(line["independent"])),
    }


def _seconds(use: Values, binds: np.ndarray[Any, np.dtype[np.bool_]]) -> list[Values]:
    """Split into seconds, each of which has one cap: the values of a second are correlated."""
    parts = [use[at : at + 10][binds[at : at + 10]] for at in range(0, len(use), 10)]
    return [part for part in parts if len(part) > 0]


def _rows(lines: Lines) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for (rung, source), rounds in lines.encode.items():
        values, sizes = np.concatenate(rounds), np.concatenate(lines.sizes[rung, source])
        decode = np.concatenate(lines.decode[rung]) if source == "jpeg" and rung in lines.decode else None
        memory = lines.memory.get(rung, {})
        rows.append(
            {
                "rung": rung,
                "source": source,
                "encode_ms_p50": float(np.median(values)),
                "encode_ms_p95": float(np.percentile(values, 95)),
                "decode_ms_p50": None if decode is None else float(np.median(decode)),
                "bytes_p50": float(np.median(sizes)),
                "encoder_bytes": memory.get("encoder_bytes"),
                "decoder_bytes": memory.get("decoder_bytes"),
            }
        )
    for kind, parts in (("budget", lines.budget), ("recovery", lines.recovery)):
        rows += [{"part": kind, **{k: v for k, v in line.items() if k != "part"}} for line in parts.values()]
    return rows


def _rung_table(lines: Lines) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("ms per 1080p frame, median")
    for column in ("from JPEG", "from pixels", "decode", "kB", "MB held"):
        table.add_column(column, justify="right")
    for rung in sorted({rung for rung, _ in lines.encode}):
        cells = [
            figure(median(np.concatenate(rounds))) if rounds else ""
            for rounds in (
                lines.encode.get((rung, "jpeg"), []),
                lines.encode.get((rung, "raw"), []),
                lines.decode.get(rung, []),
            )
        ]
        sizes = lines.sizes.get((rung, "jpeg"), [])
        kilobytes = figure(median(np.concatenate(sizes)) / 1e3) if sizes else ""
        memory = lines.memory.get(rung)
        held = figure((memory["encoder_bytes"] + memory["decoder_bytes"]) / 1e6) if memory else ""
        name = f"{rung} *" if rung in lines.ladder else rung
        table.add_row(name, *cells, kilobytes, held)
    table.caption = "* default ladder"
    return table


def _budget_table(lines: Lines) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in (
        "budget: acknowledged after",
        "over",
        "worst",
        "use",
        "codings",
        "ms p50",
        "ms p95",
        "independent",
    ):
        table.add_column(column, justify="right")
    for delay, line in sorted(lines.budget.items()):
        values = _budget(line)
        table.add_row(
            f"{delay} frames",
            *(
                figure(values[name].median)
                for name in (
                    "frames_over_cap_share",
                    "worst_over_cap",
                    "cap_use_mean",
                    "codings_per_frame",
                    "budget_encode_ms_p50",
                    "budget_encode_ms_p95",
                    "independent_frames",
                )
            ),
        )
    return table


def _plot(drawing: Figure, lines: Lines) -> None:
    left, right = drawing.subplots(1, 2)
    rungs = [rung for rung in lines.ladder if (rung, "jpeg") in lines.encode]
    for place, source in enumerate(("jpeg", "raw")):
        have = [(at, rung) for at, rung in enumerate(rungs) if (rung, source) in lines.encode]
        lengths = [median(np.concatenate(lines.encode[rung, source])) for _, rung in have]
        left.barh([at + 0.4 * place for at, _ in have], lengths, 0.4, label=f"from {source}")
    left.set_yticks([at + 0.2 for at in range(len(rungs))], rungs)
    left.invert_yaxis()
    left.set_xlabel("milliseconds of processor time per frame")
    left.set_title("default ladder at 1080p")
    left.legend(frameon=False)
    line = lines.budget[GATED_DELAY]
    shown = slice(0, 300)
    right.plot(np.array(line["cap"][shown]) / 1e3, drawstyle="steps-mid", label="cap", color="0.4")
    right.plot(np.array(line["bytes"][shown]) / 1e3, ".", markersize=3, label="frames")
    right.set_yscale("log")
    right.set_xlabel("frame")
    right.set_ylabel("kB")
    right.set_title("H.264 under a cap that changes every second")
    right.legend(frameon=False)


def _word(rung: str) -> str:
    """Return a rung's name as a part of a metric's name."""
    return re.sub(r"[^a-z0-9]+", "_", rung)


KNOBS: Final = Experiment(
    name="knobs",
    summary="cost of every knob and codec, how well byte budgets are kept, cost of a loss",
    needs="make demo-video, ffmpeg",
    seconds_quick=60,
    seconds_full=400,
    run=_run,
)
