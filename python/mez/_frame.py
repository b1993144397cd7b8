"""Frames as applications receive them."""

import datetime
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, overload

from mez import _data, _detections, _native, _pixels
from mez._arguments import StrPath, optional_number, whole
from mez._data import Origin
from mez._frame_id import FrameId
from mez._group import Settled
from mez._reply_bytes import reply_bytes
from mez._trace import Trace
from mez.errors import EndedError, ImageError

if TYPE_CHECKING:
    import numpy as np
    import PIL.Image
    from numpy.typing import NDArray

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)

ContractState: TypeAlias = Literal[
    "absent",
    "source_lost",
    "infeasible",
    "latency_miss",
    "application_late",
    "accuracy_miss",
    "drifted",
    "unverified",
    "ok",
]
"""All states of a contract, in order of precedence: of those that apply, the first counts."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Whether what was asked for in `subscribe` is being kept.

    Attributes:
        state: Where several apply, the first of these: `"absent"`: the camera is not connected;
            `"source_lost"`: it is connected, and its source gives no frames (`Source`); `"infeasible"`:
            nothing at or above the accuracy floor is on time often enough; `"latency_miss"`: too few frames
            arrived in time, though it was thought feasible; `"application_late"`: enough arrived in time, and
            this program took too few of them in time; `"accuracy_miss"`: what
            `Subscription.report_accuracy` was told is below the floor; `"drifted"`: frames differ from those
            that the profile was made with; `"unverified"`: nothing is known of it, for want of a profile;
            `"ok"`. Judged over the last second; measured accuracies over the last ten; `"source_lost"` at
            once.
        reason: A sentence that says why, such as "the link carries 2.1 Mbit/s; the floor 0.95 needs 3.4
            Mbit/s at 15 fps".
        expected_accuracy: As `Frame.expected_accuracy`; `None` where it is not of a frame.
        infeasible: As `Frame.infeasible`.
    """

    state: ContractState
    reason: str
    expected_accuracy: float | None = None
    infeasible: bool = False

    def __str__(self) -> str:
        """`ok: 15 of 15 frames within 100 ms`."""
        return f"{self.state}: {self.reason}"


@dataclass(frozen=True, slots=True)
class NotHeld:
    """A stretch of time that was asked for and that nobody holds, or nobody could be asked for.

    How many frames it had, `Frame.skipped` says where that is known.

    Attributes:
        since_ns: The capture time of the frame before it, or the first that was asked for, in nanoseconds
            since 1970-01-01 UTC.
        until_ns: Frames captured before this time are not held.
        reason: `"gone"`: nobody holds frames of that time any more; `"camera_restarted"`: what the camera had
            neither sent nor written before its end is lost; `"unreadable"`: frames were removed meanwhile,
            or are damaged. Or the camera may hold frames, and was not heard: `"camera_absent"`: it was not
            connected; `"not_answered"`: it did not answer in time; `"busy"`: too much was asked at once. Ask
            again then.
    """

    since_ns: int
    until_ns: int
    reason: str


class Replier(Protocol):
    """Takes replies and answers to frames."""

    def answer(self, camera: str, epoch: int, sequence: int, image: object) -> None:
        """Send a picture that was made of a frame, without waiting."""

    def reply(self, camera: str, epoch: int, sequence: int, payload: bytes) -> None:
        """Send a reply, without waiting."""

    def reply_detections(
        self,
        camera: str,
        epoch: int,
        sequence: int,
        published: tuple[int, int],
        detections: tuple[tuple[int, int], list[_detections.Parts]],
    ) -> None:
        """Send what was found, without waiting."""


class Finder(Protocol):
    """Finds records that were made of frames."""

    def find(self, frame: "Frame", name: str, timeout_s: float | None) -> "Frame | None":
        """Wait for a record."""


class Frame(Settled):
    """A frame of a camera.

    It can be pickled, for example to work on it in another process; there it cannot `reply` any more.

    Attributes:
        camera: The camera's name.
        epoch: Counts the starts of the camera's broker.
        sequence: Counts the frames since then, without holes at the camera.
        captured_ns: When it was captured, in nanoseconds since 1970-01-01 UTC, by the camera's clock as it
            was when the epoch began: it never steps, and increases from frame to frame.
        clock_source: `"broker"` if the camera's broker stamped it, `"publisher"` if the publisher gave the
            time.
        width: Pixels in a row of `payload`.
        height: Rows of `payload`.
        published_size: Width and height of the frame as it was published, in pixels: those of the picture
            that the camera has. `rung` says whether the frame was made smaller.
        encoding: What `payload` is: `"data"`, of a record that is no picture; `"jpeg"`, `"png"`, `"bgr8"` or
            `"gray8"`; or `"h264"`, `"h265"`, `"av1"` or `"tiles"`, of video that came as it crossed the link
            and was decoded here (`accept` of `subscribe`).
        rung: What was done to the frame that was published: `"original"`, or a name such as
            `"jpeg/w1920/q80/420"`.
        expected_accuracy: The accuracy to expect, in 0..1: by the subscription's profile, else by what the
            camera said; 1 for a frame as it was published. `None` where nobody knows.
        age_ms: Milliseconds from its capture until it was handed to the application, by monotonic clocks;
            `None` until the clocks on the way have been compared.
        age_error_ms: The most by which `age_ms` is wrong.
        contract: Whether the subscription's contract is kept, and why.
        infeasible: The frame lies below the accuracy floor, or came because nothing at or above it would have
            been on time.
        skipped: Frames of this camera between the one before and this one that were not delivered: how
            many, by reason. `"application_busy"`: the application took its time; `"link_busy"`,
            `"stalled"`, `"late_or_lost"`, `"link_down"`: the link; `"not_wanted"`: nobody was subscribed;
            `"evicted"`, `"not_held"`: gone from the log; `"refused"`; `"not_made"`: a codec failed;
            `"not_decoded"`, `"edge_busy"`: the edge did not decode it, or not in time; `"infeasible"`: below
            the floor, which `on_infeasible` does not want; `"left_out"`: the setting of the frame before
            sends one of so many (`/skipN`); `"damaged"`: it stood in a log on disk, and what stands there
            now is not what was written. Delivered + skipped = published, from the first frame of each
            epoch on.
        not_held: A stretch before this frame that is not held, where counts do not tell it: before the first
            frame of a reading of the past, where the camera was started again, and where the camera was to
            be asked for the past and was not heard.
        trace: Where it was when, from the camera into the application's hands.
        link_bytes: What of it crossed the link between camera and edge, in bytes: less than `payload` where
            it crossed as video. `None` if nobody knows: a frame that was read at the camera, or from the
            edge's disk.
        content_type: What `payload` is, if the record is no picture (`encoding` is `"data"`): a media type
            such as `"application/json"`. `None` for a picture.
        of: The frame or record that a data record was made of, if its publisher named it.
        attempt: In a group: the how manieth time this record is given, from 1. 0 outside groups.
        payload: The coded image as it came, read-only and without a copy. `bytes(frame.payload)` copies it.
            That of video is of no use without the frames before it; `image` has been decoded with them. Of a
            data record: its bytes, which `data` reads.
    """

    __slots__ = (
        "_captured_monotonic_ns",
        "_following",
        "_image",
        "_image_size",
        "_picture",
        "_replier",
        "_settler",
        "age_error_ms",
        "age_ms",
        "attempt",
        "camera",
        "captured_ns",
        "clock_source",
        "content_type",
        "contract",
        "encoding",
        "epoch",
        "expected_accuracy",
        "height",
        "infeasible",
        "link_bytes",
        "not_held",
        "of",
        "payload",
        "published_size",
        "rung",
        "sequence",
        "skipped",
        "trace",
        "width",
    )

    camera: str
    epoch: int
    sequence: int
    captured_ns: int
    clock_source: str
    width: int
    height: int
    published_size: tuple[int, int]
    encoding: str
    rung: str
    expected_accuracy: float | None
    age_ms: float | None
    age_error_ms: float | None
    contract: Contract
    infeasible: bool
    skipped: Mapping[str, int]
    not_held: NotHeld | None
    trace: Trace
    link_bytes: int | None
    content_type: str | None
    of: Origin | None
    attempt: int
    payload: memoryview

    def __init__(self) -> None:
        raise TypeError("frames come from mez.subscribe() and mez.read()")

    @classmethod
    def _received(
        cls,
        arrival: _native.Arrival,
        replier: Replier,
        size: str = "sent",
        settler: _native.Subscription | None = None,
        following: Finder | None = None,
    ) -> "Frame":
        frame = cls.__new__(cls)
        frame.camera = arrival.camera
        frame.epoch = arrival.epoch
        frame.sequence = arrival.sequence
        frame.captured_ns = arrival.captured_ns
        frame.clock_source = arrival.clock_source
        frame.width = arrival.width
        frame.height = arrival.height
        frame.published_size = arrival.published_size
        frame._image_size = arrival.published_size if size == "published" else (arrival.width, arrival.height)
        frame.encoding = arrival.encoding
        frame.rung = arrival.rung
        frame.expected_accuracy = arrival.accuracy_expected
        frame.age_ms = arrival.age_ms
        frame.age_error_ms = arrival.age_error_ms
        frame.contract = Contract(
            arrival.contract_state, arrival.contract_reason, arrival.accuracy_expected, arrival.infeasible
        )
        frame.infeasible = arrival.infeasible
        frame.skipped = dict(arrival.skipped)
        frame.not_held = NotHeld(*arrival.not_held) if arrival.not_held else None
        frame.trace = Trace(dict(arrival.trace), arrival.age_error_ms if arrival.trace else None)
        frame.link_bytes = arrival.link_bytes
        frame.content_type = arrival.content_type
        frame.of = None
        if arrival.of is not None:
            camera, epoch, sequence, captured_ns = arrival.of
            frame.of = Origin(camera, FrameId(epoch, sequence), captured_ns)
        frame.attempt = arrival.attempt
        frame.payload = memoryview(arrival.payload)
        frame._captured_monotonic_ns = arrival.captured_monotonic_ns
        frame._image = None
        frame._picture = arrival.picture
        frame._replier = replier
        frame._settler = settler
        frame._following = following
        return frame

    _captured_monotonic_ns: int | None
    _following: Finder | None
    _image: "NDArray[np.uint8] | None"
    _image_size: tuple[int, int]
    _picture: _native.Picture | None
    _replier: Replier | None

    @property
    def id(self) -> FrameId:
        """Epoch and sequence: what orders frames, and what replies name."""
        return FrameId(self.epoch, self.sequence)

    @property
    def captured(self) -> datetime.datetime:
        """When it was captured, in UTC, to the microsecond; `captured_ns` is exact."""
        return _EPOCH + datetime.timedelta(microseconds=self.captured_ns // 1000)

    @property
    def skipped_count(self) -> int:
        """Frames skipped before this one, for any reason."""
        return sum(self.skipped.values())

    @property
    def image(self) -> "NDArray[np.uint8]":
        """The pixels: 8 bits each, of shape (height, width, 3), in the order blue, green, red, as in OpenCV.

        Of the size of `payload`; with `size="published"` of `subscribe`, scaled to `published_size`. An
        orientation that a JPEG states in EXIF is not applied.

        Decoded at the first use, in Rust and without holding up other Python threads, and kept; video has
        been decoded before, and is converted to pixels. The array is the frame's own and may be drawn on. A
        grey image has three equal channels; of a PNG, alpha is dropped, and 16 bits become 8.

        Raises:
            ImageError: It is damaged, or too large (above 67 megapixels); `payload` is there all the same.
        """
        # In this order: whoever finds no pixels has the picture, also if another thread is just done with it.
        shown = self._picture
        if self._image is None:
            self._image = self._decode(shown)
            # The pixels are enough.
            self._picture = None
            self._opened()
        return self._image

    @property
    def data(self) -> Any:  # noqa: ANN401, what was published
        """What `Publisher.send_data` was given: plain values, text, an array, a table; else bytes.

        Read by `content_type`: `application/json` (and `+json`) gives plain values, `text/` text,
        `application/x-npy` a read-only array of NumPy without a copy, and
        `application/vnd.apache.arrow.stream` a table of pyarrow. Anything else, and the payload of a picture,
        gives bytes. Nothing is ever unpickled.

        Raises:
            DataError: The bytes are not what the content type says.
            MissingPackageError: It is a table, and pyarrow is not installed.
        """
        return _data.unpack(self.payload, self.content_type)

    @property
    def origin(self) -> Origin:
        """Names this frame as the one that a record was made of (`of=` of `Publisher.send_data`)."""
        return Origin(self.camera, self.id, self.captured_ns)

    def derived(self, name: str, *, timeout_ms: float | None = 1000.0) -> "Frame | None":
        """The record that another program made of this frame and published at the edge.

        The stream `CAMERA/name` is followed from the first call on, by a thread of the subscription that gave
        this frame, with the records of this frame and of later ones: 1,024 of them and 64 MiB at most are
        kept. If there are several of one frame, the first. To go through frames and records in order, use
        `mez.join`.

        Args:
            name: The stream's name below the camera's: `"faces"` for `dock/cam1/faces`.
            timeout_ms: How long to wait for it, in milliseconds. `None`: for ever.

        Returns:
            The record, with its content in `data`; `None` if it was not there in time.

        Raises:
            EndedError: The subscription was closed, or the frame was pickled.
            PermissionDenied: No grant lets this program watch the stream.
            ConnectError: The edge is lost.
        """
        if self._following is None:
            raise EndedError(
                f"{self!r} was copied between processes; ask for its records where it was received"
            )
        limit = optional_number("timeout_ms", timeout_ms)
        return self._following.find(self, name, None if limit is None else limit / 1e3)

    @property
    def scale(self) -> tuple[float, float]:
        """By how much coordinates in `image` are multiplied, across and down, to be those as published."""
        self._refuse_data()
        (width, height), (across, down) = self._image_size, self.published_size
        return across / width, down / height

    @property
    def rgb(self) -> "NDArray[np.uint8]":
        """The pixels as in `image`, but in the order red, green, blue. A new array each time.

        Raises:
            ImageError: As `image`.
        """
        return _pixels.rgb(self.image)

    def pil(self) -> "PIL.Image.Image":
        """The pixels as an image of Pillow, in the mode `RGB`.

        Raises:
            MissingPackageError: Pillow is not installed.
            ImageError: As `image`.
        """
        return _pixels.pil(self.image)

    @overload
    def tensor(self, library: Literal["torch"] = "torch") -> Any: ...  # noqa: ANN401, torch may not be there
    @overload
    def tensor(self, library: Literal["numpy"]) -> "NDArray[np.float32]": ...
    def tensor(self, library: str = "torch") -> Any:
        """The pixels as most models want them: 32-bit floats from 0 to 1, of shape (3, height, width).

        The channels are red, green and blue. It is a new tensor each time, in main memory:
        `frame.tensor()[None].to("cuda")` is a batch of one on a GPU.

        Args:
            library: `"torch"` for a `torch.Tensor`; `"numpy"` for an array of NumPy, for example for ONNX
                Runtime.

        Raises:
            MissingPackageError: PyTorch is not installed, and was asked for.
            ImageError: As `image`.
        """
        return _pixels.tensor(self.image, library)

    def save(self, path: StrPath, *, quality: int = 95) -> None:
        """Write the frame to a file.

        If the file's ending says what `encoding` says, `payload` is written as it came: nothing is lost, and
        what was drawn on `image` is not in the file. Else `image` is encoded. A program that records says so
        when it subscribes: `for_export=True`.

        Args:
            path: The file, which ends in `.jpg`, `.jpeg` or `.png`. It is replaced if it exists.
            quality: JPEG quality if it has to be encoded, 1 to 100.

        Raises:
            ArgumentError: The path has another ending, or the quality is out of bounds.
            ImageError: As `image`.
            OSError: The file cannot be written.
        """
        file, encoding = _pixels.file_and_encoding(path)
        quality = whole("quality", quality, 1, 100)
        if encoding == self.encoding:
            file.write_bytes(self.payload)
        elif encoding == "jpeg":
            file.write_bytes(_native.encode_jpeg(self.image, quality))
        else:
            file.write_bytes(_native.encode_png(self.image))

    def _refuse_data(self) -> None:
        if self.encoding == "data":
            raise ImageError(f"{self!r} is a data record and has no pixels; read its `data`")

    def _opened(self) -> None:
        if self._captured_monotonic_ns is not None:
            ms = (time.monotonic_ns() - self._captured_monotonic_ns) / 1e6
            last_ms = max(self.trace.ms.values(), default=0.0)
            self.trace = Trace({**self.trace.ms, "opened": max(ms, last_ms)}, self.trace.error_ms)

    def _decode(self, shown: _native.Picture | None) -> "NDArray[np.uint8]":
        self._refuse_data()
        # Here, so that a program that never looks at pixels does not load it.
        import numpy as np

        wide, high = self._image_size
        if max(self.width * self.height, wide * high) > _native.PIXELS_MAX:
            raise ImageError(
                f"{self!r} has more than the {_native.PIXELS_MAX} pixels that are decoded; "
                "publish smaller images"
            )
        image = np.empty((self.height, self.width, 3), np.uint8)
        try:
            if shown is not None:
                shown.show_into(image)
            else:
                _native.decode_into(self.encoding, self.payload, image)
            if (wide, high) == (self.width, self.height):
                return image
            scaled = np.empty((high, wide, 3), np.uint8)
            _native.resize_into(image, scaled)
        except ImageError as error:
            raise ImageError(f"{self!r}: {error}") from None
        return scaled

    def reply(self, result: object) -> None:
        """Send a result for this frame back to its camera, where `Publisher.replies` gives it out.

        It is on its way when this returns, never waited for, and delivered at most once. Replies that
        cannot be sent as fast as they come are dropped, oldest first, beyond 64;
        `Subscription.reply_counts` counts them.

        Boxes are given in the pixels of `image`, and arrive in those of the frame as it was published,
        whatever its rung. They are:

        - `mez.Detections`, or `supervision.Detections`;
        - an array or tensor of shape (N, 4), (N, 5) or (N, 6), or a list of such rows: left, top, right,
          bottom, then how sure the detector is, then the class: its number, or in a list of rows its name;
        - a list of mappings with `xyxy`; `x1`, `y1`, `x2`, `y2`; or `x`, `y`, `width`, `height`; and, where
          known, `score`, `class_id`, `class_name`, `tracker_id`, `mask`, `key_points`;
        - a list of `mez.apps.boxes.Box`, or of objects with its attributes;
        - an empty list or array: nothing was found.

        `mez demo --app` and `mez profile run --app` read what a detector returns in the same way, so one
        function serves all three.

        Everything else is opaque to Mez and arrives as it is, coordinates in it too: multiply these by
        `scale`.

        Args:
            result: Boxes; or bytes; or anything that JSON can hold, arrays and numbers of NumPy included. At
                most 64 KiB.

        Raises:
            ReplyTooLargeError: It has more than 64 KiB.
            ArgumentError: These are boxes, but one of them ends before it begins or has a number that is not
                finite; or there are more than 4096.
            ArgumentTypeError: It is neither boxes nor bytes, nor can it be written as JSON.
            EndedError: The frame was pickled, so there is nobody to reply to.
            PermissionDenied: No grant lets this program reply to this camera. A reply does not wait for the
                edge, so that the next one raises it, and is not sent.
        """
        if self._replier is None:
            raise EndedError(f"{self!r} was copied between processes; reply where it was received")
        found = _detections.of(result)
        if found is None:
            self._replier.reply(self.camera, self.epoch, self.sequence, reply_bytes(result))
            return
        given = (found.size or self._image_size, found._parts())
        self._replier.reply_detections(self.camera, self.epoch, self.sequence, self.published_size, given)

    def answer(self, image: object) -> None:
        """Send a picture that you made of this frame back to its camera (`Publisher.answers`).

        It does not wait for the edge, and nothing queues: the newest wins. One that is not on its way yet is
        given up for a newer one, and so at the edge. The camera's publisher is told of those that it does not
        get. Pixels are coded as JPEG of the best quality that can be there in time, of 90 at most, while
        other Python threads run. What was found in a frame, boxes say in fewer bytes: see `reply`.

        A frame is answered once: a second answer to it is not delivered, and counted as `repeated`.

        Args:
            image: 8-bit pixels in the order blue, green, red, of shape (height, width, 3); (height, width, 4)
                with an alpha that is dropped; or (height, width) for grey. Or the bytes of a whole JPEG,
                which go as they are, 8 MiB at most. It may have another size than the frame.

        Raises:
            ImageError: These are no 8-bit pixels (of floating point, say), or no whole JPEG.
            ArgumentTypeError: This is no picture at all.
            FrameTooLargeError: It has more than 8 MiB.
            EndedError: The frame was pickled, so there is nobody to answer.
            PermissionDenied: No grant lets this program reply to this camera. An answer does not wait for the
                edge, so that the next one raises it, and is not sent.
            Error: It is of a derived stream, which takes no answers. Told in the same way.
        """
        if self._replier is None:
            raise EndedError(f"{self!r} was copied between processes; answer where it was received")
        self._replier.answer(self.camera, self.epoch, self.sequence, image)

    def __reduce__(self) -> tuple[object, ...]:
        state: dict[str, object] = {
            name: getattr(self, name)
            for name in self.__slots__
            if not name.startswith("_") and name != "payload"
        }
        # Nobody else has the frames that video needs.
        image = self.image if self.encoding in ("h264", "h265", "av1", "tiles") else None
        return _restore, (state, bytes(self.payload), self._image_size, image)

    def __repr__(self) -> str:
        what = [self.content_type] if self.content_type else [f"{self.width}x{self.height}", self.encoding]
        parts = [self.camera, str(self.id), *what, self.rung]
        parts.append(f"{self.payload.nbytes / 1000:.1f} kB")
        if self.link_bytes is not None:
            parts.append(f"({self.link_bytes / 1000:.1f} kB over the link)")
        if self.age_ms is not None:
            parts.append(f"age {self.age_ms:.1f} ms")
        if self.contract.state != "ok":
            parts.append(self.contract.state)
        if self.skipped:
            parts.append(
                "skipped " + ", ".join(f"{count} {reason}" for reason, count in self.skipped.items())
            )
        return f"<Frame {' '.join(parts)}>"


def _restore(
    state: dict[str, Any],
    payload: bytes,
    image_size: tuple[int, int],
    image: "NDArray[np.uint8] | None" = None,
) -> Frame:
    """A frame that was pickled."""
    frame = Frame.__new__(Frame)
    for name, value in state.items():
        setattr(frame, name, value)
    frame.payload = memoryview(payload)
    # The clock of another host would say nothing.
    frame._captured_monotonic_ns = None
    frame._image = image
    frame._image_size = image_size
    frame._picture = None
    frame._replier = None
    frame._settler = None
    frame._following = None
    return frame
