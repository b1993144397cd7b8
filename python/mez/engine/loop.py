"""An engine's loop: the newest frame of each camera in turn, the engine, the answer."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mez import _modules
from mez._arguments import StrPath, invalid
from mez._detections import Detections
from mez._frame import Frame
from mez._in_process import InProcessEdge
from mez._overlay import Overlay
from mez._subscribe import subscribe
from mez._subscription import Subscription
from mez.engine import answers, engines
from mez.engine.engines import Engine
from mez.errors import Error, PermissionDenied, WaitTimeoutError

Draw: TypeAlias = Literal["engine", "device"]

DRAWN_BY: Final = ("engine", "device")
"""Who may draw boxes and overlays."""

LOOK_S: Final = 0.1
"""How long the loop waits for a frame before it checks whether it should end, in seconds."""

GROUP: Final = "engine"
"""The default group of engines."""

LOG_S: Final = 1.0
"""How often a reason for refused answers is logged, in seconds."""

_log = logging.getLogger("mez")


@dataclass(slots=True)
class Counts:
    """What an engine has done so far.

    Attributes:
        taken: Frames that the engine got.
        answered: Answers that were passed to `Frame.answer`.
        sent: Answers that the edge has accepted. The edge may later replace an answer by a newer one.
        refused: Frames without an answer: the engine raised an exception, its result is neither pixels, boxes
            nor an overlay, or a right is missing.
        work_ns: Time that the engine took for all frames together, in nanoseconds.
        waited: Frames with a known age.
        waited_ns: Sum of the ages of these frames when the engine got them, in nanoseconds.
        last_refusal: Why the last frame was refused, for people.
        denied: The missing right, for people. Empty if none is missing, as far as the edge has reported.
    """

    taken: int = 0
    answered: int = 0
    sent: int = 0
    refused: int = 0
    work_ns: int = 0
    waited: int = 0
    waited_ns: int = 0
    last_refusal: str = ""
    denied: str = ""


class Loop:
    """Answers frames.

    Args:
        engine: The engine.
        counts: Its counts.
        holds: Called with the frame that the engine works on, and with an empty text when it is done.
        draw: Who draws boxes and overlays over the frame.
    """

    def __init__(
        self,
        engine: Engine,
        counts: Counts,
        holds: Callable[[str], object] = lambda frame: None,
        draw: Draw = "engine",
    ) -> None:
        self._engine = engine
        self._checked = answers.answer if draw == "device" else answers.picture
        self._counts = counts
        self._holds = holds
        self._logged: dict[str, float] = {}

    def work(self, frames: Subscription, end: Callable[[], bool]) -> None:
        """Answer frames until `end` returns true.

        Raises:
            PermissionDenied: The right to watch the cameras is missing, or was taken away.
            ConnectError: The edge is lost, and the subscription does not reconnect.
        """
        while not end():
            try:
                frame = frames.next(timeout=LOOK_S)
            except WaitTimeoutError:
                pass
            else:
                self.handle(frame)
            sent = frames.answer_counts.sent
            if sent > self._counts.sent:
                self._counts.denied = ""
            self._counts.sent = sent

    def handle(self, frame: Frame) -> None:
        """Answer one frame, or report why not. Errors of the engine are not raised."""
        counts = self._counts
        counts.taken += 1
        if frame.age_ms is not None:
            counts.waited += 1
            counts.waited_ns += round(frame.age_ms * 1e6)
        try:
            frame.answer(self._made(frame))
        except PermissionDenied as error:
            # No reply to the camera, because a reply needs the same right.
            counts.denied = str(error)
            self._refuse(frame, str(error))
        except Exception as error:
            why = _modules.told(error)
            self._refuse(frame, why)
            self._tell_camera(frame, why)
        else:
            counts.answered += 1
            frame.done()

    def _made(self, frame: Frame) -> engines.Image | Detections | Overlay:
        image = frame.image
        self._holds(f"{frame.camera} {frame.id}")
        began_ns = time.monotonic_ns()
        try:
            result = self._engine(image)
        finally:
            self._counts.work_ns += time.monotonic_ns() - began_ns
            self._holds("")
        return self._checked(image, result)

    def _refuse(self, frame: Frame, why: str) -> None:
        counts = self._counts
        counts.refused += 1
        counts.last_refusal = why
        frame.failed(why)
        now_s = time.monotonic()
        if now_s - self._logged.get(why, -LOG_S) >= LOG_S:
            # Only the last reason is kept, so that the table cannot grow.
            self._logged = {why: now_s}
            _log.warning("%r was not answered: %s", frame, why)

    def _tell_camera(self, frame: Frame, why: str) -> None:
        """Tell the camera's publisher why there is no picture."""
        try:
            frame.reply({"refused": why[:500]})
        except Error as error:
            _log.warning("%r: the reason was not sent to the camera: %s", frame, error)


def run(
    engine: str | Engine,
    cameras: str,
    *,
    edge: str | InProcessEdge | None = None,
    group: str = GROUP,
    device: str = "cpu",
    keys: StrPath | None = None,
    latency_ms: float | None = None,
    draw: Draw = "engine",
    fresh: bool = True,
    end: Callable[[], bool] = lambda: False,
) -> Counts:
    """Run an engine in this process and thread: take the newest frame of each camera in turn, and answer it.

    If the engine raises an exception, or its result is no answer, the frame is refused: the publisher gets
    the reply `{"refused": REASON}`, the group counts a dead letter, and the next frame follows. If the engine
    hangs, this function hangs too; `mez engine run` kills and restarts a worker that hangs.

    Args:
        engine: The name of an engine, as in `load`, or a function.
        cameras: The cameras: a name or a pattern, such as `phone/*`.
        edge: As in `mez.subscribe`.
        group: The group of the engine. Engines of the same group share the frames: each frame goes to one of
            them.
        device: As in `load`.
        keys: As in `mez.subscribe`.
        latency_ms: As in `mez.subscribe`: the maximum time from capture until the engine gets a frame, in
            milliseconds.
        draw: Who draws boxes and overlays over the frame. `"engine"`: this function, so that every answer is
            a picture. `"device"`: the program that publishes the camera, with `Answer.over`; they cross the
            link as they are, in fewer bytes.
        fresh: As in `mez.subscribe`: an engine that is slower than its camera waits for the next frame if
            that comes sooner than the newest one is old. Answers are then younger, and fewer.
        end: A function that is called after each frame, and ten times a second. If it returns true, the
            engine ends.

    Returns:
        What the engine has done.

    Raises:
        ArgumentError: `draw` is something else.
        EngineError: The engine cannot be loaded.
        PermissionDenied: The right to watch the cameras is missing.
        ConnectError: The edge did not answer at the start.
    """
    if draw not in DRAWN_BY:
        raise invalid("draw", f'draw is {draw!r}; give "engine" or "device"')
    loaded = engines.load(engine, device) if isinstance(engine, str) else engine
    counts = Counts()
    with subscribe(cameras, edge=edge, group=group, fresh=fresh, keys=keys, latency_ms=latency_ms) as frames:
        Loop(loaded, counts, draw=draw).work(frames, end)
    counts.sent = frames.answer_counts.sent
    return counts
