"""Pictures that applications made of a camera's frames, as its publisher gets them."""

import contextlib
import datetime
import math
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from mez import _arguments as arguments
from mez import _native
from mez._frame_id import FrameId
from mez.errors import EndedError, WaitTimeoutError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ANSWER_MS = 200.0

# Epoch, sequence, capture time, width and height, JPEG, seconds since the capture by stage, what was not
# given before it by reason.
_Parts: TypeAlias = tuple[
    int, int, int, tuple[int, int], bytes, list[tuple[str, float]], list[tuple[str, int]]
]

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


class Answer:
    """A picture that an application made of one of the frames.

    Attributes:
        frame: The frame, as `Publisher.send` returned it.
        captured_ns: When the frame was captured, in nanoseconds since 1970-01-01 UTC.
        width: Pixels in a row. May differ from the frame's.
        height: Rows.
        jpeg: The picture as it came.
        ms: When the frame and its answer passed each stage, in milliseconds since the capture, in order.
            `up`: the edge had the frame. `made`: the edge had the answer. `sent`: its first byte left the
            edge. `arriving` and `arrived`: the first and the last byte were here. `taken`: you had it.
            `decoded`: `image` was there, once it was used. The edge's clock measures `up`, `made` and
            `sent`. They are missing until the clocks have been compared.
        skipped: How many answers were not given since the one before, by reason (docs/offload.md):
            `replaced`, `late`, `overtaken`, `repeated`, `unread`, `link_lost`, `unconfirmed`, `refused`,
            `not_wanted`. One that was told as `late` or `unconfirmed` may come all the same.
    """

    __slots__ = ("_image", "_taken", "captured_ns", "frame", "height", "jpeg", "ms", "skipped", "width")

    def __init__(self, parts: _Parts, taken: float) -> None:
        epoch, sequence, self.captured_ns, (self.width, self.height), self.jpeg, stages, skipped = parts
        self.frame = FrameId(epoch, sequence)
        self.ms: dict[str, float] = {name: seconds * 1e3 for name, seconds in stages}
        self.skipped: Mapping[str, int] = dict(skipped)
        self._image: NDArray[np.uint8] | None = None
        self._taken = taken

    @property
    def captured(self) -> datetime.datetime:
        """When the frame was captured, to the microsecond."""
        return _EPOCH + datetime.timedelta(microseconds=self.captured_ns // 1000)

    @property
    def age_ms(self) -> float:
        """Milliseconds from the frame's capture until you had the answer, by this host's clock alone."""
        return self.ms["taken"]

    @property
    def image(self) -> "NDArray[np.uint8]":
        """The pixels: 8 bits each, of shape (height, width, 3), in the order blue, green, red.

        Decoded at the first use, without holding up other Python threads, and kept. The array is yours.

        Raises:
            ImageError: It is damaged.
        """
        if self._image is None:
            import numpy as np

            image = np.empty((self.height, self.width, 3), np.uint8)
            _native.decode_into("jpeg", self.jpeg, image)
            self._image = image
            self.ms["decoded"] = self.ms["taken"] + (time.monotonic() - self._taken) * 1e3
        return self._image

    def __repr__(self) -> str:
        size, age = f"{self.width}x{self.height}", f"{self.age_ms:.1f} ms"
        skipped = ", ".join(f"{count} {reason}" for reason, count in self.skipped.items())
        skipped = f" skipped {skipped}" if skipped else ""
        return f"<Answer to {self.frame} {size} {len(self.jpeg) / 1000:.1f} kB age {age}{skipped}>"


class AnswerCounts(NamedTuple):
    """What became of the answers of a program, on their way to the edge, by the connection of a subscription.

    What becomes of them there is told to the camera's publisher (`Answer.skipped`).

    Attributes:
        queued: Handed in with `Frame.answer`.
        sent: Taken by the edge.
        replaced: Given up for newer ones before they were on their way.
        failed: Refused, or lost with a connection.
    """

    queued: int
    sent: int
    replaced: int
    failed: int


class Answers:
    """Answers as they come, the newest first. Made by `Publisher.answers`; an iterator and a context manager.

    An answer is never of an older frame than the one before.
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
        """The newest answer, once there is one that was not given yet.

        Args:
            timeout: Seconds; `None` waits for ever.

        Raises:
            WaitTimeoutError: The time has passed.
            EndedError: The publisher is closed, also by another thread while this one waits; or this is.
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
                f"applications send them with Frame.answer (not given so far: {dict(self.skipped) or 'none'})"
            )
        return Answer(parts, time.monotonic())

    @property
    def closed(self) -> bool:
        """Whether no more answers are taken."""
        return self._closed

    @property
    def skipped(self) -> Mapping[str, int]:
        """How many answers were not given so far, by reason."""
        return dict(self._native.answers_skipped())

    def close(self) -> None:
        """Take no more answers: the edge sends none from then on. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            # A publisher that is closed takes none in any case.
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
