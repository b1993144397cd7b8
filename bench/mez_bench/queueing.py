"""Computes how long records wait for a free worker, whatever carries them: a lower bound for every bus.

Records are served in the order of their arrival, each by the first of several workers that is free. `waits`
simulates this for any arrivals and service times. If arrivals are a Poisson process, the model is M/G/c in
Kendall's notation. For M/M/c and M/G/1 the mean wait is known in closed form, and tests compare `waits` with
both.

A bus that does not know service times beforehand cannot lower the mean wait: another order only changes which
records wait. In order of arrival, the longest waits are as short as possible.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mez_bench.stats import Interval, Values, interval

WARM_UP_SHARE: Final = 0.2
"""Share of the records, at the start, that do not count: they found idle workers, unlike later records."""
NORMAL_99: Final = 2.3263478740408408
"""The 99 % quantile of the standard normal distribution."""


def waits(arrivals_s: Values, services_s: Values, workers: int) -> Values:
    """Return how long each record waits for a worker, in seconds.

    Args:
        arrivals_s: When each record arrives, in ascending order.
        services_s: How long a worker takes for each.
        workers: How many there are.
    """
    if len(arrivals_s) != len(services_s):
        raise ValueError(f"{len(arrivals_s)} arrivals and {len(services_s)} service times")
    if workers < 1:
        raise ValueError(f"{workers} workers; at least one is needed")
    if workers == 1:
        return _waits_of_one(arrivals_s, services_s)
    waited = np.empty(len(arrivals_s))
    free_s = [-math.inf] * min(workers, len(arrivals_s))
    for place, (arrival, service) in enumerate(zip(arrivals_s.tolist(), services_s.tolist(), strict=True)):
        begin = max(arrival, free_s[0])
        heapq.heapreplace(free_s, begin + service)
        waited[place] = begin - arrival
    return waited


def _waits_of_one(arrivals_s: Values, services_s: Values) -> Values:
    """Return the waits for one worker: Lindley's recursion, without a loop."""
    served = np.cumsum(services_s)
    begins = served - services_s
    idle = np.maximum.accumulate(arrivals_s - begins)
    # Rounding errors of the large sums may make a wait of zero negative.
    waited: Values = np.maximum(idle + begins - arrivals_s, 0.0)
    return waited


def poisson(rate: float, records: int, random: np.random.Generator) -> Values:
    """Return the arrivals of a Poisson process with this rate per second."""
    arrivals: Values = np.cumsum(random.exponential(1 / rate, records))
    return arrivals


def streams(count: int, interval_s: float, records: int, random: np.random.Generator) -> Values:
    """Return the arrivals of cameras that each send at a fixed interval, with random phases."""
    phases = random.uniform(0, interval_s, count)
    turns = np.arange(math.ceil(records / count)) * interval_s
    arrivals: Values = np.sort((turns[:, None] + phases[None, :]).ravel())[:records]
    return arrivals


def lognormal(mean_s: float, p99_s: float, records: int, random: np.random.Generator) -> Values:
    """Return lognormal service times with this mean and this 99 % quantile.

    Raises:
        ValueError: No lognormal has these: the quantile is below the mean, or more than 14.9 times the mean.
    """
    share = math.log(p99_s / mean_s)
    under = NORMAL_99**2 - 2 * share
    if share < 0 or under < 0:
        raise ValueError(f"no lognormal has the mean {mean_s:g} s and the 99 % quantile {p99_s:g} s")
    sigma = NORMAL_99 - math.sqrt(under)
    services: Values = random.lognormal(math.log(mean_s) - sigma**2 / 2, sigma, records)
    return services


def erlang_c(workers: int, load: float) -> float:
    """Return the share of records that have to wait: Poisson arrivals, exponential services (Erlang 1917).

    Args:
        workers: How many there are.
        load: Arrivals a second times the mean service time; less than `workers`.
    """
    if not 0 <= load < workers:
        raise ValueError(f"a load of {load:g} on {workers} workers has no steady state")
    # By Erlang's B, whose recursion does not overflow.
    blocked = 1.0
    for busy in range(1, workers + 1):
        blocked = load * blocked / (busy + load * blocked)
    used = load / workers
    return blocked / (1 - used + used * blocked)


def mmc_wait_mean_s(rate: float, service_mean_s: float, workers: int) -> float:
    """Return the mean wait for Poisson arrivals and exponential services (M/M/c)."""
    load = rate * service_mean_s
    return erlang_c(workers, load) * service_mean_s / (workers - load)


def mmc_wait_quantile_s(rate: float, service_mean_s: float, workers: int, share: float) -> float:
    """Return the wait that this share of the records does not exceed (M/M/c)."""
    load = rate * service_mean_s
    waiting = erlang_c(workers, load)
    if waiting <= 1 - share:
        return 0.0
    return math.log(waiting / (1 - share)) * service_mean_s / (workers - load)


def mg1_wait_mean_s(rate: float, service_mean_s: float, service_sd_s: float) -> float:
    """Return the mean wait for Poisson arrivals and one worker (M/G/1, Pollaczek and Khinchine)."""
    used = rate * service_mean_s
    if used >= 1:
        raise ValueError(f"one worker with a utilisation of {used:g} has no steady state")
    return rate * (service_mean_s**2 + service_sd_s**2) / (2 * (1 - used))


@dataclass(frozen=True, slots=True)
class Excess:
    """Waiting beyond the bound, as a share of the time from end to end.

    Attributes:
        share_mean: The share, computed from means.
        share_p99: The share, computed from 99 % quantiles.
    """

    share_mean: Interval
    share_p99: Interval


def steady(values: Values) -> Values:
    """Return the values without those of the warm-up."""
    return values[int(len(values) * WARM_UP_SHARE) :]


def excess(waited_s: Sequence[Values], bound_s: Sequence[Values], whole_s: Sequence[Values]) -> Excess:
    """Return what a bus adds to the waiting that no bus can avoid.

    Args:
        waited_s: Measured waiting between two stages, by round.
        bound_s: Waiting for a worker alone: `waits` of the same arrivals and services, by round.
        whole_s: Measured time from end to end, by round.
    """
    rounds = [
        np.stack([waited, bound, whole], axis=1)
        for waited, bound, whole in zip(waited_s, bound_s, whole_s, strict=True)
    ]

    def mean(values: Values) -> float:
        waited, bound, whole = values.mean(axis=0)
        return float((waited - bound) / whole)

    def p99(values: Values) -> float:
        waited, bound, whole = np.percentile(values, 99, axis=0)
        return float((waited - bound) / whole)

    return Excess(interval(rounds, mean), interval(rounds, p99))
