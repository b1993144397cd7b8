"""The path that experiments cut, restore and move."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from mez_bench.relay import Relay

HANG_S = 30
SILENCE_S = 0.3


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends back what comes, over UDP and TCP."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
    ):
        udp.bind(("127.0.0.1", 0))
        tcp.bind(udp.getsockname())
        tcp.listen()

        def datagrams() -> None:
            while (got := udp.recvfrom(65_536))[0] != b"end":
                # Whence it came shows whether the client was moved.
                udp.sendto(f"{got[1][1]} ".encode() + got[0], got[1])

        def stream() -> None:
            with tcp.accept()[0] as connection:
                while piece := connection.recv(65_536):
                    connection.sendall(piece)

        threads = [threading.Thread(target=serve, daemon=True) for serve in (datagrams, stream)]
        for thread in threads:
            thread.start()
        host, port = udp.getsockname()
        yield f"{host}:{port}"
        udp.sendto(b"end", udp.getsockname())
        threads[0].join(HANG_S)


def test_datagrams_pass_unless_it_is_cut_and_come_from_elsewhere_once_it_has_moved(echo: str) -> None:
    """What a camera's link needs."""
    with Relay(echo) as relay, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        host, port = relay.address.rsplit(":", 1)
        client.connect((host, int(port)))

        def ask(word: bytes, seconds: float = HANG_S) -> tuple[bytes, bytes]:
            client.settimeout(seconds)
            client.send(word)
            place, _, answer = client.recv(65_536).partition(b" ")
            return place, answer

        def until(word: bytes, holds: Callable[[bytes], bool]) -> bytes:
            while True:
                # A datagram that is on its way when the relay changes may be lost.
                with contextlib.suppress(TimeoutError):
                    place, answer = ask(word, SILENCE_S)
                    if answer == word and holds(place):
                        return place

        place, answer = ask(b"one")
        assert answer == b"one"
        assert ask(b"two") == (place, b"two")
        relay.cut()
        with pytest.raises(TimeoutError):
            ask(b"lost", SILENCE_S)
        relay.restore()
        assert until(b"three", lambda _: True) == place, "what was cut off was dropped, not kept"
        relay.move()
        until(b"four", lambda there: there != place)
        assert relay.connections == 1, "to the client it is the same"


def test_a_stream_stands_still_while_it_is_cut_and_ends_with_its_client(echo: str) -> None:
    """Nothing of it is lost."""
    with Relay(echo) as relay:
        host, port = relay.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=HANG_S) as client:
            client.sendall(b"one")
            assert client.recv(100) == b"one"
            relay.cut()
            # What is on its way when the relay is told may still get through.
            client.settimeout(SILENCE_S)
            with pytest.raises(TimeoutError):
                while True:
                    client.sendall(b"x")
                    client.recv(100)
            client.settimeout(HANG_S)
            relay.restore()
            assert client.recv(100) == b"x"
        assert relay.connections == 1
