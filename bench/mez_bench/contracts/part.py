"""Defines a part of the experiment with contracts: its plays, and how they are judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
from rich.table import Table

from mez.profile import document
from mez_bench.contracts.play import Play, Played
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Outcome
from mez_bench.footage import demo_video
from mez_bench.run import ROOT, Run

PROFILE: Final = ROOT / "python" / "mez" / "profiles" / "pedestrian-hog-vtest.json"
"""A profile measured on frames of the demo's video."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part.

    Attributes:
        name: Its name.
        plays: The plays to run.
        judge: Adds metrics, targets, rows and tables to the outcome.
    """

    name: str
    plays: Sequence[Play]
    judge: Callable[[Sequence[Played], Outcome], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A video, with its profile and detector.

    Attributes:
        video: The file.
        profile: The profile.
        about: The profile's description of itself.
        app: The detector, as `mez profile run --app` names it.
        fps: Frames per second at which the profile was measured.
    """

    video: Path
    profile: Path
    about: document.About
    app: str
    fps: float


def subject(run: Run) -> Subject:
    """Return the video, profile and detector of the run; by default the demo's.

    Raises:
        ExperimentError: The profile does not fit the video.
    """
    given = run.subject
    if given.video is not None and given.profile is None:
        raise ExperimentError(
            "--video needs a profile of that video; measure it with mez profile run, give it with --profile"
        )
    video, profile = given.video or demo_video(), given.profile or PROFILE
    about = document.load(profile).about
    reader = cv2.VideoCapture(str(video))
    size = tuple(int(reader.get(part)) for part in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
    reader.release()
    if size != (about.width, about.height):
        raise ExperimentError(
            f"{profile.name} is a profile of {about.width}x{about.height} pixels, and {video.name} has "
            f"{size[0]}x{size[1]}; measure one with mez profile run, and give it with --profile"
        )
    return Subject(video, profile, about, given.app or about.app, about.frames_per_second or 10.0)


def table(rows: Sequence[Mapping[str, Cell]], title: str, columns: Sequence[str]) -> Table:
    """Return a table of some columns of these rows."""
    drawn = Table(box=None, header_style="dim", padding=(0, 2, 0, 1), title=title, title_justify="left")
    for column in columns:
        drawn.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        drawn.add_row(*(_cell(row[column]) for column in columns))
    return drawn


def _cell(cell: Cell) -> str:
    match cell:
        case None:
            return ""
        case float():
            return f"{cell:.3f}" if abs(cell) < 2 else f"{cell:.1f}"
        case _:
            return f"{cell}"
