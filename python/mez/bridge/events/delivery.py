"""Delivers the events in the queue of a target, in order, and tries again after failures."""

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mez._commands import Teller
from mez.bridge.events.spool import Queue

FIRST_RETRY_S: Final = 1.0
"""The wait after the first failure, in seconds; each further one doubles it."""
ASKED_S_MAX: Final = 3600.0
"""The longest wait that a receiver may ask for, in seconds."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A try that failed.

    Attributes:
        why: For people.
        after_s: The pause that the receiver asks for, in seconds.
        for_good: Whether trying this event again does not help.
        is_broken: Whether the connection failed or was lost, as opposed to a timeout of the answer.
    """

    why: str
    after_s: float = 0.0
    for_good: bool = False
    is_broken: bool = False


class Sender(Protocol):
    """Sends an event once."""

    def send(self, event: Mapping[str, Any], dropped: int) -> Failed | None:
        """Send it.

        Args:
            event: The event. Each retry has the same one.
            dropped: Number of events before it that were dropped. Each retry has the same number.

        Returns:
            Why it did not arrive. `None`: the receiver has it.
        """

    def close(self) -> None:
        """Close the connection."""


def retry_s(failures: int, longest_s: float, asked_s: float) -> float:
    """The wait after consecutive failures, in seconds. It about doubles with each failure.

    Args:
        failures: Number of consecutive failures, from 1.
        longest_s: The longest wait, unless the receiver asks for more.
        asked_s: The wait that the receiver asks for.
    """
    wait_s = min(longest_s, FIRST_RETRY_S * 2.0 ** min(failures - 1, 30))
    # Random, so that many senders do not try again at the same time.
    return max(wait_s * random.uniform(0.5, 1.0), min(asked_s, ASKED_S_MAX))


class Delivery:
    """A thread that delivers the events of one target.

    Args:
        name: The target, for people.
        queue: Its events.
        sender: Sends them.
        longest_s: The longest wait between two tries, in seconds.
        teller: Prints failures, and their end.
    """

    def __init__(self, name: str, queue: Queue, sender: Sender, longest_s: float, teller: Teller) -> None:
        self._name = name
        self._queue = queue
        self._sender = sender
        self._longest_s = longest_s
        self._teller = teller
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events {name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further try."""
        self._over.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the try under way."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._over.is_set():
            found = self._queue.next(1.0)
            if found is not None:
                self._deliver(*found)
        self._sender.close()

    def _deliver(self, event: Mapping[str, Any], dropped: int) -> None:
        failures = 0
        while not self._over.is_set():
            failed = self._sender.send(event, dropped)
            if failed is None:
                if failures:
                    self._teller.tell(f"{self._name}: delivers again")
                self._queue.settle(arrived=True)
                return
            if failed.for_good:
                self._teller.tell(f"{self._name}: the event {event['id']} was dropped: {failed.why}")
                self._queue.settle(arrived=False)
                return
            failures += 1
            wait_s = retry_s(failures, self._longest_s, failed.after_s)
            if failures == 1 or failures % 10 == 0:
                self._teller.tell(f"{self._name}: {failed.why}; next try in {wait_s:.0f} s")
            self._over.wait(wait_s)
