"""Scores for `mez demo --scenario` the accuracy of the delivered frames.

It runs after the scenario: during it, scoring would take processor time from what is measured.
"""

from collections.abc import Callable, Sequence

import cv2

import mez
from mez.apps.boxes import Box
from mez.demo.accuracy import Accuracy, Pair
from mez.profile.app import App
from mez.profile.score import Counts, FrameScore, f1, score_frame


def score(
    app: App,
    pairs: Sequence[Pair],
    seen: Callable[[mez.Frame, Sequence[Box]], None],
    give_up: Callable[[], bool],
) -> Accuracy:
    """Run the detector on both frames of every pair, and compare the boxes.

    Args:
        app: The detector.
        pairs: Frames as published and as delivered.
        seen: Called with each delivered frame and what was found on it, in pixels of the frame as published.
        give_up: Tells whether to end early, with the pairs scored so far.
    """
    cv2.setNumThreads(1)
    scores: dict[str, list[FrameScore]] = {}
    by_frame: list[tuple[str, float, float | None]] = []
    expected: list[float | None] = []
    for pair in pairs:
        if give_up():
            break
        published, delivered = pair.published, pair.delivered
        size, what = (published.width, published.height), f"frame {published.id} of {published.camera}"
        reference = app.find(published.image, size, what)
        found = app.find(delivered.image, size, what)
        scored = score_frame(reference, found, app.thresholds)
        scores.setdefault(published.camera, []).append(scored)
        expected.append(delivered.expected_accuracy)
        by_frame.append((published.camera, pair.at_s, f1(scored.hysteresis)))
        seen(delivered, [box for box in found if box.score >= app.thresholds.strong])
    nothing = Counts(0, 0, 0)
    together = [scored for of_camera in scores.values() for scored in of_camera]
    return Accuracy(
        normalised=f1(sum((scored.hysteresis for scored in together), nothing)),
        strict=f1(sum((scored.strict for scored in together), nothing)),
        expected=_mean(expected),
        frames=len(together),
        by_camera={
            camera: f1(sum((scored.hysteresis for scored in of_camera), nothing))
            for camera, of_camera in scores.items()
        },
        by_frame=by_frame,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; `None` unless every value is known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
