"""An edge broker as a process of its own, with logs on disk, which can be killed and started again."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from mez._processes import LEASH, free_port
from tests.test_store import store_key


class EdgeProcess:
    """`mez edge`.

    Args:
        folder: Where its keys, its state and its logs are.
        drive: The size of a drive of its own for its logs, as tmpfs takes it; `None`: they are in the folder.
        keys: The keys of a site that there is already; `None`: it is the first of a new one.
        words: More options of the command.
        environment: Variables to add.
    """

    def __init__(
        self,
        folder: Path,
        drive: str | None = None,
        *,
        keys: Path | None = None,
        words: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.keys = keys or folder / "keys"
        self.socket = folder / "edge.sock"
        self.address = f"127.0.0.1:{free_port()}"
        self._command = str(Path(sys.executable).parent / "mez")
        if keys is None:
            made = ["keys", "init", "--site", "faults", "--keys", str(self.keys)]
            subprocess.run([self._command, *made], check=True, capture_output=True)
        self._words = ["--log", "error", "edge", "--config", "off", "--enrol", "off", "--grpc", "off"]
        self._words += ["--keys", str(self.keys), "--socket", str(self.socket), "--listen", self.address]
        self._words += ["--state", str(folder / "edge"), "--store", str(folder / "store")]
        self._words += ["--store-key", str(store_key(folder)), *words]
        self._store = folder / "store"
        self._drive = drive
        self._environment = {**os.environ, **(environment or {})}
        self.start()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        # It ends with the tests, however they end.
        leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid())]
        mounted: list[str] = []
        if self._drive is not None:
            self._store.mkdir()
            mount = f"mount -t tmpfs -o mode=700,size={self._drive} none {self._store}"
            mounted = [shutil.which("unshare") or "unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh"]
        self._process = subprocess.Popen(
            [*leash, *mounted, self._command, *self._words],
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        assert ready.startswith("ready"), "the edge does not serve"
        self.said = dict(word.split("=", 1) for word in ready.split()[1:])

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def store(self) -> Path:
        """The folder of its logs, as the edge sees it."""
        return Path(f"/proc/{self.pid}/root{self._store}")

    def kill(self) -> None:
        """End it without a word, if it runs."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
