"""Gives processes the processor of a small board: a quota of this machine's, by a benchmark that ran on both.

The board is the Raspberry Pi 2 of Bagley et al. 2017: four cores of ARM Cortex-A7 at 1000 MHz. The benchmark
is the one of 7-Zip (LZMA, one thread), for which 7-cpu.com publishes figures of that core at that clock.

A quota stands for the sum of the cores. It does not slow down a single thread, and it knows nothing of caches
or of instructions that one processor has and the other lacks (a Cortex-A7 has none for AES).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mez_bench.errors import ExperimentError

CORES: Final = 4
PUBLISHED_MIPS: Final = (470.0, 810.0)
"""Compressing and decompressing: one thread of a Cortex-A7 at 1000 MHz (Allwinner A20, 7-cpu.com)."""

PROGRAM: Final = "7z"
TRIALS: Final = 2
"""The best trial counts: a busy machine can only look slower than it is."""

TRIAL_S_MAX: Final = 300.0
PERIOD_US: Final = 5_000
"""Period of the quota: short, so that a process that used up its quota goes on before the next frame."""

GROUPS: Final = Path("/sys/fs/cgroup")
REMOVE_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class Board:
    """A board, in terms of this machine.

    Attributes:
        mips: Ratings of one thread of this machine: compressing and decompressing.
        cores: The quota that stands for all cores of the board, in cores of this machine.
    """

    mips: tuple[float, float]
    cores: float


def unavailable() -> str | None:
    """Return why this machine cannot emulate the board; `None` if it can."""
    if shutil.which(PROGRAM) is None:
        return f"the emulated board needs {PROGRAM}, to compare this machine with it; run tools/setup --tests"
    return quota_unavailable()


def quota_unavailable() -> str | None:
    """Return why this machine has no quotas of the processor; `None` if it has."""
    if os.geteuid() != 0:
        return "a quota of the processor needs root"
    if _version_1() is None and not _has_version_2():
        return f"a quota of the processor needs a cpu controller in {GROUPS}"
    return None


def calibrated() -> Board:
    """Compare this machine with the board. Takes about a minute.

    Raises:
        ExperimentError: The benchmark fails.
    """
    trials = [_rate() for _ in range(TRIALS)]
    mips = (max(trial[0] for trial in trials), max(trial[1] for trial in trials))
    slower = statistics.geometric_mean([PUBLISHED_MIPS[0] / mips[0], PUBLISHED_MIPS[1] / mips[1]])
    return Board(mips, CORES * slower)


def ratings(said: str) -> tuple[float, float]:
    """Return the ratings in the output of `7z b`: compressing and decompressing, in MIPS.

    Raises:
        ExperimentError: The output has no averages.
    """
    found = re.search(r"^Avr:(.*)\|(.*)$", said, re.MULTILINE)
    numbers = [side.split()[-1:] for side in found.groups()] if found else []
    if not found or not all(number and number[0].isdigit() for number in numbers):
        raise ExperimentError(f"{PROGRAM} b gave no averages:\n{said[-500:]}")
    compressing, decompressing = (float(number[0]) for number in numbers)
    return compressing, decompressing


def _rate() -> tuple[float, float]:
    words = [PROGRAM, "b", "-mmt1"]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=TRIAL_S_MAX)
    except (OSError, subprocess.SubprocessError) as error:
        raise ExperimentError(f"{' '.join(words)} failed: {error}") from error
    return ratings(ran.stdout)


@contextlib.contextmanager
def quota(cores: float) -> Iterator[Path]:
    """Make a control group with this many cores of processor time, and remove it at the end of the block.

    Write the number of a process into `cgroup.procs` of the folder to put the process under the quota. All
    processes of the group must have ended before the block does.

    Raises:
        ExperimentError: The kernel refuses.
    """
    name = f"mez-bench-{os.getpid()}"
    budget_us = max(1_000, round(cores * PERIOD_US))
    period_us = round(budget_us / cores)
    try:
        if (parent := _version_1()) is not None:
            group = parent / name
            group.mkdir()
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(budget_us))
        else:
            (GROUPS / "cgroup.subtree_control").write_text("+cpu")
            group = GROUPS / name
            group.mkdir()
            (group / "cpu.max").write_text(f"{budget_us} {period_us}")
    except OSError as error:
        raise ExperimentError(f"the kernel refuses a quota of the processor: {error}") from error
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Remove a control group as soon as its last process is gone."""
    deadline = time.monotonic() + REMOVE_S_MAX
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _version_1() -> Path | None:
    """Return the hierarchy of the cpu controller of version 1, if there is one."""
    folders = (GROUPS / name for name in ("cpu", "cpu,cpuacct"))
    return next((folder for folder in folders if (folder / "cgroup.procs").exists()), None)


def _has_version_2() -> bool:
    controllers = GROUPS / "cgroup.controllers"
    return controllers.exists() and "cpu" in controllers.read_text().split()
