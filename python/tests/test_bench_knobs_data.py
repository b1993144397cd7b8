"""The experiments with knobs of data: how lists are scored at their deadlines, links, published logs."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from mez.apps import web_log
from mez_bench.experiments import knobs_data, shares
from mez_bench.run import Run
from mez_bench.top_pages.play import Plan, Played, Taken


def _taken(server: int, window: int, age_ms: float, *pages: str) -> Taken:
    counts = [(page, 100 - place) for place, page in enumerate(pages)]
    return Taken(server, window, age_ms, "original", 10, counts)


def _played(*taken: Taken, servers: int = 1, windows: int = 4) -> Played:
    plan = Plan(1, windows, [[(0.0, 1.0)]] * servers, 250.0, 0.5, Path())
    return Played(plan, taken, 0.0)


def test_a_late_record_is_scored_with_the_last_timely_one() -> None:
    """It never counts, not even for later windows; and before the first there is nothing."""
    pages = [f"/{number}" for number in range(web_log.K)]
    other = [f"/x{number}" for number in range(web_log.K)]
    true = [pages, pages, other, other]
    played = _played(_taken(0, 1, 20, *pages), _taken(0, 2, 400, *other), _taken(0, 3, 250, *other))
    assert played.accuracy(true, 0, 4).tolist() == [0.0, 1.0, 0.0, 1.0]
    assert played.on_time_share(0, 4) == 0.5
    assert played.ages(1, 3) == [20, 400]


def test_records_of_servers_are_brought_together_by_window() -> None:
    """In whatever order they came, and an older one never replaces a newer one."""
    pages = [f"/{number}" for number in range(web_log.K)]
    even, odd = pages[::2], pages[1::2]
    both = web_log.top_pages([_taken(0, 0, 0, *even).counts, _taken(1, 0, 0, *odd).counts])
    played = _played(
        _taken(1, 1, 20, *odd), _taken(0, 1, 9, *even), _taken(0, 0, 30, "/z"), servers=2, windows=2
    )
    scores = played.accuracy([both, both], 0, 2)
    assert scores[0] < 0.1
    assert scores[1] == 1.0
    assert played.on_time_share(0, 2) == 0.75


def test_the_narrow_link_carries_a_tenth_on_average() -> None:
    """The same for the same seed, and another one for each server."""
    waves = len(knobs_data.WAVES)
    seconds = knobs_data.NARROW_FROM_S + 2 * waves * knobs_data.WAVE_S
    rates = knobs_data._link(5, 0, seconds)
    assert rates == knobs_data._link(5, 0, seconds) != knobs_data._link(5, 1, seconds)
    narrow = [megabits for at_s, megabits in rates if at_s >= knobs_data.NARROW_FROM_S]
    assert len(narrow) == 2 * waves
    assert float(np.mean(narrow)) == pytest.approx(knobs_data.FULL_MBPS / 10)


def test_of_two_allocations_the_worse_applications_are_compared() -> None:
    """Run by run."""
    rows = [
        shares.Row("world", allocation, application, accuracy, None, None, None, seed)
        for seed in (1, 2)
        for allocation, accuracies in ((shares.BANDWIDTH, (0.9, 0.6)), (shares.ACCURACY, (0.8, 0.75)))
        for application, accuracy in zip((shares.PEOPLE, shares.TOP), accuracies, strict=True)
    ]
    assert shares._worse(rows) == [(0.6, 0.75)] * 2
    summary = shares._summary(rows)
    assert len(summary) == 4
    assert summary[0]["accuracy"] == pytest.approx(0.9)


def test_published_logs_are_read_from_where_they_have_settled(tmp_path: Path) -> None:
    """Without them it is said loudly."""
    console = Console(record=True, width=200)
    with Run(True, None, console) as run:
        assert shares._published(run) == []
    with Run(True, tmp_path, console) as run:
        assert shares._published(run) == []
    assert console.export_text().count("SKIPPED") == 2
    folder = tmp_path / shares.FOLDER
    folder.mkdir()
    for name in shares.FILES.values():
        lines = ["client-1, 5, 12000.00,   6.07,     0.90"]
        lines += [f"client-1, {sample}, 2000.00,  500.0,     0.8{sample % 10}" for sample in (20, 22)]
        (folder / name).write_text("\n".join([*lines, ""]))
    with Run(True, tmp_path, console) as run:
        rows = shares._published(run)
    people = [row for row in rows if row.application == shares.PEOPLE]
    assert [row.allocation for row in people] == list(shares.ALLOCATIONS)
    assert people[0].accuracy == pytest.approx(0.81)
    assert people[0].kilobits_per_second == 2000
    assert people[0].latency_ms == 500
