"""Reads the notes about a camera: replies, and states of contracts and of the source."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mez import _arguments as arguments
from mez import _native
from mez._detections import Parts, received
from mez._frame import Contract, ContractState
from mez._frame_id import FrameId
from mez._in_process import InProcessEdge
from mez._publisher import Reply
from mez._source import Source, SourceState
from mez._source import source as source_of
from mez._subscribe import connect

_ReplyParts: TypeAlias = tuple[tuple[int, int], int | None, bytes, tuple[tuple[int, int], list[Parts]] | None]
_NoteParts: TypeAlias = tuple[
    tuple[int, int],
    int,
    int,
    str,
    _ReplyParts | None,
    tuple[ContractState, str] | None,
    tuple[SourceState, str, float | None, float | None] | None,
]
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


@dataclass(frozen=True, slots=True)
class Note:
    """A note about a camera: a reply of an application, or a new state of a contract or of the source.

    One of `reply`, `contract` and `source` is set; the others are `None`.

    Attributes:
        noted_ns: When the edge noted it, by the edge's clock, in nanoseconds since 1970-01-01 UTC.
        application: The application's name. Empty for a note about the source.
        reply: The result of an application for the frame `reply.frame`. Detections are in the pixels of the
            published frame.
        captured_ns: For a reply: when its frame was captured, in nanoseconds since 1970-01-01 UTC. `None` if
            the edge no longer had the frame in memory.
        contract: The new state of the contract of the application's subscription.
        source: The new state of the camera's source, with the reason. `lasts_s` says for how long it had this
            state when it was noted.
        missing: Number of notes before this one that are missing: too many came at the same time, or the disk
            was too slow or is damaged.
    """

    noted_ns: int
    application: str
    reply: Reply | None
    captured_ns: int | None
    contract: Contract | None
    source: Source | None
    missing: int

    @property
    def noted(self) -> datetime.datetime:
        """When the edge noted it: a `datetime` in UTC, in whole microseconds."""
        return _EPOCH + datetime.timedelta(microseconds=self.noted_ns // 1000)


def notes(
    camera: str,
    *,
    since: arguments.Time | None = None,
    until: arguments.Time | None = None,
    edge: str | InProcessEdge | Sequence[str | InProcessEdge] | None = None,
    keys: arguments.StrPath | None = None,
    connect_timeout: float | None = 5.0,
) -> Iterator[Note]:
    """Read the notes about a camera, oldest first: replies, and states of contracts and of the source.

    An edge with a store on disk (`mez edge --store`, `store=` of `mez.edge`) keeps notes beside the frames.
    They use at most a sixteenth of the camera's disk space. If it is full, the oldest notes are dropped. A
    note can be read about 0.2 s after it was made. An edge without a store keeps no notes. Notes that are
    made while you read may be included.

    The note of a reply names its frame: `note.reply.frame` is the `id` of a `Frame`. A note with a `source`
    says from when on the camera gave no frames, and why, or from when on it gave frames again.

    Args:
        camera: The camera's name.
        since: The first time that you want, as in `subscribe`. It is compared with `Note.noted`, the edge's
            time. Default: the oldest note that is held.
        until: The last time that you want. Default: no end.
        edge: As in `subscribe`.
        keys: As in `subscribe`.
        connect_timeout: As in `subscribe`.

    Raises:
        NotFoundError: The edge knows no such camera.
        PermissionDenied: No grant allows this program to read the camera's past.
        BrokerError: The edge keeps no notes; `reason` is `"NO_NOTES"`.
        ArgumentError, KeysError, ConnectError: As in `subscribe`.

    Example:
        ```python
        found = {note.reply.frame: note.reply for note in mez.notes("dock/cam1", since="-10m") if note.reply}
        for frame in mez.read("dock/cam1", since="-10m"):
            if reply := found.get(frame.id):
                print(frame.captured, reply.json())
        for note in mez.notes("dock/cam1", since="-10m"):
            if note.source:
                print(note.noted, note.source.state, note.source.reason)
        ```
    """
    name = arguments.text("camera", camera)
    span = (arguments.optional_utc_ns("since", since), arguments.optional_utc_ns("until", until))
    client = connect(edge, keys=keys, connect_timeout=connect_timeout)
    # The first page is read now, so that errors are raised by this call.
    return _pages(client, name, span, client.notes(name, *span, None))


def after(
    client: _native.Client, camera: str, since_ns: int | None, place: tuple[int, int] | None
) -> tuple[list[tuple[tuple[int, int], Note]], bool]:
    """A page of notes with their places: the start of the edge's notes, and the number since.

    Args:
        client: The connection to the edge.
        camera: The camera's name.
        since_ns: The first time that is wanted; `None`: the oldest.
        place: Only notes after this place; `None`: all.

    Returns:
        The notes, oldest first, and whether there may be more.
    """
    parts, more = client.notes(camera, since_ns, None, place)
    return [(each[0], _note(each)) for each in parts], more


def _pages(
    client: _native.Client,
    camera: str,
    span: tuple[int | None, int | None],
    page: tuple[list[_NoteParts], bool],
) -> Iterator[Note]:
    """All notes; `page` is the first page of them."""
    parts, more = page
    yield from map(_note, parts)
    while more and parts:
        parts, more = client.notes(camera, *span, parts[-1][0])
        yield from map(_note, parts)


def _note(parts: _NoteParts) -> Note:
    """A note from the parts that the native module returns."""
    _place, noted_ns, missing, application, reply, contract, source = parts
    said = None
    captured_ns = None
    if reply is not None:
        frame, captured_ns, payload, detections = reply
        found = None if detections is None else received(*detections)
        said = Reply(FrameId(*frame), application, payload, found)
    stands = None if contract is None else Contract(*contract)
    gives = None if source is None else source_of(source)
    return Note(noted_ns, application, said, captured_ns, stands, gives, missing)
