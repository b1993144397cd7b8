"""The events that must still be delivered, by target. They survive a restart of the bridge."""

import json
import os
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mez.bridge.events.file import Choice
from mez.pipeline.errors import BusError

FILE: Final = "events.json"
EDGE: Final = "edge"
"""The condition that keeps whether the edge answers."""
MISSED: Final = "missed"
"""The condition that keeps the start of the edge that was reported as missed."""

Event = Mapping[str, Any]


class Queue:
    """The events of one target, the oldest first.

    The first one stays until it is settled, whatever comes meanwhile, because it may be under way.

    Args:
        choice: Which events it takes, and how many.
        lock: Held while the spool changes.
    """

    def __init__(self, choice: Choice, lock: threading.Condition) -> None:
        self._choice = choice
        self._lock = lock
        self.events: deque[Event] = deque()
        self.dropped = 0
        """Dropped events that no delivery has reported yet."""
        self.told: int | None = None
        """How many of them the first try of the oldest event reported. `None`: it was not tried yet."""
        self.delivered = 0
        """Events that were delivered since the bridge was started."""
        self.dropped_total = 0
        """Events that were dropped since the bridge was started."""

    def take(self, event: Event) -> None:
        """Take an event, if it is chosen; with the lock held."""
        if not self._choice.wants(event):
            return
        if len(self.events) >= self._choice.queue_max:
            # Not the first one: it may be under way, and must arrive as it was first sent.
            del self.events[1]
            self.drop()
        self.events.append(event)

    def drop(self) -> None:
        """Count an event that is not delivered; with the lock held."""
        self.dropped += 1
        self.dropped_total += 1

    def next(self, wait_s: float) -> tuple[Event, int] | None:
        """The oldest event, and the number of dropped events that it reports. `None`: there is none yet.

        Both stay the same until the event is settled, even after a restart.
        """
        with self._lock:
            if not self.events:
                self._lock.wait(wait_s)
            if not self.events:
                return None
            if self.told is None:
                self.told = self.dropped
            return self.events[0], self.told

    def settle(self, *, arrived: bool) -> None:
        """Remove the oldest event.

        Args:
            arrived: Whether it was delivered; otherwise it counts as dropped.
        """
        with self._lock:
            self.events.popleft()
            if arrived:
                self.dropped -= self.told or 0
                self.delivered += 1
            else:
                self.drop()
            self.told = None

    def kept(self) -> dict[str, Any]:
        """The state to keep over a restart; with the lock held."""
        return {"events": list(self.events), "dropped": self.dropped, "told": self.told}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Take the state that was kept. Events that the target does not choose any more are dropped."""
        self.dropped = int(kept["dropped"])
        for event in kept["events"]:
            self.take(event)
        # `told` belongs to the first kept event, so it counts only if this event is still the first.
        if self.events and self.events[0]["id"] == kept["events"][0]["id"]:
            told = kept.get("told")
            self.told = None if told is None else int(told)


class Spool:
    """The queues of all targets, and the position in the edge's events.

    Args:
        folder: The folder for the state.
        choices: Which events each target takes, by the target's name.

    Raises:
        BusError: The state there cannot be read.
    """

    def __init__(self, folder: Path, choices: Mapping[str, Choice]) -> None:
        self._file = folder / FILE
        self._lock = threading.Condition()
        self.queues = {name: Queue(choice, self._lock) for name, choice in choices.items()}
        self.last: str | None = None
        """The id of the last event of the edge that was read."""
        self.since_utc_ms: int | None = None
        """Events before this time are not delivered: when the bridge first reached the edge, by its clock.

        0: an event was delivered since, so all later events are delivered.
        """
        self.conditions: dict[str, str] = {}
        """The conditions that the bridge itself watches, and the state that it reported last."""
        self.topics: list[str] = []
        """The topics with a retained message at the MQTT broker."""
        self._written = ""
        self._read()

    def take(
        self,
        event: Event,
        *,
        last: str | None = None,
        condition: tuple[str, str] | None = None,
        is_of_edge: bool = False,
    ) -> None:
        """Put an event into the queues of all targets that choose it.

        Args:
            event: The event.
            last: Its id at the edge, if reading continues after it.
            condition: The condition that it reports, and its state.
            is_of_edge: Whether it comes from the edge. After it, events are selected by their number and not
                by their time, because clocks may be set back.
        """
        with self._lock:
            if is_of_edge:
                self.since_utc_ms = 0
            for queue in self.queues.values():
                queue.take(event)
            self.last = last or self.last
            if condition is not None:
                self.conditions[condition[0]] = condition[1]
            self._lock.notify_all()

    def skip(self, last: str) -> None:
        """Pass over an event of the edge."""
        with self._lock:
            self.last = last

    def begin(self, utc_ms: int) -> None:
        """Note when the bridge first reached the edge, unless this is known."""
        with self._lock:
            if self.since_utc_ms is None:
                self.since_utc_ms = utc_ms

    def wake(self) -> None:
        """Wake the threads that wait for an event."""
        with self._lock:
            self._lock.notify_all()

    def write(self) -> None:
        """Write the state atomically, if it has changed.

        Raises:
            OSError: It cannot be written.
        """
        with self._lock:
            told = {
                "last": self.last,
                "since_utc_ms": self.since_utc_ms,
                "conditions": self.conditions,
                "topics": self.topics,
                "targets": {name: queue.kept() for name, queue in self.queues.items()},
            }
            text = json.dumps(told) + "\n"
        if text == self._written:
            return
        unfinished = self._file.with_name(f".{FILE}")
        with unfinished.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._file)
        self._written = text

    def _read(self) -> None:
        try:
            told: Any = json.loads(self._file.read_text())
            self.last, self.since_utc_ms = told["last"], told["since_utc_ms"]
            conditions = told["conditions"].items()
            # Earlier versions also kept conditions of certificates and groups here.
            self.conditions = {name: str(state) for name, state in conditions if name in (EDGE, MISSED)}
            self.topics = [str(topic) for topic in told.get("topics", [])]
            for name, kept in told["targets"].items():
                queue = self.queues.get(name)
                # Events of a target that was removed are dropped.
                if queue is not None:
                    queue.restore(kept)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BusError(
                f"{self._file} cannot be read ({error!r}); remove it, then the bridge starts without it"
            ) from error
