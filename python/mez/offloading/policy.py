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
"""The answers of a side whose median is its estimate. Three of the last ones turn it."""

WAITING_MAX: Final = 256
"""The most frames of a side that are remembered until it answers. Beyond, the oldest but one is forgotten."""

EXPLORE_SHARE: Final = 0.05
"""The share of frames that the other side gets as well, so that it stays measured."""

RETRY_S: Final = 1.0
"""How long a side that does not answer is left alone before it is measured again, in seconds."""

MARGIN: Final = 0.1
"""How much sooner the other side has to be before frames go there, as a share: measurements are noisy."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a frame goes.

    Attributes:
        side: Where its answer is expected sooner.
        both: Whether the other side gets it as well, to be measured. Whichever answers first is shown.
    """

    side: Side
    both: bool = False

    def goes_to(self, side: Side) -> bool:
        """Whether that side gets the frame."""
        return self.both or side == self.side


class _Measured:
    """What is known of one side."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=MEASURED_MAX)
        self._waiting: OrderedDict[int, float] = OrderedDict()
        self._answered_s = float("-inf")

    def sent(self, number: int, now_s: float) -> None:
        if len(self._waiting) == WAITING_MAX:
            # The oldest says since when nothing came.
            del self._waiting[list(self._waiting)[1]]
        self._waiting[number] = now_s

    def answered(self, number: int, took_s: float, now_s: float) -> None:
        self._took.append(took_s)
        self._answered_s = now_s
        # Newest wins: frames before this one get no answer any more.
        while self._waiting and next(iter(self._waiting)) <= number:
            self._waiting.popitem(last=False)

    def expected_s(self, now_s: float) -> float | None:
        """Seconds from the capture of a frame to its answer: as measured, but no less than the silence."""
        if not self._took:
            return None
        return max(statistics.median(self._took), self._silent_s(now_s))

    def is_idle(self, now_s: float) -> bool:
        """Whether one more frame to measure by is worth it."""
        return not self._waiting or now_s - next(reversed(self._waiting.values())) >= RETRY_S

    def _silent_s(self, now_s: float) -> float:
        """For how long frames have waited there and none was answered."""
        if not self._waiting:
            return 0.0
        return now_s - max(next(iter(self._waiting.values())), self._answered_s)


class Chooser:
    """Sends each frame where its answer is expected sooner.

    A side's estimate is the median time from capture to answer of its last answers: network, waiting,
    computing and coding together. While frames wait there and none is answered, the estimate is at least
    that silence. So frames leave a link that breaks after about the time that the other side takes.

    The side that is not chosen gets a bounded share of the frames as well. This costs bytes or processor time
    and delays no answer.

    Args:
        explore_share: That share, 0 to 1.
    """

    def __init__(self, explore_share: float = EXPLORE_SHARE) -> None:
        self._sides: dict[Side, _Measured] = {"edge": _Measured(), "device": _Measured()}
        self._side: Side = "edge"
        self._explore_share = explore_share
        # The first frame goes to both.
        self._credit = 1.0

    def choose(self, number: int, now_s: float) -> Choice:
        """Say where a frame goes.

        Args:
            number: The frame's; increases from frame to frame.
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
        """Tell of an answer.

        Args:
            side: Who made it.
            number: Its frame's.
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
        """As `Chooser.answered`: nothing is to be learnt."""
