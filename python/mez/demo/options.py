"""What can be asked of the demo."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import mez
from mez.demo.channel import LINKS_MAX, Scenario
from mez.profile import document, shipped

CAMERAS_MAX: Final = LINKS_MAX

FPS_MAX: Final = 120.0

POLICIES: Final = ("quantile", "pi", "awstream", "none")
"""Mez's own, that of the Mez paper, that of AWStream, and none."""

SECONDS: Final = 30.0
CAMERAS: Final = 3
FPS: Final = 10.0
"""What a demo has that asks for nothing."""

EDGE_LOG_MIB: Final = 256
CAMERA_LOG_MIB: Final = 64
"""Memory that the frames of all cameras may take at the edge, and those of one at its own broker, in MiB."""

APP: Final = "pedestrian-hog"
"""The detector of the demo, as profiles name it."""

LATENCY_MS: Final = 100.0
"""The latency bound that the demo asks for where no scenario does. Frames then go as they are."""

VIDEO: Final = Path(".cache/video/vtest.avi")
"""Where `make demo-video` leaves the video, below the checkout."""

_DESCRIPTION: Final = """\
Shows Mez at work on this machine. Starts one edge broker and several camera
brokers as processes of their own, connected over QUIC with mutual TLS (with keys
made for the occasion), and an application that takes the newest frame of every
camera, checks that it is whole, and finds people in as many as the processor
allows (OpenCV's HOG detector, one thread at the lowest priority). It asks for frames
within 100 ms. A table shows what happens; at the end come a summary, which accounts for every frame that was
published, and pictures of the people found.

With --scenario the cameras' links are an emulated radio channel, and the application
asks for what the scenario says: a latency bound and an accuracy floor, which the
profile of the demo's video tells that comes with Mez (--profile). The table then
shows what each link carries, what was done to the frames, and whether the contract is
kept, and why; people are searched for afterwards, on frames kept from both ends, which
tells what was left of the accuracy.
"""

_EPILOG: Final = """\
examples:
  mez demo                              3 cameras at 10 frames/s for 30 seconds
  mez demo --cameras 6 --fps 15         more of everything
  mez demo --headless --json out.json   no table; figures for a program
  mez demo --seconds 120                time to break it: kill -9 any broker (the
                                        table shows their numbers), and watch it
                                        come back and the frames flow again
  mez demo --scenario interference      others switch on and take nine tenths of
                                        the channel; any file of docs/scenarios.md
  mez demo --scenario shared_queue      three cameras on one link, which the edge
                                        divides between them
  mez demo --scenario interference --beside none,pi
                                        the same without adaptation, and with the
                                        controller of the Mez paper

exit code:
  0  every frame is accounted for, none was corrupt, no broker failed by itself
  1  otherwise; the summary says what. A broker that somebody killed is no
     failure if its frames came back

Ctrl-C ends the demo early, with a summary of what there is. A second one does
not wait for the brokers.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for.

    Attributes:
        seconds: How long frames flow before the summary.
        camera_names: Names of the cameras, in order; each has a broker.
        fps: Frames per second of each; in a scenario, of the fastest.
        video: What they show, in a loop.
        profile: What the detector loses of each form that frames may take; `None` for none.
        scenario: File or name of the scenario whose links lie between cameras and edge; `None` for none.
        score: Frames of each camera on which the accuracy is scored after a scenario.
        policy: What chooses how frames are made smaller.
        beside: Policies under which the scenario is run as well, one after the other.
        headless: Print lines now and then, even on a terminal.
        json: File for the figures; `None` for none.
        out: Folder for the pictures.
        keep: Leave the keys and the logs of the brokers behind, and say where.
    """

    seconds: float
    camera_names: tuple[str, ...]
    fps: float
    video: Path
    profile: Path | None
    scenario: str | None
    score: int
    policy: str
    beside: tuple[str, ...]
    headless: bool
    json: Path | None
    out: Path
    keep: bool

    @property
    def cameras(self) -> int:
        """How many there are."""
        return len(self.camera_names)

    def of(self, scenario: Scenario) -> Self:
        """Return the same with the cameras of a scenario."""
        return replace(
            self,
            seconds=min(self.seconds, scenario.seconds),
            camera_names=tuple(link.camera for link in scenario.links),
            fps=max(link.fps for link in scenario.links),
        )


def parse(arguments: Sequence[str]) -> Options:
    """Read the words after `mez demo`; on a mistake, say what it is and exit with 2."""
    parser = argparse.ArgumentParser(
        prog="mez demo",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--seconds", type=_number(1, 86400), help="how long frames flow [30, or as long as the scenario]")
    add("--cameras", type=_whole(1, CAMERAS_MAX), metavar="N", help=f"1 to {CAMERAS_MAX} [3]")
    add("--fps", type=_number(0.5, FPS_MAX), help="frames per second of each camera [10]")
    add(
        "--scenario",
        metavar="FILE|NAME",
        help="links between cameras and edge, and what the application asks for [none]",
    )
    add(
        "--score",
        type=_whole(0, 400),
        default=40,
        metavar="N",
        help="frames of each camera on which accuracy is scored after a scenario; 0: none [40]",
    )
    add("--policy", default=POLICIES[0], help=f"what chooses how frames are made smaller [{POLICIES[0]}]")
    add(
        "--beside",
        metavar="POLICY,…",
        help=f"run the scenario under these as well, and compare ({', '.join(POLICIES[1:])})",
    )
    add("--video", type=Path, metavar="FILE", help=f"what the cameras show, in a loop [{VIDEO}]")
    add(
        "--profile",
        metavar="FILE|none",
        help="what the detector loses of each form that frames may take [of the demo's own video, the one "
        "that comes with Mez]",
    )
    add(
        "--headless", action="store_true", help="no table, a line now and then [if the output is no terminal]"
    )
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    add("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="where pictures go [out/demo]")
    add("--keep", action="store_true", help="leave keys and logs of the brokers behind")
    words = parser.parse_args(arguments)
    beside = tuple(words.beside.split(",")) if words.beside else ()
    for policy in (words.policy, *beside):
        if policy not in POLICIES:
            parser.error(f"there is no policy {policy!r}; there are {', '.join(POLICIES)}")
    if beside and words.scenario is None:
        parser.error("--beside compares policies on a scenario; give --scenario")
    video: Path | None = words.video if words.video is not None else find_video()
    if video is None:
        parser.error(
            f"there is no video at {VIDEO}. In a checkout, get it with: make demo-video. "
            "Or give the demo another one: --video FILE"
        )
    if not video.is_file():
        parser.error(f"--video {video}: there is no such file")
    try:
        profile = _profile(words.profile, video)
    except (mez.Error, OSError) as error:
        parser.error(f"--profile: {error}")
    for name in ("cameras", "fps"):
        if words.scenario is not None and getattr(words, name) is not None:
            parser.error(f"--{name} does not go with --scenario, which says it itself")
    return Options(
        seconds=words.seconds or (math.inf if words.scenario else SECONDS),
        camera_names=tuple(f"dock/cam{number}" for number in range(1, (words.cameras or CAMERAS) + 1)),
        fps=words.fps or FPS,
        video=video.resolve(),
        profile=profile,
        scenario=words.scenario,
        score=words.score,
        policy=words.policy,
        beside=beside,
        headless=words.headless,
        json=words.json,
        out=words.out,
        keep=words.keep,
    )


def _profile(word: str | None, video: Path) -> Path | None:
    """Return the profile that was asked for, or the one that comes with Mez, if that is of this video."""
    if word is None:
        return shipped.find(APP, video)
    if word == "none":
        return None
    path = Path(word).resolve()
    document.load(path)  # says now what is wrong with it
    return path


def find_video() -> Path | None:
    """Look for the demo's video in the checkout that this file belongs to, then in the current folder."""
    checkouts = (Path(__file__).resolve().parents[3], Path.cwd())
    return next((checkout / VIDEO for checkout in checkouts if (checkout / VIDEO).is_file()), None)


def _number(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and least <= value <= most):
            raise argparse.ArgumentTypeError(f"{text} is not between {least:g} and {most:g}")
        return value

    return number


def _whole(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        return value

    return number
