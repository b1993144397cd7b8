"""The command `mez bench`: what it tells, how it ends, and what its figures mean."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mez import __main__ as command
from mez import _checkout
from mez_bench import cli, report
from mez_bench.children import Children, mez
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Outcome, Target
from mez_bench.experiments import EXPERIMENTS
from mez_bench.experiments.log import ARMS
from mez_bench.stats import Interval, Values, interval, median, percentile, ratio_interval

COMMAND = [str(Path(sys.executable).parent / "mez"), "bench"]
HANG_SECONDS = 60


QUICK_S_MAX = {"aitax": 180, "dds": 90, "offload": 180, "page": 90}
"""Experiments that take longer than a minute: each factor of each bus is a run, and Kafka has to start; each
size and network is a play of several seconds; each way of DDS over the line has processes of its own; sixteen
cameras have to start, and after the page is closed its pictures have to end."""


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `mez bench` to its end."""
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)


def test_list_tells_of_every_experiment_what_it_needs_and_how_long_it_takes() -> None:
    """A stranger chooses by this."""
    listed = bench("--list")
    assert listed.returncode == 0
    for experiment in EXPERIMENTS.values():
        assert experiment.name in listed.stdout
        assert experiment.seconds_quick <= QUICK_S_MAX.get(experiment.name, 60)


@pytest.mark.parametrize("words", [[], ["nonsense"], ["all", "--json", "x.json"]])
def test_what_makes_no_sense_is_refused_with_a_way_out(words: list[str]) -> None:
    """The exit status is that of other commands."""
    refused = bench(*words)
    assert refused.returncode == 2
    assert "log" in refused.stderr or "--list" in refused.stderr or "bench/results" in refused.stderr


def test_an_installed_package_says_that_experiments_need_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are not shipped."""
    monkeypatch.setattr(_checkout, "__file__", str(tmp_path / "site-packages" / "mez" / "_checkout.py"))
    assert command.main(["bench", "--list"]) == 1
    assert "checkout" in capsys.readouterr().err


def test_an_interval_holds_the_value_that_figures_were_made_of() -> None:
    """Of 40 experiments with a known median, about one in twenty may miss it."""
    random = np.random.default_rng(7)
    missed = 0
    for _ in range(40):
        rounds = [random.exponential(1.0, 20) + 5 for _ in range(10)]
        found = interval(rounds, median)
        assert found.low <= found.median <= found.high
        missed += not found.low <= 5 + np.log(2) <= found.high
    assert missed <= 6


def test_what_arms_of_one_round_share_leaves_no_trace_in_their_ratio() -> None:
    """Rounds that differ tenfold, because the machine was busy, and a ratio that is always two."""
    below: list[Values] = [np.array([1.0, 2.0, 3.0]) * slow for slow in (1, 10, 3, 7, 1, 9)]
    above: list[Values] = [2 * values for values in below]
    ratio = ratio_interval(above, below, percentile(50))
    assert (ratio.low, ratio.median, ratio.high) == (2.0, 2.0, 2.0)
    spread = interval(below, percentile(50))
    assert spread.high > 2 * spread.low


def test_arms_that_did_not_take_turns_have_no_ratio() -> None:
    """Rounds are drawn in pairs."""
    with pytest.raises(ValueError, match="take turns"):
        ratio_interval([np.ones(2)], [np.ones(2)] * 2, median)


def test_a_target_is_met_where_the_interval_reaches_it() -> None:
    """That is the rule for ratios; both ends count."""
    at_most, at_least, none = Target("r", "<=", 1.0), Target("r", ">=", 0.8), Target("lost", "==", 0)
    assert at_most.is_met(Interval(1.05, 0.98, 1.2))
    assert not at_most.is_met_by_median(Interval(1.05, 0.98, 1.2))
    assert not at_most.is_met(Interval(1.05, 1.01, 1.2))
    assert at_least.is_met(Interval(0.75, 0.7, 0.81))
    assert not at_least.is_met(Interval(0.75, 0.7, 0.79))
    assert none.is_met(Interval.exactly(0))
    assert not none.is_met(Interval.exactly(1))


def test_a_result_can_be_read_by_anything_and_says_what_was_met() -> None:
    """Metrics are plain numbers by name; a quick run does not judge what it has too few frames for."""
    outcome = Outcome(
        metrics={"ratio": Interval(1.1, 0.9, 1.3), "p99_ms": Interval.exactly(9.0)},
        targets=[Target("ratio", "<=", 1.0), Target("p99_ms", "<=", 1.0, full_only=True)],
        rows=[{"arm": "a", "ms": 1 / 3}],
    )
    quick = json.loads(json.dumps(report.document("x", "c", {}, True, outcome), allow_nan=False))
    assert quick["metrics"] == {"ratio": 1.1, "p99_ms": 9.0}
    assert quick["intervals_95"]["ratio"] == [0.9, 1.3]
    assert [target["metric"] for target in quick["targets"]] == ["ratio"]
    assert quick["targets"][0]["met"]
    full: dict[str, Any] = report.document("x", "c", {}, False, outcome)
    assert [target["met"] for target in full["targets"]] == [True, False]


def test_the_figures_of_other_parts_are_written_if_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parts take up to half an hour."""
    outcome = Outcome(
        metrics={"gap_s": Interval.exactly(1.0)}, failures=["kill: engine 0 ended with status 1"]
    )
    monkeypatch.setitem(EXPERIMENTS, "log", replace(EXPERIMENTS["log"], run=lambda _: outcome))
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert cli.main(["log", "--quick"]) == 1
    assert json.loads((tmp_path / "log.json").read_text())["metrics"] == {"gap_s": 1.0}
    assert "mez bench log: kill: engine 0 ended with status 1" in capsys.readouterr().err


def test_a_program_that_fails_is_named_with_what_it_logged(tmp_path: Path) -> None:
    """Instead of a hang or a stack of Python."""
    with Children(tmp_path) as children:
        child = children.start("a peer", [sys.executable, "-c", "import sys; sys.exit('no such port')"])
        with pytest.raises(ExperimentError, match=r"a peer ended with status 1(.|\n)*no such port"):
            child.ready()


def test_programs_that_do_not_want_to_end_are_ended(tmp_path: Path) -> None:
    """Also when the experiment fails."""
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); "
        "time.sleep(600)"
    )
    with pytest.raises(KeyboardInterrupt), Children(tmp_path) as children:
        child = children.start("stubborn", [sys.executable, "-c", stubborn])
        child.ready()
        assert child.cpu_ns() > 0
        assert child.memory()[0] > 1
        raise KeyboardInterrupt
    assert not Path(f"/proc/{child.pid}").exists()


def test_the_log_is_measured_in_turns(tmp_path: Path) -> None:
    """The compiled part, with a small log: every arm has its turn in every round."""
    words = ["--memory-bytes", "2000000", "--frame-bytes", "3000", "--turn-bytes", "300000", "--rounds", "2"]
    writer = ["--writer-seconds", "0.1", "--writer-frame-bytes", "3000", "--readers", "1,3"]
    rows = []
    with Children(tmp_path) as children:
        child = children.start("log", mez("measure", "log", *words, *writer))
        while (line := child.line()) is not None:
            rows.append(json.loads(line))
    turns = [(row["round"], row["arm"]) for row in rows if row["arm"] != "writer"]
    assert turns == [(turn, arm) for turn in range(2) for arm in ARMS]
    assert all(row["operations"] > 0 and row["cpu_ns"] > 0 for row in rows)
    readers = [(row["round"], row["readers"]) for row in rows if row["arm"] == "writer"]
    assert readers == [(0, 1), (0, 3), (1, 1), (1, 3)]


def test_ctrl_c_ends_everything_and_writes_nothing(tmp_path: Path) -> None:
    """An interrupted experiment has no result."""
    result = tmp_path / "log.json"
    # Also where these tests do not hear of Ctrl-C, because a shell runs them in the background.
    hears = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    hears += "os.execv(sys.argv[1], sys.argv[1:])"
    running = subprocess.Popen(
        [sys.executable, "-c", hears, *COMMAND, "log", "--json", str(result)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + HANG_SECONDS
    while not (children := _measuring(running.pid)):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline, "nothing was started"
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=HANG_SECONDS)
    assert running.returncode == 130, errors
    assert "interrupted" in errors
    # A process that was interrupted while it was being started is ended by the kernel, a moment later.
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, "something was left behind"
        time.sleep(0.02)
    assert not result.exists()


def _measuring(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        # It may have ended meanwhile: git, which is asked for the commit.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"measure" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found
