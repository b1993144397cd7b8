"""A real Kafka for tests: one broker on loopback, as `make kafka` starts it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from mez._processes import LEASH

TOOL = Path(__file__).parents[2] / "tools" / "kafka.py"


class Kafka:
    """A cluster, and names that no other test has.

    Args:
        folder: Its folder. A cluster that was there before goes on.
        home: The home of whoever runs the tests, where Maven keeps what it fetched.
    """

    def __init__(self, folder: Path, home: str) -> None:
        self._folder = folder
        self._home = home
        self._names = 0
        self.start()
        self.cluster = json.loads((folder / "cluster.json").read_text())

    @property
    def server(self) -> str:
        """Where clients connect."""
        return str(self.cluster["servers"])

    def name(self) -> str:
        """A name for a pipeline."""
        self._names += 1
        return f"faces{self._names}"

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        # It ends with the tests, however they end.
        words = [
            sys.executable,
            "-I",
            "-S",
            str(LEASH),
            str(os.getpid()),
            sys.executable,
            str(TOOL),
            "run",
            "--secure",
            "--folder",
            str(self._folder),
        ]
        self._process = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env={"HOME": self._home, "PATH": os.environ["PATH"]}
        )
        assert self._process.stdout is not None
        said = ""
        while not said.startswith("ready"):
            said = self._process.stdout.readline()
            assert said, f"Kafka does not run: status {self._process.wait()}"

    def stop(self) -> None:
        """Stop it in order."""
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=60)
