"""The experiment on bursts of other work: when frames count as on time again."""

import pytest

from mez_bench.experiments import busy
from mez_bench.experiments.busy import AFTER_SECONDS_MAX, BURSTS, Burst
from mez_bench.hall import Step, punctual_s


def steps(*on_time: float) -> list[Step]:
    """A second each, after the end of a burst."""
    return [Step(at + 1.0, share, 0.1) for at, share in enumerate(on_time)]


@pytest.mark.parametrize(
    ("on_time", "late_s"),
    [
        ((1.0, 1.0, 1.0), 0.0),
        ((0.2, 0.4, 0.96, 1.0, 0.95), 2.0),
        # A good second alone is no recovery.
        ((0.2, 1.0, 0.1, 1.0, 1.0, 1.0), 3.0),
        ((1.0, 1.0), None),
        ((0.0,) * 30, None),
        ((), None),
    ],
)
def test_frames_are_on_time_again_once_they_stay_so(on_time: tuple[float, ...], late_s: float | None) -> None:
    """The time is that of the first of three good seconds."""
    assert punctual_s(steps(*on_time)) == late_s


def test_a_host_that_stays_late_misses_the_target() -> None:
    """It counts as late for as long as it was watched."""
    before = [Step(-3.0, 0.1, 0.4)]
    seen = {name: [Burst(4.0, [*before, *steps(0.5, 1.0, 1.0, 1.0)])] for name in BURSTS}
    outcome = busy._outcome(seen)
    expected = {f"recovery_s_{name}": 1.0 for name in BURSTS} | {"start_s": 4.0}
    assert {name: value.median for name, value in outcome.metrics.items()} == pytest.approx(expected)
    assert all(target.is_met(outcome.metrics[target.metric]) for target in outcome.targets)
    assert len(outcome.rows) == 5 * len(BURSTS)
    collapsed = busy._outcome({name: [Burst(4.0, [*before, *steps(*[0.0] * 60)])] for name in BURSTS})
    assert collapsed.metrics[f"recovery_s_{next(iter(BURSTS))}"].median == AFTER_SECONDS_MAX
    missed = [t.metric for t in collapsed.targets if not t.is_met(collapsed.metrics[t.metric])]
    assert missed == [f"recovery_s_{name}" for name in BURSTS]
