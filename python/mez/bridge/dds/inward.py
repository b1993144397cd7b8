"""Publishes an image topic as a camera."""

import time

import mez
from mez.bridge.dds import cdr, convert, types
from mez.bridge.dds.board import StreamBoard, StreamStatus
from mez.bridge.dds.domain import KEYS_MAX, Participant
from mez.bridge.dds.errors import RefusedError
from mez.bridge.dds.file import DdsBridge, In
from mez.bridge.reader import LOOK_S, Reader
from mez.errors import EndedError, Error


class InReader(Reader):
    """Reads an image topic, in its own thread, and publishes it as a camera.

    Args:
        bridge: The bridge.
        of: The topic and the camera.
        participant: The participant of the topic's domain.
        board: Counts, and prints lines for people.
    """

    def __init__(self, bridge: DdsBridge, of: In, participant: Participant, board: StreamBoard) -> None:
        super().__init__(board.name, board)
        self._bridge = bridge
        self._of = of
        self._counts = board
        self._kind = types.OF_PICTURES[of.type]
        self._samples = participant.reader(of.dds_topic, self._kind, of.qos)
        self._camera: mez.Publisher | None = None
        self._had_writers = False
        self._was_connected = False

    def open(self) -> None:
        """Start the camera.

        Raises:
            Error: As `mez.publisher`: the keys do not allow its name, or it is already running.
        """
        self._camera = mez.publisher(
            self._of.camera,
            edge=list(self._bridge.publish_edge) or None,
            keys=self._bridge.publish_keys,
            quality=self._of.quality,
        )

    def leave(self) -> None:
        """Stop the camera."""
        camera, self._camera = self._camera, None
        if camera is not None:
            camera.close()

    def read(self) -> None:
        """Publish images until the bridge is to end."""
        if self._camera is None:
            self.open()
        camera = self._camera
        assert camera is not None, "it was opened"
        while not self._over.is_set():
            is_there = self._samples.wait(LOOK_S)
            self._note_sides(camera)
            self._note_rejected()
            if is_there:
                with self._samples.take() as samples:
                    for sample in samples:
                        self._publish(camera, sample)

    def status(self) -> StreamStatus:
        """The status of the stream."""
        samples = self._samples
        return self._counts.status(peers=samples.writers, misfits=samples.misfits, lost=samples.lost)

    def _publish(self, camera: mez.Publisher, sample: memoryview) -> None:
        """Publish a sample. After `send` has returned, its memory is not used any more."""
        try:
            value = cdr.decode(self._kind, sample)
            if self._of.key is not None and value["camera"] != self._of.key:
                return
            captured_ns = convert.captured_ns(value, time.time_ns()) if self._of.is_stamped else None
            camera.send(convert.picture(self._kind, value), captured=captured_ns)
        except EndedError:
            raise
        except Error as error:
            self._counts.refuse(self._of.topic, error)
        else:
            self._counts.copied(len(sample))

    def _note_rejected(self) -> None:
        """Count samples for which the reader had no room."""
        count, are_keys_many = self._samples.rejected()
        if not count:
            return
        if are_keys_many:
            says = f"the topic has more than {KEYS_MAX} cameras; use a partition (dds.partition)"
            refusal = RefusedError("too_many_keys", says)
        else:
            refusal = RefusedError(
                "no_room", "samples come faster than they can be published; reduce the sender's rate"
            )
        self._counts.refuse(self._of.topic, refusal, count)

    def _note_sides(self, camera: mez.Publisher) -> None:
        """Report when the topic has lost its writers, and when the connection to the edge changes."""
        has_writers = self._samples.writers > 0
        if self._had_writers and not has_writers:
            camera.lost(f"the topic {self._of.topic} has no writer any more")
            self._board.tell(f"{self._name}: the topic {self._of.topic} has no writer any more")
        self._had_writers = has_writers
        if camera.connected != self._was_connected:
            self._was_connected = not self._was_connected
            state = "connected to" if self._was_connected else "disconnected from"
            self._board.tell(f"{self._name}: the camera {self._of.camera} is {state} the edge")
