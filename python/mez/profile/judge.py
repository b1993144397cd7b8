"""Computes accuracies from measurements."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mez.profile import interval
from mez.profile.document import RungProfile, Score, Sizes
from mez.profile.families import family_of
from mez.profile.measure import Measurement
from mez.profile.score import Counts, FrameScore, Thresholds, UndefinedAccuracyError, f1, score_frame


@dataclass(frozen=True)
class Verdict:
    """A rung against the reference.

    Attributes:
        places: The frames that were scored.
        frames: The scores of each.
    """

    places: tuple[int, ...]
    frames: tuple[FrameScore, ...]

    def accuracy(self, strict: bool = False) -> float:
        """Return micro-F1 over all frames."""
        total = sum((frame.strict if strict else frame.hysteresis for frame in self.frames), Counts(0, 0, 0))
        value = f1(total)
        # The reference has boxes, so an undefined F1 means that nothing was found.
        return 0.0 if value is None else value

    def resampled(self, drawn: interval.Draws, strict: bool = False) -> npt.NDArray[np.float64]:
        """Return the accuracy of every resample."""
        counts = [frame.strict if strict else frame.hysteresis for frame in self.frames]
        return interval.resampled_f1(counts, drawn)

    def score(self, drawn: interval.Draws, strict: bool = False) -> Score:
        """Return the accuracy with its 95 % interval."""
        value = self.accuracy(strict)
        low, high = interval.interval_95(self.resampled(drawn, strict))
        return Score(value, min(low, value), max(high, value))


@dataclass(frozen=True)
class JudgedScene:
    """One scene's part of the reference.

    Attributes:
        name: The scene's name.
        places: Indices of its scored frames.
        boxes: Number of strong boxes in these frames as published.
        drawn: How its frames are resampled.
    """

    name: str
    places: tuple[int, ...]
    boxes: int
    drawn: interval.Draws


class Judge:
    """Scores the results on delivered frames against those on published frames.

    With several scenes, the accuracy of a rung is the lowest of all scenes, because a floor must hold by day
    and at night.

    Args:
        reference: The results on published frames.
        thresholds: The scores from which on boxes count.
        frames_per_second: Frame rate of the video.
        frames: Number of frames of the video. `reference` has some of them.
        scenes: Name of each scene, and the indices of its frames. Default: all frames are one scene.

    Raises:
        UndefinedAccuracyError: The reference has no strong box, in total or in one scene.
    """

    def __init__(
        self,
        reference: Measurement,
        thresholds: Thresholds,
        frames_per_second: float,
        frames: int,
        scenes: Sequence[tuple[str, range]] = (),
    ) -> None:
        self._reference = reference
        self._thresholds = thresholds
        self._places = tuple(sorted(reference.found))
        scored_per_second = frames_per_second * len(self._places) / frames
        self.block = interval.block_frames(len(self._places), scored_per_second)
        self.drawn = interval.draws(len(self._places), self.block)
        several = scenes or [("", range(frames))]
        self.scenes = tuple(self._scene(name, places, scored_per_second) for name, places in several)
        self.boxes = sum(scene.boxes for scene in self.scenes)

    def _scene(self, name: str, frames: range, scored_per_second: float) -> JudgedScene:
        places = tuple(place for place in self._places if place in frames)
        found = [self._reference.found[place] for place in places]
        boxes = sum(box.score >= self._thresholds.strong for one in found for box in one)
        if boxes == 0:
            raise UndefinedAccuracyError(
                f"the application found nothing on the {len(places)} frames that it searched"
                f"{f' of {name}' if name else ''}, so its accuracy is undefined; "
                "use a video with objects that it detects, or lower --strong "
                f"(now {self._thresholds.strong:g})"
            )
        block = interval.block_frames(len(places), scored_per_second)
        return JudgedScene(name, places, boxes, interval.draws(len(places), block))

    def verdict(self, measurement: Measurement, places: Sequence[int] | None = None) -> Verdict:
        """Score a rung on these frames. Default: on all frames of the reference."""
        chosen = tuple(places) if places is not None else self._places
        frames = tuple(
            score_frame(self._reference.found[place], measurement.found[place], self._thresholds)
            for place in chosen
        )
        return Verdict(chosen, frames)

    def screen(self, measurement: Measurement, places: Sequence[int]) -> float:
        """Return the accuracy on a few frames. 1 if there is nothing to find and nothing was found."""
        values = []
        for scene in self.scenes:
            verdict = self.verdict(measurement, [place for place in places if place in scene.places])
            values.append(f1(sum((frame.hysteresis for frame in verdict.frames), Counts(0, 0, 0))))
        return min((value for value in values if value is not None), default=1.0)

    def scores(self, measurement: Measurement, strict: bool = False) -> tuple[Score, ...]:
        """Return the accuracy in each scene."""
        return tuple(
            self.verdict(measurement, scene.places).score(scene.drawn, strict) for scene in self.scenes
        )

    def score(self, measurement: Measurement, strict: bool = False) -> Score:
        """Return the accuracy in the scene where it is lowest."""
        return min(self.scores(measurement, strict), key=lambda score: score.value)

    def rung(self, measurement: Measurement, family: str | None = None) -> RungProfile:
        """Return a rung for a profile."""
        by_scene = self.scores(measurement)
        sizes = np.array(measurement.size_bytes, dtype=np.float64)
        p05, p50, p95 = np.percentile(sizes, [5, 50, 95])
        made = np.array(measurement.camera_ms) if measurement.camera_ms else None
        searched = measurement.detector_ms
        return RungProfile(
            rung=measurement.rung,
            family=family if family is not None else family_of(measurement.rung),
            bytes=Sizes(float(sizes.mean()), float(p05), float(p50), float(p95)),
            sent_share=len(sizes) / measurement.frames,
            accuracy_normalised=min(by_scene, key=lambda score: score.value),
            accuracy_normalised_strict=self.score(measurement, strict=True),
            camera_ms_mean=float(made.mean()) if made is not None else None,
            camera_ms_p95=float(np.percentile(made, 95)) if made is not None else None,
            detector_ms_mean=float(np.mean(searched)) if searched else None,
            frames_scored=len(self._places),
            accuracy_by_scene=by_scene if len(by_scene) > 1 else (),
        )
