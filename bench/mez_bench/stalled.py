"""Runs applications that subscribe and then stop reading, as in a debugger or in the middle of a frame."""

import contextlib
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from mez_bench.children import Child
from mez_bench.systems.mez import CAMERA, Brokers

HALF_BYTES: Final = 300_000
"""Bytes that an application reads if it stops in the middle of a frame."""

STREAMS_OF_CONNECTION: Final = 20

_MAGIC: Final = b"MEZLOCL6"
_SUBSCRIBE: Final = 3
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW_SIZE: Final = 4
_FRAME_HEAD: Final = 9


LOCAL_STOPPED: Final = "local protocol, stopped"
LOCAL_HALF: Final = "local protocol, half a frame"
TLS_STOPPED: Final = "gRPC over TLS, stopped"
GRPC_HALF: Final = "gRPC over the socket, half a frame"
WAYS: Final = (LOCAL_STOPPED, LOCAL_HALF, TLS_STOPPED, GRPC_HALF)


class Stalled:
    """Subscriptions that nobody reads.

    Args:
        brokers: The brokers whose edge they subscribe at.
        count: Number of subscriptions of each way (`WAYS`).
    """

    def __init__(self, brokers: Brokers, count: Mapping[str, int]) -> None:
        self._brokers = brokers
        self._count = count
        self._stopped: list[Child] = []
        self._sockets: list[socket.socket] = []

    def subscribe(self) -> Self:
        """Subscribe. The processes read until `stop`, so that they hold frames when they are stopped."""
        brokers, path, count = self._brokers, self._brokers.folder / "edge.sock", self._count
        remote = ("--edge", brokers.grpc_address, "--keys", str(brokers.keys))
        local = ("--edge", brokers.socket, "--connections")
        for way, words in ((LOCAL_STOPPED, local), (TLS_STOPPED, remote)):
            if way in count:
                self._stopped.append(brokers.subscriber(*words, name=f"stalled, {way}"))
                self._stopped[-1].ask(f"subscriptions {count[way]}")
        self._sockets += [_half_a_frame(path) for _ in range(count.get(LOCAL_HALF, 0))]
        left = count.get(GRPC_HALF, 0)
        while left > 0:
            self._sockets.append(_half_a_frame_of_each(path, min(left, STREAMS_OF_CONNECTION)))
            left -= STREAMS_OF_CONNECTION
        return self

    def stop(self) -> None:
        """Stop the processes, as a debugger does."""
        for child in self._stopped:
            os.kill(child.pid, signal.SIGSTOP)

    def close(self) -> None:
        """Continue the processes, and close the connections."""
        for child in self._stopped:
            os.kill(child.pid, signal.SIGCONT)
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def __enter__(self) -> Self:
        """Subscribe."""
        return self.subscribe()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def _message() -> bytes:
    """Return a `SubscribeRequest` for the camera: its field 1."""
    pattern = CAMERA.encode()
    return bytes([0x0A, len(pattern)]) + pattern


def _half_a_frame(path: Path) -> socket.socket:
    """Subscribe by the local protocol, read the beginning of a frame, and stop."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    message = _message()
    connection.sendall(_MAGIC + struct.pack("<B3xII", _SUBSCRIBE, len(message), 0) + message)

    def read() -> None:
        left = HALF_BYTES
        while left > 0 and (came := connection.recv(min(left, 1 << 16))):
            left -= len(came)

    _in_background(read)
    return connection


def _half_a_frame_of_each(path: Path, streams: int) -> socket.socket:
    """Open this many gRPC subscriptions on one connection, which never enlarges the window of a stream."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    settings = struct.pack(">HI", _INITIAL_WINDOW_SIZE, HALF_BYTES)
    room = struct.pack(">I", (1 << 31) - 1 - 65_535)
    sent = _PREFACE + _frame(_SETTINGS, 0, 0, settings) + _frame(8, 0, 0, room)
    message = _message()
    body = struct.pack(">BI", 0, len(message)) + message
    for stream in range(1, 2 * streams, 2):
        sent += _frame(_HEADERS, _END_HEADERS, stream, _headers())
        sent += _frame(_DATA, _END_STREAM, stream, body)
    connection.sendall(sent)
    _in_background(lambda: _answer(connection))
    return connection


def _answer(connection: socket.socket) -> None:
    """Answer pings and settings of HTTP/2. A broker treats a client that does not answer as gone."""
    for kind, flags, payload in _frames(connection):
        if kind in {_PING, _SETTINGS} and not flags & _ACK:
            answer = payload if kind == _PING else b""
            connection.sendall(_frame(kind, _ACK, 0, answer))


def _frames(connection: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    buffered = b""
    while came := connection.recv(1 << 20):
        buffered += came
        while len(buffered) >= _FRAME_HEAD:
            end = _FRAME_HEAD + int.from_bytes(buffered[:3])
            if len(buffered) < end:
                break
            yield buffered[3], buffered[4], buffered[_FRAME_HEAD:end]
            buffered = buffered[end:]


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload


def _headers() -> bytes:
    """Return the headers of a call, none of them compressed."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/mez.v1.EdgeBroker/Subscribe",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b""
    for name, value in headers.items():
        block += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return block


def _in_background(work: Callable[[], None]) -> None:
    def run() -> None:
        with contextlib.suppress(OSError):
            work()

    threading.Thread(target=run, name="stalled", daemon=True).start()
