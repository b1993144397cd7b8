"""Queries the edge for the bridge's groups: how many records wait, and how many the edge dropped."""

import threading
from typing import Any, Final

from mez.bridge.file import Bridge
from mez.bridge.reader import Board
from mez.pipeline import mez_bus
from mez.pipeline.errors import BusAwayError

ASK_S: Final = 5.0
"""The interval of queries, in seconds."""


class Watch:
    """Watches the groups, in its own thread.

    Args:
        bridge: The bridge.
        board: Gets the counts of lost records.
    """

    def __init__(self, bridge: Bridge, board: Board) -> None:
        self._bridge = bridge
        self._board = board
        self._names = {bridge.group(of.name): of.name for of in bridge.streams.values() if of.is_every}
        self._over = threading.Event()
        self._gone: dict[tuple[str, str], int] = {}
        self._thread = threading.Thread(target=self._run, name="bridge-groups", daemon=True)
        self.waiting: dict[str, int | None] = dict.fromkeys(self._names.values())
        self._fault = ""

    def start(self) -> None:
        """Start the queries."""
        if self._names:
            self._thread.start()

    def close(self) -> None:
        """Stop the queries, without waiting for one that is running."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(ASK_S):
            try:
                known = self._ask()
            except BusAwayError:
                self.waiting = dict.fromkeys(self._names.values())
                continue
            if self._over.is_set():
                return
            waiting: dict[str, int | None] = {}
            for group, stream in self._names.items():
                waiting[stream] = self._look(stream, known[group]) if group in known else None
            self.waiting = waiting

    def left(self) -> str:
        """The number of records that wait at the edge, for people. Empty if none wait."""
        if not self._names:
            return ""
        try:
            # If the edge did not answer the last query, another one would delay the end.
            known = {} if self._fault else self._ask()
        except BusAwayError:
            known = {}
        if self._fault:
            return f"the number of records that wait at the edge is unknown: {self._fault}"
        counts = {
            name: sum(lane["lag"] or 0 for lane in known[name]["lanes"]) + known[name]["account"]["open"]
            for name in self._names
            if name in known
        }
        waiting = ", ".join(f"{count} in the group {name}" for name, count in counts.items() if count)
        return f"waiting at the edge for the next start: {waiting}" if waiting else ""

    def _ask(self) -> dict[str, Any]:
        try:
            found = {of["name"]: of for of in mez_bus.groups(self._bridge.edge, self._bridge.keys)}
        except BusAwayError as error:
            self._fault = str(error)
            raise
        self._fault = ""
        return found

    def _look(self, stream: str, group: dict[str, Any]) -> int | None:
        """Count records lost since the last query, and return how many wait."""
        account = group["account"]
        for why, count in {**account["lost"], "dead_letter": account["dead"]}.items():
            # A restart of the edge resets its counts.
            before = self._gone.get((stream, why))
            self._gone[stream, why] = count
            more = count - before if before is not None and count >= before else count
            if more and before is not None:
                self._board.lose(more)
                self._board.event("lost", None, stream=stream, counts={why: more})
        return None if group["asleep"] else sum(lane["lag"] or 0 for lane in group["lanes"])
