"""Starts a real Kafka for an experiment, as `make kafka` does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from mez_bench.children import Child
from mez_bench.errors import ExperimentError
from mez_bench.run import ROOT, Run

READY_S_MAX: Final = 240.0
"""How long brokers may take to accept connections, on a busy machine."""

FETCH_S_MAX: Final = 1800.0
"""How long it may take to fetch Kafka, the first time."""

_PROGRAM: Final = (sys.executable, str(ROOT / "tools" / "kafka.py"))


def start_kafka(run: Run, folder: Path, brokers: int = 1) -> tuple[Child, tuple[str, ...]]:
    """Start brokers. Return their process, and the `HOST:PORT` of each broker.

    Args:
        run: The run that they belong to.
        folder: Their folder; broker N keeps its logs in `data-N`, from 1.
        brokers: How many: 1 or 3.

    Raises:
        ExperimentError: They do not start.
    """
    _fetch(run)
    command = [*_PROGRAM, "run", "--brokers", str(brokers), "--folder", str(folder)]
    child = run.children.start(f"{folder.name} brokers", command)
    servers = child.ready(READY_S_MAX)
    if not servers:
        raise ExperimentError(f"Kafka did not report its addresses.{child.last_words()}")
    return child, tuple(servers.split(","))


def _fetch(run: Run) -> None:
    """Fetch Kafka, if it is not there: the first time, this takes longer than brokers may take to start."""
    if not any(folder.is_dir() for folder in (ROOT / ".cache" / "kafka").glob("[0-9a-f]" * 16)):
        run.step("fetching Kafka, the first time", done=0)
    try:
        subprocess.run([*_PROGRAM, "fetch"], capture_output=True, text=True, check=True, timeout=FETCH_S_MAX)
    except subprocess.CalledProcessError as error:
        raise ExperimentError(f"Kafka cannot be fetched: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise ExperimentError(f"Kafka was not fetched within {FETCH_S_MAX:.0f} s; run it again") from error
