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
from mez._replier import Replier, send_answer
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
    """The state of the contract that an application asked for in `subscribe` (docs/contracts.md).

    Attributes:
        state: If several states apply, the first of this list: `"absent"`: the camera is not connected.
            `"source_lost"`: it is connected, but its source gives no frames (`Source`). `"infeasible"`: no
            rung keeps both the latency bound and the accuracy floor. `"latency_miss"`: too few frames arrived
            in time, or too few per second. `"application_late"`: enough frames arrived in time, but this
            program took too few of them in time. `"accuracy_miss"`: the mean of
            `Subscription.report_accuracy` is below the floor. `"drifted"`: the frames differ from those of
            the profile, so its accuracies may not hold. `"unverified"`: the accuracy is unknown, for example
            because there is no profile. `"ok"`: the contract is kept. States are judged over the last second;
            `"accuracy_miss"` over the last ten seconds; `"source_lost"` at once.
        reason: A sentence that gives the reason, such as "the link carries 2.1 Mbit/s; the floor 0.95 needs
            3.4 Mbit/s at 15 fps".
        expected_accuracy: As `Frame.expected_accuracy`. `None` if this is not the contract of a frame.
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
    """A requested time span whose frames are missing, or may be missing.

    Where their number is known, `Frame.skipped` counts them.

    Attributes:
        since_ns: The start: the capture time of the frame before, or the first requested time, in nanoseconds
            since 1970-01-01 UTC.
        until_ns: The end, in the same unit: frames that were captured before it are missing.
        reason: `"gone"`: nobody has frames of that time any more. `"camera_restarted"`: the camera's broker
            was restarted, and frames that it had neither sent nor written to disk are lost. `"unreadable"`:
            frames were removed meanwhile, or are damaged. With the other reasons, the camera may have frames:
            ask again later. `"camera_absent"`: it was not connected. `"not_answered"`: it did not answer in
            time. `"busy"`: too many requests for the past were open.
    """

    since_ns: int
    until_ns: int
    reason: str


class Finder(Protocol):
    """Finds records that were made of frames."""

    def find(self, frame: "Frame", name: str, timeout_s: float | None) -> "Frame | None":
        """Wait for a record."""


class Frame(Settled):
    """A frame of a camera, or a data record.

    It can be pickled, for example to process it in another process. There, `reply`, `answer` and `derived`
    raise `EndedError`; in a group, `done` and `failed` do too.

    Attributes:
        camera: The camera's name.
        epoch: The number of the camera broker's start: a restart makes it one higher.
        sequence: The number of the frame in this epoch, without gaps at the camera.
        captured_ns: When the frame was captured, in nanoseconds since 1970-01-01 UTC. It is the camera's
            clock as it was when the epoch began, so it never jumps, and it increases from frame to frame.
        clock_source: Who gave the capture time: `"broker"` (the camera's broker) or `"publisher"`.
        width: Width of the picture in `payload`, in pixels. 0 for a data record.
        height: Height of the picture in `payload`, in pixels. 0 for a data record.
        published_size: Width and height of the frame as it was published, in pixels. The rung may have made
            the picture in `payload` smaller.
        encoding: The encoding of `payload`: `"jpeg"`, `"png"`, `"bgr8"` or `"gray8"`; `"h264"`, `"h265"`,
            `"av1"` or `"tiles"` for video, which was decoded in this process (`accept` of `subscribe`);
            `"data"` for a data record.
        rung: How the published frame was encoded: `"original"` for unchanged, or a name such as
            `"jpeg/w1920/q80/420"`.
        expected_accuracy: The expected accuracy, 0 to 1, from the subscription's profile; without one, from
            the camera. 1 for an original. `None` if it is unknown.
        age_ms: Milliseconds from the capture until the frame was handed to your program, by monotonic clocks.
            `None` until the clocks on the way have been compared.
        age_error_ms: The largest possible error of `age_ms`, in milliseconds.
        contract: The state of the subscription's contract, with the reason.
        infeasible: Whether the frame is below the accuracy floor, or was sent although no rung at or above
            the floor would have been on time.
        skipped: Number of frames of this camera that were not delivered since the previous frame, by reason.
            `"application_busy"`: your program was busy. `"link_busy"`, `"stalled"`, `"late_or_lost"`,
            `"link_down"`: the link was too slow, or down. `"not_wanted"`: nobody was subscribed. `"evicted"`,
            `"not_held"`: no longer in the log. `"refused"`: the camera refused the frame when it was
            published. `"not_made"`: the camera could not encode it. `"not_decoded"`, `"edge_busy"`: the edge
            could not decode it, or not in time. `"infeasible"`: below the floor, with `on_infeasible="skip"`.
            `"left_out"`: the rung of the previous frame skips frames (`/skipN`). `"damaged"`: its bytes in a
            log on disk are damaged. Delivered + skipped = published, from the first delivered frame of each
            epoch.
        not_held: A missing time span before this frame whose frames cannot be counted: before the first frame
            of a request for the past, after a restart of the camera, or where the camera did not answer about
            the past. Usually `None`.
        trace: When the frame passed each stage, from the camera to your program.
        link_bytes: How many bytes of the frame crossed the link between camera and edge. For video this is
            less than `payload` of a still image made from it. `None` if it is unknown: for frames read at the
            camera, or from the edge's disk.
        content_type: The media type of a data record, such as `"application/json"`. `None` for a picture.
        of: For a data record: the frame or record that it was made of. `None` if its publisher did not say.
        attempt: In a group: 1 if the record is given for the first time, and so on. 0 outside groups.
        payload: The encoded picture as it came, or the bytes of a data record. Read-only, not copied;
            `bytes(frame.payload)` copies it. For video, it cannot be decoded without the previous frames; use
            `image`. For a data record, use `data`.
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
        """Epoch and sequence. Frames are ordered by it, and replies refer to it."""
        return FrameId(self.epoch, self.sequence)

    @property
    def captured(self) -> datetime.datetime:
        """When the frame was captured: a `datetime` in UTC, in whole microseconds. `captured_ns` is exact."""
        return _EPOCH + datetime.timedelta(microseconds=self.captured_ns // 1000)

    @property
    def skipped_count(self) -> int:
        """Number of frames that were skipped before this one, for all reasons together."""
        return sum(self.skipped.values())

    @property
    def image(self) -> "NDArray[np.uint8]":
        """The pixels: uint8, shape (height, width, 3), in the order blue, green, red, as in OpenCV.

        The size is that of `payload`; with `size="published"` of `subscribe`, it is `published_size`. An EXIF
        orientation is not applied.

        The picture is decoded at the first use, then kept. Decoding runs in Rust and does not block other
        Python threads. You may draw on the array: it belongs to this frame. A grey picture gets three equal
        channels. Of a PNG, the alpha channel is dropped, and 16 bits are reduced to 8.

        Raises:
            ImageError: The picture is damaged, has more than 67 megapixels, or the frame is a data record.
                You can still read `payload`.
        """
        # Before the check of `_image`: another thread may set `_image`, and then drop `_picture`.
        shown = self._picture
        if self._image is None:
            self._image = self._decode(shown)
            # Once there are pixels, the picture is not needed.
            self._picture = None
            self._opened()
        return self._image

    @property
    def data(self) -> Any:  # noqa: ANN401, what was published
        """The content of a data record, as it was given to `Publisher.send_data`.

        `content_type` decides what is returned. `application/json` (and `…+json`): Python values. `text/…`: a
        `str`. `application/x-npy`: a read-only NumPy array, not copied.
        `application/vnd.apache.arrow.stream`: a pyarrow table. Other types, and pictures: `bytes`. Nothing is
        unpickled.

        Raises:
            DataError: The bytes do not fit the content type.
            MissingPackageError: The record is a table, and pyarrow is not installed.
        """
        return _data.unpack(self.payload, self.content_type)

    @property
    def origin(self) -> Origin:
        """This frame, as the argument `of=` of `Publisher.send_data` in another process."""
        return Origin(self.camera, self.id, self.captured_ns)

    def derived(self, name: str, *, timeout_ms: float | None = 1000.0) -> "Frame | None":
        """Wait for the record that another program made of this frame and published at the edge.

        The first call starts a thread that reads the stream `CAMERA/name`. It keeps at most 1,024 records and
        64 MiB, of this frame and later ones. If there are several records of this frame, the first one is
        returned. To process all frames with their records, use `mez.join`.

        Args:
            name: The stream's name after the camera's: `"faces"` for `dock/cam1/faces`.
            timeout_ms: The longest wait, in milliseconds. `None`: wait without a limit.

        Returns:
            The record; its content is in `data`. `None` if it did not come in time.

        Raises:
            EndedError: The subscription is closed, or the frame was pickled.
            PermissionDenied: No grant allows this program to watch the stream.
            ConnectError: The connection to the edge was lost.
        """
        if self._following is None:
            raise EndedError(
                f"{self!r} was copied between processes; call derived() in the process that received it"
            )
        limit = optional_number("timeout_ms", timeout_ms)
        return self._following.find(self, name, None if limit is None else limit / 1e3)

    @property
    def scale(self) -> tuple[float, float]:
        """Factors (x, y) that convert coordinates in `image` to coordinates in the published frame."""
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
        """The picture as a Pillow image, in the mode `RGB`.

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
        """The pixels as most models need them: float32 from 0 to 1, shape (3, height, width).

        The channels are red, green, blue. Each call makes a new tensor, in main memory.
        `frame.tensor()[None].to("cuda")` is a batch of one on a GPU.

        Args:
            library: `"torch"` for a `torch.Tensor`; `"numpy"` for a NumPy array, for example for ONNX
                Runtime.

        Raises:
            MissingPackageError: PyTorch was requested, but is not installed.
            ImageError: As `image`.
        """
        return _pixels.tensor(self.image, library)

    def save(self, path: StrPath, *, quality: int = 95) -> None:
        """Write the picture to a file.

        If the file's ending fits `encoding`, `payload` is written as it came: without loss, and without what
        you drew on `image`. Otherwise `image` is encoded. If your program records frames, subscribe with
        `for_export=True`.

        Args:
            path: The file. It must end in `.jpg`, `.jpeg` or `.png`. An existing file is replaced.
            quality: JPEG quality if `image` must be encoded, 1 to 100.

        Raises:
            ArgumentError: The path has another ending, or `quality` is out of range.
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
        # Imported here, so that a program that reads no pixels does not load NumPy.
        import numpy as np

        wide, high = self._image_size
        if max(self.width * self.height, wide * high) > _native.PIXELS_MAX:
            raise ImageError(
                f"{self!r} has more than {_native.PIXELS_MAX} pixels, which is the limit for decoding; "
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
        """Send a result for this frame back to its camera. The publisher gets it from `Publisher.replies`.

        `reply` does not wait until the result is delivered. A result is delivered at most once. If more than
        64 replies wait to be sent, the oldest one is dropped. `Subscription.reply_counts` counts them.

        Boxes have a special treatment: give them in the pixels of `image`. The publisher gets them in the
        pixels of the published frame, at any rung. These are boxes:

        - `mez.Detections`, or `supervision.Detections`;
        - an array or tensor of shape (N, 4), (N, 5) or (N, 6), or a list of such rows: left, top, right,
          bottom; then the score; then the class number. In a list of rows, the last value may be the class
          name instead;
        - a list of dicts with `xyxy`; or `x1`, `y1`, `x2`, `y2`; or `x`, `y`, `width`, `height`. Optional
          keys: `score`, `class_id`, `class_name`, `tracker_id`, `mask`, `key_points`;
        - a list of `mez.apps.boxes.Box`, or of objects with the same attributes;
        - an empty list or array: nothing was found.

        `mez demo --app` and `mez profile run --app` accept the same results, so you can use one function for
        all three.

        Mez does not interpret any other result, and delivers it unchanged. If it contains coordinates,
        multiply them by `scale`.

        Args:
            result: Boxes; or bytes; or a value that JSON can represent, including NumPy arrays and numbers.
                At most 64 KiB.

        Raises:
            ReplyTooLargeError: The result has more than 64 KiB.
            ArgumentError: A box ends before it begins or has a number that is not finite, or there are more
                than 4096 boxes.
            ArgumentTypeError: The result is neither boxes nor bytes, and JSON cannot represent it.
            EndedError: The frame was pickled.
            PermissionDenied: No grant allows this program to reply to this camera. `reply` does not wait for
                the edge, so the next call raises this, and its result is not sent.
        """
        if self._replier is None:
            raise EndedError(f"{self!r} was copied between processes; reply in the process that received it")
        found = _detections.of(result)
        if found is None:
            self._replier.reply(self.camera, self.epoch, self.sequence, reply_bytes(result))
            return
        given = (found.size or self._image_size, found._parts())
        self._replier.reply_detections(self.camera, self.epoch, self.sequence, self.published_size, given)

    def answer(self, image: object) -> None:
        """Send a picture that you made of this frame, or what is to be drawn over it, back to its camera.

        The publisher gets it from `Publisher.answers`. `answer` does not wait for the edge, and nothing
        queues: a newer answer replaces an older one that waits, here and at the edge. The camera's publisher
        gets the number of answers that did not come. Encoding does not block other Python threads.

        - *Pixels* are encoded as JPEG, with the highest quality (at most 90) at which the picture arrives in
          time. The device shows the picture in place of its frame.
        - An *overlay* (`mez.Overlay`) is sent as a PNG. If it has more bytes than can arrive in time, it
          is compressed better, and then its width and height are halved, up to three times. The publisher
          draws it over its frame with `Answer.over`, which stretches it.
        - *Boxes* are drawn over the frame in the same way. They have the fewest bytes. Give them in the
          pixels of `image`.

        A frame is answered at most once: a second answer is not delivered, and counts as `repeated`.

        Args:
            image: Pixels: an array of 8-bit pixels of shape (height, width, 3) in the order blue, green, red;
                (height, width, 4), whose alpha channel is dropped; or (height, width) for grey. Or a
                `mez.Overlay`. Or boxes: `mez.Detections`, `supervision.Detections`, or a list as `reply`
                takes it. An array is always a picture: wrap an array of boxes in `mez.Detections`. Or bytes,
                at most 8 MiB, which are sent unchanged: a complete JPEG, or a complete PNG of 8-bit red,
                green, blue and alpha, which is an overlay. The size of pictures and overlays may differ from
                the frame's.

        Raises:
            ImageError: The array does not have 8-bit pixels (for example, it has floats), or the bytes are
                not a complete JPEG or overlay.
            ArgumentError: A box is not valid, or there are more than 4096.
            ArgumentTypeError: `image` is none of these.
            FrameTooLargeError: The answer has more than 8 MiB.
            EndedError: The frame was pickled.
            PermissionDenied: No grant allows this program to reply to this camera. `answer` does not wait for
                the edge, so the next call raises this, and its picture is not sent.
            Error: The frame is of a derived stream, which takes no answers. The next call raises this too.
        """
        if self._replier is None:
            raise EndedError(f"{self!r} was copied between processes; answer in the process that received it")
        sizes = (self._image_size, self.published_size)
        send_answer(self._replier, (self.camera, self.epoch, self.sequence), sizes, image)

    def __reduce__(self) -> tuple[object, ...]:
        state: dict[str, object] = {
            name: getattr(self, name)
            for name in self.__slots__
            if not name.startswith("_") and name != "payload"
        }
        # Video is decoded here: another process does not have the previous frames.
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
    """Restore a pickled frame."""
    frame = Frame.__new__(Frame)
    for name, value in state.items():
        setattr(frame, name, value)
    frame.payload = memoryview(payload)
    # The monotonic clocks of two hosts cannot be compared.
    frame._captured_monotonic_ns = None
    frame._image = image
    frame._image_size = image_size
    frame._picture = None
    frame._replier = None
    frame._settler = None
    frame._following = None
    return frame
