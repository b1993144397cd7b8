"""Finds the records that were made of a frame, in a stream that other programs publish at the edge."""

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from mez import _arguments as arguments
from mez import _native
from mez._frame_id import FrameId
from mez.errors import EndedError, Error, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable

    from mez._frame import Frame

# The most records of a stream, and their bytes, that are kept until their frames are asked about.
RECORDS_MAX = 1024
BYTES_MAX = 64 << 20


class Following:
    """The streams in which a subscription looks for records. A stream is opened at its first use."""

    def __init__(
        self,
        client: _native.Client,
        received: "Callable[[_native.Arrival], Frame]",
        subscribe: "Callable[[_native.Client, str, int | None], _native.Subscription]",
    ) -> None:
        self._client = client
        self._received = received
        self._subscribe = subscribe
        self._lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}
        self._closed = False

    def find(self, frame: "Frame", name: str, timeout_s: float | None) -> "Frame | None":
        """Wait for the record of the stream `CAMERA/name` that was made of the frame."""
        stream = f"{frame.camera}/{arguments.text('name', name)}"
        with self._lock:
            if self._closed:
                raise EndedError("the subscription is closed; open a new one")
            followed = self._streams.get(stream)
            if followed is None:
                followed = self._streams[stream] = _Stream(self._open(stream, frame), self._received)
        return followed.find(frame, timeout_s)

    def _open(self, stream: str, frame: "Frame") -> _native.Subscription:
        # A record is younger than its frame. Without the right to read the past, only new records come.
        try:
            return self._subscribe(self._client, stream, frame.captured_ns)
        except PermissionDenied:
            return self._subscribe(self._client, stream, None)

    def close(self) -> None:
        """Close all streams. Calls of `find` that wait raise an error."""
        with self._lock:
            self._closed = True
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()


class _Stream:
    """A stream, which is read by its own thread."""

    def __init__(self, native: _native.Subscription, received: "Callable[[_native.Arrival], Frame]") -> None:
        self._native = native
        self._received = received
        self._came = threading.Condition()
        self._records: OrderedDict[tuple[str, FrameId], Frame] = OrderedDict()
        self._bytes = 0
        self._over: Exception | None = None
        threading.Thread(target=self._run, name="mez-derived", daemon=True).start()

    def find(self, frame: "Frame", timeout_s: float | None) -> "Frame | None":
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        key = (frame.camera, frame.id)
        with self._came:
            while key not in self._records:
                if self._over is not None:
                    raise self._over
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                # In slices, so that Ctrl-C ends the waiting.
                self._came.wait(0.1 if left is None else min(left, 0.1))
            return self._records[key]

    def _run(self) -> None:
        try:
            while True:
                event = self._native.next(None)
                if isinstance(event, _native.Arrival):
                    self._keep(self._received(event))
                elif isinstance(event, _native.Ending):
                    raise EndedError("the derived stream has ended")
        except Exception as error:
            with self._came:
                self._over = error if isinstance(error, Error) else Error(str(error))
                self._came.notify_all()

    def _keep(self, record: "Frame") -> None:
        if record.of is None:
            return
        with self._came:
            # If a frame has several records, keep the first: it may have been returned already.
            if self._records.setdefault((record.of.camera, record.of.id), record) is record:
                self._bytes += record.payload.nbytes
            while len(self._records) > RECORDS_MAX or (self._bytes > BYTES_MAX and len(self._records) > 1):
                _, oldest = self._records.popitem(last=False)
                self._bytes -= oldest.payload.nbytes
            self._came.notify_all()

    def close(self) -> None:
        self._native.close()
