"""Publishes frames."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from mez import _arguments as arguments
from mez import _data, _native
from mez._answers import ANSWER_MS, Answers
from mez._data import Origin
from mez._detections import Detections, received
from mez._frame import Frame
from mez._frame_id import FrameId
from mez._in_process import InProcessEdge
from mez._knobs import Knobs
from mez.errors import BusyError, EndedError, Error, NotOnDiskError, WaitTimeoutError

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

    # NumPy's own types say that arrays have the buffer protocol only from Python 3.12 on.
    Image: TypeAlias = Buffer | np.ndarray[Any, Any]

MEMORY_BYTES = 256 << 20
FRAME_BYTES_MAX = 32 << 20


def _origin(of: object) -> tuple[str, int, int, int] | None:
    if isinstance(of, Frame):
        of = of.origin
    if of is None:
        return None
    if not isinstance(of, Origin):
        raise arguments.wrong_type(
            "of", f"of is a {type(of).__name__}; give a frame, or the `origin` of a frame"
        )
    return of.camera, of.id.epoch, of.id.sequence, of.captured_ns


@dataclass(frozen=True, slots=True)
class Reply:
    """An application's result for a frame.

    Attributes:
        frame: The frame that the result is about, as `Publisher.send` returned it.
        application: The application's name.
        payload: The bytes that the application sent. Empty if the result has `detections`.
        detections: The objects that the application found, in the pixels of the published frame. `None` if
            the result is not detections.
    """

    frame: FrameId
    application: str
    payload: bytes
    detections: Detections | None = None

    def json(self) -> Any:  # noqa: ANN401, whatever the application sent
        """Parse the result as JSON. For detections: return a list with one dict for each object.

        Raises:
            ValueError: The payload is not JSON. Read `payload` instead.
        """
        if self.detections is not None:
            return self.detections._plain()
        return json.loads(self.payload)


class Publisher:
    """Publishes the frames of one camera, or the records of a derived stream.

    `mez.publisher` creates it. It is a context manager: the end of `with` closes it. Its methods may be
    called from any thread.
    """

    def __init__(
        self, native: _native.Publisher, camera: str, knobs: Knobs | None = None, *, on_disk: bool = False
    ) -> None:
        self._native = native
        self._camera = camera
        self._on_disk = on_disk
        self._answers: Answers | None = None
        self._knobs = knobs
        if knobs is not None:
            knobs._open()

    @property
    def camera(self) -> str:
        """The name of the camera or derived stream."""
        return self._camera

    def send(self, image: "Image", *, captured: arguments.Time | None = None) -> FrameId | None:
        """Publish an image.

        The frame goes into the camera's log in memory. From there it is sent to the edge if an application is
        subscribed. `send` takes only the time to encode and copy the image: it does not wait for the network.
        If the link is too slow, frames do not queue: the newest frame is sent next. Encoding does not block
        other Python threads. Do not change the image until `send` returns.

        With `of=` (a derived stream), `send` waits until the record has reached the edge.

        Args:
            image: Pixels: an 8-bit NumPy array, or another object with the buffer protocol. Shapes: (height,
                width, 3) in the order blue, green, red; (height, width, 4), whose alpha channel is dropped;
                or (height, width) for grey. Any strides work. Or the bytes of a complete JPEG, which are sent
                unchanged. An EXIF orientation in the JPEG is not applied: boxes in replies are in the pixels
                as they are stored.
            captured: When the image was captured: a `datetime` with a time zone, or nanoseconds since
                1970-01-01 UTC. It must be later than that of the previous frame. Default: now.

        Returns:
            The identity of the frame. Replies and answers name it. With `broker=`, `send` waits for that
            broker: about 1 ms, at most 250 ms. It returns `None` if the broker did not take the frame,
            because it is not running or still busy with the previous frame. This frame is lost; `dropped`
            counts it.

        Raises:
            ImageError: The image is not an array of 8-bit pixels, and not a complete JPEG.
            FrameTooLargeError: The encoded frame has more bytes than `frame_bytes_max`.
            CaptureTimeError: `captured` is not later than that of the previous frame.
            LogFullError: There is no room in the log, because readers still use all of it.
            EndedError: The publisher is closed.
        """
        captured_ns = arguments.optional_utc_ns("captured", captured)
        return self._acknowledged(self._native.send(image, captured_ns))

    def send_data(
        self,
        payload: object,
        *,
        content_type: str | None = None,
        of: "Frame | Origin | None" = None,
        captured: arguments.Time | None = None,
    ) -> FrameId | None:
        """Publish a data record: results, measurements, or any other bytes.

        A data record is treated like a frame: the same log, history, encryption, counts and limits apply.
        Subscribers read it with `frame.data`. One stream may contain pictures and data records. A contract
        with an accuracy floor changes data records only if the publisher declares `knobs`.

        Args:
            payload: One of: bytes; text; values that JSON can represent (NaN is refused); a NumPy array,
                which is sent as `.npy`; a pyarrow `Table` or `RecordBatch`, which is sent as an Arrow IPC
                stream. Objects are never pickled.
            content_type: The media type. Default: the type that fits the payload; for bytes,
                `application/octet-stream`.
            of: The frame or record that this record was made of. Readers get its camera, identity and capture
                time in `frame.of`. Default: not stated.
            captured: The time of this record, as in `send`. Default: now.

        Returns:
            The identity of the record, as from `send`.

        Raises:
            ArgumentError: The content type is not valid or does not fit the payload, or the payload is empty.
            ArgumentTypeError: JSON cannot represent the payload.
            MissingPackageError: The payload is a table, and pyarrow is not installed.
            FrameTooLargeError: The record, with its content type and `of`, has more bytes than
                `frame_bytes_max`.
            CaptureTimeError: `captured` is not later than that of the previous record or frame.
            LogFullError: There is no room in the log, because readers still use all of it.
            EndedError: The publisher is closed.
        """
        captured_ns = arguments.optional_utc_ns("captured", captured)
        if content_type is not None:
            content_type = arguments.text("content_type", content_type)
        made, kind = _data.pack(payload, content_type)
        record = self._native.send_data(made, kind, _origin(of), captured_ns)
        return self._acknowledged(record)

    def _acknowledged(self, frame: tuple[int, int] | None) -> FrameId | None:
        """What `send` returns. With `acknowledge="disk"`, wait until the record is on disk."""
        if frame is None:
            return None
        published = FrameId(*frame)
        if self._on_disk:
            self.wait_on_disk(published)
        return published

    def wait_on_disk(self, frame: FrameId) -> None:
        """Wait until a record of this derived stream, and every record before it, is on the edge's disk.

        Then these records survive if the edge is killed. They also survive a power cut, unless the edge runs
        with `--durability async`. Waiting costs a sync of the edge's disk; publishers that wait at the same
        time share it. To publish several records with one sync, publish all of them, then wait for each, the
        last one first. With `acknowledge="disk"`, `send` and `send_data` wait by themselves.

        Args:
            frame: The record, as `send` or `send_data` returned it.

        Raises:
            NotOnDiskError: The record is not on disk. Raised as soon as that is known, after five seconds at
                the latest. `reason` says what to do.
            ArgumentError: This publisher is not of a derived stream.
            ConnectError: The edge is unreachable.
            EndedError: The publisher is closed.
        """
        refused = self._native.wait_on_disk(frame.epoch, frame.sequence)
        if refused is not None:
            reason, message = refused
            error = NotOnDiskError(f"{self._camera} {frame}: {message}")
            error.reason, error.frame = reason, frame
            raise error

    def lost(self, reason: str) -> None:
        """Report that the camera gives no more frames, and why. For example, it was unplugged.

        Applications and operators see the reason in `mez cameras`, in events and in `frame.contract`. Call
        this if the camera's `read()` fails. Your program may open the camera again: the next frame that it
        sends ends this state. If it sends no more frames, the source stays `lost` after `close`. At the end
        of a video file, do not call this; close the publisher, and the source is `ended`.

        Args:
            reason: A short reason, for people.

        Raises:
            ArgumentError: The reason is empty.
            EndedError: The publisher is closed.
        """
        text = " ".join(arguments.text("reason", reason).split())
        if not text:
            raise arguments.invalid("reason", "reason is empty; say in a few words why there are no frames")
        self._native.lost(text)

    @property
    def connected(self) -> bool:
        """Whether the camera is connected to the edge. With `broker=`: whether that broker is connected."""
        return self._native.connected

    @property
    def edge(self) -> str | None:
        """The edge that the camera is connected to, `HOST:PORT`. `None` if none, or with `broker=`."""
        return self._native.edge

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until `connected` is true.

        You do not need to wait before `send`: frames go into the log meanwhile.

        Args:
            timeout: Seconds. `None`: wait without a limit.

        Raises:
            WaitTimeoutError: The publisher did not connect within `timeout`. The message gives the last
                error.
            EndedError: The publisher is closed.
        """
        self._native.wait_connected(arguments.timeout("timeout", timeout))

    def next_reply(self, timeout: float | None = None) -> Reply:
        """Wait for the next result that an application sent for one of the frames, and return it.

        At most 64 results wait; then the oldest one is dropped.

        Args:
            timeout: Seconds. `None`: wait without a limit.

        Raises:
            WaitTimeoutError: No reply came within `timeout`.
            EndedError: The publisher is closed. Also raised if another thread closes it during the wait.
        """
        reply = self._native.next_reply(arguments.timeout("timeout", timeout))
        if reply is None:
            raise WaitTimeoutError(
                f"no reply for camera {self._camera} within {timeout} s; "
                "applications use Frame.reply to send them"
            )
        epoch, sequence, application, payload, found = reply
        detections = None if found is None else received(*found)
        return Reply(FrameId(epoch, sequence), application, payload or b"", detections)

    def replies(self) -> Iterator[Reply]:
        """Iterate over the results that applications send for the frames, until the publisher is closed."""
        while True:
            try:
                yield self.next_reply()
            except EndedError:
                return

    def answers(self, answer_ms: float = ANSWER_MS) -> Answers:
        """Start to receive answers: pictures that applications made of the frames (`Frame.answer`).

        Iterate over the returned object in one thread. To stop receiving, close it or leave its `with` block.
        In both directions, a newer picture replaces an older one that waits, so no queue builds up. An answer
        that would come too late is cancelled. Every answer that reached the edge is either returned or
        counted in `Answers.skipped`.

        With `broker=`, the answers come from that broker, and come again after it was restarted. Only one
        program at a time can receive them. This does not work with `of=`.

        Args:
            answer_ms: The maximum time from the capture of a frame until the last byte of its answer leaves
                the edge, in milliseconds. The edge cancels later answers. It tells applications how many
                bytes an answer can have.

        Raises:
            ArgumentError: `answer_ms` is not above 0, or this is a derived stream.
            BusyError: This publisher's answers are being received already, or, with `broker=`, another
                program receives them.
            VersionError: The broker at `broker` is older, and cannot send answers.
            EndedError: The publisher is closed.
        """
        if self._answers is not None and not self._answers.closed and not self.closed:
            raise BusyError(
                f"the answers for camera {self._camera} are already being received; "
                "close the earlier Publisher.answers first"
            )
        self._answers = Answers(self._native, self._camera, answer_ms)
        return self._answers

    @property
    def published(self) -> int:
        """Number of frames that this publisher has put into the log."""
        return self._native.published

    @property
    def refused(self) -> int:
        """Number of calls of `send` and `send_data` that raised an error."""
        return self._native.refused

    @property
    def dropped(self) -> int:
        """With `broker=`: number of frames that the broker did not take, not running or busy. Otherwise 0."""
        return self._native.dropped

    @property
    def closed(self) -> bool:
        """Whether the publisher is closed."""
        return self._native.closed

    def close(self) -> None:
        """Stop publishing. A second call has no effect.

        The end of a `with` block closes the publisher too. The state of the source is then:

        - `ended`, if nothing else applies;
        - `lost`, if `lost` was called and no frame was sent since;
        - `lost`, if an exception ended the `with` block; the exception is the reason. `KeyboardInterrupt` and
          an exit without an error do not count.

        If the camera broker is in this process, its log in memory is deleted. Frames that were not sent yet
        are lost. Frames in `store` are kept for the next start.
        """
        self._native.close()
        knobs, self._knobs = self._knobs, None
        if knobs is not None:
            knobs._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        why = None if error is None else _why_lost(error)
        if why is not None:
            # The exception that ended the block must not be replaced by an error of `lost`.
            with contextlib.suppress(Error):
                self.lost(why)
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.published} published"
        return f"<Publisher {self._camera} {state}>"


def publisher(
    camera: str,
    *,
    of: str | Sequence[str] | None = None,
    edge: str | InProcessEdge | Sequence[str | InProcessEdge] | None = None,
    broker: str | None = None,
    keys: arguments.StrPath | None = None,
    quality: int = 95,
    memory_bytes: int = MEMORY_BYTES,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    state: arguments.StrPath | None = None,
    link: str = "auto",
    h264_encoder: str = "openh264",
    store: arguments.StrPath | None = None,
    store_key: arguments.StrPath | None = None,
    store_bytes: int = arguments.STORE_BYTES,
    store_age: float | None = None,
    durability: str = "group",
    history_share: float = 0.25,
    connect_timeout: float | None = 5.0,
    knobs: Knobs | None = None,
    acknowledge: str = "memory",
) -> Publisher:
    """Publish a camera's frames, or a derived stream.

    There are three ways to publish:

    - **Default**: Mez starts a camera broker inside this process.
    - **With `broker`**: it connects to a separate camera broker (`mez camera NAME --edge HOST`), which
      continues after this process has ended.
    - **With `of`**: it publishes a derived stream, which contains results that your program made of other
      streams (docs/derived.md). This needs no camera broker and no camera's keys. The edge numbers and keeps
      the records. Applications subscribe to it like to a camera. Several programs with the same identity may
      publish the same stream.

    By default, the call returns at once, even if the edge is unreachable. The broker keeps trying to connect,
    and logs the reason to the logger `mez` of `logging`. With `of`, the call connects to the edge first. Then
    `send` and `send_data` wait until the record is in the stream, at most five seconds. They raise
    `ConnectError` if it is not, or if that is unknown.

    Args:
        camera: The name of the camera, such as `dock/cam1`, or of the derived stream: up to eight segments of
            letters, digits, `.`, `_` and `-`.
        of: The sources of a derived stream: `"dock/cam1"`, or a list of up to 64 names. Default: none, this
            is a camera. With `of`, `edge`, `keys` and `connect_timeout` have the same meaning as in
            `subscribe`; `quality` applies to pictures; `acknowledge` applies. `broker`, `store`, `state` and
            `knobs` are refused, and the other options have no effect.
        edge: The edge: `"HOST"` or `"HOST:PORT"` (UDP, default port 7650), or a `mez.edge()` of this process.
            Or a list of up to eight edges of one site, in order of preference. The camera is connected to one
            edge at a time: if it fails, to the next one; when a preferred edge is back, to that one. Default:
            `MEZ_EDGE` (several edges with commas between them); if it is not set, the edge of this host; if
            none runs here, the edge of this site that answers on the local network (`mez edge --announce`).
            If no edge answers within two seconds, Mez waits for an edge on this host.
        broker: A separate camera broker: `"unix:///run/mez/camera.sock"`, or `"unix:"` for the default path.
            That broker has its own edge, keys and log.
        keys: The folder of keys. Default: `MEZ_KEYS`; if it is not set, `~/.config/mez/keys`.
        quality: JPEG quality for images that are sent as pixels, 1 to 100.
        memory_bytes: Memory for frames, in bytes. If it is full, the oldest frames are dropped.
        frame_bytes_max: Maximum size of an encoded frame, in bytes.
        state: The folder that keeps the camera's epoch between starts. Default: `MEZ_STATE`; if it is not
            set, `/var/lib/mez` for root, `~/.local/state/mez` for other users. With a `mez.edge()` that made
            its own keys: a temporary folder of that edge.
        link: The transport to the edge: `"quic"`, `"tcp"` (TLS over TCP), or `"auto"` (QUIC, but TCP if UDP
            is blocked).
        h264_encoder: The H.264 encoder: `"openh264"`, or `"x264"` if the build contains it.
        store: The folder of a store. Frames are also written there, encrypted, and survive the end of this
            process. Default: frames are only in memory.
        store_key: The file with the store's keys, which `mez store key` makes. Default: the keys in the
            variable `MEZ_STORE_KEY` itself; if it is not set, the systemd credential `mez-store-key`;
            otherwise the file `store.key` in the folder of keys.
        store_bytes: Disk space for frames, in bytes. If it is full, the oldest frames are dropped.
        store_age: Maximum age of frames on disk, in seconds. Default: frames stay until their space is
            needed.
        durability: How much a power cut may lose: `"async"`: half a minute; `"group"`: one second; `"sync"`:
            a fifth of a second.
        history_share: The share of the link's time that frames of the past may use while live frames are
            sent, 0.01 to 1.
        connect_timeout: For a derived stream: if the edge does not answer within this many seconds,
            `ConnectError` is raised. `None`: wait without a limit.
        knobs: The knobs by which Mez may make data records smaller (`mez.Knobs`). Not with `broker`, because
            their function runs in this process. Default: data records are sent as they were published.
        acknowledge: For a derived stream: when `send` and `send_data` return. `"memory"`: when the record is
            in the stream. `"disk"`: when it is also on the edge's disk, so that it survives if the edge is
            killed (`Publisher.wait_on_disk`).

    Raises:
        ArgumentError: An argument has an invalid value; `field` names the argument.
        KeysError: There are no keys, or they have expired, or none of them may publish this camera.
        CameraInUseError: Another broker of this camera runs on this host.
        StateError: The folder `state` or `store` cannot be used.
        ConnectError: No broker answered at `broker` within 5 seconds; or, with `of`, no edge answered within
            `connect_timeout`.
        PermissionDenied: No grant allows this program to publish the derived stream.
        BrokerError: The derived stream has the name of a camera, or another identity publishes it.
        BusyError: This program publishes the maximum number of derived streams already.

    Example:
        ```python
        import cv2, mez
        cap = cv2.VideoCapture(0)
        with mez.publisher("dock/cam1", edge="edge.local") as cam:
            while True:
                ok, image = cap.read()
                if not ok:
                    cam.lost("the camera gives no frames")
                    break
                cam.send(image)
        cap.release()
        ```
    """
    arguments.text("camera", camera)
    if of is not None:
        if broker is not None or store is not None or state is not None or knobs is not None:
            raise arguments.invalid(
                "of",
                "a derived stream is kept by the edge; leave out broker, store, state and knobs, or "
                "leave out of",
            )
        return _derived(camera, of, edge, keys, quality, connect_timeout, acknowledge)
    if acknowledge != "memory":
        raise arguments.invalid(
            "acknowledge",
            f"acknowledge is {acknowledge!r}, but only a derived stream has it; give of, or leave it out",
        )
    if broker is not None and edge is not None:
        raise arguments.invalid(
            "broker",
            "both edge and broker were given; a separate broker has its own edge, so give only broker",
        )
    if broker is not None and (store is not None or link != "auto" or h264_encoder != "openh264"):
        raise arguments.invalid(
            "broker",
            "a separate broker has its own link, log and encoder; give link, store and h264_encoder to "
            "`mez camera` instead",
        )
    if knobs is not None and not isinstance(knobs, Knobs):
        raise arguments.wrong_type("knobs", f"knobs is a {type(knobs).__name__}; give a mez.Knobs")
    if broker is not None and knobs is not None:
        raise arguments.invalid(
            "knobs",
            "knobs need the camera broker in this program, where their function runs; leave broker out",
        )
    edges: list[str] = []
    for each in () if broker is not None else arguments.edges(edge) or _edges_of_environment():
        if isinstance(each, InProcessEdge):
            keys = each.keys if keys is None else keys
            state = each._camera_state if state is None else state
            edges.append(each._open().address)
        else:
            edges.append(arguments.text("edge", each))
    native = _native.Publisher(
        camera,
        edges=edges,
        broker=arguments.optional_text("broker", broker),
        keys=arguments.optional_path("keys", keys),
        quality=arguments.whole("quality", quality, 1, 100),
        memory_bytes=arguments.whole("memory_bytes", memory_bytes, 1 << 16, 1 << 40),
        frame_bytes_max=arguments.whole("frame_bytes_max", frame_bytes_max, 1, arguments.FRAME_BYTES_CEILING),
        state=arguments.optional_path("state", state),
        link=arguments.text("link", link),
        h264_encoder=arguments.text("h264_encoder", h264_encoder),
        store=arguments.on_disk(store, store_key, store_bytes, store_age, durability),
        history_share=_share(history_share),
        knobs=None if knobs is None else knobs._native,
    )
    return Publisher(native, camera, knobs)


def _derived(
    stream: str,
    of: str | Sequence[str],
    edge: str | InProcessEdge | Sequence[str | InProcessEdge] | None,
    keys: arguments.StrPath | None,
    quality: int,
    connect_timeout: float | None,
    acknowledge: str,
) -> Publisher:
    """Publishes a derived stream at the edge."""
    if acknowledge not in ("memory", "disk"):
        raise arguments.invalid("acknowledge", f'acknowledge is {acknowledge!r}; write "memory" or "disk"')
    native = _native.Publisher.at_edge(
        stream,
        of=[arguments.text("of", of)] if isinstance(of, str) else arguments.texts("of", of),
        edges=[
            f"unix://{each._open().socket}"
            if isinstance(each, InProcessEdge)
            else arguments.text("edge", each)
            for each in arguments.edges(edge)
        ],
        keys=arguments.optional_path("keys", keys),
        quality=arguments.whole("quality", quality, 1, 100),
        patience=arguments.timeout("connect_timeout", connect_timeout),
    )
    return Publisher(native, stream, on_disk=acknowledge == "disk")


def _why_lost(error: BaseException) -> str | None:
    """Why the source is lost if this exception ends a program. `None` if the program ended on purpose."""
    if isinstance(error, SystemExit):
        # Status 0 or no status means success. If the status is a text, Python prints it as the error.
        if not error.code:
            return None
        return error.code if isinstance(error.code, str) else f"the program ended with status {error.code}"
    if not isinstance(error, Exception):
        # Ctrl-C, or a task that was cancelled.
        return None
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _share(value: float) -> float:
    share = arguments.number("history_share", value)
    if not 0.01 <= share <= 1.0:
        raise arguments.invalid(
            "history_share", f"history_share is {share}; give a share of the link's time, 0.01 to 1"
        )
    return share


def _edges_of_environment() -> list[str]:
    named = [name.strip() for name in os.environ.get("MEZ_EDGE", "").split(",") if name.strip()]
    # For applications, the variable may name a Unix socket, which means this host.
    others = [name for name in named if not name.startswith("unix:")]
    return others if others or not named else ["localhost"]
