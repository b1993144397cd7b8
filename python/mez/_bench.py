"""Finds the experiments of a checkout and runs them: the command `mez bench`."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `mez bench` and return the process's exit status.

    Experiments compare, draw and build peers; they live in the folder `bench` of a checkout and are not
    installed with the package.

    Args:
        arguments: The words after `mez bench`. `None` takes them from the process.
    """
    bench = Path(__file__).resolve().parents[2] / "bench"
    if not (bench / "mez_bench").is_dir():
        print(
            "mez bench: experiments need a checkout of Mez, and this is an installed package; "
            "in a checkout run `make build`, then .venv/bin/mez bench",
            file=sys.stderr,
        )
        return 1
    sys.path.insert(0, str(bench))
    try:
        status: int = importlib.import_module("mez_bench.cli").main(arguments)
    except KeyboardInterrupt:
        print("mez bench: interrupted; nothing was written", file=sys.stderr)
        return 130
    return status
