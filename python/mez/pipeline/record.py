"""Records, which stages take and make, with their hops."""

import os
import re
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mez import _arguments as arguments
from mez import _data, _detections, _native
from mez._data import Origin
from mez._detections import Parts
from mez._frame_id import FrameId
from mez._reply_bytes import reply_bytes
from mez.errors import ImageError, MissingPackageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mez._frame import Frame

CAMERA: Final = "camera"
"""The name of the first hop: the way of a frame from its camera to the first stage."""

HOPS_MAX: Final = 64
"""The most hops that a record has. A pipeline of more stages is refused."""

MARKS_MAX: Final = 32
"""The most marks that a stage may set on a record."""

HEADERS_BYTES_MAX: Final = 16 << 10
"""The most bytes of a record's own headers, names and values together."""

STEPS: Final = ("captured", "logged", "handed", "fetched", "made", "sent")
"""The steps that pipelines stamp themselves. A mark of a stage has another name."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Hop:
    """One stage of a record's way, with a stamp for each step.

    Attributes:
        stage: The stage, or `"camera"` for the way from the camera.
        worker: The worker: `detect-0@host`. Empty for the camera.
        clock: The clock of the stamps. Only stamps of the same clock can be subtracted from each other. Each
            boot of a host has its own clock.
        wall_ns: The offset from a stamp to nanoseconds since 1970-01-01 UTC by the host's wall clock. With
            it, hops of different clocks can be compared, as far as the hosts' wall clocks agree.
        at: The stamp of each step, in nanoseconds of the clock, in order: `captured`, when the camera
            captured the frame; `logged` and `handed`, when the edge had it in its log and gave it out (bus
            `mez`, if its clock is known); `fetched`, when the worker had it; the marks of the stage's
            function; `made`, when the function had returned it; `sent`, when it was given to the bus.
        size: Bytes of the payload after this hop.
        attempt: The number of the try, from 1. 0 for the camera.
        error_ns: The largest possible error of `captured`, if it is known.
    """

    stage: str
    worker: str
    clock: str
    wall_ns: int
    at: dict[str, int]
    size: int
    attempt: int = 0
    error_ns: int | None = None

    def plain(self) -> dict[str, Any]:
        """The hop as JSON values."""
        told: dict[str, Any] = {
            "stage": self.stage,
            "worker": self.worker,
            "clock": self.clock,
            "wall_ns": self.wall_ns,
            "at": dict(self.at),
            "size": self.size,
            "attempt": self.attempt,
        }
        if self.error_ns is not None:
            told["error_ns"] = self.error_ns
        return told

    @classmethod
    def from_plain(cls, told: Any) -> "Hop":  # noqa: ANN401, what JSON holds
        """The hop that `plain` was called on.

        Raises:
            ValueError: The values are not those of a hop.
        """
        try:
            return cls(
                stage=str(told["stage"]),
                worker=str(told["worker"]),
                clock=str(told["clock"]),
                wall_ns=int(told["wall_ns"]),
                at={str(step): int(stamp) for step, stamp in told["at"].items()},
                size=int(told["size"]),
                attempt=int(told["attempt"]),
                error_ns=None if told.get("error_ns") is None else int(told["error_ns"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a hop: {type(error).__name__} {error}") from error


@dataclass(frozen=True, slots=True)
class Reply:
    """A stage's reply to the camera's frame.

    Attributes:
        payload: Opaque bytes. `None`: the reply has detections.
        size: Width and height of the picture that the detections are in, in pixels.
        parts: The detections.
    """

    payload: bytes | None
    size: tuple[int, int] = (1, 1)
    parts: list[Parts] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Record:
    """A record, which a stage takes or makes.

    Attributes:
        id: Its identity: the camera's frame, then for each stage its name and the index of the record among
            its results: `dock/cam1@1-42/detect.0`. A record that is made again has the same identity.
        camera: The camera of the frame that it was made of.
        frame: This frame: epoch and sequence.
        captured_ns: When this frame was captured, in nanoseconds since 1970-01-01 UTC.
        payload: Its bytes, read-only.
        content_type: Their media type. A camera's frame is `image/jpeg` or `image/png`.
        headers: Texts that travel with it.
        published_size: Width and height of the camera's frame as it was published, in pixels. `None` if it
            is unknown.
        hops: Its way so far, oldest first.
        attempt: The number of the try to work on it, from 1.
    """

    id: str
    camera: str
    frame: FrameId
    captured_ns: int
    payload: memoryview
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    published_size: tuple[int, int] | None = None
    hops: tuple[Hop, ...] = ()
    attempt: int = 1
    # Stamps of the current hop; the frame, if the record is one; the stage's replies to the camera.
    _at: dict[str, int] = field(default_factory=dict, repr=False)
    _origin: "Frame | None" = field(default=None, repr=False)
    _replies: list[Reply] = field(default_factory=list, repr=False)

    @property
    def data(self) -> Any:  # noqa: ANN401, what was published
        """Its content, by `content_type`: plain values, text, a NumPy array, a table; else bytes.

        Raises:
            DataError: The bytes do not fit the content type.
            MissingPackageError: It is a table, and pyarrow is not installed.
        """
        return _data.unpack(self.payload, self.content_type)

    @property
    def image(self) -> "NDArray[np.uint8]":
        """Its pixels: 8 bits each, of shape (height, width, 3), in the order blue, green, red.

        Raises:
            ImageError: It is not a picture, or the picture is damaged.
            MissingPackageError: OpenCV is not installed, and it is not a camera's frame.
        """
        if self._origin is not None and self._origin.content_type is None:
            return self._origin.image
        encoding = {"image/jpeg": "jpeg", "image/png": "png"}.get(self.content_type)
        if encoding is None:
            raise ImageError(f"{self.id} is {self.content_type} and has no pixels; read its data")
        import numpy as np

        try:
            import cv2
        except ImportError as error:
            raise MissingPackageError(
                f"record.image needs the package opencv-python-headless ({error}); record.payload "
                "has the bytes"
            ) from error
        how = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
        image = cv2.imdecode(np.frombuffer(self.payload, np.uint8), how)
        if image is None:
            raise ImageError(f"{self.id} has the content type {self.content_type}, but cannot be decoded")
        return np.asarray(image, np.uint8)

    @property
    def origin(self) -> Origin:
        """Names the camera's frame (`of=` of `Publisher.send_data`)."""
        return Origin(self.camera, self.frame, self.captured_ns)

    def derive(
        self, payload: object, *, content_type: str | None = None, headers: Mapping[str, str] | None = None
    ) -> "Record":
        """Make a record of this one, for a stage to return.

        Args:
            payload: Bytes; text; values that JSON can represent; a NumPy array; a pyarrow table. As for
                `Publisher.send_data`.
            content_type: A media type. Default: the type that fits the payload.
            headers: Texts that travel with it, in addition to those of this record. They replace headers of
                the same name.

        Raises:
            ArgumentError: The content type does not fit the payload, or the headers are too large.
            ArgumentTypeError: JSON cannot represent the payload, or a header is not a text.
        """
        made, kind = _data.pack(payload, content_type)
        return Record(
            id=self.id,
            camera=self.camera,
            frame=self.frame,
            captured_ns=self.captured_ns,
            payload=memoryview(made),
            content_type=kind,
            headers=_headers({**self.headers, **(headers or {})}),
            published_size=self.published_size,
            hops=self.hops,
            attempt=self.attempt,
            _at=dict(self._at),
            # One list for all: a reply belongs to the frame, whichever of its records it was called on.
            _replies=self._replies,
        )

    def picture(
        self, image: "NDArray[np.uint8]", *, quality: int = 95, headers: Mapping[str, str] | None = None
    ) -> "Record":
        """Make a record of this one that is a picture, encoded as JPEG.

        Args:
            image: 8-bit pixels of shape (height, width, 3) in the order blue, green, red, or (height, width).
            quality: JPEG quality, 1 to 100.
            headers: As in `derive`.

        Raises:
            ImageError: The array does not have 8-bit pixels.
        """
        coded = _native.encode_jpeg(image, arguments.whole("quality", quality, 1, 100))
        return self.derive(coded, content_type="image/jpeg", headers=headers)

    def reply(self, result: object) -> None:
        """Send a result back to the camera, for the frame that this record was made of.

        Any stage may reply, on either bus. The reply is sent through the pipeline's edge, after the bus has
        confirmed the function's records. If the function raises an error, no reply is sent. A record that is
        processed twice is replied to twice. As with `Frame.reply`, nothing waits for the reply, and it is
        lost if the camera or the edge is away. It needs the grant `reply`.

        Args:
            result: As in `Frame.reply`. Boxes without a `size` are in the pixels of the camera's frame as it
                was published; those of a stage that takes frames of cameras, in the pixels of `image`. At
                most 64 KiB.

        Raises:
            ArgumentError: A box is not valid, or the size of the camera's frame is unknown.
            ArgumentTypeError: It is neither boxes nor bytes, and JSON cannot represent it.
        """
        found = _detections.of(result)
        if found is None:
            self._replies.append(Reply(reply_bytes(result)))
            return
        if self.published_size is None:
            raise arguments.invalid(
                "result", f"the size of {self.camera}'s frame is unknown; send bytes, or plain values"
            )
        size = found.size or self._picture_size() or self.published_size
        self._replies.append(Reply(None, size, found._parts()))

    def _picture_size(self) -> tuple[int, int] | None:
        """Width and height of `image`, if it is the camera's frame."""
        if self._origin is None or self._origin.content_type is not None:
            return None
        return self._origin.width, self._origin.height

    def mark(self, step: str) -> None:
        """Stamp a step of this stage, such as `"resized"`. Records that are derived later contain the stamp.

        Args:
            step: Small letters, digits, `_`, `-` and `.`. A step that is marked twice keeps the later stamp.
                `"ai"`, or a name that begins with `"ai."`, says that AI ends here (`mez pipeline report`).

        Raises:
            ArgumentError: It is the name of a step of the pipeline, or there are too many.
        """
        if step in STEPS or not _NAME.fullmatch(arguments.text("step", step)):
            raise arguments.invalid(
                "step", f"step is {step!r}; give small letters, but not {', '.join(STEPS)}"
            )
        if len(self._at) >= MARKS_MAX:
            raise arguments.invalid("step", f"a stage may set at most {MARKS_MAX} marks on a record")
        self._at[step] = time.monotonic_ns()

    def __repr__(self) -> str:
        return f"<Record {self.id} {self.content_type} {len(self.payload)} bytes>"


def begin(record: Record) -> None:
    """Stamp that a worker has the record now. Replies of an earlier try are dropped."""
    record._replies = []
    record._at["fetched"] = time.monotonic_ns()


def finish(record: Record, made: Record, stage: str, place: int, worker: str) -> Record:
    """Give a record that a stage made its identity and its hop. `sending` adds the stamp `sent`."""
    at = {**made._at, "made": time.monotonic_ns()}
    hop = Hop(stage, worker, clock(), wall_ns(), at, len(made.payload), record.attempt)
    # A copy: a function may return the record that it was given, or one record twice.
    name = f"{record.id}/{stage}.{place}"
    return replace(made, id=name, hops=(*record.hops, hop), _at={}, _origin=None, _replies=[])


def replies(record: Record) -> Sequence[Reply]:
    """The stage's replies to the frame of a record."""
    return record._replies


def sending(record: Record) -> None:
    """Stamp that the record is given to its bus now."""
    record.hops[-1].at["sent"] = time.monotonic_ns()


def waited_ns(record: Record) -> int | None:
    """How long a record waited between the previous stage, or the edge's log, and this worker.

    `None` if another clock stamped the previous stage.
    """
    before = record.hops[-1]
    sent = before.at.get("sent", record._at.get("logged"))
    fetched = record._at.get("fetched")
    if sent is None or fetched is None or before.clock != clock():
        return None
    return max(0, fetched - sent)


def arrived(record: Record, at: Mapping[str, int]) -> Record:
    """Begin the current hop with the stamps of the bus."""
    record._at = {step: at[step] for step in ("logged", "handed") if step in at}
    return record


def of_frame(frame: "Frame") -> Record:
    """A record of a camera's frame, or of a data record without an envelope."""
    content_type = frame.content_type or _MEDIA.get(frame.encoding, f"image/x-{frame.encoding}")
    record = start(frame.of or frame.origin, frame.payload, content_type, max(1, frame.attempt))
    record._origin = frame
    if frame.content_type is None:
        record.published_size = frame.published_size
    exact_ns = frame._captured_monotonic_ns
    if exact_ns is not None and frame.of is None:
        error_ns = None if frame.age_error_ms is None else round(frame.age_error_ms * 1e6)
        record.hops = (replace(record.hops[0], at={"captured": exact_ns}, error_ns=error_ns),)
    return arrived(record, bus_stamps(frame))


def start(origin: Origin, payload: memoryview, content_type: str, attempt: int) -> Record:
    """A record without an envelope. Its stamp `captured` is only as exact as the wall clocks agree."""
    offset_ns = wall_ns()
    at = {"captured": origin.captured_ns - offset_ns}
    return Record(
        id=f"{origin.camera}@{origin.id.epoch}-{origin.id.sequence}",
        camera=origin.camera,
        frame=origin.id,
        captured_ns=origin.captured_ns,
        payload=payload,
        content_type=content_type,
        hops=(Hop(CAMERA, "", clock(), offset_ns, at, len(payload)),),
        attempt=attempt,
    )


def bus_stamps(frame: "Frame") -> dict[str, int]:
    """When the edge had a record in its log and gave it out, by the clock of this host."""
    began = frame._captured_monotonic_ns
    if began is None:
        return {}
    told = frame.trace.ms
    return {step: began + round(told[step] * 1e6) for step in ("logged", "handed") if step in told}


_MEDIA: Final = {"jpeg": "image/jpeg", "png": "image/png"}


def checked_outputs(answer: object, stage: str) -> Sequence[Record]:
    """The records that a stage's function returned.

    Raises:
        TypeError: It returned something else.
    """
    if answer is None:
        return ()
    if isinstance(answer, Record):
        return (answer,)
    wrong = (
        f"stage {stage} returned {type(answer).__name__}; return None, a record or records (record.derive)"
    )
    if isinstance(answer, str | bytes | bytearray | memoryview | Mapping) or not isinstance(answer, Iterable):
        raise TypeError(wrong)
    # If it is a generator, the stage's work runs here, and may raise any error.
    several = list(answer)
    for made in several:
        if not isinstance(made, Record):
            raise TypeError(f"{wrong}; among them was {type(made).__name__}")
    return several


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    size = 0
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise arguments.wrong_type("headers", f"headers has {name!r}: {value!r}; give texts")
        if not _NAME.fullmatch(name.lower()) or name.lower().startswith("mez-") or name == "content-type":
            raise arguments.invalid(
                "headers",
                f"headers has the name {name!r}; give letters, digits, `_`, `-` and `.`, not mez-… or "
                "content-type",
            )
        size += len(name) + len(value.encode())
    if size > HEADERS_BYTES_MAX:
        raise arguments.invalid("headers", f"headers have {size} bytes; give at most {HEADERS_BYTES_MAX}")
    return dict(given)


@cache
def clock() -> str:
    """The name of this host's monotonic clock, which is new at each boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:13]
    except OSError:
        return f"{socket.gethostname()}-{os.getpid()}"


def wall_ns() -> int:
    """How far the wall clock is ahead of the monotonic clock, in nanoseconds."""
    return time.time_ns() - time.monotonic_ns()
