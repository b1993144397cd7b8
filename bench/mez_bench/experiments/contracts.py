"""Measures whether contracts are true, between real brokers over emulated links."""

from __future__ import annotations

from typing import Final

from mez_bench.contracts.kept import cuts, priority
from mez_bench.contracts.ladders import ladders
from mez_bench.contracts.livelocks import livelocks
from mez_bench.contracts.part import Part, subject
from mez_bench.contracts.play import played
from mez_bench.contracts.scenes import scenes
from mez_bench.experiment import Experiment, Outcome
from mez_bench.run import Run

PARTS: Final = ("priority", "cuts", "ladders", "livelocks", "scenes")
ROUNDS: Final = 5
ROUNDS_LADDERS: Final = 2
AT_ONCE_QUICK: Final = 4
"""How many plays a quick run has at a time."""


def _run(run: Run) -> Outcome:
    chosen = run.parts(PARTS)
    filmed, folder, quick = subject(run), run.folder, run.quick
    rounds, of_ladders = (1, 1) if quick else (ROUNDS, ROUNDS_LADDERS)
    parts: list[Part] = []
    if "priority" in chosen:
        parts.append(priority(filmed, folder, rounds, quick))
    if "cuts" in chosen:
        parts.append(cuts(filmed, folder, rounds, quick))
    if "ladders" in chosen:
        parts.append(ladders(filmed, folder, of_ladders, quick))
    if "scenes" in chosen:
        parts.append(scenes(filmed, folder, quick))
    plays = [play for part in parts for play in part.plays]
    run.expect(len(plays) + ("livelocks" in chosen))
    outcome = Outcome(
        parameters={
            "rounds": rounds,
            "parts": list(chosen),
            "video": filmed.video.name,
            "profile": filmed.profile.name,
            "frames_per_second": filmed.fps,
        }
    )
    done = list(played(run, plays, AT_ONCE_QUICK if quick else 1))
    outcome.parameters["links_late_ms_max"] = max((one.late_ms_max for one in done), default=0.0)
    for part in parts:
        run.step(f"judging {part.name}", done=0)
        part.judge(done[: len(part.plays)], outcome)
        del done[: len(part.plays)]
    if "livelocks" in chosen:
        livelocks(run, outcome)
    outcome.notes.append(
        "links_late_ms_max: largest delay that the emulator of the links itself caused; if it is not small "
        "compared with the latency bounds, other work on this machine disturbed the run"
    )
    if quick:
        outcome.notes.append("a quick run has several plays at a time, and does not judge shares")
    return outcome


CONTRACTS: Final = Experiment(
    name="contracts",
    summary="contracts over emulated links: mixed ladders, priority, cuts, livelocks, another light",
    needs="ffmpeg, the demo's video (fetched once), or yours: --video, --profile, --app",
    seconds_quick=60,
    seconds_full=1500,
    run=_run,
)
