"""The command `mez`, also reachable as `python -m mez`."""

import argparse
import sys
from collections.abc import Sequence

from mez import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the process exit code.

    `arguments` are the words after the command's name; `None` takes them from the process.
    """
    parser = argparse.ArgumentParser(prog="mez", description="Camera frames, on time.")
    parser.add_argument("--version", action="version", version=f"mez {__version__}")
    parser.parse_args(arguments)
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
