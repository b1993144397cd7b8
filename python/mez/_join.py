"""Joins frames with the records that were made of them."""

import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

from mez import _arguments as arguments
from mez import _native
from mez._frame import Frame
from mez._in_process import InProcessEdge
from mez._subscribe import read, subscribe
from mez._subscription import Subscription
from mez.errors import EndedError, Error, WaitTimeoutError

if TYPE_CHECKING:
    import asyncio

# The most strays that wait for the next pair. Only the newest are kept; all are counted.
_STRAYS_MAX = 64
# How often a wait checks for Ctrl-C.
_SLICE_S = 0.1

_log = logging.getLogger("mez")

MissingReason = Literal["passed", "late", "full", "ended"]
StrayReason = Literal["late", "twice", "frame_skipped", "no_frame", "no_origin", "full"]


@dataclass(frozen=True, slots=True)
class Stray:
    """A record that was returned without its frame.

    Attributes:
        record: The record.
        reason: `"late"`: it came after its frame was returned. `"twice"`: its frame was returned with the
            expected number of records already. `"frame_skipped"`: its frame was not delivered to this
            program, but later ones were. `"no_frame"`: its frame did not come in time. `"no_origin"`: the
            record does not say what it was made of (`of=` of `Publisher.send_data`). `"full"`: more records
            waited than `waiting_max` and `bytes_max` allow.
    """

    record: Frame
    reason: StrayReason


@dataclass(frozen=True, slots=True)
class Pair:
    """A frame with the records that were made of it.

    Attributes:
        frame: The frame.
        records: The records that were made of the frame, in the order in which they came.
        missing: Why there are fewer records than `records=` of `join`. `None`: none is missing. `"passed"`:
            `within_ms` is over, and records of later frames have come. `"late"`: `within_ms` is over, and no
            record of a later frame has come. `"full"`: more waited than `waiting_max` and `bytes_max` allow.
            `"ended"`: the derived stream has ended.
        strays: Records without a frame that came since the previous pair. At most 64 of them, the newest.
        dropped: Number of pairs before this one that were dropped, because your loop was too slow.
    """

    frame: Frame
    records: tuple[Frame, ...]
    missing: MissingReason | None = None
    strays: tuple[Stray, ...] = ()
    dropped: int = 0

    @property
    def record(self) -> Frame | None:
        """The first record. `None` if there is none."""
        return self.records[0] if self.records else None

    @property
    def data(self) -> Any:  # noqa: ANN401, what was published
        """The content of the first record (`Frame.data`). `None` if there is none."""
        return self.records[0].data if self.records else None


class JoinCounts(NamedTuple):
    """What happened to all frames and records.

    Attributes:
        frames: Frames that came.
        records: Records that came.
        whole: Frames that were returned with all their records.
        missing: Frames that were returned with fewer records.
        matched: Records that were returned with their frames.
        strays: Records that were returned without a frame.
        dropped: Pairs that were dropped, because your loop was too slow.
    """

    frames: int
    records: int
    whole: int
    missing: int
    matched: int
    strays: int
    dropped: int


class Join(Iterator[Pair], AsyncIterator[Pair]):
    """An iterator over pairs. Also a context manager, which closes it.

    `mez.join` creates it. Read it with `for`, `async for` or `next`, in one thread or task at a time. Two
    threads in the background read the streams, so that neither blocks the other.
    """

    def __init__(
        self,
        frames: Subscription,
        records: Subscription,
        native: _native.Join,
        *,
        past: bool,
        pairs_max: int,
        timeout: float | None,
        on_never_met: Callable[[str], object] | None,
    ) -> None:
        self._frames, self._records, self._native = frames, records, native
        self._past = past
        self._pairs_max = pairs_max
        self._timeout = timeout
        self._on_never_met = on_never_met
        self._changed = threading.Condition()
        self._ready: deque[Pair] = deque()
        self._strays: deque[Stray] = deque(maxlen=_STRAYS_MAX)
        self._dropped = 0
        self._dropped_untold = 0
        self._running = 2
        self._failed: Exception | None = None
        self._closed = False
        self._wakes: Callable[[], object] | None = None
        for target in (self._read_frames, self._read_records):
            threading.Thread(target=target, name="mez-join", daemon=True).start()

    @property
    def counts(self) -> JoinCounts:
        """What happened to all frames and records so far."""
        return JoinCounts(*self._native.counts, self._dropped)

    @property
    def waiting(self) -> tuple[int, int, int]:
        """Number of frames that wait for records, of records that wait for frames, and the bytes of both."""
        return self._native.waiting

    @property
    def closed(self) -> bool:
        """Whether the join is closed."""
        return self._closed

    def next(self, timeout: float | None = None) -> Pair:
        """Wait for the next pair, and return it.

        Args:
            timeout: Seconds. `None`: the `timeout` of `join`.

        Raises:
            WaitTimeoutError: No pair came within `timeout`. You can call `next` again.
            EndedError: Both streams have ended, or the join is closed.
            Error: An error of a subscription: `PermissionDenied`, `ConnectError` and others.
        """
        limit = arguments.timeout("timeout", timeout) if timeout is not None else self._timeout
        deadline = None if limit is None else time.monotonic() + limit
        with self._changed:
            while True:
                pair = self._take()
                if pair is not None:
                    return pair
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise self._timed_out(limit)
                waits = [_SLICE_S, *(each for each in (left, self._native.due) if each is not None)]
                self._changed.wait(max(0.001, min(waits)))

    def close(self) -> None:
        """End the join and both of its subscriptions. A second call has no effect."""
        with self._changed:
            self._closed = True
            self._tell()
        self._frames.close()
        self._records.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Pair:
        try:
            return self.next()
        except EndedError:
            raise StopIteration from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Pair:
        import asyncio

        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        # Even if a pair is ready each time, other tasks must run.
        await asyncio.sleep(0)
        try:
            while True:
                with self._changed:
                    changed.clear()
                    self._wakes = lambda: _wake(loop, changed)
                    pair = self._take()
                if pair is not None:
                    return pair
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise self._timed_out(self._timeout)
                waits = [each for each in (left, self._native.due) if each is not None]
                try:
                    await asyncio.wait_for(changed.wait(), max(0.001, min(waits)) if waits else None)
                except TimeoutError:
                    continue
        except EndedError:
            raise StopAsyncIteration from None
        finally:
            self._wakes = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        frames, records, _ = self.waiting
        state = "closed" if self._closed else f"{frames} frames and {records} records wait"
        return f"<Join {self._frames.pattern} with {self._records.pattern}, {state}>"

    # The next methods are called with `_changed` held.

    def _take(self) -> Pair | None:
        """The next pair, if there is one. Raises the error that ended the join."""
        if self._closed:
            raise EndedError("the join is closed; open a new one")
        if not self._ready:
            self._drain()
        if self._ready:
            pair = self._ready.popleft()
            self._changed.notify_all()
            return pair
        if self._failed is not None:
            raise self._failed
        if self._running == 0:
            raise EndedError("both sides of the join have ended, and everything was delivered")
        return None

    def _drain(self) -> None:
        """Take all pairs and strays that are ready."""
        while (joined := self._native.poll()) is not None:
            kind, frame, records, reason = joined
            if kind == "pair":
                if len(self._ready) >= self._pairs_max and not self._past:
                    gone = self._ready.popleft()
                    self._dropped += 1
                    # Its strays and its number of dropped pairs are reported with a later pair.
                    self._dropped_untold += 1 + gone.dropped
                    self._strays.extendleft(reversed(gone.strays))
                strays, dropped = tuple(self._strays), self._dropped_untold
                self._strays.clear()
                self._dropped_untold = 0
                missing = cast("MissingReason | None", reason)
                self._ready.append(Pair(frame, tuple(records), missing, strays, dropped))
            elif kind == "stray":
                self._strays.append(Stray(records[0], cast("StrayReason", reason)))
            else:
                _log.warning("%s with %s: %s", self._frames.pattern, self._records.pattern, reason)
                if self._on_never_met is not None:
                    self._on_never_met(str(reason))

    def _tell(self) -> None:
        self._changed.notify_all()
        if self._wakes is not None:
            self._wakes()

    # The threads.

    def _read_frames(self) -> None:
        self._read(self._frames, 0)

    def _read_records(self) -> None:
        self._read(self._records, 1)

    def _read(self, subscription: Subscription, side: int) -> None:
        try:
            while self._has_room(side):
                frame = subscription.next()
                # Decoded video also holds its picture, with 1.5 bytes per pixel.
                across, down = frame.width, frame.height
                pixels = across * down * 3 // 2 if frame._picture is not None else 0
                size = frame.payload.nbytes + pixels
                with self._changed:
                    if side == 0:
                        place = (frame.epoch, frame.sequence, frame.captured_ns)
                        self._native.frame(frame.camera, place, frame, size)
                    else:
                        of = frame.of
                        named = (
                            None if of is None else (of.camera, of.id.epoch, of.id.sequence, of.captured_ns)
                        )
                        self._native.record(named, frame.captured_ns, frame, size)
                    self._drain()
                    self._tell()
        except EndedError:
            pass
        except Exception as error:
            with self._changed:
                self._failed = self._failed or error
        with self._changed:
            self._running -= 1
            if side == 0:
                self._native.frames_ended()
            else:
                self._native.records_ended()
            self._drain()
            self._tell()

    def _has_room(self, side: int) -> bool:
        """Of the past, wait until there is room for the next frame or record. False: the join is closed."""
        with self._changed:
            while not self._closed and self._past:
                if self._native.wants[side] and len(self._ready) < self._pairs_max:
                    return True
                self._changed.wait(_SLICE_S)
            return not self._closed

    def _timed_out(self, limit: float | None) -> WaitTimeoutError:
        frames, records, _ = self.waiting
        return WaitTimeoutError(
            f"{self._frames.pattern} with {self._records.pattern}: no pair within {limit} s; {frames} frames "
            f"and {records} records wait for each other"
        )


def _wake(loop: "asyncio.AbstractEventLoop", changed: "asyncio.Event") -> None:
    try:
        loop.call_soon_threadsafe(changed.set)
    except RuntimeError:
        # The loop was closed before this thread could wake it.
        return


def join(
    frames: str | Subscription,
    derived: str | Subscription,
    *,
    within_ms: float = 1000.0,
    records: int = 1,
    since: arguments.Time | None = None,
    until: arguments.Time | None = None,
    waiting_max: int = 256,
    bytes_max: int = 64 << 20,
    edge: str | InProcessEdge | Sequence[str | InProcessEdge] | None = None,
    keys: arguments.StrPath | None = None,
    timeout: float | None = None,
    connect_timeout: float | None = 5.0,
    on_never_met: Callable[[str], object] | None = None,
) -> Join:
    """Return frames together with the records that were made of them.

    A frame is returned when its records have come. The frames of each camera come in the order of capture. If
    records are missing after `within_ms`, the frame is returned without them, and `Pair.missing` gives the
    reason. A record that comes too late, twice or without a frame is in `Pair.strays` of the next pair.

    Live: if more waits than `waiting_max` and `bytes_max` allow, the oldest frames and records are returned
    as they are. If your loop is too slow, the oldest pairs are dropped (`Pair.dropped`). Of the past, nothing
    is dropped: Mez stops reading the streams until there is room.

    Args:
        frames: The cameras: a name or pattern, as in `subscribe`, or a subscription that you opened, for
            example with a contract. With a name or pattern, every frame that crosses the link is included.
        derived: The derived streams: `"dock/cam1/faces"`, `"dock/*/faces"`, or a subscription that you
            opened.
        within_ms: How long a frame waits for its records, and a record for its frame, in milliseconds. Of the
            past, capture times count: a frame stops waiting when a record of the derived streams is this much
            younger.
        records: How many records are expected for each frame.
        since: Join the past, from this capture time, as in `read`. This needs the grants `read` and
            `originals`. Default: join what comes from now on.
        until: The last capture time, only with `since`. Default: now.
        waiting_max: The maximum number of frames that wait, of records that wait, and of pairs that your loop
            has not taken: this many of each.
        bytes_max: The maximum number of bytes of all frames and records that wait.
        edge: As in `subscribe`.
        keys: As in `subscribe`.
        timeout: The longest wait for a pair, in seconds. After it, `WaitTimeoutError` is raised. `None`: wait
            without a limit.
        connect_timeout: As in `subscribe`.
        on_never_met: A function that is called with a sentence if frames or records come, but nothing has
            matched for ten seconds. The logger `mez` warns too.

    Raises:
        ArgumentError: An argument has an invalid value; `field` names the argument.
        PermissionDenied, KeysError, ConnectError, BusyError: As in `subscribe`.

    Example:
        ```python
        for pair in mez.join("dock/cam1", "dock/cam1/faces", within_ms=500):
            if pair.missing:
                print("no faces:", pair.missing)
            else:
                draw(pair.frame.image, pair.data)
        ```
    """
    if until is not None and since is None:
        raise arguments.invalid(
            "until", "until needs since; without since, only new frames and records are joined"
        )
    if isinstance(derived, str) and derived == frames:
        raise arguments.invalid(
            "derived", f"frames and derived are both {derived!r}; give the stream derived from these frames"
        )
    past = since is not None
    native = _native.Join(
        within=arguments.number("within_ms", within_ms) / 1e3,
        records=arguments.whole("records", records, 1, 1024),
        waiting_max=arguments.whole("waiting_max", waiting_max, 1, 1 << 20),
        bytes_max=arguments.whole("bytes_max", bytes_max, 1, 1 << 40),
        strange_after=10.0,
        past=past,
    )
    opened: list[Subscription] = []

    def open_side(field: str, side: str | Subscription) -> Subscription:
        if isinstance(side, Subscription):
            return side
        name = arguments.text(field, side)
        if past:
            made = read(name, since=since, until=until, edge=edge, keys=keys, connect_timeout=connect_timeout)
        else:
            made = subscribe(
                name, deliver="every", edge=edge, keys=keys, timeout=None, connect_timeout=connect_timeout
            )
        opened.append(made)
        return made

    try:
        # Records first, so that the records of the first frames are not missed.
        made = open_side("derived", derived)
        source = open_side("frames", frames)
    except Error:
        for each in opened:
            each.close()
        raise
    return Join(
        source,
        made,
        native,
        past=past,
        pairs_max=waiting_max,
        timeout=arguments.timeout("timeout", timeout),
        on_never_met=on_never_met,
    )
