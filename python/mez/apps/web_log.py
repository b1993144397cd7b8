"""The most requested pages of a site with several servers: each server's counts, merged at the edge.

Each server counts the requests of a short window by page, and sends its counts. The edge adds them up, and
returns the `K` pages with most requests. Two knobs make a server's record smaller: `top` keeps the head of
its list, `threshold` leaves out pages with fewer requests. Both may leave out pages that are in the top list
of all servers together, so a smaller record costs accuracy.

`agreement` compares a list with the true one: Kendall's tau, with the distance of top-k lists of Fagin, Kumar
and Sivakumar (2003), K^(p) with the penalty p = 1/2.

The requests come from a seeded generator: popularity by Zipf's law, pages that are requested from one server
only, traffic that changes over time, and bursts of requests for one page. It needs NumPy.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import mez

K: Final = 50
"""Pages of the top list."""

PENALTY: Final = 0.5
"""The cost of a pair that one list orders and the other does not."""

TOPS: Final = (2000, 1000, 500, 300, 200, 150, 100, 75, 50, 30, 20, 10)
"""Settings of the knob `top`, from the most bytes to the fewest."""

THRESHOLDS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
"""Settings of the knob `threshold`. 1 leaves out nothing."""

KNOBS: Final = mez.Knobs(
    [
        mez.knob("top", TOPS, operator="head"),
        mez.knob("threshold", THRESHOLDS, operator="threshold", key=1),
    ]
)
"""The knobs of a server's stream. They use Mez's own operators, so no function is needed."""

JSON: Final = "application/json"
"""The content type of a server's record."""

WINDOW_S: Final = 0.25
"""Length of a window, in seconds."""

Counts = list[tuple[str, int]]
"""Pages with their requests in one window at one server, most first, then by name."""

_SECTIONS: Final = ("item", "list", "user", "news", "help", "shop", "tags", "docs", "live", "wiki")
_BURST_BLOCK: Final = 64
"""Bursts are drawn for blocks of this many windows."""

_BURST_WINDOWS: Final = (4, 40)


@dataclass(frozen=True)
class Traffic:
    """The requests of a site in windows. The same seed gives the same requests.

    Attributes:
        seed: Seed of the random generator.
        servers: The number of servers.
        pages: The number of pages.
        requests: Mean requests of a server in a window, without bursts.
        exponent: The exponent of Zipf's law: requests for a page of rank r are proportional to r to the power
            of minus this.
        local: Share of the pages that are requested from one server only, as if each served one region. They
            fill the head of its list, and move the pages of all servers down.
        bursts: Mean number of bursts that begin in a block of 64 windows.
    """

    seed: int = 1
    servers: int = 4
    pages: int = 20_000
    requests: int = 6_000
    exponent: float = 0.7
    local: float = 0.8
    bursts: float = 4.0

    def window(self, number: int) -> list[Counts]:
        """Return the counts of each server in a window."""
        return [self.counts(number, server) for server in range(self.servers)]

    def counts(self, number: int, server: int) -> Counts:
        """Return the counts of one server in a window."""
        random = np.random.default_rng((self.seed, 1, number, server))
        weights = self._popularity[server] * np.exp(
            0.5 * np.sin(2 * math.pi * number / self._periods + self._phases)
        )
        # A daily peak in a short time; each server has its own.
        busy = math.exp(0.5 * math.sin(2 * math.pi * (number / 96 + server / self.servers)))
        requests = self.requests * busy
        burst_requests = np.zeros(self.pages)
        for page, share in self._bursts(number, server):
            burst_requests[page] += share * self.requests
        expected = weights / weights.sum() * requests + burst_requests
        counts = random.poisson(expected)
        asked = np.flatnonzero(counts)
        found = [(self._names[page], int(counts[page])) for page in asked.tolist()]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def _bursts(self, number: int, server: int) -> Iterator[tuple[int, float]]:
        """Return the pages with bursts in this window, and their extra requests as a share of the mean."""
        block = number // _BURST_BLOCK
        for each in range(max(block - 1, 0), block + 1):
            random = np.random.default_rng((self.seed, 2, each))
            for _ in range(int(random.poisson(self.bursts))):
                begin = each * _BURST_BLOCK + int(random.integers(_BURST_BLOCK))
                windows = int(random.integers(*_BURST_WINDOWS))
                page = int(random.integers(self.pages))
                share = float(random.pareto(1.5)) * 0.02
                # Half of the bursts are at a single server.
                where = int(random.integers(2 * self.servers))
                if begin <= number < begin + windows and where in (server, *range(self.servers, 99)):
                    yield page, min(share, 1.0)

    @cached_property
    def _names(self) -> list[str]:
        numbers = np.random.default_rng((self.seed, 3)).permutation(self.pages)
        return [
            f"/{_SECTIONS[number % 10]}/{_SECTIONS[number // 10 % 10]}/{number * 7919 % 1_000_003:06d}.html"
            for number in numbers.tolist()
        ]

    @cached_property
    def _popularity(self) -> NDArray[np.float64]:
        ranks = np.arange(1, self.pages + 1, dtype=np.float64)
        random = np.random.default_rng((self.seed, 4))
        is_local = random.random(self.pages) < self.local
        home = random.integers(self.servers, size=self.pages)
        share = np.full((self.servers, self.pages), 1 / self.servers)
        share[:, is_local] = 0.0
        share[home[is_local], np.flatnonzero(is_local)] = 1.0
        differ = np.exp(0.3 * random.standard_normal((self.servers, self.pages)))
        return np.asarray(ranks**-self.exponent * share * differ)

    @cached_property
    def _periods(self) -> NDArray[np.float64]:
        return np.random.default_rng((self.seed, 5)).uniform(40, 400, self.pages)

    @cached_property
    def _phases(self) -> NDArray[np.float64]:
        return np.random.default_rng((self.seed, 6)).uniform(0, 2 * math.pi, self.pages)


def record(counts: Counts) -> bytes:
    """Return the record that a server publishes: JSON, a list of pairs of page and requests, most first."""
    return json.dumps(counts, separators=(",", ":")).encode()


def top_pages(records: Sequence[Sequence[Any]], k: int = K) -> list[str]:
    """Return the pages with most requests over all servers, most first.

    Args:
        records: Pairs of page and requests, for each server.
        k: The number of pages.
    """
    total: dict[str, int] = {}
    for counts in records:
        for page, requests in counts:
            total[page] = total.get(page, 0) + requests
    return sorted(total, key=lambda page: (-total[page], page))[:k]


def agreement(reference: Sequence[str], found: Sequence[str], k: int = K) -> float:
    """Return how well a top list agrees with the true one, as Kendall's tau, but not below 0.

    Every pair of pages of either list costs 1 if the lists order it differently, and `PENALTY` if only one
    list orders it. A page that is not in a list comes after all pages of the list; two such pages have no
    order. With the sum K of the costs, the result is 1 - 2 K / (k (k - 1) / 2). If both lists have the same
    pages, that is Kendall's tau: 1 is the same order, 0 an unrelated one. A list of fewer than `k` pages is
    filled with pages that do not exist, so the result for an empty list is 0.

    Args:
        reference: The true list, most first.
        found: The other one.
        k: Pages of a full list, at least 2; longer lists are cut.
    """
    true, other = _filled(reference[:k], k, "a"), _filled(found[:k], k, "b")
    pages = list(dict.fromkeys([*true, *other]))
    ranks = []
    for ordered in (true, other):
        rank = {page: place for place, page in enumerate(ordered)}
        ranks.append(np.array([rank.get(page, k) for page in pages]))
    first, second = (np.sign(rank[:, None] - rank[None, :]) for rank in ranks)
    opposite = first * second < 0
    one_only = (first == 0) != (second == 0)
    # Each pair is in the matrices twice.
    cost = (opposite.sum() + PENALTY * one_only.sum()) / 2
    return max(0.0, float(1 - 2 * cost / (k * (k - 1) / 2)))


def _filled(pages: Sequence[str], k: int, which: str) -> list[str]:
    # No path begins with a NUL.
    return [*pages, *(f"\0{which}{place}" for place in range(len(pages), k))]
