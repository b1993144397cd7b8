"""Runs the processes of an experiment. They take commands as lines of text, and end with the experiment."""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from mez._processes import LEASH, mez_command
from mez_bench.errors import ExperimentError

READY_SECONDS_MAX: Final = 20.0
STOP_SECONDS_MAX: Final = 5.0
LINES_MAX: Final = 10_000
LOG_LINES_SHOWN: Final = 8

BINARY_VARIABLE: Final = "MEZ_BENCH_BINARY"
"""Names a `mez` binary built with the feature `bench`, to be measured instead of the installed command."""

NO_SETTINGS: Final = {f"MEZ_{role}_CONFIG": "off" for role in ("EDGE", "CAMERA", "APP")}
"""Turns off the user's settings files, which would change what is measured."""


def mez(*words: str) -> list[str]:
    """Return the command line of `mez` with these words."""
    binary = os.environ.get(BINARY_VARIABLE)
    return [str(Path(binary).resolve()), *words] if binary else mez_command(*words)


class Child:
    """A process that reads commands and answers with lines.

    Args:
        name: Its name in messages and logs.
        command: Program and arguments.
        log: File for its standard error.
        environment: Variables to add.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._log = log
        # The user's MEZ_ variables configure brokers outside the experiment.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MEZ_")}
        try:
            with log.open("ab") as errors:
                self._process = subprocess.Popen(
                    # The leash makes the kernel end the child when this process ends, in whatever way.
                    [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env={**inherited, **NO_SETTINGS, **(environment or {})},
                    # Ctrl-C reaches only the experiment, which then stops its processes in order.
                    process_group=0,
                )
        except OSError as error:
            raise ExperimentError(f"{name}: cannot start {command[0]}: {error}") from error
        assert self._process.stdout is not None, "asked for above"
        self._lines: queue.Queue[str | None] = queue.Queue(LINES_MAX)
        threading.Thread(
            target=_read, args=(self._process.stdout, self._lines), name=f"output of {name}", daemon=True
        ).start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def line(self, seconds_max: float = READY_SECONDS_MAX) -> str | None:
        """Return the next line of its output, or `None` if it ended with status 0.

        Raises:
            ExperimentError: It failed, or wrote no line for `seconds_max`.
        """
        try:
            line = self._lines.get(timeout=seconds_max)
        except queue.Empty:
            raise ExperimentError(
                f"{self.name} wrote nothing for {seconds_max:.0f} s.{self.last_words()}"
            ) from None
        if line is None:
            self._lines.put(None)
            status = self._await(0)
            if status != 0:
                raise ExperimentError(f"{self.name} ended with status {status}.{self.last_words()}")
        return line

    def ready(self, seconds_max: float = READY_SECONDS_MAX) -> str:
        """Wait for its line `ready …`, and return the rest of this line."""
        while (line := self.line(seconds_max)) is not None:
            word, _, rest = line.partition(" ")
            if word == "ready":
                return rest
        raise ExperimentError(f"{self.name} ended before it was ready.{self.last_words()}")

    def await_port(self, port: int) -> None:
        """Wait until it listens on this loopback port, for programs that do not write `ready`.

        Raises:
            ExperimentError: It ended, or did not listen in time.
        """
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            if self._await(os.WNOHANG) is not None or time.monotonic() > deadline:
                raise ExperimentError(f"{self.name} does not listen on port {port}.{self.last_words()}")
            time.sleep(0.02)

    def tell(self, command: str) -> None:
        """Send a command to its standard input."""
        assert self._process.stdin is not None, "asked for above"
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ExperimentError(
                f"{self.name} takes no commands any more ({error}).{self.last_words()}"
            ) from error

    def answer(self, seconds_max: float = READY_SECONDS_MAX) -> dict[str, Any]:
        """Return the next line of its output, parsed as JSON."""
        line = self.line(seconds_max)
        if line is None:
            raise ExperimentError(f"{self.name} ended instead of answering.{self.last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: str, seconds_max: float = READY_SECONDS_MAX) -> dict[str, Any]:
        """Send a command, and return the answer."""
        self.tell(command)
        return self.answer(seconds_max)

    def cpu_ns(self) -> int:
        """Return the processor time of all its threads, ended ones included.

        Raises:
            ExperimentError: It has ended.
        """
        if self._await(os.WNOHANG) is not None:
            raise ExperimentError(f"{self.name} does not run any more.{self.last_words()}")
        # The kernel's number for the processor clock of another process (clock_getcpuclockid(3)).
        return time.clock_gettime_ns((~self.pid << 3) | 2)

    def helpers_cpu_ns(self) -> int:
        """Return the processor time of the processes that it has started, such as ffmpeg, ended ones too."""
        # For ended processes: the fields cutime and cstime, in ticks.
        ended = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[13:15]
        used_ns = sum(map(int, ended)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, IndexError):
                # The second field is the name in parentheses, maybe with spaces. The fourth is the parent.
                if int(stat.read_text().rpartition(")")[2].split()[1]) == self.pid:
                    used_ns += time.clock_gettime_ns((~int(stat.parent.name) << 3) | 2)
        return used_ns

    def memory(self) -> tuple[float, float]:
        """Return its current and its peak resident memory, in megabytes (10^6 bytes)."""
        fields = {}
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            fields[name] = value
        return _megabytes(fields["VmRSS"]), _megabytes(fields["VmHWM"])

    def page_faults(self) -> int:
        """Return its minor page faults so far."""
        # The second field is the name in parentheses, which may hold spaces; minor faults are the tenth.
        return int(Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[7])

    def stop(self) -> None:
        """End it and its process group: close its input, send SIGTERM, and after a while SIGKILL."""
        process = self._process
        assert process.stdin is not None, "asked for above"
        with contextlib.suppress(OSError):
            process.stdin.close()
        if self._await(os.WNOHANG) is None:
            os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self._await(os.WNOHANG) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        # Before the wait reaps it: until then the kernel cannot give its id, also the group's, to another.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        process.wait()

    def _await(self, options: int) -> int | None:
        """Return its exit status, or the negative number of the signal that ended it. Does not reap it."""
        if self._process.returncode is not None:
            return self._process.returncode
        state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | options)
        if state is None:
            return None
        return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status

    def last_words(self) -> str:
        """Return the last lines of its log, to append to a message."""
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        if not lines:
            return " It logged nothing."
        return "\n  It last logged:\n    " + "\n    ".join(lines[-LOG_LINES_SHOWN:])


class Children:
    """The processes of one experiment. They end with it, the last one first.

    Args:
        folder: Where their logs go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: list[Child] = []

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all of them, also when interrupted again meanwhile."""
        try:
            while self._all:
                self._all[-1].stop()
                self._all.pop()
        except BaseException:
            for child in self._all:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            raise

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """Start a process."""
        log = self.folder / f"{name.replace(' ', '-').replace('/', '-')}.log"
        child = Child(name, command, log, environment)
        self._all.append(child)
        return child

    def stop(self, child: Child) -> None:
        """End one of the processes."""
        child.stop()
        self._all.remove(child)


def _read(output: IO[str], lines: queue.Queue[str | None]) -> None:
    with output:
        for line in output:
            lines.put(line.rstrip("\n"))
    lines.put(None)


def _megabytes(value: str) -> float:
    """Read `1234 kB`, where the kernel's kB are 1024 bytes."""
    return int(value.split()[0]) * 1024 / 1e6
