"""Checks that every published frame was delivered or explained.

A camera numbers its frames without holes, from 0 in each epoch (each start of its broker). The sequence
numbers of two deliveries therefore say how many frames were published between them. The second delivery also
counts the skipped frames by reason. Both must agree. If they do not, a `Discrepancy` is kept and reported.
"""

import threading
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mez._figures import percentile

RECENT_FRAMES_MAX: Final = 256
"""Deliveries of each camera from which the live table computes rates and ages."""

DISCREPANCIES_MAX: Final = 20
"""Discrepancies that are kept with their details. Further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A frame that the application received.

    Attributes:
        camera: Name of its camera.
        epoch: Start of the camera's broker that it belongs to.
        sequence: Its number in the epoch.
        skipped: Frames between the delivery before and this one, by reason.
        age_ms: Milliseconds from capture until the application received it; `None` while the clocks of
            camera and edge have not been compared.
        size_bytes: Size of the payload.
        corrupt: The error in its pixels; `None` if there is none.
        at_s: When the application received it, by `time.monotonic`.
    """

    camera: str
    epoch: int
    sequence: int
    skipped: Mapping[str, int]
    age_ms: float | None
    size_bytes: int
    corrupt: str | None
    at_s: float


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A delivery that does not fit the one before.

    Attributes:
        camera: Name of the camera.
        epoch: Of the delivery.
        sequence: Of the delivery.
        missing: Frames in between according to the numbers; negative if this one came again or too late.
        explained: Frames that the delivery says were skipped.
    """

    camera: str
    epoch: int
    sequence: int
    missing: int
    explained: int

    def __str__(self) -> str:
        """Describe it for people."""
        where = f"{self.camera}, epoch {self.epoch}, frame {self.sequence}"
        if self.missing < 0:
            return f"{where}: came again or out of order"
        return f"{where}: {self.missing} frames are missing before it, {self.explained} are explained"


@dataclass(frozen=True, slots=True)
class Now:
    """One camera's deliveries of the last seconds.

    Attributes:
        frames_per_second: Over the window.
        age_ms_p50: Median age; `None` without a frame of known age.
        age_ms_p95: 95th percentile of the age.
        size_bytes: Mean size of a payload; `None` without a frame.
        silent_s: Seconds since the last delivery; `None` before the first.
    """

    frames_per_second: float
    age_ms_p50: float | None
    age_ms_p95: float | None
    size_bytes: float | None
    silent_s: float | None


@dataclass(slots=True)
class CameraTotals:
    """The frame counts of one camera.

    Attributes:
        camera: Its name.
        published: Frames from its first to its last delivery, by the sequence numbers. From its second epoch
            on, those before an epoch's first delivery count too.
        delivered: Frames that the application got.
        skipped: Frames that it did not get, by reason.
        corrupt: Delivered frames whose pixels were damaged.
        epochs: Starts of its broker with delivered frames.
        size_bytes: Size of all delivered payloads.
        ages_ms: Ages of all delivered frames whose age is known: 8 bytes a frame.
        ages_unknown: Frames delivered without an age.
    """

    camera: str
    published: int = 0
    delivered: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    corrupt: int = 0
    epochs: int = 0
    size_bytes: int = 0
    ages_ms: "array[float]" = field(default_factory=lambda: array("d"))
    ages_unknown: int = 0

    @property
    def unexplained(self) -> int:
        """Frames published that were neither delivered nor explained; negative if too many were explained."""
        return self.published - self.delivered - self.skipped.total()

    def age_ms(self, percent: float) -> float | None:
        """Return a percentile of the age over all frames; `None` where no age is known."""
        return percentile(self.ages_ms, percent)


@dataclass(frozen=True, slots=True)
class Totals:
    """The frame counts of all cameras at one moment.

    Attributes:
        cameras: By name, in the order of their names.
        discrepancies: The first `DISCREPANCIES_MAX` discrepancies.
        discrepancy_count: The number of all discrepancies.
        corrupt_example: The error in the first corrupt frame.
    """

    cameras: Mapping[str, CameraTotals]
    discrepancies: tuple[Discrepancy, ...]
    discrepancy_count: int
    corrupt_example: str | None

    @property
    def published(self) -> int:
        """Frames of all cameras."""
        return sum(camera.published for camera in self.cameras.values())

    @property
    def delivered(self) -> int:
        """Frames of all cameras."""
        return sum(camera.delivered for camera in self.cameras.values())

    @property
    def skipped(self) -> Counter[str]:
        """Frames of all cameras, by reason."""
        return sum((camera.skipped for camera in self.cameras.values()), Counter())

    @property
    def corrupt(self) -> int:
        """Frames of all cameras."""
        return sum(camera.corrupt for camera in self.cameras.values())

    @property
    def unexplained(self) -> int:
        """Frames of all cameras that are neither delivered nor explained."""
        return sum(abs(camera.unexplained) for camera in self.cameras.values())

    def age_ms(self, percent: float) -> float | None:
        """Return a percentile of the age over all frames of all cameras."""
        return percentile((age for camera in self.cameras.values() for age in camera.ages_ms), percent)


@dataclass(slots=True)
class _Book:
    totals: CameraTotals
    last: tuple[int, int] | None = None
    recent: deque[Delivery] = field(default_factory=lambda: deque(maxlen=RECENT_FRAMES_MAX))


class Ledger:
    """Counts the frames of all cameras. Safe to use from several threads.

    Args:
        cameras: Names of the expected cameras; others are added when their frames come.
    """

    def __init__(self, cameras: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._books = {camera: _Book(CameraTotals(camera)) for camera in cameras}
        self._discrepancies: list[Discrepancy] = []
        self._discrepancy_count = 0
        self._corrupt_example: str | None = None

    def take(self, delivery: Delivery) -> None:
        """Count one frame."""
        with self._lock:
            book = self._books.setdefault(delivery.camera, _Book(CameraTotals(delivery.camera)))
            totals = book.totals
            missing = self._missing_before(book, delivery)
            explained = sum(delivery.skipped.values())
            if missing is not None and missing != explained:
                self._discrepancy_count += 1
                if len(self._discrepancies) < DISCREPANCIES_MAX:
                    self._discrepancies.append(
                        Discrepancy(delivery.camera, delivery.epoch, delivery.sequence, missing, explained)
                    )
            if missing is None:
                # The first frame of the camera: earlier frames are not counted.
                totals.published += 1
            else:
                totals.skipped.update(delivery.skipped)
                totals.published += max(missing + 1, 0)
            if book.last is None or delivery.epoch != book.last[0]:
                totals.epochs += 1
            if book.last is None or (delivery.epoch, delivery.sequence) > book.last:
                book.last = (delivery.epoch, delivery.sequence)
            totals.delivered += 1
            totals.size_bytes += delivery.size_bytes
            if delivery.age_ms is None:
                totals.ages_unknown += 1
            else:
                totals.ages_ms.append(delivery.age_ms)
            if delivery.corrupt is not None:
                totals.corrupt += 1
                where = f"{delivery.camera}, epoch {delivery.epoch}, frame {delivery.sequence}"
                self._corrupt_example = self._corrupt_example or f"{where}: {delivery.corrupt}"
            book.recent.append(delivery)

    @staticmethod
    def _missing_before(book: _Book, delivery: Delivery) -> int | None:
        """Count the frames between the last delivery and this one.

        `None` for the first of the camera, -1 for one out of order.
        """
        if book.last is None:
            return None
        epoch, sequence = book.last
        if (delivery.epoch, delivery.sequence) <= book.last:
            return -1
        if delivery.epoch == epoch:
            return delivery.sequence - sequence - 1
        # Frames that the old epoch published after its last delivery were lost with its broker, and their
        # number is unknown.
        return delivery.sequence

    def now(self, camera: str, window_s: float, at_s: float) -> Now:
        """Summarize a camera's deliveries of the last `window_s` seconds before `at_s`."""
        with self._lock:
            book = self._books.get(camera)
            recent = [] if book is None else list(book.recent)
        window = [delivery for delivery in recent if delivery.at_s > at_s - window_s]
        ages = [delivery.age_ms for delivery in window if delivery.age_ms is not None]
        # Right after the start the window is not full yet.
        covered_s = min(window_s, at_s - recent[0].at_s) if recent else window_s
        return Now(
            frames_per_second=len(window) / max(covered_s, 0.5),
            age_ms_p50=percentile(ages, 50),
            age_ms_p95=percentile(ages, 95),
            size_bytes=sum(delivery.size_bytes for delivery in window) / len(window) if window else None,
            silent_s=at_s - recent[-1].at_s if recent else None,
        )

    def totals(self) -> Totals:
        """Return a copy of the current counts."""
        with self._lock:
            return Totals(
                cameras={
                    name: CameraTotals(
                        camera=name,
                        published=book.totals.published,
                        delivered=book.totals.delivered,
                        skipped=Counter(book.totals.skipped),
                        corrupt=book.totals.corrupt,
                        epochs=book.totals.epochs,
                        size_bytes=book.totals.size_bytes,
                        ages_ms=book.totals.ages_ms[:],
                        ages_unknown=book.totals.ages_unknown,
                    )
                    for name, book in sorted(self._books.items())
                },
                discrepancies=tuple(self._discrepancies),
                discrepancy_count=self._discrepancy_count,
                corrupt_example=self._corrupt_example,
            )
