"""Kafkas for tests of faults: of three brokers, of which one can be killed at a time; or on a small drive."""

import contextlib
import errno
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.pipelines_kafka import TOOL


class Brokers:
    """Three brokers on loopback, as `make kafka ARGS="--brokers 3"` starts them.

    Args:
        folder: Their folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700)
        self._tool = runpy.run_path(str(TOOL))
        self._jars = self._tool["fetch"]()
        self._cluster: Any = self._tool["described"](folder, 3, False)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for number in (1, 2, 3):
            self._start(number)
        self._tool["await_ready"](folder, self._cluster, list(self._processes.values()), [])

    @property
    def servers(self) -> str:
        """Where clients connect."""
        return str(self._cluster.servers)

    def kill(self, number: int) -> None:
        """End a broker without a word."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def start(self, number: int) -> None:
        """Start a broker again."""
        self._start(number)

    def _start(self, number: int) -> None:
        self._processes[number] = self._tool["start"](self._folder, self._jars, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._processes):
            self.kill(number)


@contextlib.contextmanager
def drive(folder: Path, mib: int) -> Iterator[None]:
    """A drive of this size at a new folder. Needs root."""
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"mode=700,size={mib}m", "none", str(folder)]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no drive can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(file: Path) -> None:
    """Write a file until its drive is full."""
    with file.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(1 << 16))
        except OSError as error:
            assert error.errno == errno.ENOSPC
