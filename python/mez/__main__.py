"""The command `mez`, also reachable as `python -m mez`."""

import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mez import _native

# Commands written in Python, and the modules whose `main` runs them. `mez_bench` is part of a checkout, not
# of this package.
_IN_PYTHON = {"bench": "mez_bench.__main__", "demo": "mez.demo", "profile": "mez.profile"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the process's exit status.

    Args:
        arguments: The words after the command's name. `None` takes them from the process.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in _IN_PYTHON:
        if words[0] == "bench" and not _find_experiments():
            print(
                "mez bench: experiments need a checkout of Mez, and this is an installed package; "
                "in a checkout run `make build`, then .venv/bin/mez bench",
                file=sys.stderr,
            )
            return 1
        status: int = importlib.import_module(_IN_PYTHON[words[0]]).main(words[1:])
        return status
    # Python would only note Ctrl-C and raise it when the command is over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.cli_main(["mez", *words])


def _find_experiments() -> bool:
    """Make the experiments of a checkout importable; return whether this is one."""
    bench = Path(__file__).resolve().parents[2] / "bench"
    if not (bench / "mez_bench").is_dir():
        return False
    sys.path.insert(0, str(bench))
    return True


if __name__ == "__main__":
    sys.exit(main())
