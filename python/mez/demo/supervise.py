"""Restarts a broker when it dies, and measures for how long its frames were missing.

In production a service manager does the restart (`Restart=on-failure`). Mez resumes by itself.
"""

import select
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mez._processes import Child, Exit, ProcessError

RESTART_AFTER_S: Final = 1.0
"""Pause before a broker is restarted, as with a service manager."""

FAILED_STARTS_MAX: Final = 5
"""After this many starts in a row without becoming ready, a broker is not restarted."""


@dataclass(slots=True)
class Incident:
    """A broker's death and restart.

    Attributes:
        broker: Its name.
        exit: When and how it died.
        log: The end of its log at that moment.
        restarted_at_s: When it was restarted, by `time.monotonic`; `None` until then.
        resumed_at_s: When frames of all affected cameras had come again; `None` until then.
        waiting_for: Cameras whose frames have not come again.
    """

    broker: str
    exit: Exit
    log: str
    waiting_for: set[str]
    restarted_at_s: float | None = None
    resumed_at_s: float | None = None

    @property
    def resume_ms(self) -> float | None:
        """Milliseconds from the death until all frames came again, including the pause before the restart."""
        return None if self.resumed_at_s is None else (self.resumed_at_s - self.exit.at_s) * 1000

    def __str__(self) -> str:
        """Describe it for people."""
        what = f"{self.broker} was {self.exit}" if self.exit.status < 0 else f"{self.broker} {self.exit}"
        if self.resume_ms is not None:
            return f"{what}; frames came again after {self.resume_ms / 1000:.1f} s"
        if self.restarted_at_s is None:
            return f"{what}; it will be restarted"
        return f"{what}; restarted, waiting for frames of {', '.join(sorted(self.waiting_for))}"


@dataclass(slots=True)
class _Charge:
    broker: Child
    cameras: frozenset[str]
    restart_at_s: float | None = None
    failed_starts: int = 0
    given_up: bool = False
    starts: int = 1


class Supervisor:
    """Watches brokers that were started.

    `watch` belongs to the thread that started the brokers; `frame_arrived` may be called from any.

    Args:
        edge: The edge broker. Its death affects the frames of all cameras.
        cameras: Camera brokers by the names of their cameras.
    """

    def __init__(self, edge: Child, cameras: dict[str, Child]) -> None:
        everything = frozenset(cameras)
        self._charges = [_Charge(edge, everything)]
        self._charges += [_Charge(broker, frozenset([name])) for name, broker in cameras.items()]
        self._lock = threading.Lock()
        self._incidents: list[Incident] = []

    @property
    def incidents(self) -> Sequence[Incident]:
        """All deaths so far, oldest first."""
        with self._lock:
            return tuple(self._incidents)

    @property
    def given_up(self) -> Iterable[str]:
        """Names of brokers that are not restarted because they keep dying."""
        return [charge.broker.name for charge in self._charges if charge.given_up]

    def starts(self, name: str) -> int:
        """Return how often the broker of this name was started."""
        return next(charge.starts for charge in self._charges if charge.broker.name == name)

    def frame_arrived(self, camera: str, at_s: float) -> None:
        """Note a frame that the application received."""
        with self._lock:
            for incident in self._incidents:
                # A frame before the restart was sent before the broker died.
                if incident.restarted_at_s is None or at_s <= incident.restarted_at_s:
                    continue
                if camera in incident.waiting_for:
                    incident.waiting_for.discard(camera)
                    if not incident.waiting_for:
                        incident.resumed_at_s = at_s

    def watch(self, seconds: float) -> None:
        """Wait at most this long, or until a broker dies. Restart brokers whose pause is over."""
        now = time.monotonic()
        deadline = now + seconds
        due = [charge.restart_at_s for charge in self._charges if charge.restart_at_s is not None]
        alive = [charge.broker for charge in self._charges if charge.broker.pid is not None]
        select.select(alive, [], [], max(0.0, min([deadline, *due]) - now))
        now = time.monotonic()
        for charge in self._charges:
            if charge.broker.pid is not None:
                exited = charge.broker.poll()
                if exited is not None:
                    self._died(charge, exited)
            elif charge.restart_at_s is not None and now >= charge.restart_at_s:
                self._restart(charge)

    def _died(self, charge: _Charge, exited: Exit) -> None:
        broker = charge.broker
        charge.failed_starts = 0 if broker.was_ready else charge.failed_starts + 1
        if charge.failed_starts >= FAILED_STARTS_MAX:
            charge.given_up = True
        else:
            charge.restart_at_s = exited.at_s + RESTART_AFTER_S
        with self._lock:
            self._incidents.append(Incident(broker.name, exited, broker.last_words(), set(charge.cameras)))

    def _restart(self, charge: _Charge) -> None:
        charge.restart_at_s = None
        try:
            charge.broker.start()
        except ProcessError:
            # Its program is missing, so it cannot be restarted.
            charge.given_up = True
            return
        charge.starts += 1
        with self._lock:
            for incident in self._incidents:
                if incident.broker == charge.broker.name and incident.restarted_at_s is None:
                    incident.restarted_at_s = charge.broker.started_at_s
