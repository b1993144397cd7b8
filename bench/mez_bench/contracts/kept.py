"""Measures how well a contract is kept beside one of lower priority, and the first frame after a cut."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from mez_bench.contracts import links
from mez_bench.contracts.part import Part, Subject, table
from mez_bench.contracts.play import Asked, Play, Played
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Outcome, Target
from mez_bench.stats import Interval, Values, ratio_interval

AFTER_CUT_S: Final = 1.5
"""How long after a cut the first frame may arrive. A later frame does not count."""

PRIORITY_QUICK_S: Final = 10.0
CUT_QUICK_S: Final = 9.0

NEWEST_WITHIN_S: Final = 0.02
"""By how much the newest frame may be older than a frame interval when a link comes back: the emulated link
and the camera have clocks of their own."""


def priority(subject: Subject, folder: Path, rounds: int, quick: bool) -> Part:
    """Play a first contract alone and beside one of lower priority in turn, as in the scenario `priority`."""
    first = Asked("first", 45.0, 0.85, subject.profile, 1)
    second = Asked("second", 1000.0, 0.95, subject.profile)
    scenario = links.shipped("priority", folder, PRIORITY_QUICK_S if quick else None)
    plays = [
        Play(f"priority-{name}-{number}", scenario, asked, subject.video)
        for number in range(rounds)
        for name, asked in (("alone", [first]), ("beside", [first, second]))
    ]
    return Part("priority", plays, _judge_priority)


def _judge_priority(played: Sequence[Played], outcome: Outcome) -> None:
    rows: list[dict[str, Cell]] = []
    for number, (alone, beside) in enumerate(zip(played[::2], played[1::2], strict=True)):
        first, second = beside.applications
        rows.append(
            {
                "scenario": "priority",
                "round": number,
                "on_time_alone": alone.applications[0].on_time(),
                "on_time_beside": first.on_time(),
                "frames_second": len(second.frames),
                "reason_second": next((why for why in second.reasons if "no rung keeps" in why), ""),
            }
        )
    alone_each, beside_each = (
        [np.array([float(row[name] or 0)]) for row in rows] for name in ("on_time_alone", "on_time_beside")
    )
    if not any(values.any() for values in alone_each):
        raise ExperimentError("priority: alone, the first contract has no frame on time; a busy machine?")
    outcome.metrics["priority_kept_share"] = ratio_interval(beside_each, alone_each, _sum)
    outcome.targets.append(Target("priority_kept_share", ">=", 0.95, full_only=True))
    columns = ("round", "on_time_alone", "on_time_beside", "frames_second")
    outcome.tables.append(table(rows, "priority", columns))
    outcome.rows += rows
    outcome.notes.append(
        "priority_kept_share: the first contract's frames on time beside a contract of lower priority, as a "
        "share of its frames on time alone on the same link"
    )


def _sum(values: Values) -> float:
    return max(float(values.sum()), 0.5)


def cuts(subject: Subject, folder: Path, rounds: int, quick: bool) -> Part:
    """Play a link that is cut, as in the scenario `cut`."""
    asked = Asked("people", 150.0, 0.9, subject.profile)
    scenario = links.shipped("cut", folder, CUT_QUICK_S if quick else None)
    plays = [Play(f"cut-{number}", scenario, [asked], subject.video) for number in range(rounds)]
    return Part("cuts", plays, _judge_cuts)


def _judge_cuts(played: Sequence[Played], outcome: Outcome) -> None:
    rows: list[dict[str, Cell]] = []
    for number, one in enumerate(played):
        (application,) = one.applications
        (link,) = one.scenario.links
        captured_min_s = -1 / link.fps - NEWEST_WITHIN_S
        for at_s in (at_s for (_, before), (at_s, _) in pairwise(link.steps) if before == 0):
            after = [taken for taken in application.frames if at_s <= taken.at_s <= at_s + AFTER_CUT_S]
            captured_s = [taken.at_s - taken.age_ms / 1e3 - at_s for taken in after]
            first = after[0] if after else None
            rows.append(
                {
                    "scenario": "cut",
                    "round": number,
                    "restored_s": at_s,
                    "first_captured_ms": 1e3 * captured_s[0] if first else None,
                    "first_after_ms": 1e3 * (first.at_s - at_s) if first else None,
                    "first_age_ms": first.age_ms if first else None,
                    "stale_before": next(
                        (place for place, captured in enumerate(captured_s) if captured >= captured_min_s),
                        len(after),
                    ),
                    "within_bound": first is not None and first.age_ms <= application.asked.latency_ms,
                }
            )
    newest = sum(row["first_captured_ms"] is not None and row["stale_before"] == 0 for row in rows)
    within = sum(bool(row["within_bound"]) for row in rows)
    cuts_max = max(len(rows), 1)
    outcome.metrics["first_after_cut_is_newest"] = Interval.exactly(newest / cuts_max)
    outcome.metrics["first_after_cut_within_bound"] = Interval.exactly(within / cuts_max)
    outcome.targets.append(Target("first_after_cut_is_newest", "==", 1))
    columns = ("round", "restored_s", "first_captured_ms", "first_after_ms", "first_age_ms", "stale_before")
    outcome.tables.append(table(rows, "cut", columns))
    outcome.rows += rows
    outcome.notes.append(
        "first_after_cut_is_newest: share of cuts after which the first delivered frame was the camera's "
        "newest when the link came back, or newer (first_captured_ms: its capture, relative to that moment)"
    )
    outcome.notes.append(
        "first_after_cut_within_bound: share of cuts after which this frame was also within the latency "
        "bound. It may be late, because it is a whole picture on a slow link"
    )
