"""Draws lines on a terminal, reads keys, and restores the terminal at the end."""

import os
import select
import sys
import termios
import tty
from collections.abc import Sequence
from typing import Any, Final, Self

from mez.top.view import cut

_BEGIN: Final = "\x1b[?1049h\x1b[?25l"  # another screen, without a cursor
_END: Final = "\x1b[?25h\x1b[?1049l"


class Screen:
    """The terminal of this process, until the `with` ends."""

    def __init__(self) -> None:
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        """Take the terminal over."""
        self._before = termios.tcgetattr(sys.stdin)
        # Keys come one by one, without echo. Ctrl-C and Ctrl-Z still send signals.
        tty.setcbreak(sys.stdin)
        self._write(_BEGIN)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the terminal."""
        try:
            self._write(_END)
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        # Some terminals report 0 if they do not know their size.
        return columns or 80, rows or 24

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the lines. Lines without room are cut off; the last row shows how many."""
        columns, rows = self.size
        shown = list(lines)
        if len(shown) > rows:
            shown = [*shown[: rows - 1], f"… {len(shown) - rows + 1} more lines"]
        shown = [cut(line, columns) for line in shown]
        # Each line clears only its own rest, so that nothing flickers.
        self._write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in shown) + "\x1b[J")

    def key(self, wait_s: float) -> str:
        """The next key. Empty: there was none in time."""
        found, _, _ = select.select([sys.stdin], [], [], wait_s)
        # One byte: further keys are for the next call.
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if found else ""

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
