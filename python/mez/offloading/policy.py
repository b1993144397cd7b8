"""Chooses where the answer of each frame is made: at the edge, or on the device itself.

A pure state machine: it has no clock, and draws nothing at random.
"""

import statistics
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Side: TypeAlias = Literal["edge", "device"]
"""Where an answer is made."""

MEASURED_MAX: Final = 5
"""The number of newest answers of a side whose median is its estimate. Three slow ones change it."""

WAITING_MAX: Final = 256
"""The most frames of a side that are remembered until it answers. Then the second-oldest is forgotten."""

EXPLORE_SHARE: Final = 0.05
"""The share of frames that also go to the other side, so that its estimate stays current."""

RETRY_S: Final = 1.0
"""The pause before a side that does not answer is measured again, in seconds."""

MARGIN: Final = 0.1
"""The other side must be faster by this share before frames go there, because measurements are noisy."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a frame goes.

    Attributes:
        side: The side that is expected to answer sooner.
        both: Whether the frame also goes to the other side, to measure it. The first answer is shown.
    """

    side: Side
    both: bool = False

    def goes_to(self, side: Side) -> bool:
        """Whether that side gets the frame."""
        return self.both or side == self.side


class _Measured:
    """Measurements of one side."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=MEASURED_MAX)
        self._waiting: OrderedDict[int, float] = OrderedDict()
        self._answered_s = float("-inf")

    def sent(self, number: int, now_s: float) -> None:
        if len(self._waiting) == WAITING_MAX:
            # The oldest is kept: it shows since when no answer came.
            del self._waiting[list(self._waiting)[1]]
        self._waiting[number] = now_s

    def answered(self, number: int, took_s: float, now_s: float) -> None:
        self._took.append(took_s)
        self._answered_s = now_s
        # Frames before this one get no answer any more.
        while self._waiting and next(iter(self._waiting)) <= number:
            self._waiting.popitem(last=False)

    def expected_s(self, now_s: float) -> float | None:
        """Expected seconds from capture to answer: the median, but at least the time without an answer."""
        if not self._took:
            return None
        return max(statistics.median(self._took), self._silent_s(now_s))

    def is_idle(self, now_s: float) -> bool:
        """Whether a further frame should be sent to measure this side."""
        return not self._waiting or now_s - next(reversed(self._waiting.values())) >= RETRY_S

    def _silent_s(self, now_s: float) -> float:
        """How long frames have waited for this side without an answer."""
        if not self._waiting:
            return 0.0
        return now_s - max(next(iter(self._waiting.values())), self._answered_s)


class Chooser:
    """Sends each frame to the side that is expected to answer sooner.

    A side's estimate is the median time from capture to answer of its last answers: network, waiting,
    computing and coding together. While frames wait for a side without an answer, the estimate is at least
    the time of this silence. So after a link breaks, frames go to the other side after about the time that
    the other side takes.

    A bounded share of the frames also goes to the side that is not chosen. This costs bytes or processor
    time, but delays no answer.

    Args:
        explore_share: This share, 0 to 1.
    """

    def __init__(self, explore_share: float = EXPLORE_SHARE) -> None:
        self._sides: dict[Side, _Measured] = {"edge": _Measured(), "device": _Measured()}
        self._side: Side = "edge"
        self._explore_share = explore_share
        # The first frame goes to both sides.
        self._credit = 1.0

    def choose(self, number: int, now_s: float) -> Choice:
        """Choose where a frame goes.

        Args:
            number: The frame's number. It increases from frame to frame.
            now_s: The time, in seconds from any origin. Does not decrease.
        """
        other: Side = "device" if self._side == "edge" else "edge"
        here, there = self.expected_s(self._side, now_s), self.expected_s(other, now_s)
        if there is not None and (here is None or there < here * (1 - MARGIN)):
            self._side, other = other, self._side
        self._credit = min(1.0, self._credit + self._explore_share)
        explores = self._explore_share > 0 and self._credit >= 1 - 1e-9 and self._sides[other].is_idle(now_s)
        if explores:
            self._credit -= 1
            self._sides[other].sent(number, now_s)
        self._sides[self._side].sent(number, now_s)
        return Choice(self._side, explores)

    def answered(self, side: Side, number: int, took_s: float, now_s: float) -> None:
        """Learn from an answer.

        Args:
            side: The side that made it.
            number: The number of its frame.
            took_s: Seconds from the frame's capture until its picture was there.
            now_s: The time.
        """
        self._sides[side].answered(number, took_s, now_s)

    def expected_s(self, side: Side, now_s: float) -> float | None:
        """Seconds from capture to answer that a side is expected to take; `None` before its first answer."""
        return self._sides[side].expected_s(now_s)


class Always:
    """Sends each frame to the same side."""

    def __init__(self, side: Side) -> None:
        self._choice = Choice(side)

    def choose(self, number: int, now_s: float) -> Choice:
        """As `Chooser.choose`."""
        return self._choice

    def answered(self, side: Side, number: int, took_s: float, now_s: float) -> None:
        """As `Chooser.answered`, without effect."""
