"""Turns measurements into accuracies."""

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
        # The reference has boxes, so something was there to be found.
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


class Judge:
    """Scores what was found on delivered frames against what was found on published ones.

    Args:
        reference: What was found on published frames.
        thresholds: From which scores on boxes count.
        frames_per_second: Of the video.
        frames: Frames of the video, of which `reference` has some.

    Raises:
        UndefinedAccuracyError: The reference has no strong box.
    """

    def __init__(
        self, reference: Measurement, thresholds: Thresholds, frames_per_second: float, frames: int
    ) -> None:
        self._reference = reference
        self._thresholds = thresholds
        self._places = tuple(sorted(reference.found))
        self.boxes = sum(
            box.score >= thresholds.strong for boxes in reference.found.values() for box in boxes
        )
        if self.boxes == 0:
            raise UndefinedAccuracyError(
                f"the application finds nothing on the {len(self._places)} frames that it "
                "searched, so accuracy is "
                "undefined: there is nothing to keep; take a video that shows what it looks for, "
                "or lower --strong "
                f"(now {thresholds.strong:g})"
            )
        scored_per_second = frames_per_second * len(self._places) / frames
        self.block = interval.block_frames(len(self._places), scored_per_second)
        self.drawn = interval.draws(len(self._places), self.block)

    def verdict(self, measurement: Measurement, places: Sequence[int] | None = None) -> Verdict:
        """Score a rung on these frames, or on all that the reference has."""
        chosen = tuple(places) if places is not None else self._places
        frames = tuple(
            score_frame(self._reference.found[place], measurement.found[place], self._thresholds)
            for place in chosen
        )
        return Verdict(chosen, frames)

    def screen(self, measurement: Measurement, places: Sequence[int]) -> float:
        """Return the accuracy on a few frames; 1 where those have nothing to find and nothing was found."""
        verdict = self.verdict(measurement, places)
        total = sum((frame.hysteresis for frame in verdict.frames), Counts(0, 0, 0))
        value = f1(total)
        return 1.0 if value is None else value

    def rung(self, measurement: Measurement, family: str | None = None) -> RungProfile:
        """Return a rung as a profile has it."""
        verdict = self.verdict(measurement)
        sizes = np.array(measurement.size_bytes, dtype=np.float64)
        p05, p50, p95 = np.percentile(sizes, [5, 50, 95])
        made = np.array(measurement.camera_ms) if measurement.camera_ms else None
        searched = measurement.detector_ms
        return RungProfile(
            rung=measurement.rung,
            family=family if family is not None else family_of(measurement.rung),
            bytes=Sizes(float(sizes.mean()), float(p05), float(p50), float(p95)),
            sent_share=len(sizes) / measurement.frames,
            accuracy_normalised=verdict.score(self.drawn),
            accuracy_normalised_strict=verdict.score(self.drawn, strict=True),
            camera_ms_mean=float(made.mean()) if made is not None else None,
            camera_ms_p95=float(np.percentile(made, 95)) if made is not None else None,
            detector_ms_mean=float(np.mean(searched)) if searched else None,
            frames_scored=len(verdict.places),
        )
