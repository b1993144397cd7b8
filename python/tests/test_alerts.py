"""The alert rules that are shipped, under a real Prometheus, at real edges with real faults."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.alerts import EDGES, EXPECTED, FROM_THE_START, MONITORING, Prometheus, missing, watched

WAIT_S_MAX = 60
"""For anything. It does not measure: it ends a test that hangs."""

AFTERWARDS_S = 3.0
"""Some evaluations of all rules."""

pytestmark = pytest.mark.skipif(missing() is not None and "CI" not in os.environ, reason=str(missing()))


def until(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


def all_is_well(prometheus: Prometheus, cameras: int) -> bool:
    """Every edge is scraped, every camera is connected, every contract is kept."""
    wanted = {
        'sum(up{job="mez"})': len(EDGES),
        "sum(mez_edge_ready)": len(EDGES),
        "sum(mez_camera_connected)": cameras,
        'sum(mez_contracts{state="ok"})': cameras,
        'sum(mez_camera_source_state{state="live"})': cameras,
        "count(mez_camera_store_degraded == 0)": cameras,
    }
    return all(prometheus.value(query) == value for query, value in wanted.items())


def test_each_of_eleven_faults_fires_its_alert_and_no_other(tmp_path: Path) -> None:
    """The rules are evaluated as they are shipped, each second."""
    with watched(tmp_path) as (site, prometheus):
        until(lambda: all_is_well(prometheus, site.cameras), lambda: f"not well: {prometheus.firing()}")
        until(lambda: prometheus.firing() == FROM_THE_START, lambda: str(set(prometheus.firing())))
        site.plant()

        fired = set(FROM_THE_START)

        def all_have_fired() -> bool:
            fired.update(prometheus.firing())
            assert fired <= EXPECTED, f"these fire, too: {fired - EXPECTED}"
            return fired == EXPECTED

        until(all_have_fired, lambda: f"these do not fire: {EXPECTED - fired}")
        end = time.monotonic() + AFTERWARDS_S
        while time.monotonic() < end:
            assert all_have_fired()
            time.sleep(0.2)


def test_the_rules_name_what_is_planted() -> None:
    """A new rule needs a fault here."""
    rules = (MONITORING / "alerts.yml").read_text().splitlines()
    names = {line.rpartition(" ")[2] for line in rules if line.strip().startswith("- alert:")}
    assert names == {alert for alert, _, _ in EXPECTED}


def test_series_of_faults_fire_their_alerts() -> None:
    """`promtool` plays them: also what takes minutes."""
    words = ["promtool", "test", "rules", "alerts-test.yml"]
    played = subprocess.run(words, cwd=MONITORING, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
