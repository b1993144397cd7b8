"""The command `mez`, also reachable as `python -m mez`."""

import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mez import _checkout, _native

# Commands written in Python, and the modules whose `main` runs them.
_IN_PYTHON = {
    "bridge": "mez.bridge",
    "demo": "mez.demo",
    "engine": "mez.engine",
    "offload": "mez.offloading",
    "pipeline": "mez.pipeline",
    "profile": "mez.profile",
    "style": "mez.engine.style",
    "top": "mez.top",
}

# How the native code starts `mez` again: without the package, because its import takes long.
_ITSELF = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_again.py")), str(_native.__file__)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the process's exit status.

    Args:
        arguments: The words after the command's name. `None` takes them from the process.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] == "bench":
        return _bench(words[1:])
    if words and words[0] in _IN_PYTHON:
        status: int = importlib.import_module(_IN_PYTHON[words[0]]).main(words[1:])
        return status
    # With Python's handler, Ctrl-C would have no effect until the native command returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.cli_main(["mez", *words], _ITSELF)


def _bench(words: Sequence[str]) -> int:
    bench = _checkout.experiments("mez_bench.__main__")
    if bench is None:
        print(
            "mez bench: experiments need a checkout of Mez, and this is an installed package; "
            "in a checkout run `make build`, then .venv/bin/mez bench",
            file=sys.stderr,
        )
        return 1
    status: int = bench.main(words)
    return status


if __name__ == "__main__":
    sys.exit(main())
