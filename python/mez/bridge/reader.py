"""What the readers of a bridge have in common: a thread of their own that goes on after whatever can pass."""

import threading
import time
from typing import Any, Final, Protocol

from mez.errors import BusyError, ConnectError, Error

LOOK_S: Final = 0.1
"""How often whoever waits looks whether the end is wished, in seconds."""

CONNECT_S: Final = 0.0
"""An edge is dialled once. Whoever needs it tries again, and tells people so."""

AWAY_S: Final = 1.0
REFUSED_S: Final = 5.0
"""How long a reader waits after an error: if the edge was away or busy, and after any other, in seconds."""

WORKED_S: Final = 10.0
"""An error that comes again is told again if the reader has worked for so long in between, in seconds."""


class Board(Protocol):
    """What readers tell the bridge."""

    def tell(self, sentence: str) -> None:
        """Tell people something."""

    def event(self, kind: str, camera: str | None, **told: Any) -> None:  # noqa: ANN401, plain values
        """Send an event of the bridge."""

    def lose(self, count: int) -> None:
        """Count records that were at the edge and never came."""


class Reader:
    """Reads from the edge, or for it, in a thread of its own.

    Args:
        name: What it reads, for people.
        board: Told of what happens.
    """

    def __init__(self, name: str, board: Board) -> None:
        self._name = name
        self._board = board
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"bridge {name}", daemon=True)
        self.failure: Exception | None = None
        """What ended the thread, which nobody foresaw."""

    def open(self) -> None:
        """Connect to the edge.

        Raises:
            Error: The edge is away, or refuses.
        """
        raise NotImplementedError

    def read(self) -> None:
        """Read until the end is wished or there is an error. Connects if nothing is connected."""
        raise NotImplementedError

    def leave(self) -> None:
        """Let go of the connection, if there is one."""
        raise NotImplementedError

    def open_or_tell(self) -> None:
        """Connect. If the edge is away or busy, people are told: it is tried again once this reads.

        Raises:
            Error: The edge refuses.
        """
        try:
            self.open()
        except (ConnectError, BusyError) as error:
            self._board.tell(f"{self._name}: {error}; trying again")

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more from the edge. What is on its way is settled until `close`."""
        self._over.set()

    def close(self) -> None:
        """End reading. What is not confirmed is given again, or read again at the next start."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join()
        self.leave()

    def _run(self) -> None:
        try:
            self._go_on()
        except Exception as error:
            self.failure = error
            raise

    def _go_on(self) -> None:
        trouble = ""
        while not self._over.is_set():
            begun_s = time.monotonic()
            try:
                self.read()
                trouble = ""
            # Of the system: a full disk passes too.
            except (Error, OSError) as error:
                self.leave()
                if str(error) != trouble or time.monotonic() - begun_s > WORKED_S:
                    trouble = str(error)
                    self._board.tell(f"{self._name}: {error}; trying again")
                self._over.wait(AWAY_S if isinstance(error, ConnectError | BusyError) else REFUSED_S)
