"""Makes a profile: reference and ceiling first, then the search, then the best rungs on all frames."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mez import _native
from mez.profile import interval
from mez.profile.crew import REFERENCE, Crew
from mez.profile.document import About, Profile, Scene, Score
from mez.profile.errors import ProfileError
from mez.profile.families import Family
from mez.profile.footage import Footage
from mez.profile.judge import Judge
from mez.profile.measure import NOISE, Measurement
from mez.profile.search import SCREENING_SHARE, Plan, Screened, Search

FRAMES_DEFAULT: Final = 120
"""Default number of scored frames. A precision of 0.01 in F1 needs about as many."""

SCREENING_FRAMES_MIN: Final = 16
"""The fewest frames that rungs are screened on."""

PIECES_STEP: Final = 3
"""Rungs are screened on one in this many pieces of the video."""

TAIL_STEPS: Final = 2
"""Number of rungs finer than the best of a search that are measured, in even steps up to the finest."""

CEILING_JPEG: Final = "jpeg/q95/420"
"""A rung that changes almost nothing. With `NOISE` it gives the ceiling, above which no floor can be kept."""


class Progress(Protocol):
    """Shows progress."""

    def expect(self, frames: int) -> None:
        """Set the approximate number of frames that remain."""

    def done(self, frames: int, what: str) -> None:
        """Add frames that are done."""

    def say(self, text: str) -> None:
        """Show a text to people."""


@dataclass(frozen=True)
class Cost:
    """The cost of a profile, and that of a full measurement.

    Attributes:
        rungs: Number of rungs of all families.
        rungs_screened: Number of rungs that were measured on a few frames.
        rungs_measured: Number of rungs that were measured on all frames.
        frames_searched: Frames that the application searched for these rungs.
        frames_exhaustive: Frames that it would have searched for all rungs.
        seconds: The time that it took. Cached results take no time.
    """

    rungs: int
    rungs_screened: int
    rungs_measured: int
    frames_searched: int
    frames_exhaustive: int
    seconds: float

    @property
    def share(self) -> float:
        """Searched frames as a share of those of a full measurement."""
        return self.frames_searched / self.frames_exhaustive if self.frames_exhaustive else 1.0


@dataclass(frozen=True)
class Made:
    """A profile, and its measurements.

    Attributes:
        profile: The profile.
        judge: Scores measurements like these.
        reference: The results on published frames.
        measurements: The measurements on all frames, by rung.
        cost: The cost.
    """

    profile: Profile
    judge: Judge
    reference: Measurement
    measurements: dict[str, Measurement]
    cost: Cost


def make(
    crew: Crew,
    families: Sequence[Family],
    progress: Progress,
    frames: int = FRAMES_DEFAULT,
    rungs: Sequence[str] = (),
    plans: Mapping[str, Plan] | None = None,
) -> Made:
    """Profile an application.

    Args:
        crew: The processes that measure.
        families: The families to search.
        progress: Shows progress.
        frames: Number of frames of each scene to score.
        rungs: Rungs that are always measured.
        plans: Plans for families that are not searched in the usual way, by name.

    Raises:
        ProfileError: The video or an option cannot be used.
        UndefinedAccuracyError: The application finds nothing on published frames.
    """
    began = time.monotonic()
    footage, app = crew.lead.footage, crew.lead.app
    places = footage.sampled(frames)
    _check_length(footage, places)
    _estimate(crew, families, places, progress, len(rungs))
    reference = crew.spread(
        REFERENCE, places, lambda done: progress.done(len(places) // 12, "frames as published")
    )
    judge = Judge(
        reference,
        app.thresholds,
        footage.frames_per_second,
        len(footage.jpegs),
        [(scene.name, places_of) for scene, places_of in zip(footage.scenes, footage.ranges, strict=True)],
    )
    ceiling = crew.measure([NOISE, CEILING_JPEG], places, lambda rung: progress.done(len(places), rung))

    few = _few(footage, places)
    searches = [Search(family, (plans or {}).get(family.name, Plan())) for family in families]
    _screen(crew, searches, judge, few, progress)
    chosen, measured = _measure(crew, searches, judge, rungs, (places, few), progress)
    tail = _tail(searches, measured, chosen)
    chosen |= tail
    measured |= crew.measure(list(tail), places, lambda rung: progress.done(len(places), rung))

    screened = sum(len(search.screened) for search in searches)
    cost = Cost(
        rungs=sum(len(family) for family in families),
        rungs_screened=screened,
        rungs_measured=len(chosen),
        frames_searched=screened * len(few) + len(chosen) * (len(places) - len(few)),
        frames_exhaustive=sum(len(family) for family in families) * len(places),
        seconds=time.monotonic() - began,
    )
    profiles = [judge.rung(measured[name], family) for name, family in chosen.items()]
    profiles.append(judge.rung(reference))
    profiles.sort(key=lambda rung: (rung.bytes_per_published_frame, rung.rung))
    about = _about(crew, judge, ceiling, len(places))
    return Made(Profile(about, tuple(profiles)), judge, reference, measured, cost)


def _check_length(footage: Footage, places: Sequence[int]) -> None:
    """Refuse footage that is too short for an interval."""
    for scene, scored in zip(footage.scenes, footage.by_scene(places), strict=True):
        if len(scored) < interval.FRAMES_MIN:
            raise ProfileError(
                f"{len(scored)} frames are too few for a 95 % interval, which needs at least "
                f"{interval.FRAMES_MIN}; "
                + (
                    "raise --frames"
                    if len(scored) < scene.frames
                    else f"{scene.name} is too short: use a longer video"
                )
            )


def _screen(
    crew: Crew, searches: Sequence[Search], judge: Judge, few: Sequence[int], progress: Progress
) -> None:
    """Measure the rungs that the searches request on few frames, until no search requests more."""
    while due := [(search, point) for search in searches for point in search.due()]:
        names = {search.family.rung(point): (search, point) for search, point in due}
        found = crew.measure(list(names), few, lambda rung: progress.done(len(few), rung))
        for name, measurement in found.items():
            search, point = names[name]
            search.tell(point, _seen(judge, measurement, few))


def _measure(
    crew: Crew,
    searches: Sequence[Search],
    judge: Judge,
    rungs: Sequence[str],
    frames: tuple[Sequence[int], Sequence[int]],
    progress: Progress,
) -> tuple[dict[str, str | None], dict[str, Measurement]]:
    """Measure the best rungs on all frames, and `rungs` in any case.

    Args:
        crew: Measures.
        searches: The families, screened.
        judge: Scores measurements.
        rungs: Rungs that are always measured.
        frames: All frames, and the few that rungs were screened on.
        progress: Shows progress.

    Returns:
        The family of each rung that was measured, and the measurements.
    """
    places, few = frames
    # The rung of the ceiling is included only if it was found or requested.
    chosen: dict[str, str | None] = dict.fromkeys(rungs)
    for search in searches:
        chosen |= dict.fromkeys(search.finalists(), search.family.name)
    measured: dict[str, Measurement] = {}
    while left := [rung for rung in chosen if rung not in measured]:
        progress.expect(len(left) * (len(places) - len(few)))
        measured |= crew.measure(left, places, lambda rung: progress.done(len(places) - len(few), rung))
        for search in searches:
            name = search.family.name
            own = [rung for rung, family in chosen.items() if family == name]
            more = search.between({rung: _seen(judge, measured[rung], places) for rung in own})
            chosen |= dict.fromkeys(more, name)
    return chosen, measured


def _tail(
    searches: Sequence[Search], measured: Mapping[str, Measurement], chosen: Mapping[str, str | None]
) -> dict[str, str]:
    """Return finer rungs than this video needs, with their family.

    A search stops where more bytes do not improve the accuracy. In other light they may, and a camera can
    only choose rungs that were measured.
    """
    searched = [search for search in searches if search.family.name in chosen.values()]
    if not searched:
        return {}
    # The most efficient family: the one with the cheapest rung.
    family = min(
        searched,
        key=lambda search: min(
            measured[rung].bytes_per_published_frame
            for rung, name in chosen.items()
            if name == search.family.name
        ),
    ).family
    own = [family.point(rung) for rung, name in chosen.items() if name == family.name]
    finest = (0,) * len(family.axes)
    best = min(own, key=sum)
    points = [tuple(place * step // TAIL_STEPS for place in best) for step in range(TAIL_STEPS)]
    assert finest in points, "a step of 0 changes no knob"
    return {name: family.name for point in points if (name := family.rung(point)) not in chosen}


def _about(crew: Crew, judge: Judge, ceiling: Mapping[str, Measurement], frames_scored: int) -> About:
    """Describe the application, the video and the measurement."""
    footage, app = crew.lead.footage, crew.lead.app
    noise, jpeg = (ceiling[name] for name in (NOISE, CEILING_JPEG))
    return About(
        app=app.name,
        app_sha256=app.sha256,
        strong=app.thresholds.strong,
        weak=app.thresholds.weak,
        video=footage.name,
        video_sha256=footage.sha256,
        width=footage.width,
        height=footage.height,
        frames_per_second=footage.frames_per_second,
        frames_scored=frames_scored,
        reference_boxes=judge.boxes,
        ceiling_noise=judge.score(noise),
        ceiling_noise_strict=judge.score(noise, strict=True),
        ceiling_jpeg=judge.score(jpeg),
        ceiling_jpeg_strict=judge.score(jpeg, strict=True),
        made_by=f"mez {_native.__version__}, H.264 by {crew.lead.h264_encoder}",
        scenes=_scenes(footage, judge),
    )


def _scenes(footage: Footage, judge: Judge) -> tuple[Scene, ...]:
    """Describe each scene, if there are several."""
    if len(footage.scenes) == 1:
        return ()
    return tuple(
        Scene(scene.name, scene.sha256, len(judged.places), judged.boxes)
        for scene, judged in zip(footage.scenes, judge.scenes, strict=True)
    )


def _seen(judge: Judge, measurement: Measurement, places: Sequence[int]) -> Screened:
    return Screened(measurement.bytes_per_published_frame, judge.screen(measurement, places))


def _few(footage: Footage, places: Sequence[int]) -> list[int]:
    """Return the frames to screen rungs on: a part of each scene."""
    return [place for scene in footage.by_scene(places) for place in _few_of_scene(footage, scene)]


def _few_of_scene(footage: Footage, places: Sequence[int]) -> list[int]:
    """Return frames of every third piece, because whole chains must be encoded."""
    pieces = footage.pieces(places)
    chosen = pieces[1::PIECES_STEP] if len(pieces) >= PIECES_STEP else pieces
    inside = [place for place in places if any(place in piece for piece in chosen)]
    frames = max(round(len(places) * SCREENING_SHARE), SCREENING_FRAMES_MIN)
    if len(inside) < frames:
        inside = list(places)
    step = max(1, len(inside) // frames)
    return inside[::step]


def ceiling_of(about: About, strict: bool = False) -> Score | None:
    """Return the lower of the two ceilings. No floor should be above it."""
    both = (
        (about.ceiling_noise_strict, about.ceiling_jpeg_strict)
        if strict
        else (about.ceiling_noise, about.ceiling_jpeg)
    )
    known = [score for score in both if score is not None]
    return min(known, key=lambda score: score.value) if known else None


def _estimate(
    crew: Crew, families: Sequence[Family], places: Sequence[int], progress: Progress, more: int
) -> None:
    """Search a few frames, and print how long the profile will take."""
    probe = list(places[:3])
    began = time.monotonic()
    crew.lead.measure(REFERENCE, probe)
    seconds = (time.monotonic() - began) / len(probe)
    rungs = sum(len(family) for family in families)
    # The reference and two ceilings, a part of the rungs for the search, and the requested rungs.
    searched = len(places) * 3 + int(0.17 * rungs * len(places)) + more * len(places)
    progress.expect(searched)
    if seconds > 0.002:
        minutes = searched * seconds * 1.3 / crew.workers / 60
        progress.say(
            f"{rungs + more} rungs, {len(places)} frames: about {max(minutes, 1):.0f} min at "
            f"{seconds * 1000:.0f} ms a frame on "
            f"{crew.workers} {'process' if crew.workers == 1 else 'processes'}; cached measurements "
            "take no time"
        )
