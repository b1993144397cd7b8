"""Shows progress while a profile is made."""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_INTERVAL_S: Final = 15.0
"""The interval of progress lines if the output is not a terminal, in seconds."""


class Bar:
    """A progress bar of frames, or progress lines if there is no terminal.

    Args:
        console: The console for the output.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("frames, left:"),
            # The cost of rungs differs; a long period evens this out.
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=60,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._done = 0
        self._total = 0
        self._told_at_s = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def expect(self, frames: int) -> None:
        """Set the approximate number of frames that remain."""
        self._total = self._done + frames
        self._bar.update(self._task, total=self._total)

    def done(self, frames: int, what: str) -> None:
        """Add frames that are done."""
        self._done += frames
        # The search may need more frames than expected: the bar must not be full while work continues.
        self._total = max(self._total, self._done + frames)
        self._bar.update(self._task, description=what, completed=self._done, total=self._total)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._told_at_s >= LINE_INTERVAL_S:
            self._told_at_s = now
            self._console.print(f"{self._done} of about {self._total} frames: {what}", highlight=False)

    def say(self, text: str) -> None:
        """Print a text for people."""
        self._console.print(text, highlight=False)
