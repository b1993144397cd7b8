"""Runs brokers and workers as child processes that cannot outlive this one."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

LEASH: Final = Path(__file__).with_name("_leash.py")

READY_WORD: Final = "ready"
"""The first word of the line that a child prints once it serves."""

READY_SECONDS_MAX: Final = 20.0
"""How long a child may take to become ready. It takes tenths of a second."""

STOP_SECONDS_MAX: Final = 5.0
"""How long a child may take to stop before it is killed."""

LOG_LINES_SHOWN: Final = 6
LOG_BYTES_SHOWN_MAX: Final = 4096


class ProcessError(Exception):
    """A process did not start or become ready. The message says which, why, and what it last logged."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.

    Attributes:
        at_s: When, by `time.monotonic`.
        status: Exit code; the negative number of the signal that ended it.
    """

    at_s: float
    status: int

    def __str__(self) -> str:
        """`exited with 1`, or `killed by SIGKILL`."""
        if self.status >= 0:
            return f"exited with {self.status}"
        try:
            return f"killed by {signal.Signals(-self.status).name}"
        except ValueError:
            return f"killed by signal {-self.status}"

    @property
    def from_outside(self) -> bool:
        """Whether a signal from outside ended it (`kill`, `kill -9`), and not its own fault."""
        return -self.status in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def mez_command(*words: str) -> list[str]:
    """Return the command line of `mez` with these words, run by this interpreter."""
    # -P: a folder named mez in the current one must not be taken for the package.
    return [sys.executable, "-P", "-m", "mez", *words]


def run_to_end(name: str, command: Sequence[str]) -> str:
    """Run a short command, and return what it printed.

    Raises:
        ProcessError: It failed or hung.
    """
    try:
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProcessError(f"{name} did not end within {READY_SECONDS_MAX:.0f} s") from None
    if finished.returncode != 0:
        said = (finished.stderr or finished.stdout).strip()
        raise ProcessError(f"{name} failed with exit code {finished.returncode}: {said}")
    return finished.stdout


def free_port() -> int:
    """Return a port of the loopback interface that is free for UDP and for TCP at this moment.

    The port is below Linux's range for outgoing connections, so that none of them takes it meanwhile.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        ):
            try:
                tcp.bind(("127.0.0.1", port))
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Child:
    """A process of its own, started once or, after its death, again.

    It must be started from a thread that lives as long as this process: the kernel ends the child together
    with the *thread* that started it.

    Args:
        name: For people: `edge`, the camera's name, `detect-0`.
        command: Program and arguments.
        log: File that its log is appended to.
        environment: Its environment. Default: that of this process without `MEZ_…`, because what configures
            this user's own brokers is not meant for brokers of a demo.
        on_line: Called with each line that it prints after `ready`, by a thread.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], object] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.started_at_s: float | None = None
        self.exited: Exit | None = None
        self._command = list(command)
        self._environment = environment
        self._on_line = on_line
        self._ready = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._pidfd: int | None = None

    def start(self) -> None:
        """Start the process; it becomes ready on its own.

        Raises:
            ProcessError: The program cannot be run.
        """
        self.close()
        self._ready = threading.Event()
        self.exited = None
        leashed = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *self._command]
        try:
            with self.log.open("ab") as log:
                process = subprocess.Popen(
                    leashed,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=_without_ours() if self._environment is None else dict(self._environment),
                    # Ctrl-C is for this process, which then stops its children in order.
                    process_group=0,
                )
        except OSError as error:
            raise ProcessError(f"{self.name}: cannot start {self._command[0]}: {error}") from error
        self.started_at_s = time.monotonic()
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        assert process.stdout is not None, "asked for above"
        threading.Thread(
            target=_watch_output,
            args=(process.stdout, self._ready, self._on_line),
            name=f"output of {self.name}",
            daemon=True,
        ).start()

    @property
    def pid(self) -> int | None:
        """Number of the running process; `None` while none runs."""
        return self._process.pid if self._process is not None and self.exited is None else None

    @property
    def ready(self) -> bool:
        """Whether it runs and has said that it serves."""
        return self.exited is None and self._ready.is_set()

    @property
    def was_ready(self) -> bool:
        """Whether it said that it serves, since it was last started."""
        return self._ready.is_set()

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process ends, for `select`."""
        assert self._pidfd is not None, "only asked while the process runs"
        return self._pidfd

    def poll(self) -> Exit | None:
        """Return how it ended, once it has; `None` while it runs."""
        process = self._process
        if process is None or self.exited is not None:
            return self.exited
        state = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is not None:
            self._bury(process)
        return self.exited

    def await_ready(self, give_up: Callable[[], bool]) -> None:
        """Wait until it serves, or until `give_up` returns true.

        Raises:
            ProcessError: It ended, or takes too long.
        """
        assert self.started_at_s is not None, "started before"
        while not self._ready.wait(0.02) and not give_up():
            exited = self.poll()
            if exited is not None:
                raise ProcessError(f"{self.name} {exited} before it was ready.{self.last_words()}")
            if time.monotonic() - self.started_at_s > READY_SECONDS_MAX:
                raise ProcessError(
                    f"{self.name} was not ready within {READY_SECONDS_MAX:.0f} s.{self.last_words()}"
                )

    def ask_to_stop(self) -> None:
        """Ask it to end in order (SIGTERM), if it runs."""
        if self.poll() is None and self._process is not None:
            self._process.terminate()

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> bool:
        """Stop it and everything it started.

        Returns:
            Whether it ended by itself once asked; `False` if it had to be killed.
        """
        self.ask_to_stop()
        process = self._process
        if process is None or self.exited is not None:
            return True
        deadline = time.monotonic() + seconds_max
        while self.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
                self._bury(process)
                return False
            time.sleep(0.01)
        return True

    def last_words(self) -> str:
        """Return the end of its log, to be appended to a message. Empty if there is no log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES_SHOWN_MAX))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        if not lines:
            return " It logged nothing."
        return "\n  It last logged:\n    " + "\n    ".join(lines[-LOG_LINES_SHOWN:])

    def close(self) -> None:
        """Close the descriptor of an ended process."""
        if self._pidfd is not None and self.exited is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _bury(self, process: subprocess.Popen[str]) -> None:
        """Wait for the process, which has ended or was killed, and end what is left of its group."""
        # Before `wait`: until then, its number, which is also that of its group, cannot be reused.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self.exited = Exit(time.monotonic(), process.wait())


def _without_ours() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MEZ_")}


def _watch_output(output: IO[str], ready: threading.Event, on_line: Callable[[str], object] | None) -> None:
    """Wait for the line that says ready, and keep the pipe empty afterwards."""
    with output:
        for line in output:
            if line.startswith(READY_WORD):
                ready.set()
            elif on_line is not None:
                on_line(line)
