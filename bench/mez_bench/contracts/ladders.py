"""Compares a ladder of several codecs with one of H.264 alone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mez_bench.contracts import links
from mez_bench.contracts.part import Part, Subject, table
from mez_bench.contracts.play import Application, Asked, Play, Played
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Outcome, Target
from mez_bench.stats import Interval, Values, interval

FLOOR: Final = 0.9
SECONDS: Final = 40.0
SECONDS_QUICK: Final = 9.0
QUEUE_CAMERAS: Final = 3
LINKS: Final = ("square_wave", "ramp", "falling_queue")
ARMS: Final = ("mixed", "h264")
COUNTED: Final = ("infeasible", "frames")
METRIC: Final = "infeasible_share_mixed_minus_best"


def ladders(subject: Subject, folder: Path, rounds: int, quick: bool) -> Part:
    """Play each link with the whole profile, and with its H.264 rungs alone, in turn.

    The links are a square wave of 20 and 1 Mbit/s, a ramp from 10 to 0.2 Mbit/s, and a queue that three
    cameras share and that falls from 6 to 0.3 Mbit/s.
    """
    profiles = {"mixed": subject.profile, "h264": _h264_alone(subject.profile, folder)}
    seconds = SECONDS_QUICK if quick else SECONDS
    rates = {
        "square_wave": (links.square_wave(20.0, 1.0, 2.0, seconds), 1, 100.0),
        "ramp": (links.ramp(10.0, 0.2, seconds), 1, 100.0),
        "falling_queue": (links.ramp(6.0, 0.3, seconds), QUEUE_CAMERAS, 150.0),
    }
    plays = []
    for name in LINKS:
        steps, cameras, latency_ms = rates[name]
        path = links.made(name, folder, steps, seconds=seconds, fps=subject.fps, cameras=cameras)
        plays += [
            Play(
                f"{name}-{arm}-{number}",
                path,
                [Asked("people", latency_ms, FLOOR, profiles[arm])],
                subject.video,
            )
            for number in range(rounds)
            for arm in ARMS
        ]
    return Part("ladders", plays, _judge)


def _h264_alone(profile: Path, folder: Path) -> Path:
    """Write a profile with the rungs of H.264 only."""
    whole = json.loads(profile.read_text())
    rungs = [rung for rung in whole["rungs"] if rung["rung"].startswith("h264/")]
    if not rungs:
        raise ExperimentError(f"{profile.name} has no H.264 rung to compare with")
    names = {rung["rung"] for rung in rungs}
    path = folder / "h264-alone.json"
    frontier = [name for name in whole["frontier"] if name in names]
    path.write_text(json.dumps({**whole, "rungs": rungs, "frontier": frontier}))
    return path


def _judge(played: Sequence[Played], outcome: Outcome) -> None:
    rounds = len(played) // (len(LINKS) * len(ARMS))
    rows: list[dict[str, Cell]] = []
    found: dict[str, Interval] = {}
    for place, name in enumerate(LINKS):
        of_link = played[place * rounds * len(ARMS) :][: rounds * len(ARMS)]
        counts = []
        for number, pair in enumerate(zip(of_link[::2], of_link[1::2], strict=True)):
            both = [_row(name, number, arm, one) for arm, one in zip(ARMS, pair, strict=True)]
            rows += both
            counts.append(np.array([[float(row[key] or 0) for row in both for key in COUNTED]]))
        found[name] = interval(counts, _minus_best)
        outcome.metrics[f"{METRIC}_{name}"] = found[name]
    outcome.metrics[METRIC] = max(found.values(), key=lambda one: one.median)
    outcome.targets.append(Target(METRIC, "<=", 0.01, full_only=True))
    columns = ("link", "round", "profile", "frames", "on_time_share", "infeasible", "unmeasured", "accuracy")
    outcome.tables.append(table(rows, "ladders", columns))
    outcome.rows += rows
    outcome.notes += [
        f"{METRIC}: share of frames that are marked infeasible, or whose contract is infeasible, with the "
        "whole profile, minus this share with its H.264 rungs alone; the worst of three links",
        "unmeasured: frames whose accuracy is not in the profile. accuracy: mean by the profile, in which "
        "unmeasured frames count as 0",
    ]


def _row(name: str, number: int, arm: str, one: Played) -> dict[str, Cell]:
    (application,) = one.applications
    frames = application.settled()
    return {
        "link": name,
        "round": number,
        "profile": arm,
        "frames": len(frames),
        "on_time_share": application.on_time() / max(len(frames), 1),
        "infeasible": sum(taken.infeasible or taken.state == "infeasible" for taken in frames),
        "unmeasured": sum(taken.expected is None for taken in frames),
        "accuracy": _accuracy(application),
    }


def _accuracy(application: Application) -> float:
    frames = application.settled()
    return float(np.mean([taken.expected or 0.0 for taken in frames])) if frames else 0.0


def _minus_best(values: Values) -> float:
    mixed, mixed_frames, alone, alone_frames = values.sum(axis=0)
    return float(mixed / max(mixed_frames, 1) - alone / max(alone_frames, 1))
