"""`mez bridge`: copies frames, results and events from an edge into topics of Kafka (docs/bridge.md).

A bridge is a separate process, and an application like any other: it watches cameras and derived streams,
and reads results and events. Many edges can feed one cluster.

| module | the question it answers |
| --- | --- |
| `file` | what does a bridge's file say? |
| `message` | what does a message in a topic look like? |
| `lane` | which messages are not confirmed yet, and what becomes of those that Kafka refuses? |
| `outlet` | how do messages get to Kafka? |
| `reader`, `frames`, `notes` | how do bridges of every kind read frames, results and events? |
| `streams` | how do frames get into lanes, and when are they settled? |
| `groups` | which records wait at the edge, and which were dropped there? |
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

    # Imported here, because programs that read messages do not need the command.
    from mez.bridge.command import run

    return run(sys.argv[1:] if arguments is None else arguments)
