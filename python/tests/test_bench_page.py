"""The experiment on the page: what its figures mean, and that its client asks as the page does."""

import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mez
from mez_bench import grid
from mez_bench.children import Children
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Outcome
from mez_bench.experiments import page
from mez_bench.experiments.page import ALONE, BESIDE, CLOSED, OPEN, Opened, Turn
from tests.pages import EdgeProcess, running, scene

PICTURES = 10
"""That are waited for."""


def turn(share: float, *, ages_ms: float = 0.0, link: float = 3e6, opened: Opened | None = None) -> Turn:
    """Four seconds."""
    ages = np.full(100, ages_ms) if ages_ms else np.array([])
    return Turn(4.0, share, 1.0, link, ages, "h264" if ages_ms else "-", opened)


def opened(view_ms: float = 800.0, errors: tuple[str, ...] = ()) -> Opened:
    """A page that got five pictures a second of each camera."""
    return Opened(view_ms, 60.0, 140_000, 16 * 5 * 4, [90.0, 110.0], 6_400_000, errors)


def outcome(late: float = 1.0, **beside: float) -> Outcome:
    """A result of two rounds: the page takes 0.06 of a core, and 0.09 beside an application."""
    link = beside.get("link", 3e6)
    return page._outcome(
        {
            (ALONE, CLOSED): [turn(0.02), turn(0.04)],
            (ALONE, OPEN): [turn(0.08, opened=opened()), turn(0.10, opened=opened())],
            (BESIDE, CLOSED): [turn(0.30, ages_ms=20.0)] * 2,
            (BESIDE, OPEN): [turn(0.39, ages_ms=20.0 * late, link=link, opened=opened(900.0))] * 2,
        }
    )


def missed(result: Outcome) -> list[str]:
    """The targets that are not met."""
    return [target.metric for target in result.targets if not target.is_met(result.metrics[target.metric])]


def test_what_the_page_costs_is_what_it_adds() -> None:
    """Turns with it and without it are compared round by round."""
    metrics = {name: value.median for name, value in outcome().metrics.items()}
    assert metrics["page_core_share_16"] == pytest.approx(0.06)
    assert metrics["page_core_share_16_beside"] == pytest.approx(0.09)
    assert (metrics["first_view_ms"], metrics["first_view_ms_beside"]) == (800, 900)
    assert metrics["pictures_per_second"] == pytest.approx(5)
    assert metrics["page_bytes"] == 140_000
    assert missed(outcome()) == []


def test_who_is_beside_the_page_must_not_notice_it() -> None:
    """Neither the application, nor the links."""
    assert missed(outcome(late=1.06)) == ["p95_ratio_page_open"]
    assert missed(outcome(link=3.1e6)) == ["link_bytes_ratio_page"]


def test_requests_that_fail_are_told() -> None:
    """An edge that refuses costs little."""
    result = page._outcome(
        {(ALONE, CLOSED): [turn(0.02)], (ALONE, OPEN): [turn(0.02, opened=opened(errors=("/: 429",)))]}
    )
    assert missed(result) == ["page_errors"]
    assert "failed: /: 429" in result.notes


def test_an_application_that_gets_nothing_is_no_figure() -> None:
    """A share of nothing would look cheap."""
    with pytest.raises(ExperimentError, match="no frames"):
        page._outcome({(BESIDE, CLOSED): [turn(0.1)], (BESIDE, OPEN): [turn(0.1, opened=opened())]})


def test_the_client_asks_as_the_grid_does(tmp_path: Path) -> None:
    """It signs in by a link, and gets the list, pictures and events of a real edge."""
    over = threading.Event()

    def publish(camera: mez.Publisher) -> None:
        number = 0
        while not over.wait(0.1):
            number += 1
            camera.send(scene(number, 0)[0])

    def camera_of(edge: EdgeProcess) -> mez.Publisher:
        return mez.publisher("hall/fine", edge=edge.address, keys=edge.keys, state=tmp_path / "camera")

    with running(tmp_path) as edge, camera_of(edge) as camera, Children(tmp_path) as children:
        publishing = threading.Thread(target=publish, args=(camera,))
        publishing.start()
        try:
            camera.wait_connected(timeout=30)
            words = [sys.executable, grid.__file__, str(edge.keys / "authority.pem")]
            client = children.start("page", words)
            client.ready()
            view = client.ask(edge.link(), 2 * grid.FIRST_VIEW_S_MAX)
            assert view["cameras"] == 1
            assert view["page_bytes"] > 0
            assert 0 < view["first_list_ms"] <= view["first_view_ms"]
            assert client.ask("begin") == {}
            pictures, deadline = 0, time.monotonic() + 60
            while pictures < PICTURES and time.monotonic() < deadline:
                time.sleep(0.2)
                counts = client.ask("end")
                pictures += counts["pictures"]
                assert counts["errors"] == []
            assert pictures >= PICTURES
        finally:
            over.set()
            publishing.join(timeout=30)
