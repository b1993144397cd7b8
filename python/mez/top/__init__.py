"""`mez top`: cameras, applications and groups of an edge in a terminal (docs/monitoring.md).

| module | the question it answers |
| --- | --- |
| `view` | how are the edge's answers shown as lines? |
| `screen` | how are lines drawn on a terminal, and how is the terminal restored? |
| `command` | how is the edge queried, and what do people type? |
"""

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `mez top` and return its exit code: 0 if it did what was asked, 1 if it could not.

    Args:
        arguments: The words after `mez top`. `None` takes them from the process.
    """
    import sys

    from mez.top.command import run

    return run(sys.argv[1:] if arguments is None else arguments)
