"""What `mez bench offload` works out of plays, and a play."""

import io
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from mez_bench.children import mez
from mez_bench.offload import device, pictures, shown
from mez_bench.offload.bare import Exchange, times_ms
from mez_bench.offload.networks import CHANGING, NETWORKS, Network
from mez_bench.offload.plans import Captured, Engine, Got, Played, Worked
from mez_bench.offload.site import Asked, Site, kill_after
from mez_bench.run import Run

MS = 1_000_000
BEGAN_NS = 10**18
SECOND_NS = 1_000_000_000


@pytest.fixture
def run() -> Iterator[Run]:
    """A run that tells its progress to nobody."""
    with Run(quick=True, data=None, console=Console(file=io.StringIO())) as run:
        yield run


def got(at_ms: float, taken: float, *, camera: str = "a", is_lit: bool = False) -> Got:
    """An answer to a frame that was captured so long after the beginning."""
    ms = {"up": 2.0, "made": taken - 3.0, "sent": taken - 2.5, "arrived": taken - 1.0, "taken": taken}
    return Got(camera, BEGAN_NS + round(at_ms * MS), ms | {"decoded": taken + 1.0}, 1000, is_lit)


def captured(at_ms: float) -> Captured:
    """A frame."""
    return Captured("a", BEGAN_NS + round(at_ms * MS), is_sent=True)


def test_stages_are_the_whole_way_without_gaps() -> None:
    """From the capture until the pixels of the answer are there."""
    answer = got(2000, 30.0)
    at_ns = answer.captured_ns
    work = Worked("a", at_ns, at_ns + 5 * MS, at_ns + 6 * MS, at_ns + 20 * MS, at_ns + 21 * MS, 500)
    found = shown.stages(answer, work)
    assert found is not None
    assert found == pytest.approx(
        {"up": 2, "queue": 3, "engine_decode": 1, "compute": 14, "answer_code": 7, "down": 3, "decode": 1}
    )
    assert sum(found.values()) == pytest.approx(answer.ms["decoded"])
    del answer.ms["up"]
    assert shown.stages(answer, work) is None, "the clocks had not been compared"


def test_frames_that_are_not_answered_count_as_not_on_time() -> None:
    """Also those that were never sent for want of a token; the warm-up does not count."""
    frames = [captured(at_ms) for at_ms in (500, 1100, 1200, 1300, 1400)]
    answers = [got(500, 1.0), got(1100, 99.0), got(1200, 101.0)]
    play = shown.shown(Played(BEGAN_NS, frames, answers, {}), [], seconds=2.0)
    assert (play.captured, play.on_time_share, play.answered_share) == (4, 0.25, 0.5)
    nothing = shown.shown(Played(BEGAN_NS, frames, [], {"late": 4}), [], seconds=2.0)
    assert nothing.on_time_share == 0.0


def test_the_time_without_an_answer_that_runs_at_a_kill_counts_whole() -> None:
    """And that of a device that gets none any more counts until the end."""
    answers = [got(at_ms, 10.0) for at_ms in (100, 900, 1600, 1650)] + [got(900, 10.0, camera="b")]
    gaps = shown.gaps_s(answers, BEGAN_NS + SECOND_NS, BEGAN_NS + 2 * SECOND_NS, ["a", "b", "c"])
    assert gaps == pytest.approx([0.7, 1.09, 1.0])


def test_a_device_that_starves_is_seen_in_the_shares() -> None:
    """It has a share of 0."""
    answers = [got(at_ms, 10.0, camera=name) for at_ms in range(10) for name in ("a", "b")]
    assert shown.shares(answers, ["a", "b", "c"]) == pytest.approx([1.5, 1.5, 0.0])


def test_a_flash_is_timed_from_the_light_to_the_refresh_that_shows_it() -> None:
    """Flashes of which no picture came are left out, of both figures."""
    frames = [captured(at_ms) for at_ms in (1000, 1033, 1066, 2000, 2033)]
    answers = [got(1000, 30.0), got(1033, 30.0, is_lit=True), got(1066, 10.0, is_lit=True), got(2033, 30.0)]
    through, alone = shown.motion_to_photon([1.01, 1.1, 2.01, 2.1], frames, answers, BEGAN_NS)
    # Lit pictures were there 1064 and 1077 ms after the beginning; the display shows one each 16.7 ms.
    assert through == pytest.approx([1066.667 - 1010], abs=0.01)
    assert alone == pytest.approx([1033.333 - 1010], abs=0.01)
    assert device.is_on([1.01, 1.1], 1.05)
    assert not device.is_on([1.01, 1.1], 1.2)


def test_tokens_limit_what_is_on_its_way() -> None:
    """An answer gives back those of the frames before it too; a lost frame's comes back in time."""
    tokens = device.Tokens(2)
    assert [tokens.take(frame, 0.0) for frame in (1, 2, 3)] == [True, True, False]
    tokens.give_back(2)
    assert [tokens.take(frame, 1.0) for frame in (4, 5, 6)] == [True, True, False]
    assert not tokens.take(7, 1.0 + device.TOKEN_S_MAX)
    assert tokens.take(8, 1.1 + device.TOKEN_S_MAX)
    assert all(device.Tokens(None).take(frame, 0.0) for frame in range(100))


def test_a_display_that_fails_ends_the_play() -> None:
    """Its frames do not count as not answered."""
    answers = SimpleNamespace(next=raising, skipped={}, close=lambda: None)
    publisher: Any = SimpleNamespace(answers=lambda **_: answers)
    plan: Any = SimpleNamespace(tokens=None, flashes_s=[], answer_ms=100)
    of = device.Device("a", publisher, plan)
    of._thread.join()
    with pytest.raises(ValueError, match="no picture"):
        of.stop()


def raising(timeout: float) -> None:
    """Give an answer that cannot be shown."""
    raise ValueError(f"no picture within {timeout} s")


def test_the_likeness_of_pictures_falls_with_what_is_lost() -> None:
    """It is 1 for the picture itself."""
    noise = np.random.default_rng(1).integers(0, 256, (48, 64, 3), np.uint8)
    assert pictures.ssim(noise, noise) == pytest.approx(1.0)
    near, far = np.clip(noise.astype(int) + 9, 0, 255).astype(np.uint8), np.full_like(noise, 128)
    assert 1.0 > pictures.ssim(noise, near) > pictures.ssim(noise, far)
    # A light is seen in what is left of it.
    assert device.middle(device.lit(noise)).mean() == 255 > device.LIT > noise.mean()


@pytest.mark.parametrize("network", [NETWORKS["wifi"], *CHANGING.values()], ids=lambda network: network.name)
def test_links_that_change_can_be_emulated(run: Run, network: Network) -> None:
    """The emulator takes their files."""
    words = ("--scenario", str(network.scenario(run.folder, 1.0, 30.0, seed=3)), "--to", "127.0.0.1:9")
    about = run.children.start("link", mez("measure", "emulate", *words)).answer()
    assert (about["name"], about["seed"], len(about["cameras"])) == (network.name, 3, 1)


def test_a_play_tells_what_all_its_processes_did(run: Run) -> None:
    """Two devices and two engines over an emulated link; one engine is killed, and the other goes on."""
    sent, answered = (pictures.jpeg(run.folder, (64, 48), size) for size in (2_000, 3_000))
    asked = Asked(
        network=NETWORKS["wan_east"],
        pictures=str(sent),
        engine=Engine(pattern="", edge="", compute_ms=1.0, answer=str(answered), group="engines"),
        seconds=3.0,
        devices=2,
        engines=2,
        answer_ms=10_000.0,
    )
    killed: list[int] = []
    site = Site(run)
    told = site.play(asked, kill_after(1.0, killed))
    assert len(killed) == 1
    assert len(told.played.captured) == 180
    assert all(frame.is_sent for frame in told.played.captured)
    afterwards = [answer for answer in told.played.got if answer.captured_ns > killed[0]]
    assert {answer.camera for answer in afterwards} == set(told.cameras)
    assert {answer.answer_bytes for answer in afterwards} == {3_000}
    play = shown.shown(told.played, told.worked, asked.seconds)
    assert set(play.frame_bytes) == {2_000.0}, "the engine's frames are found by camera and capture time"
    assert told.link is not None
    assert told.link["up"]["bytes"] > 2_000 < told.link["down"]["bytes"]
    again = site.play(replace(asked, seconds=1.0))
    assert {answer.camera for answer in again.played.got} == set(again.cameras), "nothing of a play is left"
    assert site.cameras() == []


def test_bare_datagrams_take_at_least_the_round_trip_and_the_compute(run: Run) -> None:
    """What comes back does so over the emulated link, frame by frame."""
    exchange = Exchange(request_bytes=5_000, response_bytes=9_000, compute_ms=5.0)
    took = times_ms(run, NETWORKS["wan_east"], exchange, seconds=2.0, fps=30.0, seed=1)
    assert 0 < len(took) <= 30, "without the warm-up"
    assert took.min() >= 46 + 5
