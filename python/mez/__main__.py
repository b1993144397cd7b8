"""The command `mez`, also reachable as `python -m mez`."""

import importlib
import signal
import sys
from collections.abc import Sequence

from mez import _native

# Commands written in Python, and the modules whose `main` runs them.
_IN_PYTHON = {"bench": "mez._bench", "demo": "mez.demo", "profile": "mez.profile"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the process's exit status.

    Args:
        arguments: The words after the command's name. `None` takes them from the process.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in _IN_PYTHON:
        status: int = importlib.import_module(_IN_PYTHON[words[0]]).main(words[1:])
        return status
    # Python would only note Ctrl-C and raise it when the command is over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.cli_main(["mez", *words])


if __name__ == "__main__":
    sys.exit(main())
