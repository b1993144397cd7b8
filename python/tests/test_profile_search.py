"""The search finds what measuring everything would find, on landscapes whose best is known."""

import math

import numpy as np
import pytest

from mez.profile.errors import RungError
from mez.profile.families import NAMES, Family, Point, family
from mez.profile.make import FRAMES_DEFAULT
from mez.profile.search import SCREENING_SHARE, Plan, Screened, Search, coarse

WIDTH = 768
FRAMES = FRAMES_DEFAULT


def landscape(one: Family, seed: int) -> dict[Point, Screened]:
    """Return bytes and accuracies as knobs have them: the farther one is turned, the more each step costs.

    What a step saves and costs is drawn anew for every knob, and turning several costs more than each by
    itself.
    """
    random = np.random.default_rng(seed)
    saves = [random.uniform(0.1, 0.35, len(axis.parts)) for axis in one.axes]
    # Convex, as measured: the first steps are free, the last ones cost everything.
    steep = [random.uniform(2, 5) for _ in one.axes]
    most = [random.uniform(0.1, 0.6) for _ in one.axes]
    together = random.uniform(0, 1)
    found = {}
    for point in one.points():
        turned = [place / max(len(axis.parts) - 1, 1) for axis, place in zip(one.axes, point, strict=True)]
        spent = [most[at] * turned[at] ** steep[at] for at in range(len(turned))]
        loss = sum(spent) + together * math.prod(spent[:2])
        size = 150_000 * math.exp(-sum(saves[at][:place].sum() for at, place in enumerate(point)))
        found[point] = Screened(size, max(0.0, 0.995 - loss))
    return found


def best_within(results: dict[Point, Screened], size: float) -> float:
    """Return the highest accuracy of at most so many bytes."""
    return max((one.accuracy for one in results.values() if one.bytes <= size), default=0.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_the_frontier_is_found_at_a_fraction_of_its_cost(name: str, seed: int) -> None:
    """Within 2 % of accuracy wherever it is worth having, for a fifth of the frames; screening is noisy."""
    one = family(name, WIDTH)
    truth = landscape(one, seed)
    random = np.random.default_rng(seed + 100)
    search = Search(one)
    while due := search.due():
        assert len(due) == len(set(due))
        for point in due:
            assert point not in search.screened, "nothing is screened twice"
            seen = float(np.clip(truth[point].accuracy + random.normal(0, 0.004), 0, 1))
            search.tell(point, Screened(truth[point].bytes, seen))
    rungs = search.finalists()
    while more := search.between({rung: truth[one.point(rung)] for rung in rungs}):
        assert not set(more) & set(rungs), "nothing is measured twice"
        rungs += more
    cost = len(search.screened) * SCREENING_SHARE + len(rungs) * (1 - SCREENING_SHARE)
    assert cost <= 0.2 * len(one), f"{len(search.screened)} and {len(rungs)} of {len(one)}"
    measured = {one.point(rung): truth[one.point(rung)] for rung in rungs}
    top = max(result.accuracy for result in truth.values())
    exhaustive = sorted(truth.values(), key=lambda result: result.bytes)
    worst, best = 0.0, 0.0
    for result in exhaustive:
        if result.accuracy > best:
            best = result.accuracy
            # What a floor may ask for; below, nobody looks.
            if best >= 0.9:
                worst = max(worst, best - best_within(measured, result.bytes * 1.15))
    assert top < 0.9 or worst <= 0.02, f"{worst:.3f} below the frontier, of {rungs}"


def test_a_search_may_begin_where_another_ended() -> None:
    """With its rungs, so many rounds of neighbours, and the cheapest at the accuracies asked for."""
    one = family("h264", WIDTH)
    truth = landscape(one, 1)
    steps = (0.9, 0.95)
    search = Search(one, Plan(("h264/w384/q32", "h264/q40"), rounds_max=1, accuracy_min=0.5, steps=steps))
    asked = []
    while due := search.due():
        asked.append({one.rung(point) for point in due})
        for point in due:
            search.tell(point, truth[point])
    assert asked[0] == {"h264/w384/q32", "h264/q40"}
    assert len(asked) == 2
    assert asked[1] <= {one.rung(n) for rung in asked[0] for n in one.neighbours(one.point(rung))}
    found = [truth[one.point(rung)].accuracy for rung in search.finalists()]
    assert max(found) == max(result.accuracy for result in search.screened.values())
    assert len(found) <= len(steps) + 1
    with pytest.raises(RungError, match="has no rung jpeg"):
        Search(one, Plan(("jpeg/q30/420",)))


def test_coarse_grids_reach_the_corners() -> None:
    """Of small families; of large ones every knob by itself."""
    for name in NAMES:
        one = family(name, WIDTH)
        points = coarse(one)
        assert len(points) < max(len(one) / 3, 8)
        assert (0,) * len(one.axes) in points
        for at, axis in enumerate(one.axes):
            assert {point[at] for point in points} >= {0, len(axis.parts) - 1}


def test_neighbours_differ_in_one_knob_and_know_each_other() -> None:
    """By a step where there is an order, by anything where there is none."""
    one = family("five-knobs", WIDTH)
    for point in list(one.points())[::37]:
        near = list(one.neighbours(point))
        assert point not in near
        assert len(set(near)) == len(near)
        for other in near:
            assert sum(a != b for a, b in zip(point, other, strict=True)) == 1
            assert point in one.neighbours(other)
        assert one.point(one.rung(point)) == point
