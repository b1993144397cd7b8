"""`mez bridge`: copies what is at an edge into topics of a Kafka cluster (docs/bridge.md).

A bridge is a process of its own, and an application like any other: it watches cameras and derived streams,
and reads results and events. So many edges feed one cluster.

| module | the question it answers |
| --- | --- |
| `file` | what does a bridge's file say? |
| `message` | what does a message in a topic look like? |
| `lane` | which messages are not confirmed yet, and what becomes of those that Kafka refuses? |
| `outlet` | how do messages get to Kafka? |
| `reader`, `frames`, `notes` | how do bridges of every kind read frames, results and events? |
| `streams` | how do frames get into lanes, and when are they settled? |
| `groups` | what waits at the edge, and what did it no longer hold? |
| `run` | who starts all this, and ends it in order? |
| `status`, `command` | what do people see and type? |
"""

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `mez bridge` and return its exit code: 0 if it did what was asked, 1 if it could not.

    Args:
        arguments: The words after `mez bridge`. `None` takes them from the process.
    """
    import sys

    # Not above: whoever reads messages needs no command.
    from mez.bridge.command import run

    return run(sys.argv[1:] if arguments is None else arguments)
