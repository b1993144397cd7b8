"""Where frames are answered: at the edge or on the device. The clock is simulated."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from mez.offloading.policy import MARGIN, RETRY_S, Choice, Chooser, Side

_FRAME_S = 1 / 30

# Seconds that a side takes for a frame that is captured at a time; `None`: it never answers.
Takes = Callable[[float], float | None]


@dataclass
class World:
    """Frames at 30 a second, an edge and a device that take as long as they are told.

    The edge answers frames at once in any number. The device does one after the other; the newest waits.
    """

    edge: Takes
    device: Takes
    chooser: Chooser = field(default_factory=Chooser)
    now_s: float = 0.0
    number: int = 0
    choices: list[tuple[float, Choice]] = field(default_factory=list)
    _coming: list[tuple[float, Side, int, float]] = field(default_factory=list)
    _busy_until_s: float = 0.0
    _waits: tuple[int, float] | None = None

    def run(self, seconds: float) -> "World":
        """Let frames come."""
        for _ in range(round(seconds / _FRAME_S)):
            self.now_s += _FRAME_S
            self._tell()
            choice = self.chooser.choose(self.number, self.now_s)
            self.choices.append((self.now_s, choice))
            if choice.goes_to("edge") and (took := self.edge(self.now_s)) is not None:
                self._coming.append((self.now_s + took, "edge", self.number, took))
            if choice.goes_to("device"):
                self._waits = (self.number, self.now_s)
            self.number += 1
        return self

    def _tell(self) -> None:
        """Everything that has happened by now, in its order."""
        while True:
            if self._waits is not None and self._busy_until_s <= self.now_s:
                number, captured_s = self._waits
                self._waits = None
                took = self.device(captured_s)
                if took is not None:
                    done_s = max(self._busy_until_s, captured_s) + took
                    self._busy_until_s = done_s
                    self._coming.append((done_s, "device", number, done_s - captured_s))
            self._coming.sort()
            if not self._coming or self._coming[0][0] > self.now_s:
                return
            at_s, side, number, took_s = self._coming.pop(0)
            self.chooser.answered(side, number, took_s, at_s)

    def share(self, side: Side, since_s: float) -> float:
        """Of the frames since then, the share that this side was to answer."""
        sides = Counter(choice.side for at_s, choice in self.choices if at_s > since_s)
        return sides[side] / sides.total()

    def last_on(self, side: Side) -> float:
        """When a frame was last expected from that side."""
        return max(at_s for at_s, choice in self.choices if choice.side == side)


def _steady(seconds: float) -> Takes:
    return lambda at_s: seconds


def test_frames_go_where_they_are_answered_sooner() -> None:
    """From the first measurements on."""
    assert World(_steady(0.06), _steady(0.12)).run(10).share("edge", 0.5) == 1
    assert World(_steady(0.25), _steady(0.12)).run(10).share("device", 0.6) == 1


def test_frames_leave_an_engine_that_becomes_slow_and_come_back() -> None:
    """50 ms at the edge, then 400, then 50 again; 120 ms on the device."""
    world = World(lambda at_s: 0.4 if 10 <= at_s < 20 else 0.05, _steady(0.12))
    world.run(30)
    assert world.share("edge", 0.5) < 1
    left_s = min(at_s for at_s, choice in world.choices if at_s > 1 and choice.side == "device")
    back_s = max(at_s for at_s, choice in world.choices if choice.side == "device")
    # The silence outlasts the device's time before a late answer comes.
    assert 10 < left_s < 10.25
    # Three measurements turn the median, one in 20 frames.
    assert 20 < back_s < 20 + 3.5 * 20 * _FRAME_S
    assert world.share("edge", back_s) == 1


def test_frames_leave_a_link_that_carries_nothing_any_more() -> None:
    """The edge is away for ten seconds: no answer tells of it."""
    world = World(lambda at_s: None if 10 <= at_s < 20 else 0.05, _steady(0.12))
    world.run(20)
    assert world.last_on("edge") < 10.25
    world.run(10)
    assert 20 < world.last_on("device") < 20 + 2 * RETRY_S
    assert world.share("edge", world.last_on("device")) == 1


def test_an_edge_that_never_answers_is_no_obstacle() -> None:
    """Nor is an engine on the device that does not."""
    assert World(lambda at_s: None, _steady(0.12)).run(5).share("device", 0.5) == 1
    assert World(_steady(0.2), lambda at_s: None).run(5).share("edge", 0) == 1


def test_exploring_is_bounded_and_delays_no_answer() -> None:
    """The other side gets its share besides, and no frame goes there alone."""
    for explore_share in (0.0, 0.02, 0.1):
        world = World(_steady(0.05), _steady(0.06), Chooser(explore_share)).run(60)
        both = sum(choice.both for _, choice in world.choices)
        assert both <= 1 + explore_share * len(world.choices)
        assert both >= 0.9 * explore_share * len(world.choices)


def test_a_slow_device_is_not_asked_again_while_it_works() -> None:
    """Two seconds a frame: exploring leaves no queue there."""
    world = World(_steady(0.05), _steady(2.0), Chooser(0.5)).run(20)
    both = [at_s for at_s, choice in world.choices if choice.both]
    assert min(later - earlier for earlier, later in pairwise(both)) >= RETRY_S - 1e-6
    assert world.share("edge", 0) == 1


@pytest.mark.parametrize("device_s", [0.1, 0.1 * (1 - MARGIN / 2)])
def test_what_is_equal_or_nearly_does_not_swing(device_s: float) -> None:
    """A side has to be clearly sooner."""
    world = World(_steady(0.1), _steady(device_s)).run(20)
    sides = [choice.side for _, choice in world.choices]
    assert sum(a != b for a, b in pairwise(sides)) == 0
