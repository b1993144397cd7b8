"""What became of the frames and samples of a bridge to DDS, for people and as JSON."""

import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from mez._commands import Teller
from mez.bridge.dds.errors import DdsError, EncodingError, RefusedError
from mez.errors import CaptureTimeError, Error, FrameTooLargeError, ImageError, LogFullError

TELL_AGAIN_S: Final = 10.0
"""How often a refusal for one reason is told, in seconds. All are counted."""

_TOLD: Final = ("state", "reason", "counts")
"""What people are told of an event, of all that is known."""

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
    """How a stream of a bridge to DDS does.

    Attributes:
        frames: Frames that were copied since the start, each counted once.
        bytes: Their encoded bytes, in all topics of the stream.
        frames_per_s: Frames that were copied, each second since the line before.
        peers: Readers of its topics in DDS, or writers of its topic; of detections, readers.
        misfits: Readers or writers that asked for a quality of service that does not fit.
        skipped: Frames that did not cross the link, or were passed over for newer ones.
        lost: Frames that were at the edge and gone before their turn, or samples that never came whole.
        refused: Frames or samples that could not be copied, by reason. Of a stream with two types, a frame
            counts for each type that could not be written, and is in `frames` if the other one was.
        contract: Of a stream of frames, the contract that it has now: `usual`, or one that was asked for.
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
            told += f", {self.misfits} peers do not fit"
        reasons = ", ".join(f"{why} {count}" for why, count in self.refused.items())
        return told + (f", refused: {reasons}" if reasons else "")


@dataclass(slots=True)
class DdsStatus:
    """How a bridge to DDS does.

    Attributes:
        bridge: Its name.
        state: `starting`, `running` or `ended`.
        at_ns: When this was so, in nanoseconds since 1970-01-01 UTC.
        participants: Programs in the domain that are known, this one too.
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
    """Counts what becomes of one stream, and tells of it. The `Board` of its reader; for any thread.

    Args:
        name: The stream, as people see it.
        teller: Says what people should know.
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
        """Tell people something."""
        self._teller.tell(sentence)

    def event(self, kind: str, camera: str | None, **told: Any) -> None:  # noqa: ANN401, plain values
        """Tell of an event of the stream."""
        what = ", ".join(f"{key} {value}" for key, value in told.items() if key in _TOLD and value)
        self.tell(f"{self.name}: {camera or 'all cameras'}: {kind}{f' ({what})' if what else ''}")

    def lose(self, count: int) -> None:
        """Count frames that were at the edge and never came."""
        self._count(lost=count)

    def copied(self, size: int) -> None:
        """Count a frame that was copied, and its bytes."""
        self._count(frames=1, bytes=size)

    def refuse(self, what: str, error: Error, count: int = 1) -> None:
        """Count a frame or a sample that cannot be copied, and tell why, not too often.

        Args:
            what: The camera or the topic.
            error: Why not.
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
        """How the stream does.

        Args:
            peers: Readers or writers in DDS.
            misfits: Those that do not fit.
            skipped: Frames that were passed over.
            lost: Samples that never came whole.
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
