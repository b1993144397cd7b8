"""`mez.offload` and `mez offload`: the clients of engines (docs/offload.md).

| module | the question it answers |
| --- | --- |
| `source` | where do pictures come from? |
| `policy` | is a frame answered sooner at the edge or on the device? |
| `device` | how does the device compute answers while it captures frames? |
| `sent` | which frames wait for an answer of the edge? |
| `board` | which answer is returned, and why not the others? |
| `client` | how do frames go out, and answers come in? |
| `display` | where are answers shown? |
| `command` | the command line |
"""

from collections.abc import Sequence

from mez.offloading.board import Answered
from mez.offloading.client import Offload, OffloadCounts, cameras_of, offload
from mez.offloading.errors import OffloadError

__all__ = ["Answered", "Offload", "OffloadCounts", "OffloadError", "cameras_of", "main", "offload"]


def main(arguments: Sequence[str]) -> int:
    """Run `mez offload`, and return its exit status.

    Args:
        arguments: The words after `mez offload`.
    """
    from mez.offloading.command import run

    return run(arguments)
