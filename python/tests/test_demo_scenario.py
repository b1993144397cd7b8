"""What the demo makes of a scenario: its books on the contract, its emulated channel, and all of it."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mez._processes import ProcessError, free_port
from mez.demo.channel import Channel, Link, Scenario
from mez.demo.contract import Kept, account

CHECKOUT = Path(__file__).parents[2]


def kept(at_s: float, age_ms: float, state: str = "ok", skipped: int = 0) -> Kept:
    """Make a delivery."""
    return Kept("dock/cam1", at_s, age_ms, 1000, "original", state, "because", skipped)


class TestAccount:
    """What is worked out of deliveries."""

    FRAMES: Sequence[Kept] = [
        kept(10.0, 50),
        kept(10.1, 101, skipped=2),
        kept(10.3, 300, state="infeasible", skipped=5),
        kept(10.4, 90),
        kept(15.0, 400),
    ]

    def test_what_was_announced_is_not_held_against_it(self) -> None:
        """Neither a frame that came as infeasible counts, nor what was skipped before it."""
        found = account(self.FRAMES, 100.0, [])
        assert found.on_time_share == 2 / 4
        assert found.on_time_share_of_published == 2 / 6
        assert found.infeasible_share == 1 / 5

    def test_settling_ends_with_the_last_late_frame_of_two_seconds(self) -> None:
        """Later ones belong to something else."""
        assert account(self.FRAMES, 100.0, [10.05]).settle_ms == pytest.approx(250)

    def test_notice_is_counted_from_when_the_first_broken_frame_was_due(self) -> None:
        """Until a frame says so: here the two skipped ones after 10.0 s were due first, and 10.3 s tells."""
        assert account(self.FRAMES[:4], 100.0, []).infeasible_notice_ms == pytest.approx(300)
        late = [kept(10.0, 50), kept(10.1, 140), kept(10.2, 120, state="latency_miss"), kept(10.3, 150)]
        assert account(late, 100.0, []).infeasible_notice_ms == pytest.approx(140)

    def test_without_notice_it_lasts_until_the_contract_holds_again(self) -> None:
        """Half a second of frames on time ends it; what breaks later is another break."""
        broken = [kept(10.0, 50), kept(10.2, 150), kept(10.5, 50), kept(10.6, 130)]
        holds = [kept(10.6 + number / 10, 50) for number in range(1, 8)]
        found = account([*broken, *holds, kept(12.0, 110)], 100.0, [])
        assert found.infeasible_notice_ms == pytest.approx(450)

    def test_what_was_told_before_it_broke_needs_no_notice(self) -> None:
        """Of every camera by itself; a break of one is not told by another's state."""
        told = [kept(10.0, 50, state="infeasible"), kept(10.1, 300, state="infeasible"), kept(10.2, 300)]
        assert account(told, 100.0, []).infeasible_notice_ms == 0
        other = replace(kept(10.15, 180), camera="b")
        assert account([*told, other], 100.0, []).infeasible_notice_ms == pytest.approx(80)

    def test_without_a_bound_nothing_is_late(self) -> None:
        """There is no share to be had, and nothing to settle."""
        found = account(self.FRAMES, None, [10.05])
        assert (found.on_time_share, found.settle_ms, found.infeasible_notice_ms) == (None, None, None)

    def test_nothing_delivered_is_no_share(self) -> None:
        """Not one of zero frames."""
        assert account([], 100.0, [1.0]).on_time_share is None


def test_a_drawn_link_has_no_moment_to_settle_after() -> None:
    """Only large steps for the worse count, on links that change a few times."""
    stepped = Link("a", "x:1", 15, [(0, 24_000_000), (20, 2_400_000), (40, 24_000_000), (50, 20_000_000)])
    drawn = Link("b", "x:2", 15, [(n / 10, 1_000_000 * (n % 7)) for n in range(100)])
    scenario = Scenario("s", "", 60, [stepped, drawn], "**", 100, 0.9)
    assert scenario.worse_at_s() == [20]
    assert [stepped.megabits_at(at_s) for at_s in (0, 19.9, 20, 70)] == [24, 24, 2.4, 20]


def test_a_scenario_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    """A mistyped name is answered with the names that there are."""
    with pytest.raises(ProcessError, match=r"no_such.*interference"):
        Channel("no_such", f"127.0.0.1:{free_port()}", tmp_path / "log")


def test_faults_of_hosts_are_refused(tmp_path: Path) -> None:
    """The emulator has links and no hosts, and says so."""
    file = tmp_path / "killed.toml"
    file.write_text(
        'name = "killed"\nseconds = 5\n[[camera]]\nname = "c"\n'
        '[[change]]\nat_s = 1\ncamera = "c"\nfault = "kill_camera"\n'
    )
    with pytest.raises(ProcessError, match=r"change\[0\]: only changes of links"):
        Channel(str(file), f"127.0.0.1:{free_port()}", tmp_path / "log")


def test_more_cameras_than_the_demo_runs_are_refused(tmp_path: Path) -> None:
    """Before anything is started."""
    file = tmp_path / "many.toml"
    cameras = "".join(f'[[camera]]\nname = "c{number}"\n' for number in range(17))
    file.write_text(f'name = "many"\nseconds = 5\n{cameras}')
    with pytest.raises(ProcessError, match="has 17 cameras; the demo runs at most 16"):
        Channel(str(file), f"127.0.0.1:{free_port()}", tmp_path / "log")


def demonstrated(scenario: str, folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    """Run the demo on a scenario as a user would; what it wrote for programs, and what it said."""
    fetched = subprocess.run([CHECKOUT / "tools/demo-video"], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"no video: {fetched.stderr.strip()}")
    file, figures, out = folder / "scenario.toml", folder / "demo.json", folder / "out"
    file.write_text(scenario)
    command = [sys.executable, "-P", "-m", "mez", "demo", "--scenario", str(file), "--headless"]
    began = time.monotonic()
    run = subprocess.run(
        [*command, *words, "--score", "2", "--json", str(figures), "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert time.monotonic() - began > 6
    assert (out / "course.png").stat().st_size > 1000
    read: dict[str, Any] = json.loads(figures.read_text())
    assert read["balanced"], read
    assert 0 <= read["on_time_share_of_published"] <= read["on_time_share"] <= 1
    return read, run.stdout


def test_the_demo_runs_a_scenario_and_says_what_became_of_it(tmp_path: Path) -> None:
    """Real brokers over the emulated channel: frames get smaller, and all of it is accounted for."""
    read, said = demonstrated(
        'name = "narrow"\nabout = "It becomes narrow."\nseconds = 6\n'
        "[link]\nmegabits_per_second = 30\none_way_delay_ms = 2\nqueue_kilobytes = 64\n"
        '[[camera]]\nname = "gate/cam1"\nframes_per_second = 10\n'
        '[[subscription]]\nname = "people"\ncameras = "gate/*"\nlatency_ms = 150\naccuracy = 0.5\n'
        '[[change]]\nat_s = 3\ncamera = "gate/*"\nmegabits_per_second = 3\n',
        tmp_path,
    )
    # 3 Mbit/s are less than a third of what the camera publishes, so some frames were made smaller.
    assert any(rung != "original" for rung in read["frames_by_rung"]), read["frames_by_rung"]
    assert (read["scenario"], read["accuracy_frames"], read["shared_queue"]) == ("narrow", 2, [])
    assert "narrow: It becomes narrow." in said


def test_cameras_that_share_a_queue_have_their_shares(tmp_path: Path) -> None:
    """One relay for both; the edge divides the channel that it is told of, and what each had is told.

    The detector is one's own, and scores: it finds the same whatever becomes of a frame.
    """
    mine = tmp_path / "mine.py"
    mine.write_text("def detect(image):\n    h, w, _ = image.shape\n    return [(0, 0, w / 2, h / 2, 0.9)]\n")
    read, said = demonstrated(
        'name = "hall"\nseconds = 6\nedge_channels = ["hall=gate/*"]\n'
        '[link]\nshared = "queue"\nmegabits_per_second = 2\none_way_delay_ms = 2\nqueue_kilobytes = 32\n'
        '[[camera]]\nname = "gate/cam1"\nframes_per_second = 10\n'
        '[[camera]]\nname = "gate/cam2"\nframes_per_second = 10\n'
        '[[subscription]]\nname = "people"\ncameras = "gate/*"\nlatency_ms = 150\naccuracy = 0.5\n',
        tmp_path,
        *("--app", f"{mine}:detect"),
    )
    assert (read["parameters"]["app"], read["accuracy_normalised"]) == ("mine.py:detect", 1.0)
    assert (read["shared_queue"], read["edge_channels"]) == (["gate/cam1", "gate/cam2"], ["hall=gate/*"])
    for camera in read["per_camera"]:
        assert camera["delivered"] > 0, read
        # A frame as published has four times what 2 Mbit/s leave each of two cameras for one. A camera whose
        # frames a busy machine makes too late has no share for a while.
        assert 0 <= camera["share_frame_bytes_min"] < 25_000, read
        assert 0 <= camera["on_time_share_of_published"] <= 1
    assert "2 cameras share one link; the edge divides the channel hall=gate/*." in said
