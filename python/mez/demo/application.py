"""The demo's application: takes the newest frame of every camera, and checks that it is not damaged."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import mez
from mez.demo.account import Delivery, Ledger
from mez.demo.accuracy import Samples
from mez.demo.contract import Diary, Kept
from mez.demo.detector import Detector


@dataclass(frozen=True, slots=True)
class Replies:
    """Counts of the results that were sent back to the cameras.

    Attributes:
        sent: Passed on to the camera by the edge.
        lost: Lost because the camera or the edge was not connected, or because newer ones were waiting.
    """

    sent: int
    lost: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What the application asks for.

    Attributes:
        latency_ms: The latency bound; `None` for none.
        accuracy: The accuracy floor; `None` for none.
        profile: The profile for the floor; `None` for none.
    """

    latency_ms: float | None = None
    accuracy: float | None = None
    profile: Path | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """The records of a scenario.

    Attributes:
        diary: Keeps every frame with the state of its contract.
        samples: Keeps some frames, for the accuracy.
    """

    diary: Diary
    samples: Samples

    def take(self, frame: mez.Frame, age_ms: float | None, at_s: float) -> None:
        """Enter one frame."""
        self.diary.take(
            Kept(
                camera=frame.camera,
                at_s=at_s,
                age_ms=age_ms,
                size_bytes=len(frame.payload),
                rung=frame.rung,
                state=frame.contract.state,
                reason=frame.contract.reason,
                skipped=frame.skipped_count,
            )
        )
        self.samples.take_delivered(frame, at_s)


class Application:
    """Subscribes on a thread of its own, until it is stopped.

    Args:
        pattern: The cameras.
        edge: Where the edge broker serves applications.
        ledger: Counts every frame.
        detector: Gets every frame that is not damaged.
        noted: Called, on the application's thread, with the camera of every frame and the time by
            `time.monotonic`.
        asked: What it asks for.
        watched: Only with a scenario: keeps its frames. The detector gets none then.
    """

    def __init__(
        self,
        pattern: str,
        edge: str,
        ledger: Ledger,
        detector: Detector,
        noted: Callable[[str, float], None],
        asked: Asked,
        watched: Watched | None = None,
    ) -> None:
        self._ledger = ledger
        self._detector = detector
        self._noted = noted
        self._watched = watched
        self._subscription = mez.subscribe(
            pattern,
            edge=edge,
            application="mez demo",
            latency_ms=asked.latency_ms,
            accuracy=asked.accuracy,
            profile=asked.profile,
        )
        self._states: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="application", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds_max: float = 5.0) -> None:
        """End the subscription, and the thread with it."""
        self._subscription.close()
        self._thread.join(seconds_max)

    def replies(self) -> Replies:
        """Return the counts of the detector's results so far."""
        counts = self._subscription.reply_counts
        return Replies(sent=counts.sent, lost=counts.dropped + counts.failed)

    def states(self) -> dict[str, int]:
        """Return how many frames came so far at each state of the contract, the most frequent first.

        It is complete after the application has stopped. Before, the newest frames may be missing.
        """
        return dict(self._states.most_common())

    def _run(self) -> None:
        try:
            for frame in self._subscription:
                self._take(frame)
        except BaseException as error:
            self.failure = error
            raise

    def _take(self, frame: mez.Frame) -> None:
        # Measured first, because this is when a user's code gets the frame.
        age_ms, at_s = frame.age_ms, time.monotonic()
        image, corrupt = _verify(frame)
        self._ledger.take(
            Delivery(
                camera=frame.camera,
                epoch=frame.epoch,
                sequence=frame.sequence,
                skipped=frame.skipped,
                age_ms=age_ms,
                size_bytes=len(frame.payload),
                corrupt=corrupt,
                at_s=at_s,
            )
        )
        self._noted(frame.camera, at_s)
        self._states[frame.contract.state] += 1
        if self._watched is not None:
            self._watched.take(frame, age_ms, at_s)
        elif image is not None:
            self._detector.offer(frame, image, age_ms)


def _verify(frame: mez.Frame) -> tuple[npt.NDArray[np.uint8] | None, str | None]:
    """Decode a frame completely; return its pixels, or the error in it."""
    try:
        # Mez raises ImageError if the image has another size than the frame announces, or is cut off or
        # damaged. (Decoders alone would fill the missing rest with grey.)
        return frame.image, None
    except mez.ImageError as error:
        return None, str(error)
