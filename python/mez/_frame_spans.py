"""Sends spans of OpenTelemetry for a sample of the frames.

The root span `frame` lasts from the capture until the frame has arrived at the edge. Its children are the
steps of `mez.Trace` up to the arrival, each named after the stage that ends it, and `delivery`: from the
arrival until the application is done. The children of `delivery` are the other steps, and `work`: from
`taken` until the application asks for the next frame.

The identities of spans are hashes of the frame's identity and capture time. Those of `delivery` and its
children also contain the application, the process and the subscription. So all programs use the same
identities for the spans that they share. `mez.pipeline.spans` uses the same trace.
"""

import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mez import _arguments as arguments
from mez._otlp import Exporter, fault_of
from mez._spans import CONSUMER, INTERNAL, PRODUCER, Span, Value, hashed, trace_of

if TYPE_CHECKING:
    from mez._frame import Frame

_AT_CAMERA: Final = frozenset(
    ("published", "considered", "chosen", "encoding", "encoded", "queued", "sent"),
)
_SHARED: Final = _AT_CAMERA | {"arriving", "arrived"}
"""Stages that do not depend on the subscription."""

_AT_EDGE: Final = frozenset(("arriving", "arrived", "decoded", "logged", "handed"))

CAMERA: Final = "mez.camera"
EDGE: Final = "mez.edge"
_log = logging.getLogger("mez")

_KINDS: Final = {"sent": PRODUCER, "arrived": CONSUMER, "handed": PRODUCER, "received": CONSUMER}

_NUMBERS: Final = itertools.count(1)
"""Numbers for the traced subscriptions of this process."""

_DIGITS: Final = 14
_RANDOM: Final = 16**_DIGITS
"""The last 56 bits of a trace's identity are random, as in the W3C's Trace Context. They select samples."""


class FrameTraces:
    """Sends the spans of some frames of a subscription.

    Args:
        endpoint: A receiver of OTLP over HTTP, without the path `/v1/traces`.
        share: The share of frames that are sent, above 0 and at most 1.
        application: The name of the application.

    Raises:
        ArgumentError: An argument has a bad value; `field` names it.
    """

    def __init__(self, endpoint: str, share: float, application: str) -> None:
        fault = fault_of(endpoint)
        if fault is not None:
            raise arguments.invalid("traces", f"traces: {fault}")
        if not 0 < share <= 1:
            raise arguments.invalid("traced", f"traced is {share}; give a share above 0, at most 1")
        self._endpoint = endpoint
        # Created with the first frame, so that a subscription that cannot be opened leaves no thread behind.
        self._exporter: Exporter | None = None
        self._share = share
        self._application = application
        self._worker = f"{os.getpid()}@{socket.gethostname()}"
        self._number = next(_NUMBERS)
        self._at_work: tuple[Frame, int] | None = None
        # Another thread may call `close`.
        self._lock = threading.Lock()
        self._over = False

    def took(self, frame: "Frame") -> None:
        """The application takes a frame, and begins to work on it."""
        try:
            if frame.trace.ms and int(_trace(frame)[-_DIGITS:], 16) < self._share * _RANDOM:
                self._at_work = (frame, time.monotonic_ns())
        except Exception:
            self._give_up()

    def done(self) -> None:
        """The application is done with the frame that it took last."""
        at_work, self._at_work = self._at_work, None
        if at_work is None:
            return
        frame, since_ns = at_work
        worked_ns = time.monotonic_ns() - since_ns
        try:
            spans = list(of_frame(frame, worked_ns, (self._application, self._worker, self._number)))
            with self._lock:
                if self._over:
                    return
                if self._exporter is None:
                    self._exporter = Exporter(self._endpoint)
                self._exporter.put(spans)
        except Exception:
            self._give_up()

    def close(self) -> None:
        """Send the spans that wait, for a short time. A second call has no effect."""
        self.done()
        with self._lock:
            self._over, exporter, self._exporter = True, self._exporter, None
        if exporter is not None:
            exporter.close()

    def _give_up(self) -> None:
        """Stop tracing: an error of tracing must not end the application's loop."""
        with self._lock:
            if not self._over:
                _log.exception("tracing failed; this subscription sends no more spans")
            self._over = True


def of_frame(frame: "Frame", worked_ns: int, reader: tuple[str, str, int]) -> Iterator[Span]:
    """The spans of a frame that has a trace (`frame.trace`).

    Args:
        frame: The frame.
        worked_ns: How long the application worked on it.
        reader: The application, its process, and which of its subscriptions it is.
    """
    application, worker, number = reader
    own = (application, worker, f"{number}")
    trace, root = _trace(frame), _id(frame, "frame")
    delivery = _id(frame, "delivery", *own)

    def at_ns(ms: float) -> int:
        return frame.captured_ns + round(ms * 1e6)

    stages = frame.trace.ms
    arrived_ms = max((ms for stage, ms in stages.items() if stage in _SHARED), default=0.0)
    done_ns = at_ns(stages.get("taken", arrived_ms)) + worked_ns
    begun_ns = frame.captured_ns
    yield Span(
        trace,
        root,
        "",
        CAMERA,
        frame.camera,
        "frame",
        INTERNAL,
        begun_ns,
        at_ns(arrived_ms),
        _of_frame(frame),
    )
    yield Span(
        trace,
        delivery,
        root,
        application,
        worker,
        "delivery",
        CONSUMER,
        at_ns(arrived_ms),
        done_ns,
        _of_delivery(frame),
    )
    before_ms = 0.0
    for stage, ms in stages.items():
        if stage in _SHARED:
            identity, parent = _id(frame, stage), root
        else:
            identity, parent = _id(frame, stage, *own), delivery
        service, who = (CAMERA, frame.camera) if stage in _AT_CAMERA else (EDGE, "")
        if stage not in _AT_CAMERA | _AT_EDGE:
            service, who = application, worker
        kind = _KINDS.get(stage, INTERNAL)
        yield Span(trace, identity, parent, service, who, stage, kind, at_ns(before_ms), at_ns(ms))
        before_ms = ms
    identity = _id(frame, "work", *own)
    yield Span(trace, identity, delivery, application, worker, "work", INTERNAL, done_ns - worked_ns, done_ns)


def _of_frame(frame: "Frame") -> dict[str, Value]:
    """Attributes that do not depend on the subscription."""
    told: dict[str, Value] = {
        "mez.camera": frame.camera,
        "mez.frame": f"{frame.epoch}-{frame.sequence}",
        "mez.rung": frame.rung,
    }
    if frame.link_bytes is not None:
        told["mez.link_bytes"] = frame.link_bytes
    return told


def _of_delivery(frame: "Frame") -> dict[str, Value]:
    told = _of_frame(frame) | {
        "mez.encoding": frame.encoding,
        "mez.contract": frame.contract.state,
        "mez.skipped": frame.skipped_count,
    }
    if frame.trace.error_ms:
        told["mez.error_ms_max"] = frame.trace.error_ms
    return told


def _root(frame: "Frame") -> str:
    return f"{frame.camera}@{frame.epoch}-{frame.sequence}"


def _trace(frame: "Frame") -> str:
    return trace_of(_root(frame), frame.captured_ns)


def _id(frame: "Frame", *parts: str) -> str:
    return hashed(8, _root(frame), str(frame.captured_ns), *parts)
