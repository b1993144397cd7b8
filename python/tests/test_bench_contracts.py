"""The experiment with contracts: how it judges frames, and which links it plays."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mez.profile.score import Counts
from mez_bench.contracts import links
from mez_bench.contracts.scenes import WINDOW_S, Scored, below_floor

FLOOR = 0.95
GOOD, POOR = Counts(4, 0, 0), Counts(2, 0, 2)


def frames(states: str, counts: Counts, begins_s: float = 0.0) -> list[Scored]:
    """Return five frames a second: `o` reads ok, `d` drifted."""
    words = {"o": "ok", "d": "drifted"}
    return [Scored(begins_s + place / 5, words[state], counts) for place, state in enumerate(states)]


def test_frames_that_read_ok_below_the_floor_are_counted() -> None:
    """Half of the boxes are found, of four a frame: F1 is 0.67."""
    assert below_floor(frames("o" * 25, POOR), FLOOR) == 25
    assert below_floor(frames("o" * 25, GOOD), FLOOR) == 0


def test_who_was_told_does_not_count() -> None:
    """The first second reads ok, and then the application learns of it."""
    assert below_floor(frames("ooooo" + "d" * 20, POOR), FLOOR) == 5


def test_poor_frames_do_not_hide_behind_good_ones_of_another_state() -> None:
    """Of a window only the frames that read ok are judged, and together."""
    poor_then_fine = [*frames("ooooo", POOR), *frames("d" * 20, GOOD, 1.0)]
    assert below_floor(poor_then_fine, FLOOR) == 5


def test_one_missed_box_proves_nothing() -> None:
    """Twelve boxes of which one is missed may well be a share of 0.95."""
    few = [*frames("oo", GOOD), Scored(0.5, "ok", Counts(3, 0, 1))]
    assert below_floor(few, FLOOR) == 0


def test_windows_are_judged_one_by_one() -> None:
    """Frames are alike for some seconds, and another window is another story."""
    both = [*frames("o" * 25, POOR), *frames("o" * 25, GOOD, WINDOW_S)]
    assert below_floor(both, FLOOR) == 25


def test_frames_without_anybody_are_not_below_a_floor() -> None:
    """Nobody was there, and nobody was found."""
    assert below_floor(frames("ooo", Counts(0, 0, 0)), FLOOR) == 0


def test_a_shortened_scenario_is_the_beginning_of_the_shipped_one(tmp_path: Path) -> None:
    """What is expected of the whole is not expected of a part."""
    whole = tomllib.loads(links.shipped("cut", tmp_path).read_text())
    part = tomllib.loads(links.shipped("cut", tmp_path, 9.0).read_text())
    assert whole["expect"]
    assert "expect" not in part
    assert part["seconds"] == 9
    assert part["link"] == whole["link"]
    assert part["camera"] == whole["camera"]
    assert part["change"] == [change for change in whole["change"] if change["at_s"] < 9]


def test_links_are_made_of_steps(tmp_path: Path) -> None:
    """A queue that three cameras share, and that falls from 6 to 0.3 Mbit/s."""
    falling = links.ramp(6.0, 0.3, 40.0)
    made = links.made("queue", tmp_path, falling, seconds=40, fps=10, cameras=3)
    scenario = tomllib.loads(made.read_text())
    assert len(scenario["camera"]) == 3
    assert scenario["link"]["shared"] == "queue"
    rates = [scenario["link"]["megabits_per_second"], *(c["megabits_per_second"] for c in scenario["change"])]
    assert rates[0] == 6.0
    assert rates[-1] == pytest.approx(0.3, rel=0.05)
    assert rates == sorted(rates, reverse=True)


def test_a_square_wave_has_two_rates_in_turn() -> None:
    """Each for half a period."""
    assert links.square_wave(20.0, 1.0, 2.0, 6.0) == [(0.0, 20.0), (2.0, 1.0), (4.0, 20.0), (6.0, 1.0)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["log", "--video", "x.mp4"], "--video is for contracts"),
        (["log", "--only", "x264"], "--only is for contracts, groups"),
        (["contracts", "--only", "cut"], "priority, cuts, ladders, livelocks, scenes"),
        (["groups", "--only", "cost,cut"], "latency, cost, kills; cut is none"),
        (["sources", "--only", "x265"], "x264, slices, long, openh264"),
        (["breakdown", "--only", "h265"], "as_they_are, jpeg, h264, h264_source"),
        (["contracts", "--video", "x.mp4"], "--profile"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_way_out(words: list[str], said: str) -> None:
    """Before anything runs."""
    command = [str(Path(sys.executable).parent / "mez"), "bench", *words]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert said in refused.stderr
