"""The record that a worker has in hand: its supervisor can read it after the worker was killed."""

import mmap
import os
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 1024
"""The most bytes of a record's identity that are kept. Longer ones are cut."""


class Hand:
    """A worker's page. Writing to it needs no system call.

    Args:
        path: The file behind it.
    """

    def __init__(self, path: Path) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, BYTES_MAX)
            self._page = mmap.mmap(file, BYTES_MAX)
        finally:
            os.close(file)

    def hold(self, record: str) -> None:
        """Write the identity of the record in hand. Empty: none is in hand."""
        told = record.encode()[:BYTES_MAX]
        self._page[:] = told.ljust(BYTES_MAX, b"\0")


def held(path: Path) -> str:
    """The identity of the record that was in hand. Empty if there was none, or the page cannot be read."""
    try:
        return path.read_bytes().rstrip(b"\0").decode(errors="replace")
    except OSError:
        return ""
