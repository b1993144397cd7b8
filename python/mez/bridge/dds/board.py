"""The status of a bridge to DDS: counts of frames and samples, for people and as JSON."""

import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from mez._commands import Teller
from mez.bridge.dds.errors import DdsError, EncodingError, RefusedError
from mez.errors import CaptureTimeError, Error, FrameTooLargeError, ImageError, LogFullError

TELL_AGAIN_S: Final = 10.0
"""How often refusals for the same reason are reported, in seconds. All are counted."""

_TOLD: Final = ("state", "reason", "counts")
"""The fields of an event that are printed."""

_REASONS: Final[tuple[tuple[type[Error], str], ...]] = (
    (EncodingError, "malformed"),
    (ImageError, "not_a_picture"),
    (FrameTooLargeError, "too_large"),
    (CaptureTimeError, "not_newer"),
    (LogFullError, "log_full"),
    (DdsError, "dds"),
)


@dataclass(slots=True)
class StreamStatus:
    """The status of a stream of a bridge to DDS.

    Attributes:
        frames: Frames that were copied since the start, each counted once.
        bytes: Their encoded bytes, in all topics of the stream.
        frames_per_s: Frames that were copied per second since the previous line.
        peers: Readers of its topics in DDS, or writers of its topic. For detections: readers.
        misfits: Readers or writers with an incompatible quality of service.
        skipped: Frames that did not cross the link, or were skipped for newer ones.
        lost: Frames that the edge dropped before it gave them, or samples that did not arrive completely.
        refused: Frames or samples that could not be copied, by reason. In a stream with two types, a frame
            counts for each type that could not be written; `frames` includes it if the other type was.
        contract: For a stream of frames: its current contract, `usual` or one that was requested.
    """

    frames: int = 0
    bytes: int = 0
    frames_per_s: float = 0.0
    peers: int = 0
    misfits: int = 0
    skipped: int = 0
    lost: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    contract: str = ""

    def line(self) -> str:
        """For people."""
        told = (
            f"{self.frames_per_s:.4g} frames/s, {self.peers} peers, skipped {self.skipped}, lost {self.lost}"
        )
        if self.misfits:
            told += f", {self.misfits} peers with incompatible QoS"
        reasons = ", ".join(f"{why} {count}" for why, count in self.refused.items())
        return told + (f", refused: {reasons}" if reasons else "")


@dataclass(slots=True)
class DdsStatus:
    """The status of a bridge to DDS.

    Attributes:
        bridge: Its name.
        state: `starting`, `running` or `ended`.
        at_ns: The time of this status, in nanoseconds since 1970-01-01 UTC.
        participants: Known programs in the domain, with this one.
        streams: Each stream, as `out.NAME`, `in.NAME` or `detections`.
    """

    bridge: str
    state: str
    at_ns: int
    participants: int
    streams: dict[str, StreamStatus]

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def line(self) -> str:
        """For people."""
        return "; ".join(f"{name} {of.line()}" for name, of in self.streams.items())


class StreamBoard:
    """Counts the frames of one stream, and reports on it. The `Board` of its reader. For any thread.

    Args:
        name: The stream's name, for people.
        teller: Prints lines for people.
    """

    def __init__(self, name: str, teller: Teller) -> None:
        self.name = name
        self._teller = teller
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._told_at_s: dict[str, float] = {}
        self._shown = (time.monotonic(), 0)

    def tell(self, sentence: str) -> None:
        """Print a sentence for people."""
        self._teller.tell(sentence)

    def event(self, kind: str, camera: str | None, **told: Any) -> None:  # noqa: ANN401, plain values
        """Print an event of the stream."""
        what = ", ".join(f"{key} {value}" for key, value in told.items() if key in _TOLD and value)
        self.tell(f"{self.name}: {camera or 'all cameras'}: {kind}{f' ({what})' if what else ''}")

    def lose(self, count: int) -> None:
        """Count frames that the edge dropped before it gave them."""
        self._count(lost=count)

    def copied(self, size: int) -> None:
        """Count a frame that was copied, and its bytes."""
        self._count(frames=1, bytes=size)

    def refuse(self, what: str, error: Error, count: int = 1) -> None:
        """Count a frame or a sample that cannot be copied, and report why, at limited intervals.

        Args:
            what: The camera or the topic.
            error: The reason.
            count: How many.
        """
        if isinstance(error, RefusedError):
            reason = error.reason
        else:
            reason = next((word for kind, word in _REASONS if isinstance(error, kind)), "error")
        now_s = time.monotonic()
        with self._lock:
            self._refused[reason] += count
            is_new = now_s - self._told_at_s.get(reason, -TELL_AGAIN_S) >= TELL_AGAIN_S
            if is_new:
                self._told_at_s[reason] = now_s
        if is_new:
            self.tell(f"{self.name}: {what}: not copied ({reason}): {error}")

    def status(self, *, peers: int, misfits: int, skipped: int = 0, lost: int = 0) -> StreamStatus:
        """The status of the stream.

        Args:
            peers: Readers or writers in DDS.
            misfits: Readers or writers with an incompatible quality of service.
            skipped: Frames that were skipped.
            lost: Samples that did not arrive completely.
        """
        now_s = time.monotonic()
        with self._lock:
            frames, since = self._counts["frames"], self._shown
            self._shown = (now_s, frames)
            return StreamStatus(
                frames,
                self._counts["bytes"],
                (frames - since[1]) / max(1e-9, now_s - since[0]),
                peers,
                misfits,
                skipped,
                self._counts["lost"] + lost,
                dict(self._refused),
            )

    def _count(self, **more: int) -> None:
        with self._lock:
            self._counts.update(more)
