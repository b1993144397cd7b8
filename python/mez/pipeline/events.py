"""Writes the hops of records that leave the pipeline to a file, one line of JSON for each record."""

import json
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from mez.pipeline.record import Hop, Record

VERSION: Final = 1
"""The version of a line. It changes when the meaning of the fields changes."""

BYTES_MAX: Final = 256 << 20
"""The most bytes of a worker's file. Then no more events are written, and a warning is logged once."""

_log = logging.getLogger("mez")


class Events:
    """A worker's file of events, `FOLDER/STAGE-N.jsonl`. Lines are appended.

    A line has `version`, `pipeline`, and the fields `id`, `camera`, `frame`, `captured_ns` and `hops` of the
    envelope. The last hop has the step `confirmed`: when the bus had confirmed the results.

    Args:
        folder: The folder.
        pipeline: The pipeline's name.
        name: The worker's name.
    """

    def __init__(self, folder: Path, pipeline: str, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._pipeline = pipeline
        self._path = folder / f"{name}.jsonl"
        self._file = self._path.open("a", buffering=1)
        self._bytes = self._path.stat().st_size
        if self._bytes and _last_byte(self._path) != b"\n":
            # The previous worker was killed while it wrote a line.
            self._bytes += self._file.write("\n")
        self._is_full = False

    def ended(self, ways: Iterable[tuple[Record, Sequence[Hop]]]) -> None:
        """Write down records that leave the pipeline, with their hops."""
        for record, hops in ways:
            self._write(record, hops)

    def _write(self, record: Record, hops: Sequence[Hop]) -> None:
        told: dict[str, Any] = {
            "version": VERSION,
            "pipeline": self._pipeline,
            "id": record.id,
            "camera": record.camera,
            "frame": f"{record.frame.epoch}-{record.frame.sequence}",
            "captured_ns": record.captured_ns,
            "hops": [hop.plain() for hop in hops],
        }
        line = json.dumps(told, separators=(",", ":")) + "\n"
        self._bytes += len(line)
        if self._bytes <= BYTES_MAX:
            self._file.write(line)
        elif not self._is_full:
            self._is_full = True
            _log.warning("%s has %d bytes; no more events are written; move it away", self._path, BYTES_MAX)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read()
