"""Computes the figures of a play. All stamps are of one clock: devices, edge and engines run on one host."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mez_bench.errors import ExperimentError
from mez_bench.offload.plans import Captured, Got, Played, Worked
from mez_bench.stats import Values

WARM_UP_S: Final = 1.0
"""The first seconds of a play do not count: the clock offsets and the link are not known yet."""

ON_TIME_MS: Final = 100.0

DISPLAY_HZ: Final = 60.0
"""Assumed rate of the display: a picture appears at its next refresh, on average 8.3 ms later."""

STAGES: Final = ("up", "queue", "engine_decode", "compute", "answer_code", "down", "decode")
"""The stages of an answer, in this order, without gaps: `up` from the capture until the edge has the frame,
its encoding included; `queue` until the engine has it; `engine_decode` until the engine has the pixels;
`compute`; `answer_code` until the edge has the answer, its encoding included; `down` until the device's
program has the answer; `decode` until the program has its pixels."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A play, without its warm-up.

    Attributes:
        captured: Number of frames that the cameras captured.
        e2e_ms: For each answer: time from the capture of its frame until the device's program had it.
        stages_ms: For each stage: its durations, for the answers whose stamps are all known.
        frame_bytes: Sizes of frames as the engine got them.
        answer_bytes: Sizes of answers.
        seconds: How long the play lasted.
    """

    captured: int
    e2e_ms: Values
    stages_ms: Mapping[str, Values]
    frame_bytes: Values
    answer_bytes: Values
    seconds: float

    @property
    def on_time_share(self) -> float:
        """The share of the captured frames whose answer arrived within `ON_TIME_MS`."""
        return float(np.count_nonzero(self.e2e_ms <= ON_TIME_MS)) / max(1, self.captured)

    @property
    def answered_share(self) -> float:
        """The share of the captured frames whose answer arrived."""
        return len(self.e2e_ms) / max(1, self.captured)


def shown(played: Played, worked: Iterable[Worked], seconds: float) -> Shown:
    """Compute the figures of a play."""
    from_ns = played.began_ns + round(WARM_UP_S * 1e9)
    captured = [frame for frame in played.captured if frame.captured_ns >= from_ns]
    got = [answer for answer in played.got if answer.captured_ns >= from_ns]
    by_frame = {(work.camera, work.captured_ns): work for work in worked}
    works = [by_frame.get((answer.camera, answer.captured_ns)) for answer in got]
    rows = [row for answer, work in zip(got, works, strict=True) if (row := stages(answer, work))]
    return Shown(
        captured=len(captured),
        e2e_ms=np.array([answer.ms["taken"] for answer in got]),
        stages_ms={stage: np.array([row[stage] for row in rows]) for stage in STAGES} if rows else {},
        frame_bytes=np.array([work.frame_bytes for work in works if work is not None], np.float64),
        answer_bytes=np.array([answer.answer_bytes for answer in got], np.float64),
        seconds=seconds - WARM_UP_S,
    )


def stages(answer: Got, work: Worked | None) -> dict[str, float] | None:
    """Return how long each of `STAGES` took, in milliseconds; `None` if not all stamps are known."""
    if work is None or "up" not in answer.ms or "made" not in answer.ms:
        return None
    stamps_ns = (work.got_ns, work.decoded_ns, work.computed_ns)
    got, decoded, computed = ((at_ns - answer.captured_ns) / 1e6 for at_ns in stamps_ns)
    reached = (
        0.0,
        answer.ms["up"],
        got,
        decoded,
        computed,
        answer.ms["made"],
        answer.ms["taken"],
        answer.ms["decoded"],
    )
    return {stage: reached[at + 1] - reached[at] for at, stage in enumerate(STAGES)}


def shares(got: Iterable[Got], cameras: Sequence[str]) -> Values:
    """Return the number of answers of each device, relative to the mean of all devices."""
    counts = dict.fromkeys(cameras, 0)
    for answer in got:
        counts[answer.camera] += 1
    values: Values = np.array(list(counts.values()), np.float64)
    if not values.any():
        raise ExperimentError("no device got an answer")
    relative: Values = values / values.mean()
    return relative


def gaps_s(got: Iterable[Got], from_ns: int, until_ns: int, cameras: Sequence[str]) -> Values:
    """Return each device's longest gap between answers that ends after `from_ns`, in seconds.

    A gap that is open at `from_ns` counts whole. A gap that is open at `until_ns` counts up to `until_ns`.
    """
    taken: dict[str, list[int]] = defaultdict(list)
    for answer in got:
        taken[answer.camera].append(answer.captured_ns + round(answer.ms["taken"] * 1e6))
    longest = []
    for camera in cameras:
        times = sorted(at_ns for at_ns in taken[camera] if at_ns < until_ns)
        before = [at_ns for at_ns in times if at_ns <= from_ns]
        points = [before[-1] if before else from_ns, *times[len(before) :], until_ns]
        longest.append(float(np.diff(points).max()) / 1e9)
    return np.array(longest)


def motion_to_photon(
    flashes_s: Sequence[float], captured: Sequence[Captured], got: Sequence[Got], began_ns: int
) -> tuple[Values, Values]:
    """Return the time from each flash until the display shows it, in milliseconds.

    Args:
        flashes_s: When the light went on and off in turn, in seconds since `began_ns`.
        captured: All frames of the device.
        got: All answers of the device.
        began_ns: When the play began.

    Returns:
        The times with the engine's answers on the display; and the times if the display showed the device's
        own frames. Both are of the flashes that an answer shows.
    """
    through, alone = [], []
    for on_s, off_s in zip(flashes_s[::2], flashes_s[1::2], strict=False):
        on_ns, off_ns = (began_ns + round(at_s * 1e9) for at_s in (on_s, off_s))
        frames = (frame.captured_ns for frame in captured if on_ns <= frame.captured_ns < off_ns)
        first_ns = next(frames, None)
        lit = [
            answer.captured_ns + round(answer.ms["decoded"] * 1e6)
            for answer in got
            if answer.is_lit and on_ns <= answer.captured_ns < off_ns
        ]
        if not lit or first_ns is None:
            continue
        through.append((refresh_ns(min(lit), began_ns) - on_ns) / 1e6)
        alone.append((refresh_ns(first_ns, began_ns) - on_ns) / 1e6)
    return np.array(through), np.array(alone)


def refresh_ns(at_ns: int, began_ns: int) -> int:
    """Return when the display shows a picture that is ready at a time: at the next refresh."""
    period_ns = 1e9 / DISPLAY_HZ
    return began_ns + round(math.ceil((at_ns - began_ns) / period_ns) * period_ns)
