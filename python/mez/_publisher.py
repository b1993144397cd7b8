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
            "of", f"of is a {type(of).__name__}; give a frame, or what its `origin` says"
        )
    return of.camera, of.id.epoch, of.id.sequence, of.captured_ns


@dataclass(frozen=True, slots=True)
class Reply:
    """An application's result for a frame.

    Attributes:
        frame: The frame, as `Publisher.send` returned it.
        application: The application's name.
        payload: The result, if it is opaque to Mez, just as the application sent it; else empty.
        detections: What was found, in the pixels of the frame as it was published; `None` if the result is
            opaque.
    """

    frame: FrameId
    application: str
    payload: bytes
    detections: Detections | None = None

    def json(self) -> Any:  # noqa: ANN401, whatever the application sent
        """The result as the value that JSON holds; of detections, a list of a dict for each.

        Raises:
            ValueError: The application sent something else than JSON; see `payload`.
        """
        if self.detections is not None:
            return self.detections._plain()
        return json.loads(self.payload)


class Publisher:
    """Publishes the frames of one camera. Made by `mez.publisher`; a context manager, which closes it.

    Any thread may use it.
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
        """The camera's name."""
        return self._camera

    def send(self, image: "Image", *, captured: arguments.Time | None = None) -> FrameId | None:
        """Publish an image, now.

        The frame goes into the camera's log in memory, and from there to the edge as soon as somebody there
        is subscribed. So this takes the time of encoding and a copy, waits for no network, and queues
        nothing: of frames that the link cannot carry, the newest wins. Pixels are encoded in Rust, and
        other Python threads run meanwhile; they must not write to the image until this returns.

        Args:
            image: 8-bit pixels (a NumPy array, or anything with the buffer protocol) of shape (height,
                width, 3) in the order blue, green, red, (height, width, 4) with an alpha that is dropped,
                or (height, width) for grey, with any strides; or the bytes of a whole JPEG, which are
                passed on untouched. An orientation that it states in EXIF is not applied: boxes of replies
                are in its pixels as they are coded.
            captured: When the image was captured, if you know better than now: an aware datetime, or
                nanoseconds since 1970-01-01 UTC. Has to increase from frame to frame.

        Returns:
            The frame's identity, which replies name. With `broker=`: the word of that broker is waited for,
            a millisecond on the same host and 250 at most; `None` means that it did not take the frame,
            because it is away or busy with the one before, and the frame is gone (counted in `dropped`).

        Raises:
            ImageError: These are no 8-bit pixels, or no whole JPEG.
            FrameTooLargeError: Encoded, it has more bytes than `frame_bytes_max`.
            CaptureTimeError: `captured` is not after that of the last frame.
            LogFullError: Readers hold the whole log.
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
        """Publish a record that is no picture, now: what was found, a measurement, any bytes.

        It goes the way of a frame: the same log, history, encryption, accounting and limits. Who subscribes
        reads `frame.data`. A stream may hold pictures and records; contracts with an accuracy floor do not
        change records.

        Args:
            payload: Bytes; text; plain values that JSON can say (no NaN); an array of NumPy, which goes as
                `.npy`; a `Table` or `RecordBatch` of pyarrow, which goes as an Arrow IPC stream. No pickles.
            content_type: A media type. Default: what fits the payload, `application/octet-stream` for bytes.
            of: The frame or record that it was made of. Readers find its camera, identity and capture time in
                `frame.of`.
            captured: The record's own time, as for `send`. Default: now.

        Returns:
            The record's identity, as `send`.

        Raises:
            ArgumentError: The content type is none or does not fit the payload, or the payload is empty.
            ArgumentTypeError: JSON cannot say the payload.
            MissingPackageError: It is a table, and pyarrow is not installed.
            FrameTooLargeError: With its content type and `of`, it has more bytes than `frame_bytes_max`.
            CaptureTimeError: `captured` is not after that of the last record or frame.
            LogFullError: Readers hold the whole log.
            EndedError: The publisher is closed.
        """
        captured_ns = arguments.optional_utc_ns("captured", captured)
        if content_type is not None:
            content_type = arguments.text("content_type", content_type)
        made, kind = _data.pack(payload, content_type)
        record = self._native.send_data(made, kind, _origin(of), captured_ns)
        return self._acknowledged(record)

    def _acknowledged(self, frame: tuple[int, int] | None) -> FrameId | None:
        """What `send` returns, when it is on disk if that was asked for."""
        if frame is None:
            return None
        published = FrameId(*frame)
        if self._on_disk:
            self.wait_on_disk(published)
        return published

    def wait_on_disk(self, frame: FrameId) -> None:
        """Wait until a record of this derived stream, and every one before it, is on the edge's disk.

        It then outlives a killed edge; and a power cut, unless the edge runs with `--durability async`. All
        that wait at an edge share its syncs. To be sure of several records at little cost, publish them and
        then wait for each: the first wait takes the time of a sync. With `acknowledge="disk"`, `send` and
        `send_data` do it themselves.

        Args:
            frame: The record, as `send` or `send_data` returned it.

        Raises:
            NotOnDiskError: It is not there, as soon as that is known and after five seconds at most; `reason`
                says what to do.
            ArgumentError: This is no derived stream.
            ConnectError: The edge is away.
            EndedError: The publisher is closed.
        """
        refused = self._native.wait_on_disk(frame.epoch, frame.sequence)
        if refused is not None:
            reason, message = refused
            error = NotOnDiskError(f"{self._camera} {frame}: {message}")
            error.reason, error.frame = reason, frame
            raise error

    def lost(self, reason: str) -> None:
        """Say that the camera gives no frames any more, and why: it was unplugged, or cannot be read.

        Whoever waits for its frames reads the reason: `mez cameras`, events, `frame.contract`. Frames that
        are sent later take it back, so a program may go on and open its camera again. If none is sent, the
        source stays lost when the publisher is closed. Call it where a camera's `read()` fails; at the end of
        a file just close the publisher, which says that the source has ended.

        Args:
            reason: For people, in a few words.

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
        """Whether the edge has the camera connected. With `broker=`: whether that broker is there."""
        return self._native.connected

    @property
    def edge(self) -> str | None:
        """The address of the edge that has the camera connected; `None` without one, and with `broker=`."""
        return self._native.edge

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until `connected`. Not needed before `send`: frames go into the log meanwhile.

        Args:
            timeout: Seconds; `None` waits for ever.

        Raises:
            WaitTimeoutError: The time has passed. The message says what went wrong last.
            EndedError: The publisher is closed.
        """
        self._native.wait_connected(arguments.timeout("timeout", timeout))

    def next_reply(self, timeout: float | None = None) -> Reply:
        """The next result that an application sent for one of the frames.

        Beyond 64 that nobody takes, the oldest is dropped.

        Args:
            timeout: Seconds; `None` waits for ever.

        Raises:
            WaitTimeoutError: The time has passed.
            EndedError: The publisher is closed, also by another thread while this one waits.
        """
        reply = self._native.next_reply(arguments.timeout("timeout", timeout))
        if reply is None:
            raise WaitTimeoutError(
                f"no reply for camera {self._camera} within {timeout} s; "
                "applications send them with Frame.reply"
            )
        epoch, sequence, application, payload, found = reply
        detections = None if found is None else received(*found)
        return Reply(FrameId(epoch, sequence), application, payload or b"", detections)

    def replies(self) -> Iterator[Reply]:
        """Results that applications send, one after the other, until the publisher is closed."""
        while True:
            try:
                yield self.next_reply()
            except EndedError:
                return

    def answers(self, answer_ms: float = ANSWER_MS) -> Answers:
        """Take answers from now on: pictures that applications make of the frames (`Frame.answer`).

        The frame goes up, a picture comes back, and the newest wins both ways: nothing queues. An answer that
        cannot be here in time is given up, and told: what is given and what is told of are all that
        applications answered. Iterate over it, in one thread; close it, or end its `with`, to take no more.

        The camera broker has to be inside this process: not with `broker=` nor `of=`.

        Args:
            answer_ms: The most milliseconds from a frame's capture until all of its answer has left the edge.
                Later ones are given up. Applications are told how many bytes that leaves for a picture.

        Raises:
            ArgumentError: `answer_ms` is not above 0, or the broker is in another process.
            BusyError: The answers of this publisher are taken already.
            EndedError: The publisher is closed.
        """
        if self._answers is not None and not self._answers.closed and not self.closed:
            raise BusyError(f"the answers for camera {self._camera} are taken already; close those first")
        self._answers = Answers(self._native, self._camera, answer_ms)
        return self._answers

    @property
    def published(self) -> int:
        """Frames in the log since this publisher was made."""
        return self._native.published

    @property
    def refused(self) -> int:
        """Calls of `send` that raised."""
        return self._native.refused

    @property
    def dropped(self) -> int:
        """With `broker=`: frames that the broker did not take, because it was away or busy. Otherwise 0."""
        return self._native.dropped

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._native.closed

    def close(self) -> None:
        """Stop publishing. Closing twice does nothing.

        The source of the frames has then ended; or is lost, if `lost` said so and no frame came since. The
        end of a `with` closes as well. An exception that ends the `with` makes the source lost, with the
        exception as the reason; `KeyboardInterrupt`, and an exit without an error, do not.

        The log in memory of a broker in this process goes with it, and with the log whatever has not left
        yet; what is kept in `store` is there at the next start.
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
            # What is raised already says more than that the publisher is closed.
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
    """Start to publish a camera's frames.

    It starts a camera broker inside this process. With `broker`, it connects to a separate one (`mez camera
    NAME --edge HOST`), which outlives this process. It returns at once, even if the edge cannot be reached:
    the broker keeps dialling, and logs the reason to the logger `mez` of `logging`.

    With `of` it publishes a derived stream instead: what your program made of the frames of others. It needs
    no camera broker and no camera's keys. The edge numbers the records and keeps them, and whoever subscribes
    reads them like a camera's frames (docs/derived.md). Several programs of one identity may publish the same
    stream. `send` and `send_data` then wait until the record is in the stream, for five seconds at most, and
    raise `ConnectError` if it is not, or may not be.

    Args:
        camera: The camera's name, such as `dock/cam1`: up to eight segments of letters, digits, `.`, `_`
            and `-`.
        of: The streams that a derived stream is made of: `"dock/cam1"`, or a list of them. Default: none;
            it is a camera. With it, `edge`, `keys` and `connect_timeout` mean what they mean in `subscribe`,
            `quality` is that of pictures, and the other options have no use.
        edge: The edge: `"HOST"` or `"HOST:PORT"` (UDP, 7650 by default), or a `mez.edge()` of this process.
            Or up to eight of them, of one site, in order of preference. The camera is connected to one at a
            time: if that one is gone, to the next; when a preferred one is back, to that. Default: `MEZ_EDGE`
            (several with commas between them), else the edge of this host, if one runs, else the edge of the
            site that answers on the local network (`mez edge --announce`). If none answers within two
            seconds, this host, as soon as an edge runs there.
        broker: A separate camera broker: `"unix:///run/mez/camera.sock"`, or `"unix:"` for the default path.
            It has its own edge, keys and log.
        keys: The folder of keys. Default: `MEZ_KEYS`, else `~/.config/mez/keys`.
        quality: JPEG quality of pixels that are sent, 1 to 100.
        memory_bytes: Memory for frames, in bytes. When it is full, the oldest frames are dropped.
        frame_bytes_max: The largest encoded frame, in bytes.
        state: The folder that keeps the camera's epoch between starts. Default: `MEZ_STATE`, else
            `/var/lib/mez` for root, else `~/.local/state/mez`. With an edge of this process that made its own
            keys, it is a temporary folder of that edge.
        link: The transport of the link: `"quic"`, `"tcp"` (TLS over TCP), or `"auto"`: QUIC, and TCP if UDP
            is blocked.
        h264_encoder: The H.264 encoder: `"openh264"`, or `"x264"` in builds that have it.
        store: The folder of a store: frames are also kept there, encrypted, and outlive this process.
            Default: frames are kept in memory only.
        store_key: The file with the store's keys, made by `mez store key`. Default: the keys that
            `MEZ_STORE_KEY` itself holds, else those in the systemd credential `mez-store-key`, else
            `store.key` in the folder of keys.
        store_bytes: Disk space for frames, in bytes. When it is full, the oldest frames are dropped.
        store_age: Seconds for which frames stay on disk. Default: until the space is needed.
        durability: How much a power cut may lose: `"async"` half a minute, `"group"` a second, `"sync"` a
            fifth of a second.
        history_share: Share of the link's time that frames of the past may take beside live ones, 0.01 to 1.
        connect_timeout: Of a derived stream: how long to keep dialling if the edge does not answer, in
            seconds; then `ConnectError`. `None`: for ever.
        knobs: By which knobs data records may be degraded (`mez.Knobs`). Not with `broker`: their function
            runs in this process. Default: records go as they are published.
        acknowledge: Of a derived stream: when `send` and `send_data` return. `"memory"`: when the record is
            in the stream. `"disk"`: when it is on the edge's disk as well, so that a killed edge does not
            lose it (`Publisher.wait_on_disk`).

    Raises:
        ArgumentError: An argument has a bad value; `field` names it.
        KeysError: There are no keys, none that may publish this camera, or they have expired.
        CameraInUseError: A broker of this camera runs on this machine already.
        StateError: The folder for state, or `store`, cannot be used.
        ConnectError: No broker answered at `broker` for 5 seconds, or no edge for `connect_timeout`.
        PermissionDenied: No grant lets this program publish the derived stream.
        BrokerError: The derived stream has the name of a camera, or somebody else publishes it.
        BusyError: This program has as many derived streams as it may have.

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
            "only a derived stream is acknowledged by the edge's disk; give of as well, or leave it out",
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
    """Why the source is lost if this exception ends a program; `None` if somebody ended it on purpose."""
    if isinstance(error, SystemExit):
        # A status of 0 or none is no failure; a text is what the program printed last.
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
    # For applications it may be a Unix socket, which means this host.
    others = [name for name in named if not name.startswith("unix:")]
    return others if others or not named else ["localhost"]
