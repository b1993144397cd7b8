"""Copies results and events that the edge keeps as notes. This host keeps the place behind the last one."""

import json
import threading
import time
from pathlib import Path
from typing import Any, Final

from mez import _native, _notes
from mez._subscribe import connect
from mez.bridge import message as messages
from mez.bridge.file import Bridge
from mez.bridge.lane import LOOK_S, Lane
from mez.bridge.reader import CONNECT_S, Board, Reader
from mez.errors import BrokerError, NotFoundError
from mez.pipeline.errors import BusError

POLL_S: Final = 0.5
"""How often the edge is asked for notes, in seconds. It has them a fifth of a second after they were made."""

FILE: Final = "notes.json"

Place = tuple[int, int]


class Places:
    """Of each camera the place of the last note that Kafka has confirmed.

    Args:
        folder: Where the file is.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        try:
            told: Any = json.loads(self._file.read_text())
            self.since_ns = int(told["since_ns"])
            self.places = {str(camera): (int(at[0]), int(at[1])) for camera, at in told["places"].items()}
        except FileNotFoundError:
            # A bridge begins with what is noted from its first start on.
            self.since_ns, self.places = time.time_ns(), {}
            self.write()
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise BusError(
                f"{self._file} cannot be read ({error!r}); remove it, and notes are copied from now on"
            ) from error

    def write(self) -> None:
        """Write the file. Whoever reads it finds the old one or the new one."""
        unfinished = self._file.with_name(f".{FILE}")
        told = {"since_ns": self.since_ns, "places": self.places}
        unfinished.write_text(json.dumps(told) + "\n")
        unfinished.replace(self._file)


class NotesReader(Reader):
    """Reads the notes of cameras, in a thread of its own.

    Args:
        bridge: The bridge, whose file has a table `notes`.
        results: Where results go.
        events: Where events go.
        board: Told of what happens.
        folder: Where the places are kept.
    """

    def __init__(self, bridge: Bridge, results: Lane, events: Lane, board: Board, folder: Path) -> None:
        super().__init__("notes", board)
        assert bridge.notes is not None, "the caller looked"
        self._bridge = bridge
        self._cameras = bridge.notes.cameras
        self._lanes = {"result": results, "event": events}
        self._places = Places(folder)
        self._client: _native.Client | None = None

    def open(self) -> None:
        """Connect, and see that notes may be read.

        Raises:
            Error: As `mez.notes`.
            BusError: The grant `observe` is missing, or the edge keeps no notes.
        """
        self._client = check(self._bridge)

    def leave(self) -> None:
        """Let go of the connection."""
        self._client = None

    def read(self) -> None:
        """Copy what is new, and wait a little for more."""
        if self._client is None:
            self.open()
        assert self._client is not None, "it was opened"
        for camera in _known(self._client, self._cameras):
            while self._copy(self._client, camera):
                pass
        self._over.wait(POLL_S)

    def _copy(self, client: _native.Client, camera: str) -> bool:
        """Copy a page, and keep the place once all of it is confirmed. Returns whether there may be more."""
        place = self._places.places.get(camera)
        page, more = _page(client, camera, self._places.since_ns if place is None else None, place)
        if not page:
            return False
        left = threading.Semaphore(0)
        sent = 0
        for at, note in page:
            if note.missing:
                self._board.lose(note.missing)
                self._board.event("lost", camera, counts={"notes": note.missing})
            kind = "result" if note.reply is not None else "event"
            make = messages.of_result if kind == "result" else messages.of_event
            message = make(note, camera, at, self._bridge.name)
            message.done = left.release
            if not self._lanes[kind].put(message, self._over.is_set):
                return False
            sent += 1
        while sent:
            if left.acquire(timeout=LOOK_S):
                sent -= 1
            elif self._over.is_set():
                return False
        self._places.places[camera] = page[-1][0]
        self._places.write()
        return more


def check(bridge: Bridge) -> _native.Client:
    """Connect, and see that the notes of a bridge may be read.

    Raises:
        Error: As `mez.notes`.
        BusError: The grant `observe` is missing, or the edge keeps no notes.
    """
    assert bridge.notes is not None, "the caller looked"
    client = connect(
        list(bridge.edge) or None,
        keys=bridge.keys,
        application=f"bridge {bridge.name}",
        connect_timeout=CONNECT_S,
    )
    for camera in _known(client, bridge.notes.cameras)[:1]:
        _page(client, camera, time.time_ns(), None)
    return client


def _known(client: _native.Client, pattern: str) -> list[str]:
    """The cameras whose notes are wanted."""
    known = client.observable(pattern)
    if known is None:
        raise BusError(
            f"notes.cameras: this program may not observe {pattern}; run `mez keys grant app/NAME "
            f"observe,read '{pattern}'` on the edge's host"
        )
    return [record.camera for record in known]


def _page(
    client: _native.Client, camera: str, since_ns: int | None, place: Place | None
) -> tuple[list[tuple[Place, _notes.Note]], bool]:
    try:
        return _notes.after(client, camera, since_ns, place)
    except NotFoundError:
        # It was forgotten a moment ago.
        return [], False
    except BrokerError as error:
        if error.reason == "NO_NOTES":
            raise BusError(f"notes: {error}; start the edge with --store, or leave [notes] out") from error
        raise
