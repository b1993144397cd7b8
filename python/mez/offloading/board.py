"""The newest answer that was not given yet, and counts of all answers."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mez._frame_id import FrameId
from mez.offloading.policy import Side

if TYPE_CHECKING:
    from mez.engine import Image


@dataclass(slots=True)
class Answered:
    """A picture that an engine made of a frame. `mez.offload` returns these.

    Attributes:
        number: The number of the frame: pictures of the source are counted from 0.
        frame: The frame's identity at the edge. `None` if the picture was made on the device.
        captured_ns: When the frame was captured, in nanoseconds since 1970-01-01 UTC.
        made_at: Where the picture was made: `"edge"` or `"device"`.
        image: The picture: uint8, shape (height, width, 3), in the order blue, green, red. If the answer is
            an overlay or boxes, they are drawn over the frame.
        original: The frame that the picture was made of. `None` if the client has dropped it: it waited for
            the edge's answer for more than `answer_ms` plus one second, or newer frames filled 128 MiB.
        ms: When the frame and its answer passed each stage, in milliseconds since the capture, in order. If
            the edge made the picture: the stages of `Answer.ms`. If the device made it: `began` and `made`,
            the start and the end of the engine's work. Then `given`: your loop got it; and, if it is shown,
            `displayed`.
    """

    number: int
    frame: FrameId | None
    captured_ns: int
    made_at: Side
    image: "Image"
    original: "Image | None"
    ms: dict[str, float] = field(default_factory=dict)

    @property
    def age_ms(self) -> float:
        """Milliseconds from the capture to the last stage: `displayed` if answers are shown, else `given`."""
        return max(self.ms.values())

    def __repr__(self) -> str:
        return f"<Answered {self.number} made_at {self.made_at} age {self.age_ms:.1f} ms>"


class Board:
    """Gives out answers: never one to an older frame than the one before. Any thread may use it."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._waiting: tuple[Answered, float] | None = None
        self._newest = -1
        self._skipped: Counter[str] = Counter()
        self._given: Counter[Side] = Counter()
        self._error: BaseException | None = None

    def offer(self, answer: Answered, now_s: float) -> None:
        """Take an answer, unless one to this frame or a newer one has come before.

        Args:
            answer: The answer.
            now_s: When its last stage was reached, by `time.monotonic`.
        """
        with self._news:
            if answer.number <= self._newest:
                self._skipped["repeated" if answer.number == self._newest else "overtaken"] += 1
                return
            if self._waiting is not None:
                self._skipped["unread"] += 1
            self._waiting = (answer, now_s)
            self._newest = answer.number
            self._news.notify_all()

    def take(self, timeout_s: float) -> tuple[Answered, float] | None:
        """The newest answer, and when it came; `None`: there was none in time.

        Raises:
            BaseException: The error that ended the work.
        """
        with self._news:
            self._news.wait_for(lambda: self._waiting is not None or self._error is not None, timeout_s)
            if self._waiting is None:
                if self._error is not None:
                    raise self._error
                return None
            taken, self._waiting = self._waiting, None
            self._given[taken[0].made_at] += 1
            return taken

    def skip(self, reason: str) -> None:
        """Count a frame that the device does not answer, or an answer that cannot be used."""
        with self._news:
            self._skipped[reason] += 1

    def fail(self, error: BaseException) -> None:
        """End the board: `take` returns the answer that waits, and then raises the error."""
        with self._news:
            self._error = self._error or error
            self._news.notify_all()

    @property
    def skipped(self) -> Mapping[str, int]:
        """Number of answers that were not given, by reason."""
        with self._news:
            return dict(self._skipped)

    @property
    def given(self) -> Mapping[Side, int]:
        """Number of answers that were given, by where they were made."""
        with self._news:
            return dict(self._given)
