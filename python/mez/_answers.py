"""Answers as the publisher gets them: pictures of frames, or what is to be drawn over frames."""

import contextlib
import datetime
import math
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeAlias

from mez import _arguments as arguments
from mez import _detections, _native
from mez._detections import Detections
from mez._drawing import with_boxes
from mez._frame_id import FrameId
from mez._overlay import drawn
from mez.errors import EndedError, ImageError, WaitTimeoutError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ANSWER_MS = 200.0

AnswerKind: TypeAlias = Literal["picture", "overlay", "boxes"]

# Epoch, sequence, capture time, kind, width and height as coded and as shown, payload, boxes, seconds since
# the capture by stage, number of answers skipped before this one by reason.
_Parts: TypeAlias = tuple[
    int,
    int,
    int,
    AnswerKind,
    list[tuple[int, int]],
    bytes,
    tuple[tuple[int, int], list[_detections.Parts]] | None,
    list[tuple[str, float]],
    list[tuple[str, int]],
]

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


class Answer:
    """A picture that an application made of one of the frames, or an overlay or boxes to draw over the frame.

    Attributes:
        frame: The frame that the answer was made of, as `Publisher.send` returned it.
        captured_ns: When the frame was captured, in nanoseconds since 1970-01-01 UTC.
        kind: What the answer is. `"picture"`: a picture to show in place of the frame. `"overlay"`: a picture
            with alpha to draw over the frame. `"boxes"`: boxes to draw over the frame.
        width: Width of the picture as the application made it, or of the overlay, in pixels. It may differ
            from the frame's. Of boxes: the width of the frame as it was published.
        height: The height, as `width`.
        payload: The answer as it came: the bytes of a JPEG, of the PNG of an overlay, or of a message
            `Detections` of `mez.proto`. On a slow link, a JPEG may have a half or a quarter of `width` and
            `height`; `image` has all of them.
        ms: When the frame and its answer passed each stage, in milliseconds since the capture, in order.
            `up`: the edge had the frame. `made`: the edge had the answer. `sent`: the first byte of the
            answer left the edge. `arriving` and `arrived`: the first and the last byte were here. `taken`:
            your program had the answer. `decoded`: the answer was decoded; missing until you use `over`,
            `image` or `overlay`. The edge's clock measures `up`, `made` and `sent`. These are missing until
            the two clocks have been compared.
        skipped: Number of answers since the previous one that were not returned, by reason: `replaced`,
            `late`, `overtaken`, `repeated`, `unread`, `link_lost`, `unconfirmed`, `refused`, `not_wanted`
            (docs/offload.md). An answer that was counted as `late` or `unconfirmed` may still come.
    """

    __slots__ = (
        "_boxes",
        "_coded",
        "_pixels",
        "_taken",
        "captured_ns",
        "frame",
        "height",
        "kind",
        "ms",
        "payload",
        "skipped",
        "width",
    )

    def __init__(self, parts: _Parts, taken: float) -> None:
        epoch, sequence, self.captured_ns, self.kind, sizes, self.payload, self._boxes, stages, skipped = (
            parts
        )
        self.frame = FrameId(epoch, sequence)
        self._coded, (self.width, self.height) = sizes
        self.ms: dict[str, float] = {name: seconds * 1e3 for name, seconds in stages}
        self.skipped: Mapping[str, int] = dict(skipped)
        self._pixels: NDArray[np.uint8] | None = None
        self._taken = taken

    @property
    def captured(self) -> datetime.datetime:
        """When the frame was captured: a `datetime` in UTC, in whole microseconds."""
        return _EPOCH + datetime.timedelta(microseconds=self.captured_ns // 1000)

    @property
    def age_ms(self) -> float:
        """Milliseconds from the frame's capture until your program had the answer, by this host's clock."""
        return self.ms["taken"]

    def over(self, image: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
        """What to show for a frame, whatever kind of answer this is.

        Args:
            image: The pixels of the frame: uint8, shape (height, width, 3), in the order blue, green, red.
                They are not changed. The size may differ from that of the published frame.

        Returns:
            For a picture: `Answer.image`; the argument is not used. For an overlay or boxes: a new array, the
            frame's pixels with them drawn over. Boxes are drawn with their class names and scores; masks, key
            points and tracker numbers are not drawn.

        Raises:
            ImageError: The answer is damaged, or an overlay or boxes are to be drawn over something else.
            MissingPackageError: The answer has boxes, and OpenCV is not installed.
        """
        if self.kind == "picture":
            return self.image
        made = with_boxes(image, self.detections) if self.kind == "boxes" else drawn(self.payload, image)
        self._decoded()
        return made

    @property
    def image(self) -> "NDArray[np.uint8]":
        """The pixels of a picture: uint8, shape (height, width, 3), in the order blue, green, red.

        The picture is decoded at the first use, then kept. Decoding does not block other Python threads. You
        may change the array.

        Raises:
            ImageError: The picture is damaged, or the answer is no picture: use `over`.
        """
        if self.kind != "picture":
            raise ImageError(f"this answer is no picture ({self.kind}); use answer.over(pixels of its frame)")
        return self._decode(3, _decode_jpeg)

    @property
    def overlay(self) -> "NDArray[np.uint8]":
        """The pixels of an overlay: uint8, shape (height, width, 4): blue, green, red and alpha.

        They are decoded at the first use, then kept.

        Raises:
            ImageError: The overlay is damaged, or the answer is no overlay.
        """
        if self.kind != "overlay":
            raise ImageError(f"this answer is no overlay ({self.kind})")
        return self._decode(4, _native.decode_overlay_into)

    @property
    def detections(self) -> Detections:
        """The boxes, in the pixels of the frame as it was published.

        Raises:
            ImageError: The boxes are damaged, or the answer has none.
        """
        if self._boxes is None:
            what = (
                "the boxes are damaged" if self.kind == "boxes" else f"this answer has no boxes ({self.kind})"
            )
            raise ImageError(what)
        return _detections.received(*self._boxes)

    def _decode(
        self, channels: int, decode: "Callable[[bytes, NDArray[np.uint8]], None]"
    ) -> "NDArray[np.uint8]":
        if self._pixels is None:
            import numpy as np

            if self.height * self.width > _native.PIXELS_MAX:
                raise ImageError(f"this answer claims {self.width}x{self.height} pixels, which is too many")
            width, height = self._coded
            pixels = np.empty((height, width, channels), np.uint8)
            decode(self.payload, pixels)
            if self._coded != (self.width, self.height):
                shown = np.empty((self.height, self.width, channels), np.uint8)
                _native.resize_into(pixels, shown)
                pixels = shown
            self._pixels = pixels
            self._decoded()
        return self._pixels

    def _decoded(self) -> None:
        self.ms.setdefault("decoded", self.ms["taken"] + (time.monotonic() - self._taken) * 1e3)

    def __repr__(self) -> str:
        size, age = f"{self.kind} {self.width}x{self.height}", f"{self.age_ms:.1f} ms"
        skipped = ", ".join(f"{count} {reason}" for reason, count in self.skipped.items())
        skipped = f" skipped {skipped}" if skipped else ""
        return f"<Answer to {self.frame} {size} {len(self.payload) / 1000:.1f} kB age {age}{skipped}>"


def _decode_jpeg(jpeg: bytes, pixels: "NDArray[np.uint8]") -> None:
    _native.decode_into("jpeg", jpeg, pixels)


class AnswerCounts(NamedTuple):
    """What happened to the answers of this program on their way to the edge.

    After that, the publisher of the camera gets the counts (`Answer.skipped`).

    Attributes:
        queued: Answers that were passed to `Frame.answer`.
        sent: Answers that the edge has accepted.
        replaced: Answers that a newer one replaced before they were sent.
        failed: Answers that the edge refused, or that were lost with a connection.
    """

    queued: int
    sent: int
    replaced: int
    failed: int


class Answers:
    """An iterator over answers, always the newest one. Also a context manager, which closes it.

    `Publisher.answers` creates it. Each answer belongs to a newer frame than the previous answer.
    """

    def __init__(self, native: _native.Publisher, camera: str, answer_ms: object) -> None:
        bound = arguments.optional_number("answer_ms", answer_ms)
        if bound is None or not math.isfinite(bound) or bound <= 0:
            raise arguments.invalid("answer_ms", f"answer_ms is {answer_ms!r}; give milliseconds above 0")
        self._native = native
        self._camera = camera
        native.take_answers(bound / 1e3)
        self._closed = False

    def next(self, timeout: float | None = None) -> Answer:
        """Wait for an answer that was not returned yet, and return the newest one.

        Args:
            timeout: Seconds. `None`: wait without a limit.

        Raises:
            WaitTimeoutError: No answer came within `timeout`.
            EndedError: This object or the publisher is closed. Also raised if another thread closes it during
                the wait.
        """
        seconds = arguments.timeout("timeout", timeout)
        parts = None if self._closed else self._native.next_answer(seconds)
        if self._closed:
            raise EndedError(
                f"the answers for camera {self._camera} are closed; call Publisher.answers again"
            )
        if parts is None:
            raise WaitTimeoutError(
                f"no answer for camera {self._camera} within {timeout} s; "
                f"applications use Frame.answer to send them (skipped so far: {dict(self.skipped) or 'none'})"
            )
        return Answer(parts, time.monotonic())

    @property
    def closed(self) -> bool:
        """Whether receiving of answers has stopped."""
        return self._closed

    @property
    def skipped(self) -> Mapping[str, int]:
        """Number of answers that were not returned, since the start, by reason as in `Answer.skipped`."""
        return dict(self._native.answers_skipped())

    def close(self) -> None:
        """Stop receiving answers. The edge then sends no more. A second call has no effect."""
        if not self._closed:
            self._closed = True
            # A closed publisher takes no answers anyway.
            with contextlib.suppress(EndedError):
                self._native.take_answers(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answer:
        try:
            return self.next()
        except EndedError:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
