"""Waiting for workers: the simulation against the closed forms of queueing theory."""

from collections.abc import Callable

import numpy as np
import pytest

from mez_bench.acceleration.stability import judge
from mez_bench.queueing import (
    erlang_c,
    excess,
    lognormal,
    mg1_wait_mean_s,
    mmc_wait_mean_s,
    mmc_wait_quantile_s,
    poisson,
    steady,
    streams,
    waits,
)
from mez_bench.stats import Interval, Statistic, Values, interval, mean, percentile

SEED = 20_261
ROUNDS = 20
RECORDS = 20_000


SERVICES: dict[str, Callable[[np.random.Generator], Values]] = {
    "exponential": lambda random: random.exponential(1.0, RECORDS),
    "constant": lambda _: np.ones(RECORDS),
    "lognormal": lambda random: lognormal(1.0, 3.0, RECORDS, random),
}
"""Service times of a second on average."""


def play(workers: int, used: float, services: str, of: Statistic = mean) -> Interval:
    """Return a statistic of waits for services of a second on average; each round has a seed of its own."""
    rounds = []
    for number in range(ROUNDS):
        random = np.random.default_rng([SEED, number])
        arrivals = poisson(used * workers, RECORDS, random)
        served = SERVICES[services](random)
        rounds.append(np.array([of(steady(waits(arrivals, served, workers)))]))
    return interval(rounds, mean)


def test_erlangs_formula_has_the_values_of_its_tables() -> None:
    """One worker waits as often as he is busy; ten with a load of eight: 0.409; 56 at 0.6 hardly ever."""
    assert erlang_c(1, 0.6) == pytest.approx(0.6)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(10, 8.0) == pytest.approx(0.4092, abs=1e-4)
    assert erlang_c(56, 33.6) < 1e-3
    assert erlang_c(2000, 1999.0) < 1.0


@pytest.mark.parametrize("used", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("workers", [1, 2, 8, 56])
def test_waits_are_those_of_m_m_c(workers: int, used: float) -> None:
    """The closed form lies in the interval of the simulation, widened by half for the many cases."""
    found = play(workers, used, "exponential")
    expected = mmc_wait_mean_s(used * workers, 1.0, workers)
    half = 1.5 * (found.high - found.low) / 2
    # Where nobody waits there is no spread to be judged by.
    assert abs(found.median - expected) <= max(half, 1e-4), f"seed {SEED}: {found}, expected {expected}"


def test_the_longest_waits_are_those_of_m_m_c_too() -> None:
    """Not only the mean: a 99 % quantile is what the pipeline is judged by."""
    found = play(4, 0.8, "exponential", percentile(99))
    expected = mmc_wait_quantile_s(0.8 * 4, 1.0, 4, 0.99)
    assert found.low <= expected <= found.high, f"seed {SEED}: {found}, expected {expected}"
    assert mmc_wait_quantile_s(0.3 * 8, 1.0, 8, 0.5) == 0


@pytest.mark.parametrize("used", [0.3, 0.6, 0.8])
def test_waits_are_those_of_pollaczek_and_khinchine(used: float) -> None:
    """Any distribution of service times, one worker: constant and with a long tail."""
    for services in ("constant", "lognormal"):
        sample = lognormal(1.0, 3.0, 400_000, np.random.default_rng(SEED))
        spread = 0.0 if services == "constant" else float(sample.std())
        found = play(1, used, services)
        expected = mg1_wait_mean_s(used, 1.0, spread)
        half = 1.5 * (found.high - found.low) / 2
        assert abs(found.median - expected) <= half, f"seed {SEED}, {services}: {found}, expected {expected}"


def test_constant_services_wait_half_as_long_as_exponential_ones() -> None:
    """The first result of the theory; a simulation that took the wrong services would miss it."""
    assert mg1_wait_mean_s(0.6, 1.0, 0.0) == pytest.approx(mg1_wait_mean_s(0.6, 1.0, 1.0) / 2)
    assert mg1_wait_mean_s(0.6, 1.0, 1.0) == pytest.approx(mmc_wait_mean_s(0.6, 1.0, 1))


def test_one_worker_without_a_loop_is_one_worker() -> None:
    """Two ways to the same waits: a second worker who never comes free."""
    random = np.random.default_rng(SEED)
    arrivals, served = poisson(0.7, 2_000, random), random.exponential(1.0, 2_000)
    # The first record keeps a second worker busy for ever.
    both = waits(np.append(0.0, arrivals), np.append(1e12, served), 2)
    assert np.allclose(both[1:], waits(arrivals, served, 1))


def test_cameras_in_step_with_workers_wait_for_nobody() -> None:
    """As many workers as records of an interval: each camera finds one free."""
    random = np.random.default_rng(SEED)
    arrivals = streams(6, 0.1, 3_000, random)
    assert len(arrivals) == 3_000
    assert np.all(np.diff(arrivals) >= 0)
    assert waits(arrivals, np.full(3_000, 0.0999), 6).max() == pytest.approx(0, abs=1e-9)
    assert waits(arrivals, np.full(3_000, 0.0999), 5).max() > 1


def test_service_times_have_the_mean_and_the_quantile_that_were_asked_for() -> None:
    """As the paper gives them: mean and p99 of a stage; and no lognormal has a p99 20 times its mean."""
    sample = lognormal(0.1315, 0.380, 400_000, np.random.default_rng(SEED))
    assert sample.mean() == pytest.approx(0.1315, rel=0.01)
    assert np.percentile(sample, 99) == pytest.approx(0.380, rel=0.02)
    for p99 in (0.1, 20.0):
        with pytest.raises(ValueError, match="no lognormal"):
            lognormal(1.0, p99, 10, np.random.default_rng(SEED))


def test_more_work_than_workers_has_no_steady_state() -> None:
    """A formula that gave a number there would be believed."""
    with pytest.raises(ValueError, match="no steady state"):
        erlang_c(2, 2.0)
    with pytest.raises(ValueError, match="no steady state"):
        mg1_wait_mean_s(1.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="at least one"):
        waits(np.zeros(1), np.ones(1), 0)
    with pytest.raises(ValueError, match="2 arrivals and 1 service"):
        waits(np.zeros(2), np.ones(1), 1)


def test_a_bus_is_charged_with_what_it_adds_alone() -> None:
    """Ten milliseconds on each record of a tenth of a second, whatever the workers make it wait besides."""
    random = np.random.default_rng(SEED)
    bound = [random.exponential(0.02, 500) for _ in range(10)]
    waited = [round_s + 0.01 for round_s in bound]
    whole = [0.1 + round_s for round_s in waited]
    found = excess(waited, bound, whole)
    assert found.share_mean.median == pytest.approx(0.01 / 0.13, rel=0.03)
    assert found.share_p99.median == pytest.approx(0.01 / (0.11 + 0.02 * np.log(100)), rel=0.1)
    assert excess(bound, bound, whole).share_mean.median == 0


@pytest.mark.parametrize(("used", "stable"), [(0.9, True), (1.02, False), (1.3, False)])
def test_a_run_is_stable_if_its_latency_does_not_grow(used: float, stable: bool) -> None:
    """Just below and just above what a worker can do."""
    verdicts = []
    for number in range(9):
        random = np.random.default_rng([SEED, number])
        due = poisson(used, 40_000, random)
        done = due + waits(due, np.ones(40_000), 1) + 1.0
        verdicts.append(judge(due, done, float(due[-1]) + 30.0).is_stable)
    assert sum(verdicts) >= 8 if stable else sum(verdicts) == 0, f"seed {SEED}: {verdicts}"


def test_a_latency_that_grows_is_not_stable_even_if_all_is_completed_in_the_end() -> None:
    """Somebody who waits long enough gets every record of a queue that grows."""
    due = poisson(1.1, 20_000, np.random.default_rng(SEED))
    drained = judge(due, due + waits(due, np.ones(20_000), 1) + 1.0, 1e9)
    assert drained.completed_share == 1.0
    # A tenth more than a worker can do is a tenth of a second later every second.
    assert drained.slope == pytest.approx(0.1, rel=0.3), f"seed {SEED}"
    assert not drained.is_stable


def test_a_run_that_loses_records_is_not_stable_however_fast_it_is() -> None:
    """A bus that drops one of a hundred has no latency that grows."""
    due: Values = np.linspace(0, 10, 10_000)
    done: Values = due + 0.01
    assert judge(due, done, 20.0).is_stable
    done[::100] = np.nan
    lossy = judge(due, done, 20.0)
    assert lossy.completed_share == pytest.approx(0.99)
    assert not lossy.is_stable
    with pytest.raises(ValueError, match="at least 40"):
        judge(due[:10], done[:10], 20.0)
