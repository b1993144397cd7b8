"""Starts a real Kafka for an experiment, as `make kafka` does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from mez_bench.children import Child
from mez_bench.errors import ExperimentError
from mez_bench.run import ROOT, Run

READY_S_MAX: Final = 240.0
"""How long brokers may take to accept connections, on a busy machine."""


def start_kafka(run: Run, folder: Path, brokers: int = 1) -> tuple[Child, tuple[str, ...]]:
    """Start brokers. Return their process, and the `HOST:PORT` of each broker.

    Args:
        run: The run that they belong to.
        folder: Their folder; broker N keeps its logs in `data-N`, from 1.
        brokers: How many: 1 or 3.

    Raises:
        ExperimentError: They do not start.
    """
    command = [sys.executable, str(ROOT / "tools" / "kafka.py"), "run", "--brokers", str(brokers)]
    child = run.children.start(f"{folder.name} brokers", [*command, "--folder", str(folder)])
    servers = child.ready(READY_S_MAX)
    if not servers:
        raise ExperimentError(f"Kafka did not report its addresses.{child.last_words()}")
    return child, tuple(servers.split(","))
