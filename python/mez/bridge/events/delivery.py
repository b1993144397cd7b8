"""Empties the queue of a target, in order, over failures."""

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
        after_s: How long the receiver wants to be left alone, in seconds.
        for_good: Trying this event again does not help.
        is_broken: The connection could not be made, or broke off; it was not that no answer came in time.
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
            event: The event. Over retries it is the same.
            dropped: How many events before it were dropped; over retries the same.

        Returns:
            Why it did not arrive; `None`: the receiver has it.
        """

    def close(self) -> None:
        """Let go of the connection."""


def retry_s(failures: int, longest_s: float, asked_s: float) -> float:
    """How long to wait after so many failures in a row, in seconds: about twice as long after each.

    Args:
        failures: How many there were, from 1 on.
        longest_s: The longest wait, unless the receiver asks for more.
        asked_s: What the receiver asks for.
    """
    wait_s = min(longest_s, FIRST_RETRY_S * 2.0 ** min(failures - 1, 30))
    # Receivers that failed for many senders at once do not get them back at once.
    return max(wait_s * random.uniform(0.5, 1.0), min(asked_s, ASKED_S_MAX))


class Delivery:
    """A thread that delivers the events of one target.

    Args:
        name: The target, for people.
        queue: Its events.
        sender: Sends them.
        longest_s: The longest wait between two tries, in seconds.
        teller: Told of failures, and of their end.
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
                self._teller.tell(f"{self._name}: the event {event['id']} is not delivered: {failed.why}")
                self._queue.settle(arrived=False)
                return
            failures += 1
            wait_s = retry_s(failures, self._longest_s, failed.after_s)
            if failures == 1 or failures % 10 == 0:
                self._teller.tell(f"{self._name}: {failed.why}; tried again in {wait_s:.0f} s")
            self._over.wait(wait_s)
