"""A running subscription: delivers frames to threads and event loops."""

import logging
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

from mez import _arguments as arguments
from mez import _native
from mez._answers import AnswerCounts
from mez._derived import Following
from mez._frame import Contract, ContractState, Frame, NotHeld
from mez._source import Source, source
from mez._terms import Terms
from mez.errors import EndedError, Error, WaitTimeoutError

if TYPE_CHECKING:
    import asyncio

    from mez._frame_spans import FrameTraces

# Seconds that replies still on their way get when a subscription is closed.
_REPLIES_S = 1.0

# Stands for an argument that was left out, where `None` means something.
_SAME: Final[Any] = object()

_log = logging.getLogger("mez")

_NONE_CONNECTED: Final = "%s: no matching camera is connected to the edge; waiting for one"
_NONE_CONNECTED_PAST: Final = (
    "%s: no matching camera is connected to the edge; reading frames that the edge holds. Frames that only "
    "the camera holds are reported in not_held"
)

EventKind = Literal[
    "camera_up", "camera_down", "source", "contract", "waiting", "disconnected", "reconnected", "group"
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a subscription, other than a frame.

    Attributes:
        kind: One of: `"camera_up"`, `"camera_down"`: a matching camera connected or disconnected. `"source"`:
            the state of a camera's source, or its reason, has changed. If the source gives no frames, this
            event also comes when the subscription begins and when the camera connects. `"contract"`: the
            state of the contract has changed, also if no frames come. With `quality="original"` it also says
            whether originals are missing. `"waiting"`: no matching camera is connected; frames come as soon
            as one is. `"disconnected"`: the connection to the edge was lost, and Mez tries to connect again.
            Or the rights of this program have changed, and Mez subscribes again; `reason` says what was
            withdrawn or granted. `"reconnected"`: frames come again. Missed frames come with `resume="fill"`;
            otherwise they count as `link_down`. `"group"`: this program has joined its group, and `reason`
            says what happened to the group's place. Or the group gives no new records, because too many are
            not settled; or it gives new records again.
        camera: The camera that connected or disconnected, or whose source or contract has changed. Otherwise
            `None`.
        reason: Why it happened, for people.
        state: For `"contract"`: the state, as in `Contract`.
        source: For `"source"`: the source.
    """

    kind: EventKind
    camera: str | None = None
    reason: str | None = None
    state: ContractState | None = None
    source: Source | None = None


class ReplyCounts(NamedTuple):
    """What happened to the replies to a subscription's frames.

    Attributes:
        queued: Replies that were passed to `Frame.reply`.
        sent: Replies that the edge has accepted and passed on to the camera's connection.
        dropped: Replies that were dropped, because more than 64 were waiting.
        failed: Replies that were refused, or lost with a connection.
    """

    queued: int
    sent: int
    dropped: int
    failed: int


class Subscription(Iterator[Frame], AsyncIterator[Frame]):
    """An iterator over frames. Also a context manager, which closes it.

    `mez.subscribe` and `mez.read` create it. Read it with `for`, `async for` or `next`, in one thread or task
    at a time. In the main thread, Ctrl-C ends a wait within 100 ms.

    Events are handled while your program reads. So the properties below show the state at the last frame that
    your program took.
    """

    def __init__(
        self,
        native: _native.Subscription,
        client: _native.Client,
        *,
        pattern: str,
        timeout: float | None = None,
        on_event: Callable[[Event], object] | None = None,
        past: bool = False,
        everything: bool = False,
        terms: Terms | None = None,
        size: str = "sent",
        group: str | None = None,
        settles_itself: bool = False,
        traces: "FrameTraces | None" = None,
    ) -> None:
        self._native = native
        self._traces = traces
        if traces is not None:
            # Also if nobody closes the subscription.
            weakref.finalize(self, traces.close)
        self._group = group
        # In a group with one record at once: the record that is done when the next is asked for.
        self._settles_itself = settles_itself
        self._in_hand: Frame | None = None
        self._client = client
        self._following = Following(client, self._received, _follow)
        self._pattern = pattern
        self._timeout = timeout
        self._on_event = on_event
        # It reads the past, and then ends: it does not wait for cameras.
        self._past = past
        # For frames of the past: the first size of each camera, and the cameras that have several sizes.
        self._sizes: dict[str, tuple[int, int]] = {}
        self._mixed: set[str] = set()
        # Everything that is held was requested. Then a missing time span before the first frame is expected.
        self._everything = everything
        self._terms = terms or Terms()
        self._size = size
        self._contracts: dict[str, Contract] = {}
        # For connected cameras: sources that give no frames.
        self._sources: dict[str, Source] = {}
        # For cameras that are not connected: why they disconnected.
        self._down: dict[str, str] = {}
        self._up = set(native.cameras)
        self._connected = True
        self._delivered = 0
        self._skipped: Counter[str] = Counter()
        self._last: dict[str, tuple[int, int, int]] = {}
        self._not_held: dict[str, NotHeld] = {}
        self._task_waits = False

    @property
    def pattern(self) -> str:
        """The pattern of the subscription."""
        return self._pattern

    @property
    def group(self) -> str | None:
        """The group of which this program is a member. `None` if there is none."""
        return self._group

    @property
    def deliver(self) -> Literal["newest", "every"]:
        """Which frames come if your program is slower than the camera: the newest ones, or every one."""
        return "every" if self._native.every else "newest"

    @property
    def waiting(self) -> bool:
        """Whether no matching camera is connected."""
        return not self._up

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the edge."""
        return self._connected

    @property
    def delivered(self) -> int:
        """Number of frames that your program took."""
        return self._delivered

    @property
    def skipped(self) -> Mapping[str, int]:
        """Number of frames that were not delivered, by reason as in `Frame.skipped`."""
        return dict(self._skipped)

    @property
    def last(self) -> Mapping[str, tuple[int, int, int]]:
        """For each camera: epoch, sequence and capture time (nanoseconds) of the last frame that was taken.

        To continue after it when your program is started again, save it, and pass it to `subscribe` as
        `after`.
        """
        return dict(self._last)

    @property
    def not_held(self) -> Mapping[str, NotHeld]:
        """For each camera: a missing time span after its last frame. Set when the subscription has ended."""
        return dict(self._not_held)

    @property
    def contracts(self) -> Mapping[str, Contract]:
        """For each camera: the state of the contract."""
        return dict(self._contracts)

    @property
    def sources(self) -> Mapping[str, Source]:
        """For each connected camera whose source gives no frames: the source."""
        return dict(self._sources)

    @property
    def reply_counts(self) -> ReplyCounts:
        """What happened to the replies to its frames."""
        return ReplyCounts(*self._client.reply_counts())

    @property
    def answer_counts(self) -> AnswerCounts:
        """What happened to the answers to its frames, on their way to the edge."""
        return AnswerCounts(*self._client.answer_counts())

    @property
    def closed(self) -> bool:
        """Whether the subscription is closed."""
        return self._native.closed

    def next(self, timeout: float | None = None) -> Frame:
        """Wait for the next frame, and return it.

        Args:
            timeout: Seconds. `None`: the `timeout` of `subscribe`.

        Raises:
            WaitTimeoutError: No frame came within `timeout`. You can call `next` again.
            EndedError: The requested end has passed, or the subscription is closed. Also raised if another
                thread closes it during the wait.
            ConnectError: The connection to the edge was lost, and `reconnect` is false.
            PermissionDenied: A grant was withdrawn, or this program's keys were revoked.
            BrokerError: The edge ended the subscription.
        """
        if (traces := self._traces) is not None:
            traces.done()
        limit = arguments.timeout("timeout", timeout) if timeout is not None else self._timeout
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            event = self._native.next(left)
            if event is None:
                raise self._timed_out(limit)
            frame = self._take(event)
            if frame is not None:
                return frame

    def update(
        self,
        *,
        latency_ms: float | None = _SAME,
        accuracy: float | None = _SAME,
        on_time_share: float = _SAME,
        profile: arguments.StrPath | Mapping[str, object] | None = _SAME,
        min_fps: float = _SAME,
        on_infeasible: Literal["degrade", "skip", "stop"] = _SAME,
        priority: int = _SAME,
    ) -> None:
        """Change the contract from now on. Arguments that you leave out stay as they are.

        `None` removes a bound. Any thread may call this, also while another thread waits for a frame. At most
        ten changes per second take effect; if there are more, the last one counts. A subscription that began
        in the past does not change.

        Args:
            latency_ms: As in `subscribe`.
            accuracy: As in `subscribe`.
            on_time_share: As in `subscribe`.
            profile: As in `subscribe`.
            min_fps: As in `subscribe`.
            on_infeasible: As in `subscribe`.
            priority: As in `subscribe`.

        Raises:
            ArgumentError: An argument has an invalid value; `field` names the argument.
            EndedError: The subscription is closed.
            ConnectError: There is no connection to the edge. The change takes effect when it is back.
        """
        given: dict[str, Any] = {
            "latency_ms": latency_ms,
            "accuracy": accuracy,
            "on_time_share": on_time_share,
            "profile": profile,
            "min_fps": min_fps,
            "on_infeasible": on_infeasible,
            "priority": priority,
        }
        terms = replace(self._terms, **{name: value for name, value in given.items() if value is not _SAME})
        self._native.update(**terms.checked())
        self._terms = terms

    def report_accuracy(self, frame: Frame | str, accuracy: float) -> None:
        """Report how accurate your own result for a frame was, if you can measure it.

        Reports count for ten seconds. If their mean is below the floor, the state of the camera's contract is
        `"accuracy_miss"`: the profile does not fit what the camera sees now. The camera's frames do not
        change. To improve the accuracy, measure a new profile, or subscribe with a higher floor.

        Args:
            frame: The frame, or the name of its camera.
            accuracy: 0 to 1, in the same measure as the floor. For example, F1 against labels, or against
                your result for the original of the frame.

        Raises:
            ArgumentError: An argument has an invalid value; `field` names the argument.
            EndedError: The subscription is closed.
            ConnectError: There is no connection to the edge.
        """
        camera = frame if isinstance(frame, str) else frame.camera
        self._native.report_accuracy(camera, arguments.number("accuracy", accuracy))

    def close(self) -> None:
        """End the subscription. A second call has no effect.

        Replies that were not sent yet have up to one second. A member of a group leaves the group: reports
        about its records also have up to one second. Records that it has not reported are given to other
        members at once.
        """
        self._following.close()
        if (traces := self._traces) is not None:
            traces.done()
        try:
            if self._group is not None and not self.closed:
                self._native.leave(_REPLIES_S)
            if not self._native.close():
                return
            queued, sent, dropped, failed = self._client.reply_counts()
            if sent + dropped + failed < queued:
                self._client.flush_replies(_REPLIES_S)
        finally:
            if traces is not None:
                traces.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Frame:
        try:
            return self.next()
        except EndedError:
            raise StopIteration from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        if self._task_waits:
            raise Error(
                "another task is waiting for the next frame of this subscription; subscribe in each task"
            )
        # Imported here, so that a program without an event loop does not load one.
        import asyncio

        if (traces := self._traces) is not None:
            traces.done()
        self._task_waits = True
        try:
            # Even if a frame is ready each time, other tasks must run.
            await asyncio.sleep(0)
            async with asyncio.timeout(self._timeout) as waiting:
                return await self._next_in_loop(asyncio.get_running_loop(), asyncio.Event())
        except EndedError:
            raise StopAsyncIteration from None
        except TimeoutError:
            if waiting.expired():
                raise self._timed_out(self._timeout) from None
            raise
        finally:
            self._task_waits = False

    async def _next_in_loop(self, loop: "asyncio.AbstractEventLoop", rang: "asyncio.Event") -> Frame:
        while True:
            event = self._native.poll()
            if event is not None:
                frame = self._take(event)
                if frame is not None:
                    return frame
                continue
            rang.clear()
            loop.add_reader(self._native.fileno(), rang.set)
            try:
                await rang.wait()
            finally:
                loop.remove_reader(self._native.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and self._in_hand is not None and not self.closed:
            self._in_hand.failed(error)
        self.close()

    def __repr__(self) -> str:
        waiting = self.waiting and not self._past
        state = "closed" if self.closed else "waiting" if waiting else f"{len(self._up)} connected"
        return f"<Subscription {self._pattern} {self.deliver}, {state}, {self._delivered} delivered>"

    def _take(self, event: _native.Arrival | _native.Notice | _native.Ending) -> Frame | None:
        """Return the frame of an event. For any other event, update the state and return `None`."""
        if isinstance(event, _native.Arrival):
            settler = None if self._group is None else self._native
            frame = self._received(event, settler)
            self._in_hand = frame if self._settles_itself else None
            if self._everything and frame.camera not in self._last:
                frame.not_held = None
            self._last[frame.camera] = (frame.epoch, frame.sequence, frame.captured_ns)
            self._delivered += 1
            self._skipped.update(frame.skipped)
            if frame.camera not in self._sources:
                # A frame that waited here is older than the state of its camera's source.
                self._contracts[frame.camera] = Contract(frame.contract.state, frame.contract.reason)
            if self._past:
                self._note_size(frame)
            # The notice that a new camera has connected may come after its first frame.
            self._up.add(frame.camera)
            if (traces := self._traces) is not None:
                traces.took(frame)
            return frame
        if isinstance(event, _native.Ending):
            for camera, skipped, not_held in event.rest:
                self._skipped.update(dict(skipped))
                if not_held is not None:
                    self._not_held[camera] = NotHeld(*not_held)
            self.close()
            raise EndedError(
                f"the subscription to {self._pattern} has ended, and everything was delivered; open another"
            )
        self._note(event)
        return None

    def _received(self, arrival: _native.Arrival, settler: _native.Subscription | None = None) -> Frame:
        return Frame._received(arrival, self._client, self._size, settler, self._following)

    def _note_size(self, frame: Frame) -> None:
        """Warn once for each camera if its frames of the past have several sizes: programs expect one."""
        size = (frame.width, frame.height)
        first = self._sizes.setdefault(frame.camera, size)
        if size != first and frame.camera not in self._mixed:
            self._mixed.add(frame.camera)
            _log.warning(
                "%s: frames of the past have several sizes: %dx%d, and %dx%d from frame %s on (rung %s); the "
                "edge holds frames as they crossed the link; to get originals from the camera, use "
                "quality='original'",
                frame.camera,
                *first,
                *size,
                frame.id,
                frame.rung,
            )

    def _note(self, notice: _native.Notice) -> None:
        because = f": {notice.reason}" if notice.reason else ""
        match notice.kind:
            case "camera_up" if notice.camera is not None:
                self._up.add(notice.camera)
                self._down.pop(notice.camera, None)
                # After a camera connects, its source counts as live until a notice says otherwise.
                self._sources.pop(notice.camera, None)
                event = Event("camera_up", notice.camera)
                _log.info("%s: connected to the edge", notice.camera)
            case "camera_down" if notice.camera is not None:
                self._up.discard(notice.camera)
                self._sources.pop(notice.camera, None)
                if notice.reason:
                    self._down[notice.camera] = notice.reason
                event = Event("camera_down", notice.camera, notice.reason)
                _log.warning("%s: disconnected from the edge%s", notice.camera, because)
            case "source" if notice.camera is not None and notice.source is not None:
                told = source(notice.source)
                if told.state == "live":
                    self._sources.pop(notice.camera, None)
                else:
                    self._sources[notice.camera] = told
                event = Event("source", notice.camera, told.reason, source=told)
                level = logging.WARNING if told.state in ("stalled", "lost") else logging.INFO
                _log.log(level, "%s: %s", notice.camera, told)
            case "contract" if notice.camera is not None and notice.state is not None:
                contract = Contract(notice.state, notice.reason or "")
                self._contracts[notice.camera] = contract
                event = Event("contract", notice.camera, notice.reason, notice.state)
                level = logging.INFO if notice.state in ("ok", "unverified") else logging.WARNING
                _log.log(level, "%s: %s", notice.camera, contract)
            case "waiting":
                self._up.clear()
                self._sources.clear()
                event = Event("waiting")
                _log.warning(_NONE_CONNECTED_PAST if self._past else _NONE_CONNECTED, self._pattern)
            case "disconnected":
                self._connected = False
                # The edge reports them again after a reconnection.
                self._sources.clear()
                event = Event("disconnected", reason=notice.reason)
                _log.warning(
                    "%s: lost the connection to the edge%s; trying to reconnect", self._pattern, because
                )
            case "rights":
                # The edge is connected. Cameras that are now denied are reported as disconnected later.
                self._sources.clear()
                event = Event("disconnected", reason=notice.reason)
                _log.warning("%s%s", self._pattern, because)
            case "group" | "group_trouble":
                event = Event("group", reason=notice.reason)
                level = logging.INFO if notice.kind == "group" else logging.WARNING
                _log.log(level, "group %s%s", self._group, because)
            case "reconnected":
                event = Event("reconnected")
                now = "subscribed again" if self._connected else "connected to the edge again"
                _log.info("%s: %s", self._pattern, now)
                self._connected = True
            case _:
                # A notice of a later version of the native module, which needs no action.
                return
        if self._on_event is not None:
            self._on_event(event)

    def _timed_out(self, limit: float | None) -> WaitTimeoutError:
        if not self._connected:
            state = f"the connection to the edge at {self._client.address} is lost; trying to reconnect"
        elif not self._up:
            gone = "; ".join(f"{camera}: {reason}" for camera, reason in sorted(self._down.items()))
            because = f" ({gone})" if gone else ""
            state = f"no matching camera is connected{because}; see mez.cameras()"
        elif self._sources:
            state = "; ".join(f"{camera}: {silent}" for camera, silent in sorted(self._sources.items()))
        elif left_out := self._left_out():
            state = left_out
        else:
            state = f"connected: {', '.join(sorted(self._up))}; does it publish?"
        return WaitTimeoutError(f"no frame of {self._pattern} within {limit} s ({state})")

    def _left_out(self) -> str | None:
        """Why frames are left out, if the contract is infeasible and `on_infeasible` is `"skip"`."""
        infeasible = {
            camera: contract.reason
            for camera, contract in sorted(self._contracts.items())
            if camera in self._up and contract.state == "infeasible"
        }
        if self._terms.on_infeasible != "skip" or not infeasible:
            return None
        because = "; ".join(f"{camera}: {reason}" for camera, reason in infeasible.items())
        return f'the contract is infeasible, and on_infeasible="skip" leaves such frames out; {because}'


def _follow(client: _native.Client, stream: str, since_ns: int | None) -> _native.Subscription:
    """Subscribe to every record of a derived stream, from a capture time or from now on."""
    return client.subscribe(
        stream,
        since_ns=since_ns,
        until_ns=None,
        deliver="every",
        accept=None,
        reconnect=True,
        quality=None,
        held_only=True,
        for_export=False,
        resume="newest",
        after=(),
        group=None,
        **Terms().checked(),
    )
