"""Shared by commands that run until Ctrl-C: arguments, errors, exit statuses, and one run at a time."""

import argparse
import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, TextIO

from mez._interrupt import Interrupt
from mez.errors import Error, StateError

ENDED_AT_ONCE: Final = 130
"""The exit status after a second Ctrl-C."""

Action = Callable[[argparse.Namespace], int]


class Commands:
    """A command that has commands of its own.

    Args:
        name: Its name: `mez bridge`.
        does: Its purpose, in a sentence.
        examples: The text below its help.
    """

    def __init__(self, name: str, does: str, examples: str) -> None:
        self._name = name
        self._parser = argparse.ArgumentParser(
            prog=name,
            description=does,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._commands = self._parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(self, name: str, action: Action, says: str) -> argparse.ArgumentParser:
        """Add a command, and return the parser of its arguments."""
        command = self._commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
        command.set_defaults(action=action)
        return command

    def add_hidden(self, name: str, action: Action) -> argparse.ArgumentParser:
        """Add a command that people do not type, and return the parser of its arguments."""
        command = self._commands.add_parser(name)
        command.set_defaults(action=action)
        return command

    def run(self, words: Sequence[str]) -> int:
        """Run a command line, and return its exit status: 1 with the error on the error output."""
        options = self._parser.parse_args(words)
        action: Action = options.action
        try:
            return action(options)
        except Error as error:
            print(f"{self._name}: {error}", file=sys.stderr)
            return 1


def add_state(command: argparse.ArgumentParser, keeps: str) -> None:
    """Add `--state`.

    Args:
        command: The command.
        keeps: What the folder is for.
    """
    command.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help=f"{keeps} [MEZ_STATE; else /var/lib/mez (root), ~/.local/state/mez]",
    )


def folder(kind: str, name: str, state: Path | None = None) -> Path:
    """The folder in which a pipeline, a bridge or an engine keeps its state between runs.

    Args:
        kind: The folder of its kind: `pipelines`, `bridges` or `engines`.
        name: Its name.
        state: The folder for state. Default: `MEZ_STATE`, else `/var/lib/mez` for root, else
            `mez` in `XDG_STATE_HOME` or `~/.local/state`.
    """
    if state is None:
        given, local = os.environ.get("MEZ_STATE"), os.environ.get("XDG_STATE_HOME")
        if given:
            state = Path(given)
        elif os.geteuid() == 0:
            state = Path("/var/lib/mez")
        else:
            state = (Path(local) if local else Path.home() / ".local/state") / "mez"
    return state / kind / name


def until_ended(
    place: Path, what: str, run: Callable[[Interrupt], int], at_once: Callable[[], object]
) -> int:
    """Run something until Ctrl-C, as the only one of its name on this host.

    Args:
        place: Its folder.
        what: What it is, for people.
        run: Runs it until the `Interrupt` asks for the end, and returns the exit status.
        at_once: Called after a second Ctrl-C.

    Raises:
        StateError: It is already running on this host, or the folder cannot be used.
    """
    with _lock(place, what), Interrupt() as end:
        try:
            return run(end)
        except KeyboardInterrupt:
            at_once()
            return ENDED_AT_ONCE


def runs(place: Path) -> bool:
    """Whether a process on this host holds the lock of this folder."""
    try:
        with (place / "lock").open() as lock:
            return not _taken(lock)
    except OSError:
        return False


def _lock(place: Path, what: str) -> IO[str]:
    """Take the lock of the folder. It is held until the returned file is closed."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        file = (place / "lock").open("a")
    except OSError as error:
        raise StateError(f"{place}: {error.strerror}; give another folder with --state") from error
    if not _taken(file):
        file.close()
        raise StateError(
            f"the {what} {place.name} is already running on this host; stop it first, or choose another name"
        )
    return file


def _taken(file: IO[str]) -> bool:
    """Take the lock, if nobody has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Teller:
    """Prints lines. Any thread may call it.

    Args:
        is_json: Lines of JSON, instead of lines for people.
        out: Where they go.
    """

    def __init__(self, *, is_json: bool = False, out: TextIO = sys.stdout) -> None:
        self._is_json = is_json
        self._out = out
        self._lock = threading.Lock()

    def tell(self, sentence: str) -> None:
        """Print a sentence; as JSON: `{"at_ns": …, "say": …}`."""
        if self._is_json:
            self._say(json.dumps({"at_ns": time.time_ns(), "say": sentence}))
        else:
            self._say(f"{time.strftime('%H:%M:%S')} {sentence}")

    def show(self, status: Mapping[str, Any], line: str) -> None:
        """Print the status as JSON, `{"status": {…}}`, or the line for people."""
        if self._is_json:
            self._say(json.dumps({"status": status}))
        else:
            self.tell(line)

    def _say(self, line: str) -> None:
        with self._lock:
            print(line, file=self._out, flush=True)
