"""A client of engines: captures frames, sends them to the faster side, and returns the answers."""

import contextlib
import itertools
import math
import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from mez import _arguments as arguments
from mez._answers import ANSWER_MS, Answer, Answers
from mez._figures import percentile
from mez._frame_id import FrameId
from mez._in_process import InProcessEdge
from mez._publisher import Publisher, Reply, publisher
from mez.errors import EndedError, Error, ImageError, WaitTimeoutError
from mez.offloading.board import Answered, Board
from mez.offloading.policy import EXPLORE_SHARE, Always, Chooser, Side
from mez.offloading.sent import Sent

if TYPE_CHECKING:
    from mez.engine import Image
    from mez.offloading.device import OnDevice, Work
    from mez.offloading.display import Display
    from mez.offloading.source import Pictures

Where: TypeAlias = Literal["edge", "device", "auto"]

AGES_MAX: Final = 100_000
"""The most ages in the summary: those of the newest answers."""

DRAIN_S: Final = 1.0
"""How long the client waits for a further answer of the edge after the source's end, at least, in seconds."""

ENGINE_HANGS_S: Final = 30.0
"""How long the end waits for the picture that the engine on the device is making, in seconds."""

CLOSE_S: Final = 2.0
"""How long closing waits for a picture of the source, or for the engine on the device, in seconds."""

LOOK_S: Final = 0.1
"""How often a loop that waits for an answer checks for the end, in seconds."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class OffloadCounts:
    """What happened to the frames so far.

    `to_edge` + `to_device` = the sum of `given` + the sum of `skipped` + `unanswered`.

    Attributes:
        captured: Pictures that the source gave.
        to_edge: Frames that were sent to the edge.
        to_device: Frames that the engine on the device got. With `where="auto"`, some frames go to both
            sides, to measure them.
        given: Answers that your loop got, by side (`"edge"`, `"device"`).
        skipped: Answers that your loop did not get, by reason. The reasons are those of `Answer.skipped`;
            some can have another cause here. `overtaken`: an answer to a newer frame came first, maybe from
            the other side. `repeated`: the frame was answered already, maybe by the other side. `replaced`: a
            newer answer replaced it, or the frame waited for the engine on the device until a newer one came.
            And more reasons: `engine_refused`: the engine on the device raised an exception, or returned no
            valid result; `forgotten`: the edge's answer came after 4096 newer frames, or it is to be drawn
            over a frame that the client has dropped; `damaged`: the answer cannot be decoded.
        unanswered: Frames that still wait for an answer, or that no engine answered because it took a newer
            one.
        ages_ms: Milliseconds from the capture until your loop got the answer, or until it was displayed. At
            most the newest 100,000 answers.
    """

    captured: int
    to_edge: int
    to_device: int
    given: Mapping[Side, int]
    skipped: Mapping[str, int]
    unanswered: int
    ages_ms: tuple[float, ...]

    def age_ms(self, share: float) -> float | None:
        """A quantile of `ages_ms`, in milliseconds. 0.5 gives the median. `None` if there are no answers."""
        return percentile(self.ages_ms, share * 100)


class Offload:
    """An iterator over answers, always the newest one. Also a context manager, which closes it.

    `mez.offload` creates it. Iterate over it in one thread only; a window belongs to this thread. If an error
    or `break` ends your loop, the client continues. So use `with`, or call `close`.
    """

    def __init__(
        self,
        pictures: "Generator[Image]",
        chooser: Chooser | Always,
        cam: Publisher | None,
        answers: Answers | None,
        answer_s: float,
        seconds: float | None,
        display: "Display | None",
    ) -> None:
        self._pictures = pictures
        self._chooser = chooser
        self._cam = cam
        self._answers = answers
        self._drain_s = DRAIN_S if cam is None else max(DRAIN_S, answer_s)
        self._seconds = seconds
        self._display = display
        self._device: OnDevice | None = None
        self._board = Board()
        # Also notified when a frame was sent.
        self._lock = threading.Condition()
        self._sent = Sent(answer_s)
        self._told: Mapping[str, int] = {}
        self._captured = self._to_edge = self._to_device = 0
        self._ages: deque[float] = deque(maxlen=AGES_MAX)
        self._over = threading.Event()
        self._ends_s = self._source_ended_s = math.inf
        self._answered_s = -math.inf
        # The newest frame whose answer came from the edge and was passed to the board.
        self._edge_answered: FrameId | None = None
        self._threads: list[threading.Thread] = []

    def _start(self, device: "OnDevice | None") -> Self:
        self._device = device
        if self._seconds is not None:
            self._ends_s = time.monotonic() + self._seconds
        works = [("capture", self._capture)] + ([("answers", self._take)] if self._answers else [])
        for name, work in works:
            thread = threading.Thread(target=work, name=f"mez offload: {name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    @property
    def camera(self) -> str | None:
        """The camera's name at the edge. `None` if all frames stay on the device."""
        return None if self._cam is None else self._cam.camera

    @property
    def display(self) -> str | None:
        """Where answers are shown, as text for people. `None` if they are not shown."""
        return None if self._display is None else self._display.what

    @property
    def counts(self) -> OffloadCounts:
        """What happened to the frames so far."""
        given, skipped = self._board.given, dict(self._board.skipped)
        for reason, count in self._told_by_edge().items():
            skipped[reason] = skipped.get(reason, 0) + count
        with self._lock:
            to_edge, to_device = self._to_edge, self._to_device
            return OffloadCounts(
                captured=self._captured,
                to_edge=to_edge,
                to_device=to_device,
                given=given,
                skipped=skipped,
                # Two engines may answer one frame; then both answers are counted.
                unanswered=max(0, to_edge + to_device - sum(given.values()) - sum(skipped.values())),
                ages_ms=tuple(self._ages),
            )

    def _told_by_edge(self) -> Mapping[str, int]:
        """Number of answers that did not come, by reason. After the end: the last known numbers."""
        if self._answers is not None:
            # The publisher may be closed.
            with contextlib.suppress(EndedError):
                self._told = self._answers.skipped
        return self._told

    def refusal(self) -> str | None:
        """Why an engine at the edge refused a frame: the last reason since the previous call, or `None`.

        The reason is text for people: the exception that the engine raised, or what is wrong with its
        picture.
        """
        why = None
        if self._cam is not None:
            with contextlib.suppress(WaitTimeoutError, EndedError):
                while True:
                    why = _refused(self._cam.next_reply(timeout=0)) or why
        return why

    def next(self, timeout: float | None = None) -> Answered | None:
        """Wait for an answer that was not returned yet, and return the newest one.

        Args:
            timeout: Seconds. `None`: wait without a limit.

        Returns:
            The answer. `None` if no answer came within `timeout`.

        Raises:
            EndedError: There are no more answers: the source has ended and its last answers were returned,
                `seconds` have passed, the window was closed, or `close` was called.
            OffloadError: The source was lost, or a picture cannot be written.
            MissingPackageError: The edge's answers have boxes to draw, and OpenCV is not installed.
            Error: A frame cannot be published.
        """
        seconds = arguments.timeout("timeout", timeout)
        limit_s = math.inf if seconds is None else time.monotonic() + seconds
        while not self._over.is_set():
            # Before `take`: an answer that comes in between is returned below.
            is_last = self._is_last()
            came = self._board.take(0.0 if is_last else max(0.0, min(LOOK_S, limit_s - time.monotonic())))
            if came is not None:
                return self._handed_out(*came)
            if is_last:
                break
            if time.monotonic() >= limit_s:
                return None
        raise EndedError("there are no more answers: the source has ended, or the client was closed")

    def _is_last(self) -> bool:
        """Whether no further answer can come, besides one that waits already."""
        now_s = time.monotonic()
        ended_s = min(self._source_ended_s, self._ends_s)
        if now_s < ended_s:
            return False
        if self._device is not None and not self._device.is_idle and now_s < ended_s + ENGINE_HANGS_S:
            return False
        if now_s >= max(ended_s, self._answered_s) + self._drain_s:
            return True
        with self._lock:
            # Only if the source has ended: a stuck source may still give a picture that was begun in time.
            return math.isfinite(self._source_ended_s) and self._edge_answered == self._sent.last

    def _handed_out(self, answer: Answered, came_s: float) -> Answered:
        self._answered_s = time.monotonic()
        came_ms = answer.age_ms
        answer.ms["given"] = came_ms + (self._answered_s - came_s) * 1e3
        if self._display is not None:
            goes_on = self._display.show(answer.number, answer.image)
            answer.ms["displayed"] = came_ms + (time.monotonic() - came_s) * 1e3
            if not goes_on:
                self._over.set()
        with self._lock:
            self._ages.append(answer.age_ms)
        return answer

    def close(self) -> None:
        """Stop capturing frames and receiving answers. A second call has no effect."""
        self._over.set()
        if self._cam is not None:
            self._told_by_edge()
            self._cam.close()
        for thread in self._threads:
            # A camera that hangs in its driver must not hang its program.
            thread.join(CLOSE_S)
        if self._device is not None:
            self._device.close(CLOSE_S)
        display, self._display = self._display, None
        if display is not None:
            display.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answered:
        try:
            answer = self.next()
        except EndedError:
            raise StopIteration from None
        assert answer is not None, "it waits for ever"
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _capture(self) -> None:
        """Send the source's pictures to the side that is expected to answer sooner."""
        last_ns = 0
        try:
            for number, image in enumerate(self._pictures):
                now_s = time.monotonic()
                if self._over.is_set() or now_s >= self._ends_s:
                    break
                # Capture times increase, also when the clock is set back.
                last_ns = max(time.time_ns(), last_ns + 1)
                self._hand_on(number, image, last_ns, now_s)
        except EndedError:
            return
        except Exception as error:
            if self._cam is not None:
                with contextlib.suppress(Error):
                    self._cam.lost(str(error) or type(error).__name__)
            self._board.fail(error)
        finally:
            self._source_ended_s = time.monotonic()
            # Our own generators hold a camera or a file until they are closed.
            self._pictures.close()

    def _hand_on(self, number: int, image: "Image", captured_ns: int, now_s: float) -> None:
        with self._lock:
            self._sent.drop_pictures(now_s)
            choice = self._chooser.choose(number, now_s)
            self._captured += 1
        if choice.goes_to("device") and self._device is not None:
            from mez.offloading.device import Work

            with self._lock:
                self._to_device += 1
            self._device.take(Work(number, image, captured_ns, now_s))
        if choice.goes_to("edge") and self._cam is not None:
            # Without the lock, because encoding takes milliseconds and answers wait for the lock.
            sent = self._cam.send(image, captured=captured_ns)
            with self._lock:
                self._to_edge += 1
                if sent is not None:
                    self._sent.add(sent, number, image, now_s)
                    self._lock.notify_all()

    def _take(self) -> None:
        """Take the edge's answers, and decode them."""
        assert self._answers is not None, "this thread is started with answers only"
        try:
            for answer in self._answers:
                self._take_one(answer)
                with self._lock:
                    self._edge_answered = answer.frame
        except Exception as error:
            self._board.fail(error)

    def _take_one(self, answer: Answer) -> None:
        """Pass an answer of the edge to the board, or count it as skipped."""
        with self._lock:
            # An answer may come before `send` has returned.
            self._lock.wait_for(
                lambda: self._sent.last is not None and self._sent.last >= answer.frame, CLOSE_S
            )
            found = self._sent.answered(answer.frame)
        number, original = found or (None, None)
        if number is None or (original is None and answer.kind != "picture"):
            self._board.skip("forgotten")
            return
        try:
            image = answer.image if original is None else answer.over(original)
        except ImageError:
            self._board.skip("damaged")
            return
        now_s = time.monotonic()
        with self._lock:
            self._chooser.answered("edge", number, answer.ms["decoded"] / 1e3, now_s)
        self._board.offer(
            Answered(number, answer.frame, answer.captured_ns, "edge", image, original, dict(answer.ms)),
            now_s,
        )

    def _made(self, work: "Work", image: "Image", began_s: float, made_s: float) -> None:
        """Take an answer of the device."""
        ms = {"began": (began_s - work.captured_s) * 1e3, "made": (made_s - work.captured_s) * 1e3}
        with self._lock:
            self._chooser.answered("device", work.number, made_s - work.captured_s, made_s)
        self._board.offer(
            Answered(work.number, None, work.captured_ns, "device", image, work.image, ms), made_s
        )


def offload(
    source: "Pictures",
    engine: str = "style",
    *,
    edge: str | InProcessEdge | None = None,
    where: Where = "edge",
    camera: str | None = None,
    answer_ms: float = ANSWER_MS,
    show: bool = False,
    pictures: arguments.StrPath | None = None,
    seconds: float | None = None,
    fps: float | None = None,
    loop: bool = False,
    device: str = "cpu",
    explore_share: float = EXPLORE_SHARE,
    keys: arguments.StrPath | None = None,
) -> Offload:
    """Send frames to an engine, and receive the pictures that it makes of them, always the newest.

    ```python
    with mez.offload("/dev/video0", "style", edge="edge.local", show=True) as answers:
        for answer in answers:
            print(f"{answer.age_ms:.0f} ms", answer.made_at, answer.ms)
    ```

    A thread publishes the source as a camera. An engine at the edge must run to answer its frames: `mez
    engine run style --cameras 'offload/style/*'`. Several clients may use one engine (docs/offload.md).

    Args:
        source: A camera (a number or `/dev/video0`), a video file, an address that OpenCV can read, or an
            iterable of pictures: uint8 arrays of shape (height, width, 3) in the order blue, green, red. Each
            picture must be an array of its own.
        engine: The name of the engine: `style`, `boxes`, `noop`, `FILE.onnx`, or `FILE.py:FUNCTION`. It
            becomes part of the camera's name, so that each engine can select its cameras. The engine is
            loaded in this process only with `where="device"` or `"auto"`. `"auto"` means `style` with
            `where="auto"`.
        edge: As in `mez.publisher`.
        where: Where answers are made. `"edge"`: by the engine at the edge. `"device"`: by the same engine in
            this process, on a thread; no edge is needed. `"auto"`: for each frame, on the side that is
            expected to answer sooner.
        camera: The camera's name. Default: `offload/ENGINE/HOST-PROCESS-NUMBER`. The keys of `camera/NAME`
            may publish only `NAME` and names below it (`NAME/…`). So on another host than the edge, give a
            name that this host's keys allow, for example `offload/style/phone1`.
        answer_ms: The maximum time from the capture of a frame until its answer has left the edge, in
            milliseconds, as in `Publisher.answers`.
        show: Show answers in a window. Without a display, or with an OpenCV without windows, write pictures
            to the folder `out/offload` instead. `Offload.display` says which.
        pictures: Write one answer per second to this folder, and do not open a window.
        seconds: How long to capture, in seconds. Default: until the source ends.
        fps: Pictures per second, for a file or an iterable. Default: for a file, its own rate; for an
            iterable, as fast as it gives pictures.
        loop: Whether a file starts again at its end.
        device: The processor for the engine in this process: `"cpu"` or `"cuda"`.
        explore_share: With `where="auto"`: the share of frames that also go to the other side, so that Mez
            can measure it. 0 to 1.
        keys: As in `mez.publisher`.

    Raises:
        ArgumentError: `where`, `camera`, `answer_ms` or another argument has an invalid value; `field` names
            it.
        OffloadError: The source cannot be opened, or the folder for pictures cannot be written.
        EngineError: There is no such engine, or it cannot be loaded in this process.
        MissingPackageError: OpenCV is not installed, and the source is not an iterable.
        KeysError: There are no keys for the edge, or none of them may publish `camera`.
    """
    if engine == "auto":
        engine, where = "style", "auto"
    if where not in ("edge", "device", "auto"):
        raise arguments.invalid("where", f'where is {where!r}; give "edge", "device" or "auto"')
    share = arguments.number("explore_share", explore_share)
    if not 0 <= share <= 1:
        raise arguments.invalid("explore_share", f"explore_share is {explore_share!r}; give 0 to 1")
    until = arguments.timeout("seconds", seconds)
    pace = arguments.optional_number("fps", fps)
    bound_ms = arguments.number("answer_ms", answer_ms)
    named = _camera_of(engine)
    # Imported here, because `import mez` should need neither NumPy nor OpenCV.
    from mez.offloading import display
    from mez.offloading import source as sources
    from mez.offloading.device import OnDevice

    loaded = None
    if where != "edge":
        from mez.engine import load

        loaded = load(engine, device)
    with contextlib.ExitStack() as undo:
        shown: Display | None = None
        if pictures is not None:
            shown = display.Folder(Path(os.fspath(pictures)))
        elif show:
            shown = display.window_or_folder(f"mez offload: {engine}")
        read = sources.read(source, pace, loop)
        cam = answers = None
        if where != "device":
            cam = undo.enter_context(publisher(camera or named, edge=edge, keys=keys))
            answers = cam.answers(bound_ms)
        chooser = Chooser(share) if where == "auto" else Always(where)
        client = Offload(read, chooser, cam, answers, bound_ms / 1e3, until, shown)
        on_device = None if loaded is None else OnDevice(loaded, client._made, client._board.skip)
        undo.pop_all()
        return client._start(on_device)


def _refused(reply: Reply) -> str | None:
    """The reason in a reply that `mez engine run` sends instead of an answer."""
    try:
        told = reply.json()
    except ValueError:
        return None
    return str(told["refused"]) if isinstance(told, dict) and "refused" in told else None


def _camera_of(engine: str) -> str:
    """A name for a client of an engine.

    Raises:
        EngineError: There is no such engine.
    """
    name = arguments.text("engine", engine)
    # Imported here, because `import mez` should not need NumPy.
    from mez.engine import engines

    engines.check(name)
    return f"{cameras_of(name)[:-1]}{_word(socket.gethostname())}-{os.getpid()}-{next(_numbers)}"


def cameras_of(engine: str) -> str:
    """The pattern of the cameras of an engine: `offload/style/*`."""
    return f"offload/{_word(Path(engine).name.removesuffix('.onnx').replace('.py:', '.'))}/*"


def _word(text: str) -> str:
    """A text, converted to a segment of a camera's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-") or "engine"
