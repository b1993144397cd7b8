"""Measures whether the state `ok` is true in another light than the profile was measured in.

The video is played unchanged, at low contrast and at night, over an idle link, each time with the profile of
the unchanged video. One in `SCORED_ONE_IN` of the frames that the application got is scored: the detector
searches it as delivered and as published.

`ok_below_floor_share` is the share of the scored frames that had the state `ok` and an accuracy below the
floor. A single frame has too few boxes to tell, so frames are judged together: the `ok` frames of a window of
`WINDOW_S` seconds are below the floor if their micro-F1 with hysteresis (the accuracy of contracts) is below
it by more than `MARGIN` standard errors of a share of as many boxes. With 60 boxes and a floor of 0.95, the
limit is an F1 of 0.904. Frames of any other state do not count: the application was told.
"""

import math
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2

from mez.demo.accuracy import Pair
from mez.errors import Error
from mez.profile.app import App, load
from mez.profile.score import Counts, f1, score_frame
from mez_bench.contracts import links
from mez_bench.contracts.part import Part, Subject, table
from mez_bench.contracts.play import Asked, Play, Played
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Outcome, Target
from mez_bench.run import CACHE
from mez_bench.stats import Interval

FLOOR: Final = 0.95
LATENCY_MS: Final = 100.0
MEGABITS: Final = 20.0
SECONDS: Final = 60.0
SECONDS_QUICK: Final = 9.0
SCORED_ONE_IN: Final = 2
SCORED_ONE_IN_QUICK: Final = 4
WINDOW_S: Final = 5.0
"""As long as the blocks of the profiler's intervals: people stay in view for some seconds."""

MARGIN: Final = 1.645
"""Of windows exactly at the floor, one in twenty is judged to be below it."""

FILMED_S: Final = 60.0

SCENES: Final = {
    "day": "",
    "low_contrast": "eq=contrast=0.15",
    "night": "eq=brightness=-0.25:contrast=0.5,noise=alls=10:allf=t",
}
"""Filters of ffmpeg that change the light of a video. `night` includes the noise of a sensor."""

METRIC: Final = "ok_below_floor_share"


@dataclass(frozen=True, slots=True)
class Scored:
    """A frame that was scored.

    Attributes:
        at_s: When the application got it, in the scenario's time.
        state: State of the contract.
        counts: Agreement with the frame as published.
    """

    at_s: float
    state: str
    counts: Counts


def scenes(subject: Subject, folder: Path, quick: bool) -> Part:
    """Play the scenes. A quick run has low contrast only."""
    names = ["low_contrast"] if quick else list(SCENES)
    seconds = SECONDS_QUICK if quick else SECONDS
    path = links.made("idle", folder, [(0.0, MEGABITS)], seconds=seconds, fps=subject.fps)
    asked = Asked("people", LATENCY_MS, FLOOR, subject.profile)
    one_in = SCORED_ONE_IN_QUICK if quick else SCORED_ONE_IN
    plays = [Play(name, path, [asked], _filmed(subject, name), one_in) for name in names]

    def judge(played: Sequence[Played], outcome: Outcome) -> None:
        _judge(subject, names, played, outcome)

    return Part("scenes", plays, judge)


def _filmed(subject: Subject, scene: str) -> Path:
    """Return the video in this light; made once, with a lossless codec."""
    filters, video = SCENES[scene], subject.video
    if not filters:
        return video
    key = f"{video.stem}-{video.stat().st_size:x}-{scene}"
    made = CACHE / f"{key}.mkv"
    if not made.exists():
        if shutil.which("ffmpeg") is None:
            raise ExperimentError("ffmpeg is not installed; it is needed to change the light of the video")
        made.parent.mkdir(parents=True, exist_ok=True)
        unfinished = made.with_suffix(".part.mkv")
        words = ["ffmpeg", "-v", "error", "-y", "-i", str(video), "-t", f"{FILMED_S:g}"]
        words += ["-vf", filters, "-an", "-c:v", "ffv1", str(unfinished)]
        finished = subprocess.run(words, capture_output=True, text=True, check=False)
        if finished.returncode != 0:
            raise ExperimentError(f"ffmpeg could not make the video {scene}: {finished.stderr.strip()}")
        unfinished.replace(made)
    return made


def below_floor(frames: Sequence[Scored], floor: float) -> int:
    """Count the `ok` frames in windows whose `ok` frames together are below the floor."""
    windows: dict[int, list[Counts]] = defaultdict(list)
    for frame in frames:
        if frame.state == "ok":
            windows[int(frame.at_s / WINDOW_S)].append(frame.counts)
    return sum(len(of_window) for of_window in windows.values() if _is_below(of_window, floor))


def _is_below(frames: Sequence[Counts], floor: float) -> bool:
    together = sum(frames, Counts(0, 0, 0))
    accuracy = f1(together)
    if accuracy is None:
        return False
    boxes = together.found + (together.false + together.missed) / 2
    return accuracy < floor - MARGIN * math.sqrt(floor * (1 - floor) / boxes)


def _judge(subject: Subject, names: Sequence[str], played: Sequence[Played], outcome: Outcome) -> None:
    try:
        app = load(subject.app, subject.about.strong, subject.about.weak)
    except Error as error:
        raise ExperimentError(f"{error}; name the profile's detector with --app") from error
    cv2.setNumThreads(1)
    rows = [_row(app, name, one, outcome) for name, one in zip(names, played, strict=True)]
    worst = max(float(row[METRIC] or 0.0) for row in rows if row["scene"] != "day")
    outcome.metrics[METRIC] = Interval.exactly(worst)
    outcome.targets.append(Target(METRIC, "<=", 0.02, full_only=True))
    if "day" in names:
        outcome.targets.append(Target("drifted_share_day", "<=", 0.02))
    columns = ("scene", "frames", "ok_share", "drifted_share", METRIC, "accuracy", "accuracy_ok", "expected")
    outcome.tables.append(table(rows, "scenes", (*columns, "kilobits_per_second")))
    outcome.rows += rows
    outcome.notes += [
        f"{METRIC}: share of the scored frames with state ok in windows of {WINDOW_S:g} s whose ok frames "
        f"together were below the floor {FLOOR:g}, by more than {MARGIN} standard errors; the worst of the "
        "scenes that the profile was not measured in",
        "accuracy: F1 with hysteresis of all scored frames; accuracy_ok: of the frames with state ok; "
        "expected: mean by the profile",
    ]


def _row(app: App, name: str, one: Played, outcome: Outcome) -> dict[str, Cell]:
    assert one.samples is not None, "asked for in the play"
    (application,) = one.applications
    scored = _scored(app, one.samples.pairs(len(application.frames)), one)
    if not scored:
        raise ExperimentError(f"{name}: no frame was kept at both ends")

    def share(state: str) -> float:
        return sum(frame.state == state for frame in scored) / len(scored)

    def accuracy(frames: Sequence[Scored]) -> float | None:
        return f1(sum((frame.counts for frame in frames), Counts(0, 0, 0)))

    expected = [taken.expected for taken in application.frames if taken.expected is not None]
    link_bytes = sum(taken.link_bytes or 0 for taken in application.frames)
    seconds = max(application.frames[-1].at_s - application.frames[0].at_s, 1.0)
    below = below_floor(scored, FLOOR) / len(scored)
    outcome.metrics[f"{METRIC}_{name}"] = Interval.exactly(below)
    outcome.metrics[f"drifted_share_{name}"] = Interval.exactly(share("drifted"))
    return {
        "scene": name,
        "frames": len(scored),
        "ok_share": share("ok"),
        "drifted_share": share("drifted"),
        METRIC: below,
        "accuracy": accuracy(scored),
        "accuracy_ok": accuracy([frame for frame in scored if frame.state == "ok"]),
        "expected": sum(expected) / len(expected) if expected else None,
        "kilobits_per_second": link_bytes * 8e-3 / seconds,
        "rungs": _rungs([taken.rung for taken in application.frames]),
        "states": _changes([(taken.at_s, taken.state) for taken in application.frames]),
    }


def _scored(app: App, pairs: Sequence[Pair], one: Played) -> list[Scored]:
    states = {taken.key: taken.state for taken in one.applications[0].frames}
    scored = []
    for pair in pairs:
        published, delivered = pair.published, pair.delivered
        key = (delivered.camera, delivered.epoch, delivered.sequence)
        size, what = (published.width, published.height), f"frame {published.id} of {published.camera}"
        reference = app.find(published.image, size, what)
        found = app.find(delivered.image, size, what)
        counts = score_frame(reference, found, app.thresholds).hysteresis
        scored.append(Scored(pair.at_s, states[key], counts))
    return scored


def _rungs(rungs: Sequence[str]) -> str:
    counted = {rung: rungs.count(rung) for rung in dict.fromkeys(rungs)}
    common = sorted(counted.items(), key=lambda one: -one[1])
    return ", ".join(f"{count} {rung}" for rung, count in common)


def _changes(states: Sequence[tuple[float, str]]) -> str:
    changed = [one for place, one in enumerate(states) if place == 0 or states[place - 1][1] != one[1]]
    return ", ".join(f"{state} at {at_s:.1f} s" for at_s, state in changed[:20])
