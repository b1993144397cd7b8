"""Reads results and events that the edge keeps as notes. This host stores the place of the last note."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from mez import _native, _notes
from mez._subscribe import connect
from mez.bridge.reader import CONNECT_S, LOOK_S, Board, Reader
from mez.errors import BrokerError, NotFoundError
from mez.pipeline.errors import BusError

POLL_S: Final = 0.5
"""The interval of queries for notes, in seconds. The edge has a note 0.2 s after it was made."""

FILE: Final = "notes.json"

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WantedNotes:
    """The notes that are read from an edge.

    Attributes:
        table: The table of the bridge's file that wants them, for people.
        cameras: The cameras whose notes are read.
        edge: The edges; empty: the defaults.
        keys: The folder of keys.
        application: The application's name at the edge.
    """

    table: str
    cameras: str
    edge: tuple[str, ...]
    keys: Path | None
    application: str


class TakesNotes(Protocol):
    """Takes notes from a `NotesReader`."""

    def take_note(
        self,
        note: _notes.Note,
        camera: str,
        at: Place,
        done: Callable[[], None],
        is_over: Callable[[], bool],
    ) -> bool:
        """Take a note of a camera, and call `done` once it need not be read again.

        Returns:
            `False`: the bridge is to end, and the note was not taken.
        """


class Places:
    """The place of the last finished note of each camera.

    Args:
        folder: The folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        try:
            told: Any = json.loads(self._file.read_text())
            self.since_ns = int(told["since_ns"])
            self.places = {str(camera): (int(at[0]), int(at[1])) for camera, at in told["places"].items()}
        except FileNotFoundError:
            # A bridge begins with the notes that are made after its first start.
            self.since_ns, self.places = time.time_ns(), {}
            self.write()
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise BusError(
                f"{self._file} cannot be read ({error!r}); remove it, then only new notes are copied"
            ) from error

    def write(self) -> None:
        """Write the file atomically."""
        unfinished = self._file.with_name(f".{FILE}")
        told = {"since_ns": self.since_ns, "places": self.places}
        unfinished.write_text(json.dumps(told) + "\n")
        unfinished.replace(self._file)


class NotesReader(Reader):
    """Reads the notes of cameras, in its own thread.

    Args:
        wanted: The notes to read.
        taker: Takes the notes.
        board: Gets messages, events and counts.
        folder: The folder for the places.
    """

    def __init__(self, wanted: WantedNotes, taker: TakesNotes, board: Board, folder: Path) -> None:
        super().__init__(wanted.table, board)
        self._wanted = wanted
        self._taker = taker
        self._places = Places(folder)
        self._client: _native.Client | None = None

    def open(self) -> None:
        """Connect, and see that notes may be read.

        Raises:
            Error: As `mez.notes`.
            BusError: The grant `observe` is missing, or the edge keeps no notes.
        """
        self._client = check(self._wanted)

    def leave(self) -> None:
        """Close the connection."""
        self._client = None

    def read(self) -> None:
        """Pass on new notes, then wait for `POLL_S`."""
        if self._client is None:
            self.open()
        assert self._client is not None, "it was opened"
        for camera in _known(self._client, self._wanted):
            while self._copy(self._client, camera):
                pass
        self._over.wait(POLL_S)

    def _copy(self, client: _native.Client, camera: str) -> bool:
        """Pass on a page, and store the place when all of it is done. Returns whether there may be more."""
        place = self._places.places.get(camera)
        since_ns = self._places.since_ns if place is None else None
        page, more = _page(client, self._wanted, camera, since_ns, place)
        if not page:
            return False
        left = threading.Semaphore(0)
        sent = 0
        for at, note in page:
            if note.missing:
                self._board.lose(note.missing)
                self._board.event("lost", camera, counts={"notes": note.missing})
            if not self._taker.take_note(note, camera, at, left.release, self._over.is_set):
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


def check(wanted: WantedNotes) -> _native.Client:
    """Connect, and see that notes may be read.

    Raises:
        Error: As `mez.notes`.
        BusError: The grant `observe` is missing, or the edge keeps no notes.
    """
    client = connect(
        list(wanted.edge) or None,
        keys=wanted.keys,
        application=wanted.application,
        connect_timeout=CONNECT_S,
    )
    for camera in _known(client, wanted)[:1]:
        _page(client, wanted, camera, time.time_ns(), None)
    return client


def _known(client: _native.Client, wanted: WantedNotes) -> list[str]:
    """The cameras whose notes are wanted."""
    known = client.observable(wanted.cameras)
    if known is None:
        raise BusError(
            f"{wanted.table}.cameras: this program may not observe {wanted.cameras}; run `mez keys grant "
            f"app/NAME observe,read '{wanted.cameras}'` on the edge's host"
        )
    return [record.camera for record in known]


def _page(
    client: _native.Client, wanted: WantedNotes, camera: str, since_ns: int | None, place: Place | None
) -> tuple[list[tuple[Place, _notes.Note]], bool]:
    try:
        return _notes.after(client, camera, since_ns, place)
    except NotFoundError:
        # The edge has just forgotten the camera.
        return [], False
    except BrokerError as error:
        if error.reason == "NO_NOTES":
            raise BusError(
                f"{wanted.table}: {error}; start the edge with --store, or leave [{wanted.table}] out"
            ) from error
        raise
