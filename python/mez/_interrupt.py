"""Handles Ctrl-C and SIGTERM: the first asks for an early end, the second ends the program at once."""

import signal
from types import FrameType
from typing import Self


class EndedEarlyError(Exception):
    """The user ended the program before there was a result."""


class Interrupt:
    """Turns Ctrl-C, SIGTERM and SIGHUP into a wish to end early; a second Ctrl-C ends at once."""

    def __init__(self) -> None:
        # Not an Event: its lock could be held by the very thread that the handler interrupts.
        self.wished = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        """Take the signals over."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        """Tell whether the program should end."""
        return self.wished

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.wished and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.wished = True
