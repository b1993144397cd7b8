"""The command `mez bench`, also reachable as `python -m mez_bench` with `bench` in the path."""

import importlib
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the process's exit status.

    Args:
        arguments: The words after `mez bench`. `None` takes them from the process.
    """
    try:
        # Loaded within the guard: Ctrl-C may come while the libraries for figures and plots are loaded.
        status: int = importlib.import_module("mez_bench.cli").main(arguments)
    except KeyboardInterrupt:
        print("mez bench: interrupted; nothing was written", file=sys.stderr)
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
