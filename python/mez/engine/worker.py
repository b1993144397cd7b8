"""A worker of `mez engine run`: one engine in its own process."""

import logging
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mez._arguments import StrPath
from mez._hand import Hand
from mez._processes import READY_WORD
from mez._reports import Report, Reports, memory_mib
from mez._subscribe import subscribe
from mez._subscription import Subscription
from mez.engine import engines
from mez.engine.loop import Counts, Draw, Loop
from mez.errors import BusyError, ConnectError

PAUSE_S: Final = 0.2
"""The pause before the worker tries to connect again, in seconds, because a full edge refuses at once."""

DIAL_S: Final = 1.0
"""How long the worker tries to connect before it checks whether it should end, in seconds."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of an engine.

    Attributes:
        engine: As for `load`.
        cameras: A camera's name, or a pattern.
        edge: As for `mez.subscribe`.
        group: The group of its frames.
        device: As for `load`.
        keys: As for `mez.subscribe`.
        latency_ms: As for `mez.subscribe`.
        draw: Who draws boxes and overlays over the frame.
        fresh: As for `mez.subscribe`.
    """

    engine: str
    cameras: str
    edge: str | None
    group: str
    device: str
    keys: StrPath | None
    latency_ms: float | None
    draw: Draw
    fresh: bool


class Worker:
    """Runs an engine, and counts its work for the supervisor.

    Args:
        work: The work.
        hand: The page for the frame that it works on.
    """

    def __init__(self, work: Work, hand: Hand) -> None:
        self.wished = False
        self._work = work
        self._hand = hand
        self._counts = Counts()
        self._away = ""
        # The frame in hand and since when; set together, because another thread reads them.
        self._held: tuple[str, float] = ("", 0.0)

    def run(self, reports: Reports) -> None:
        """Answer frames until the worker is asked to end.

        Raises:
            EngineError: The engine cannot be loaded.
            PermissionDenied: The right to watch the cameras is missing.
        """
        engine = engines.load(self._work.engine, self._work.device)
        loop = Loop(engine, self._counts, self._holds, self._work.draw)
        frames = self._joined()
        if frames is None:
            return
        with frames:
            reports.say(READY_WORD)
            loop.work(frames, lambda: self.wished)

    def _joined(self) -> Subscription | None:
        """Join the group when the edge is reachable and has room. `None`: the end was requested meanwhile."""
        work = self._work
        while not self.wished:
            try:
                frames = subscribe(
                    work.cameras,
                    edge=work.edge,
                    group=work.group,
                    fresh=work.fresh,
                    keys=work.keys,
                    latency_ms=work.latency_ms,
                    connect_timeout=DIAL_S,
                )
            except (ConnectError, BusyError) as error:
                self._away = str(error)
                time.sleep(PAUSE_S)
                continue
            self._away = ""
            return frames
        return None

    def _holds(self, frame: str) -> None:
        self._held = (frame, time.monotonic())
        self._hand.hold(frame)

    def report(self) -> Report:
        """The current report."""
        counts = self._counts
        frame, since_s = self._held
        return Report(
            taken=counts.taken,
            done=counts.sent,
            failed=counts.refused,
            made=counts.sent,
            work_ns=counts.work_ns,
            waited=counts.waited,
            waited_ns=counts.waited_ns,
            in_hand=frame,
            in_hand_s=round(time.monotonic() - since_s, 3) if frame else 0.0,
            away=self._away or counts.denied,
            is_refused=bool(counts.denied) and not self._away,
            memory_mib=round(memory_mib(), 1),
            last_error=counts.last_refusal,
        )


def main(work: Work, hand: Path) -> None:
    """Run as a worker, in its own process, until SIGTERM.

    It prints `ready` once it has joined its group, then its report twice a second. What the engine prints
    goes to the log.

    Raises:
        EngineError: The engine cannot be loaded.
        PermissionDenied: The right to watch the cameras is missing.
    """
    reports = Reports()
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    worker = Worker(work, Hand(hand))

    def wish(*_: object) -> None:
        worker.wished = True

    signal.signal(signal.SIGTERM, wish)
    reports.keep_saying(worker.report)
    worker.run(reports)
    reports.say(worker.report().line())
