"""Runs a bridge to DDS, and reports how long each of its writes took.

Arguments: the bridge's file and its folder for state. It answers each line of its standard input with one
line of JSON: `{"write_ns": [...]}`, the writes since the last answer.
"""

import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mez.bridge.dds import command
from mez.bridge.dds.cdr import Part
from mez.bridge.dds.domain import Writer

WRITES_MAX: Final = 100_000
"""The most writes that are remembered between two answers."""

_took_ns: list[int] = []
_write: Final = Writer.write


def _timed(self: Writer, parts: Sequence[Part]) -> None:
    begun_ns = time.monotonic_ns()
    try:
        _write(self, parts)
    finally:
        if len(_took_ns) < WRITES_MAX:
            _took_ns.append(time.monotonic_ns() - begun_ns)


def _answer() -> None:
    for _ in sys.stdin:
        # A write that ends meanwhile is appended to the list, and is part of the next answer.
        told = list(_took_ns)
        del _took_ns[: len(told)]
        print(json.dumps({"write_ns": told}), flush=True)


def main() -> int:
    """Run the bridge until it is ended."""
    Writer.write = _timed  # type: ignore[method-assign]
    threading.Thread(target=_answer, name="answers", daemon=True).start()
    return command.run(Path(sys.argv[1]), Path(sys.argv[2]), is_json=True, progress_s=0)


if __name__ == "__main__":
    sys.exit(main())
