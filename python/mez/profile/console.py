"""Shows progress while a profile is made."""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_INTERVAL_S: Final = 15.0
"""How often progress is printed if the output is no terminal."""


class Bar:
    """A bar of frames to be searched, or a line now and then where there is no terminal.

    Args:
        console: Where it is shown.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("frames, left:"),
            # Rungs differ in what they cost; over half a minute that evens out.
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
        """Hear how many frames are still to be searched, about."""
        self._total = self._done + frames
        self._bar.update(self._task, total=self._total)

    def done(self, frames: int, what: str) -> None:
        """Hear that so many frames more have been searched."""
        self._done += frames
        # The search decides as it goes; a bar that is full while work goes on would be a lie.
        self._total = max(self._total, self._done + frames)
        self._bar.update(self._task, description=what, completed=self._done, total=self._total)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._told_at_s >= LINE_INTERVAL_S:
            self._told_at_s = now
            self._console.print(f"{self._done} of about {self._total} frames: {what}", highlight=False)

    def say(self, text: str) -> None:
        """Hear something that a person should read."""
        self._console.print(text, highlight=False)
