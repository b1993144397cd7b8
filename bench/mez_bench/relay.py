"""Relays UDP and TCP to the same port, over a path in user space that can be cut, restored and moved."""

import contextlib
import selectors
import socket
import threading
import time
from types import TracebackType
from typing import Final, Self

DATAGRAM_BYTES_MAX: Final = 65_536
PIECE_BYTES_MAX: Final = 65_536
SOCKET_BUFFER_BYTES: Final = 4 << 20
HOST: Final = "127.0.0.1"

LOOK_S: Final = 0.02
"""How soon a change of the path takes effect."""

PATHS_MAX: Final = 1024
"""Clients remembered at once; the oldest is forgotten. A camera dials at most four times a second."""


class Relay:
    """Passes everything on between clients and one address, or nothing while the path is cut.

    While the path is cut, datagrams are dropped both ways. TCP bytes wait in the kernels of the two ends, as
    on a path that drops every packet. New TCP connections are established, and carry nothing.

    Args:
        to: `HOST:PORT`, both for UDP and for TCP.
    """

    def __init__(self, to: str) -> None:
        host, _, port = to.rpartition(":")
        self._to = (host, int(port))
        self._is_cut = False
        self._move = False
        self._stopping = False
        self._failure: BaseException | None = None
        self.connections = 0
        """UDP clients and TCP connections so far. A broker that dials again counts again."""
        self.tcp_bytes = 0
        """Bytes passed on over TCP so far, both ways together."""
        self._udp, self._tcp = _pair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._udp, selectors.EVENT_READ, self._from_client)
        self._selector.register(self._tcp, selectors.EVENT_READ, self._accept)
        self._outward: dict[tuple[str, int], socket.socket] = {}
        self._thread = threading.Thread(target=self._serve, name="relay", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{HOST}:{self._udp.getsockname()[1]}"

    def cut(self) -> None:
        """Let nothing through from now on."""
        self._is_cut = True

    def restore(self) -> None:
        """Let everything through again."""
        self._is_cut = False

    def move(self) -> None:
        """Send for UDP clients from another address, as when a host changes its network."""
        self._move = True

    def stop(self) -> None:
        """End the relay.

        Raises:
            RuntimeError: The relay had failed.
        """
        self._stopping = True
        self._thread.join(5)
        if self._failure is not None:
            raise RuntimeError("the relay failed") from self._failure

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.stop()

    def _serve(self) -> None:
        try:
            while not self._stopping:
                if self._move:
                    self._move = False
                    for client, old in list(self._outward.items()):
                        self._forget(client, old)
                        self._outward_of(client)
                if self._is_cut:
                    self._drop()
                    time.sleep(LOOK_S)
                    continue
                for key, _ in self._selector.select(LOOK_S):
                    # An earlier event of this list may have closed this socket.
                    if isinstance(key.fileobj, socket.socket) and key.fileobj.fileno() >= 0:
                        key.data(key.fileobj)
        except BaseException as failure:
            self._failure = failure
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()

    def _drop(self) -> None:
        for one in (self._udp, *self._outward.values()):
            with contextlib.suppress(OSError):
                while not self._stopping:
                    one.recv(DATAGRAM_BYTES_MAX)

    def _from_client(self, _: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                datagram, client = self._udp.recvfrom(DATAGRAM_BYTES_MAX)
                outward = self._outward.get(client)
                if outward is None:
                    self.connections += 1
                    outward = self._outward_of(client)
                with contextlib.suppress(OSError):
                    outward.send(datagram)

    def _outward_of(self, client: tuple[str, int]) -> socket.socket:
        if len(self._outward) >= PATHS_MAX:
            oldest = next(iter(self._outward))
            self._forget(oldest, self._outward[oldest])
        outward = _udp_socket()
        outward.connect(self._to)
        self._outward[client] = outward

        def back(_: socket.socket) -> None:
            # If nobody listens at the other end, `recv` raises an error, which is ignored.
            with contextlib.suppress(OSError):
                while True:
                    self._udp.sendto(outward.recv(DATAGRAM_BYTES_MAX), client)

        self._selector.register(outward, selectors.EVENT_READ, back)
        return outward

    def _forget(self, client: tuple[str, int], outward: socket.socket) -> None:
        self._selector.unregister(outward)
        outward.close()
        del self._outward[client]

    def _accept(self, _: socket.socket) -> None:
        near, _client = self._tcp.accept()
        self.connections += 1
        try:
            far = socket.create_connection(self._to, timeout=1)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            one.setblocking(True)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(one, selectors.EVENT_READ, self._passer(one, other))

    def _passer(self, one: socket.socket, other: socket.socket) -> "_Passer":
        return _Passer(self, one, other)


class _Passer:
    """One direction of a TCP connection."""

    def __init__(self, relay: Relay, one: socket.socket, other: socket.socket) -> None:
        self._relay, self._one, self._other = relay, one, other

    def __call__(self, _: socket.socket) -> None:
        try:
            piece = self._one.recv(PIECE_BYTES_MAX)
            if piece:
                self._relay.tcp_bytes += len(piece)
                self._other.sendall(piece)
                return
        except OSError:
            pass
        # When one direction ends, end both: the link does not use half-closed connections.
        for end in (self._one, self._other):
            if end.fileno() >= 0:
                self._relay._selector.unregister(end)
                end.close()


def _udp_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
    return made


def _pair() -> tuple[socket.socket, socket.socket]:
    """Return sockets for UDP and TCP on the same free port."""
    while True:
        udp = _udp_socket()
        udp.bind((HOST, 0))
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            tcp.bind(udp.getsockname())
            tcp.listen(64)
            return udp, tcp
        except OSError:
            udp.close()
            tcp.close()
