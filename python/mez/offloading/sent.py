"""Frames that were sent to the edge, until their answers come."""

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from mez._frame_id import FrameId

if TYPE_CHECKING:
    from mez.engine import Image

BYTES_MAX: Final = 128 << 20
"""The most bytes of pictures that are kept. Then the oldest pictures are dropped."""

NUMBERS_MAX: Final = 4096
"""The most frames whose numbers are kept: a minute or more. Then the oldest is forgotten."""

LATER_S: Final = 1.0
"""How long a picture is kept after the bound of its answer, in seconds, for an answer that is on its way."""


class Sent:
    """Frames without an answer. Numbers are small and kept for long; pictures are not.

    Args:
        answer_s: The most seconds from a frame's capture until its answer has left the edge.
    """

    def __init__(self, answer_s: float) -> None:
        self._keep_s = answer_s + LATER_S
        self._numbers: OrderedDict[FrameId, int] = OrderedDict()
        self._pictures: OrderedDict[FrameId, tuple[Image, float]] = OrderedDict()
        self._bytes = 0
        self.last: FrameId | None = None

    @property
    def picture_bytes(self) -> int:
        """The bytes of the pictures that are kept."""
        return self._bytes

    def add(self, frame: FrameId, number: int, image: "Image", captured_s: float) -> None:
        """Remember a frame.

        Args:
            frame: Its identity, which is greater than that of the previous frame.
            number: Its number.
            image: Its pixels.
            captured_s: When it was captured, by a clock that does not jump.
        """
        self.last = frame
        self._numbers[frame] = number
        if len(self._numbers) > NUMBERS_MAX:
            self._numbers.popitem(last=False)
        self._pictures[frame] = (image, captured_s)
        self._bytes += image.nbytes
        while self._bytes > BYTES_MAX:
            self._drop_oldest()

    def drop_pictures(self, now_s: float) -> None:
        """Drop the pictures whose answers would come too late.

        Args:
            now_s: The time, by the clock of `add`.
        """
        while self._pictures and now_s - next(iter(self._pictures.values()))[1] > self._keep_s:
            self._drop_oldest()

    def answered(self, frame: FrameId) -> "tuple[int, Image | None] | None":
        """Forget an answered frame and all older frames, which get no answers any more.

        Returns:
            Its number, and its pixels if they are still kept. `None` if the frame was forgotten already.
        """
        number = self._numbers.get(frame)
        image, _ = self._pictures.get(frame, (None, 0.0))
        while self._numbers and next(iter(self._numbers)) <= frame:
            self._numbers.popitem(last=False)
        while self._pictures and next(iter(self._pictures)) <= frame:
            self._drop_oldest()
        return None if number is None else (number, image)

    def _drop_oldest(self) -> None:
        _, (image, _) = self._pictures.popitem(last=False)
        self._bytes -= image.nbytes
