"""Writes frames of cameras, and detections of applications, to topics of DDS."""

from collections.abc import Callable
from typing import Final

from mez import _native
from mez._frame import Frame
from mez._notes import Note
from mez.bridge.dds import cdr, convert, names, types
from mez.bridge.dds.board import StreamBoard, StreamStatus
from mez.bridge.dds.cdr import Part, Struct
from mez.bridge.dds.domain import Participant, Qos, Writer
from mez.bridge.dds.errors import RefusedError
from mez.bridge.dds.file import BLOCK_NS, DEPTH_EVERY, USUAL, DdsBridge, Out
from mez.bridge.dds.names import Names
from mez.bridge.frames import LIVE_EVENTS, NOTED_EVENTS, FrameReader, Wanted
from mez.bridge.notes import Place
from mez.errors import BusyError, ConnectError, Error

UNSETTLED_MAX: Final = 16
"""The most frames of a stream with `every` that the edge has given and that are not settled."""

JPEG_QUALITY: Final = 95
"""The JPEG quality for frames that come as raw pixels or video."""

_CODED: Final = ("jpeg", "png")


class Topics:
    """The topics of cameras, created as cameras appear. For one thread.

    Args:
        stream: Their stream.
        participant: The participant that writes them.
        names: The names of cameras, shared by all streams whose topics could have the same names.
        qos: The quality of service that their writers offer.
    """

    def __init__(self, stream: str, participant: Participant, names: Names, qos: Qos) -> None:
        self._stream = stream
        self._participant = participant
        self._names = names
        self._qos = qos
        self._writers: dict[tuple[str, str], Writer] = {}

    def writer(self, camera: str, ending: str, kind: Struct) -> Writer:
        """The writer of a camera's topic.

        Raises:
            RefusedError: The camera cannot have its name.
            DdsError: The library refuses.
        """
        known = self._writers.get((camera, ending))
        if known is None:
            claimed = self._names.claim(camera, self._stream)
            if kind.key:
                # One topic and one writer for all cameras: samples differ by their key.
                known = self._writers.get(("", ending))
                known = known or self._participant.writer(names.FRAMES, kind, self._qos)
                self._writers["", ending] = known
            else:
                name = names.dds_topic(f"{claimed}/{ending}")
                known = self._participant.writer(name, kind, self._qos)
            self._writers[camera, ending] = known
        return known

    @property
    def readers(self) -> int:
        """Number of readers of all topics."""
        return sum(writer.readers for writer in self._all())

    @property
    def misfits(self) -> int:
        """Number of readers with an incompatible quality of service."""
        return sum(writer.misfits for writer in self._all())

    def _all(self) -> list[Writer]:
        """Each writer once."""
        return list({id(writer): writer for writer in list(self._writers.values())}.values())


class OutReader(FrameReader):
    """Reads frames from the edge, in its own thread, and writes them to their topics.

    Args:
        bridge: The bridge.
        out: The stream.
        participant: The participant that writes.
        names: The names of cameras in all streams of frames.
        board: Counts, and prints lines for people.
    """

    def __init__(
        self, bridge: DdsBridge, out: Out, participant: Participant, names: Names, board: StreamBoard
    ) -> None:
        wanted = Wanted(
            board.name,
            out.name,
            out.cameras,
            out.contract,
            bridge.group(out.name) if out.is_every else None,
            UNSETTLED_MAX,
            bridge.edge,
            bridge.keys,
            f"bridge {bridge.name}",
        )
        super().__init__(wanted, board, LIVE_EVENTS + NOTED_EVENTS)
        self._out = out
        self._counts = board
        self._contract = USUAL
        self._opened = USUAL
        self._topics = Topics(board.name, participant, names, out.qos)

    @property
    def offers(self) -> tuple[str, ...]:
        """The contracts that can be requested."""
        return (USUAL, *self._out.offers)

    def ask(self, contract: str) -> bool:
        """Read with one of `offers` from now on. Returns whether this is a change. For one thread."""
        if contract == self._contract:
            return False
        self._contract = contract
        self._renew()
        return True

    def open(self) -> None:
        """Subscribe. If the edge refuses a requested contract, go back to the usual one.

        Raises:
            Error: As `mez.subscribe` with the usual contract, or the edge is away or busy.
        """
        contract = self._contract
        try:
            super().open()
        except (ConnectError, BusyError):
            raise
        except Error as error:
            if contract == USUAL:
                raise
            self._counts.refuse(
                "a request", RefusedError("contract", f"the edge refuses the contract {contract}: {error}")
            )
            # Unless another one was requested meanwhile.
            if self._contract == contract:
                self._contract = USUAL
                self._renew()
            contract = self._contract
            super().open()
        if contract != self._opened:
            self._opened = contract
            self._counts.tell(f"{self._name}: the contract is {contract} now")

    def _renew(self) -> None:
        contract = self._contract
        self.renew(self._out.contract if contract == USUAL else self._out.offers[contract])

    def take(self, frame: Frame) -> bool:
        """Write a frame to each of its topics. Failed writes are counted, and not tried again."""
        if frame.content_type is not None:
            refusal = RefusedError("not_a_picture", f"a record is {frame.content_type}, not a picture")
            self._counts.refuse(frame.camera, refusal)
        else:
            size = 0
            for ending in self._out.types:
                try:
                    size += self._write(frame, ending)
                except Error as error:
                    self._counts.refuse(frame.camera, error)
            if size:
                self._counts.copied(size)
        if self._out.is_every:
            frame.done()
        return True

    def status(self) -> StreamStatus:
        """How it does."""
        topics = self._topics
        told = self._counts.status(peers=topics.readers, misfits=topics.misfits, skipped=self.skipped)
        told.contract = self._contract
        return told

    def _write(self, frame: Frame, ending: str) -> int:
        """Write a frame to one of its topics, and return the bytes."""
        kind = types.OF_PICTURES[ending]
        writer = self._topics.writer(frame.camera, ending, kind)
        parts = cdr.encode(kind, _message(kind, frame))
        writer.write(parts)
        return sum(map(len, parts))


class DetectionWriter:
    """Writes the detections in replies of applications. The taker of a `NotesReader`.

    Args:
        participant: The participant that writes them.
        board: Counts, and prints lines for people.
    """

    def __init__(self, participant: Participant, board: StreamBoard) -> None:
        self._board = board
        qos = Qos(is_reliable=True, depth=DEPTH_EVERY, is_kept=True, block_ns=BLOCK_NS)
        self._topics = Topics(board.name, participant, Names(), qos)

    def take_note(
        self,
        note: Note,
        camera: str,
        at: Place,
        done: Callable[[], None],
        is_over: Callable[[], bool],
    ) -> bool:
        """Write a result with detections. Other notes are skipped."""
        if note.reply is not None and note.reply.detections is not None:
            try:
                captured_ns = note.noted_ns if note.captured_ns is None else note.captured_ns
                head = convert.header(captured_ns, camera)
                value = convert.detections(head, note.reply.detections)
                parts = cdr.encode(types.DETECTION_2D_ARRAY, value)
                self._topics.writer(camera, "detections", types.DETECTION_2D_ARRAY).write(parts)
                self._board.copied(sum(map(len, parts)))
            except Error as error:
                self._board.refuse(camera, error)
        done()
        return True

    def status(self) -> StreamStatus:
        """How it does."""
        return self._board.status(peers=self._topics.readers, misfits=self._topics.misfits)


def _message(kind: Struct, frame: Frame) -> cdr.Value:
    """A frame as a message of this type."""
    if kind is types.FRAME:
        return convert.frame(frame, *_coded(frame))
    head = convert.header(frame.captured_ns, frame.camera)
    if kind is types.IMAGE:
        return convert.image(head, frame.image)
    return convert.compressed(head, *_coded(frame))


def _coded(frame: Frame) -> tuple[str, Part]:
    """The encoding and the bytes of a frame as a coded picture. Not copied, if it came as a coded picture."""
    if frame.encoding in _CODED:
        return frame.encoding, memoryview(frame.payload)
    return "jpeg", memoryview(_native.encode_jpeg(frame.image, JPEG_QUALITY))
