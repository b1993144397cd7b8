"""The base of a bridge's readers: a thread that continues after temporary errors."""

import threading
import time
from typing import Any, Final, Protocol

from mez.errors import BusyError, ConnectError, Error

LOOK_S: Final = 0.1
"""How often a waiting thread checks whether the bridge is to end, in seconds."""

CONNECT_S: Final = 0.0
"""The edge is tried once. The callers try again, and report this."""

AWAY_S: Final = 1.0
REFUSED_S: Final = 5.0
"""How long a reader waits after an error: if the edge was away or busy, and after any other, in seconds."""

WORKED_S: Final = 10.0
"""A repeated error is reported again if the reader has worked for this long in between, in seconds."""


class Board(Protocol):
    """Gets messages, events and counts from readers."""

    def tell(self, sentence: str) -> None:
        """Print a sentence for people."""

    def event(self, kind: str, camera: str | None, **told: Any) -> None:  # noqa: ANN401, plain values
        """Send an event of the bridge."""

    def lose(self, count: int) -> None:
        """Count records that the edge dropped before it gave them."""


class Reader:
    """Reads from the edge, or publishes to it, in its own thread.

    Args:
        name: What it reads, for people.
        board: Gets messages, events and counts.
    """

    def __init__(self, name: str, board: Board) -> None:
        self._name = name
        self._board = board
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"bridge {name}", daemon=True)
        self.failure: Exception | None = None
        """The unexpected error that ended the thread."""

    def open(self) -> None:
        """Connect to the edge.

        Raises:
            Error: The edge is away, or refuses.
        """
        raise NotImplementedError

    def read(self) -> None:
        """Read until the bridge is to end or an error occurs. Connects if there is no connection."""
        raise NotImplementedError

    def leave(self) -> None:
        """Close the connection, if there is one."""
        raise NotImplementedError

    def open_or_tell(self) -> None:
        """Connect. If the edge is away or busy, report this: `read` tries again.

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
        """Take no more from the edge. Records that are on their way can be settled until `close`."""
        self._over.set()

    def close(self) -> None:
        """End reading. Unconfirmed records are given again, or read again at the next start."""
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
            # OSError too: a full disk is also a temporary error.
            except (Error, OSError) as error:
                self.leave()
                if str(error) != trouble or time.monotonic() - begun_s > WORKED_S:
                    trouble = str(error)
                    self._board.tell(f"{self._name}: {error}; trying again")
                self._over.wait(AWAY_S if isinstance(error, ConnectError | BusyError) else REFUSED_S)
