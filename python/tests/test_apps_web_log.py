"""The top of a web log: requests by a seed, lists that are merged, and how well two of them agree."""

import json

import numpy as np
import pytest

from mez.apps import web_log
from mez.apps.web_log import Traffic, agreement, top_pages


def test_the_same_seed_gives_the_same_requests() -> None:
    """Each window by itself, in whatever order it is asked for."""
    window = Traffic(7, servers=2).window(5)
    assert Traffic(7, servers=2).window(5) == window
    assert Traffic(7, servers=2).counts(5, 1) == window[1]
    assert Traffic(8, servers=2).window(5) != window


def test_requests_have_a_heavy_tail() -> None:
    """A tenth of the pages have most of the requests, and most pages have one or two."""
    counts = [requests for _, requests in Traffic(3).counts(0, 0)]
    assert counts == sorted(counts, reverse=True)
    head = sum(counts[: len(counts) // 10])
    assert head > sum(counts) / 3
    assert sum(requests <= 2 for requests in counts) > len(counts) / 2


def test_bursts_come_and_go() -> None:
    """In some window, some page has more than ten times its usual requests."""
    traffic = Traffic(3, servers=1, pages=500, bursts=8)
    windows = [dict(traffic.counts(number, 0)) for number in range(0, 128, 4)]
    most = {page: max(window.get(page, 0) for window in windows) for window in windows for page in window}
    usual = {page: float(np.median([window.get(page, 0) for window in windows])) for page in most}
    assert any(most[page] > 10 * max(usual[page], 3) for page in most)


def test_counts_of_servers_are_added_up() -> None:
    """What is second everywhere may be first of all. Of equals, the first by name is first."""
    one, other = [("/a", 5), ("/b", 4)], [("/c", 5), ("/b", 4), ("/d", 1)]
    assert top_pages([one, other], 4) == ["/b", "/a", "/c", "/d"]
    assert top_pages([one, other], 1) == ["/b"]
    assert top_pages([], 3) == []


@pytest.mark.parametrize(
    ("found", "tau"),
    [
        ("abcd", 1.0),
        # One of six pairs the other way round: 1 - 2/6.
        ("bacd", 2 / 3),
        # Three of six: an order that tells nothing.
        ("dabc", 0.0),
        ("dcba", 0.0),
        # The last page is another one: a single pair, of those two, is the other way round.
        ("abcx", 2 / 3),
        # The first page is missing: it should be before b, c and d, and before what is there in its place.
        ("xbcd", 0.0),
        # A short list is filled with pages that exist nowhere.
        ("abc", 2 / 3),
        ("", 0.0),
    ],
)
def test_agreement_is_kendalls_tau_of_lists_of_the_top(found: str, tau: float) -> None:
    """Of the same pages it is tau itself; a page that is missing comes after all that are there."""
    assert agreement("abcd", found, 4) == pytest.approx(tau)


def test_agreement_is_the_distance_of_fagin_and_others_written_out() -> None:
    """Against their definition, case by case, of random lists."""
    random = np.random.default_rng(5)
    pages = [f"/{number}" for number in range(14)]
    for _ in range(40):
        k = int(random.integers(2, 8))
        one, other = (list(random.permutation(pages)[:k]) for _ in range(2))
        cost = _fagin(one, other)
        assert agreement(one, other, k) == pytest.approx(max(0.0, 1 - 2 * cost / (k * (k - 1) / 2)))
        assert agreement(one, other, k) == agreement(other, one, k)


def _fagin(one: list[str], other: list[str], penalty: float = 0.5) -> float:
    pages = sorted({*one, *other})
    cost = 0.0
    for at, first in enumerate(pages):
        for second in pages[at + 1 :]:
            inside = [[page in ordered for page in (first, second)] for ordered in (one, other)]
            if all(map(all, inside)):
                cost += (one.index(first) < one.index(second)) != (other.index(first) < other.index(second))
            elif all(inside[0]) or all(inside[1]):
                whole, part = (one, other) if all(inside[0]) else (other, one)
                if not any(page in part for page in (first, second)):
                    cost += penalty
                else:
                    there, gone = (first, second) if first in part else (second, first)
                    cost += whole.index(gone) < whole.index(there)
            elif inside[0] != inside[1]:
                cost += 1
    return cost


def test_a_record_is_pairs_of_page_and_requests() -> None:
    """Plain JSON, which the built-in operators of the knobs take."""
    counts = Traffic(3).counts(2, 1)
    body = web_log.KNOBS.apply("data/top=20/threshold=4", web_log.record(counts), web_log.JSON)
    kept = json.loads(body)
    assert kept == [list(pair) for pair in counts[:20] if pair[1] >= 4]
    assert kept
