"""Reads the command line of `mez demo`."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import mez
from mez._figures import number_within
from mez.demo.channel import LINKS_MAX, Scenario
from mez.profile import document, shipped
from mez.profile.app import SPECS, App, load

CAMERAS_MAX: Final = LINKS_MAX
"""The most cameras that can be asked for."""

FPS_MAX: Final = 120.0
"""The highest frame rate that can be asked for."""

POLICIES: Final = ("quantile", "pi", "awstream", "none")
"""Policies: Mez's own, those of the Mez paper and of AWStream, and no adaptation."""

SECONDS: Final = 30.0
"""Default of `--seconds`."""

CAMERAS: Final = 3
"""Default of `--cameras`."""

FPS: Final = 10.0
"""Default of `--fps`."""

EDGE_LOG_MIB: Final = 256
"""Memory for the frames of all cameras at the edge, in MiB."""

CAMERA_LOG_MIB: Final = 64
"""Memory for the frames of one camera at its own broker, in MiB."""

APP: Final = "pedestrian-hog"
"""Default of `--app`: the detector of the demo, as profiles name it."""

LATENCY_MS: Final = 100.0
"""The latency bound without a scenario. There is no accuracy floor then, so frames stay unchanged."""

VIDEO: Final = Path(".cache/video/vtest.avi")
"""Where `make demo-video` leaves the video, below the checkout."""

_DESCRIPTION: Final = """\
Shows Mez on this machine. The demo starts one edge broker and several camera brokers,
each in its own process. They use QUIC with mutual TLS and temporary keys. An
application takes the newest frame of each camera and checks that it is complete. It
finds people in as many frames as the processor allows (OpenCV's HOG detector, on one
thread of the lowest priority). Its latency bound is 100 ms. A table shows what
happens. At the end, the demo prints a summary that accounts for every published
frame, and writes pictures of the people that were found. With --app it uses your own
detector.

With --scenario the links between cameras and edge are emulated, and the application
uses the latency bound and the accuracy floor of the scenario. The profile for the
demo's video comes with Mez (--profile). The table then also shows the rate of each
link, the rung of each frame, and the state of the contract. The detector runs after
the run, on frames that were kept on both sides; the summary then gives the accuracy
of the delivered frames.
"""

_EPILOG: Final = """\
examples:
  mez demo                              3 cameras at 10 frames/s for 30 seconds
  mez demo --cameras 6 --fps 15         more of everything
  mez demo --headless --json out.json   no table; figures for a program
  mez demo --seconds 120                kill -9 any broker during the run (the table
                                        shows process ids): it is started again,
                                        and frames come again
  mez demo --scenario interference      other senders take nine tenths of a radio
                                        channel; or any file of docs/scenarios.md
  mez demo --app mine.py:detect --video yard.mp4
                                        your detector: a function of your file that
                                        takes an image (height x width x 3, uint8,
                                        BGR) and returns its boxes, each as (left,
                                        top, right, bottom, score) or with the class
                                        behind, in pixels of that image, or whatever
                                        else Frame.reply takes as boxes. mez profile
                                        run --app takes the same, and makes its
                                        profile
  mez demo --scenario shared_queue      three cameras share one link, which the edge
                                        divides between them
  mez demo --pipeline faces             names on faces: a pipeline of stages instead of
                                        one application; or objects. mez demo
                                        --pipeline faces --help says what it takes
  mez demo --offload    an engine paints the video at the edge; a contact sheet of
                        frames and answers. mez demo --offload --help says more
  mez demo --scenario interference --beside none,pi
                                        the same without adaptation, and with the
                                        controller of the Mez paper

exit code:
  0  every frame is accounted for, none was corrupt, no broker failed by itself
  1  otherwise; the summary says what failed. A broker that somebody killed is
     no failure if its frames came back

Ctrl-C ends the demo early, with a summary. A second Ctrl-C does not wait for the
brokers.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for.

    Attributes:
        seconds: How long frames flow before the summary.
        camera_names: Names of the cameras, in order; each has a broker.
        fps: Frames per second of each; in a scenario, of the fastest.
        video: What they show, in a loop.
        app: The detector.
        profile: The profile of the detector, with its accuracy at each rung; `None` for none.
        scenario: File or name of the scenario that is emulated; `None` for none.
        score: Frames of each camera on which the accuracy is scored after a scenario.
        policy: The policy that chooses the rung of each frame.
        beside: Policies under which the scenario is run as well, one after the other.
        headless: Print lines instead of a table, even on a terminal.
        json: File for the figures; `None` for none.
        out: Folder for the pictures.
        keep: Keep the keys and logs of the brokers, and print where they are.
    """

    seconds: float
    camera_names: tuple[str, ...]
    fps: float
    video: Path
    app: App
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
    """Parse the arguments after `mez demo`; on an error, print it and exit with 2."""
    parser = _parser()
    words = parser.parse_args(arguments)
    beside = tuple(words.beside.split(",")) if words.beside else ()
    for policy in (words.policy, *beside):
        if policy not in POLICIES:
            parser.error(f"there is no policy {policy!r}; choose one of {', '.join(POLICIES)}")
    if beside and words.scenario is None:
        parser.error("--beside compares policies on a scenario; give --scenario as well")
    video: Path | None = words.video if words.video is not None else find_video()
    if video is None:
        parser.error(
            f"there is no video at {VIDEO}. In a checkout, get it with: make demo-video. "
            "Or give another video: --video FILE"
        )
    if not video.is_file():
        parser.error(f"--video {video}: there is no such file")
    try:
        profile = _profile(words.profile, words.app, video)
    except (mez.Error, OSError) as error:
        parser.error(f"--profile: {error}")
    try:
        app = load(words.app, words.strong)
    except mez.Error as error:
        parser.error(f"--app: {error}")
    for name in ("cameras", "fps"):
        if words.scenario is not None and getattr(words, name) is not None:
            parser.error(f"--{name} has no effect with --scenario, which sets it; leave it out")
    return Options(
        seconds=words.seconds or (math.inf if words.scenario else SECONDS),
        camera_names=tuple(f"dock/cam{number}" for number in range(1, (words.cameras or CAMERAS) + 1)),
        fps=words.fps or FPS,
        video=video.resolve(),
        app=app,
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


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with a sentence for each option."""
    parser = argparse.ArgumentParser(
        prog="mez demo",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--seconds",
        type=number_within(1, 86400),
        help="seconds of the demo [30, or the length of the scenario]",
    )
    add(
        "--cameras",
        type=_whole(1, CAMERAS_MAX),
        metavar="N",
        help=f"number of cameras, 1 to {CAMERAS_MAX} [3]",
    )
    add("--fps", type=number_within(0.5, FPS_MAX), help="frames per second of each camera [10]")
    add(
        "--scenario",
        metavar="FILE|NAME",
        help="scenario: the links between cameras and edge, and the contract of the application [none]",
    )
    add(
        "--score",
        type=_whole(0, 400),
        default=40,
        metavar="N",
        help="frames of each camera whose accuracy is measured after a scenario; 0: none [40]",
    )
    add("--policy", default=POLICIES[0], help=f"policy that chooses the rung of each frame [{POLICIES[0]}]")
    add(
        "--beside",
        metavar="POLICY,…",
        help=f"further policies to run the scenario with, for comparison ({', '.join(POLICIES[1:])})",
    )
    add("--pipeline", metavar="NAME", help="show a pipeline instead (faces, objects); it has other options")
    add("--offload", action="store_true", help="show offload instead; it has other options")
    add("--video", type=Path, metavar="FILE", help=f"video that the cameras show, in a loop [{VIDEO}]")
    add(
        "--app",
        default=APP,
        metavar="APP",
        help=f"your detector: {SPECS} [{APP}]",
    )
    add(
        "--strong",
        type=float,
        metavar="SCORE",
        help="boxes below this score do not count [0.5; for a built-in detector, its own value]",
    )
    add(
        "--profile",
        metavar="FILE|none",
        help="profile of the detector [with the demo's own video: the profile that comes with Mez]",
    )
    add(
        "--headless",
        action="store_true",
        help="print lines instead of a table [if the output is not a terminal]",
    )
    add("--json", type=Path, metavar="FILE", help="file for the figures of the summary [none]")
    add("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="folder for pictures [out/demo]")
    add("--keep", action="store_true", help="keep the keys and logs of the brokers, and say where they are")
    return parser


def _profile(word: str | None, app: str, video: Path) -> Path | None:
    """Return the profile that was asked for, or the one that comes with Mez, if that is of this video."""
    if word is None:
        return shipped.find(app, video)
    if word == "none":
        return None
    path = Path(word).resolve()
    document.load(path)  # raises early if it cannot be used
    return path


def find_video() -> Path | None:
    """Look for the demo's video in the checkout that this file belongs to, then in the current folder."""
    checkouts = (Path(__file__).resolve().parents[3], Path.cwd())
    return next((checkout / VIDEO for checkout in checkouts if (checkout / VIDEO).is_file()), None)


def needed_video(given: Path | None) -> Path:
    """The video that was given, else the demo's.

    Raises:
        Error: It is not there.
    """
    path = given or find_video()
    if path is None or not path.is_file():
        raise mez.Error(f"there is no video {path or ''}; get it with make demo-video, or give --video FILE")
    return path


def _whole(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
        return value

    return number
