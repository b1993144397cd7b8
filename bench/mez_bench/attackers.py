"""Attacks an edge on loopback for the experiment `flood`, with limits on the number and rate of attackers.

A separate program that needs only the standard library, so it starts at once. Commands are lines on standard
input, answers are lines of JSON:

    attack KIND|COUNT|FROM    starts COUNT attackers of each port, from the address FROM; answers when all run
    stop                      closes all connections; answers with their counts
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import selectors
import socket
import ssl
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

IDLE: Final = "idle"
"""Connects and sends nothing."""

DRIBBLE: Final = "slow hello"
"""Sends its TLS ClientHello at one byte per second."""

HANDSHAKE: Final = "hello, then nothing"
"""Sends a whole TLS ClientHello, so that the server signs its answer, and then sends nothing."""

INITIALS: Final = "QUIC initials"
"""Sends the first packet of a QUIC connection once a second, and never answers."""

KINDS: Final = (IDLE, DRIBBLE, HANDSHAKE, INITIALS)

ATTACKERS_MAX: Final = 1_000
"""Limit per port."""

COMEBACKS_PER_SECOND: Final = 200
"""Limit for all attackers together: connections that are reopened after the edge closed them."""

TICK_S: Final = 0.02


def hello() -> bytes:
    """Return a TLS ClientHello, as any client sends it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


class Attack:
    """Attackers of one kind.

    Args:
        kind: One of `KINDS`.
        count: Attackers per port.
        source: The address that they connect from.
        ports: TCP ports. `INITIALS` uses only the first one, as a UDP port.
        packets: First packets of QUIC connections, for `INITIALS`.
    """

    def __init__(self, kind: str, count: int, source: str, ports: list[int], packets: list[bytes]) -> None:
        self.opened = self.closed = 0
        self._kind, self._source = kind, source
        self._hello, self._packets = hello(), packets
        self._selector = selectors.DefaultSelector()
        self._said: dict[socket.socket, int] = {}
        self._waiting: deque[int] = deque()
        self._datagrams: list[tuple[socket.socket, int, bytes]] = []
        self._next_word_at_s = self._allowed_at_s = time.monotonic()
        for number in range(count):
            for port in ports[:1] if kind == INITIALS else ports:
                if kind == INITIALS:
                    self._open_udp(port, packets[number % len(packets)])
                else:
                    self._open(port)
            # Serve the connections that are open, so that the attack begins before all are.
            if number % 50 == 49:
                self.step(0.0)

    def step(self, seconds: float) -> None:
        """Wait this long at most for answers, then send and reopen what is due."""
        for key, _ in self._selector.select(seconds):
            self._on_answer(key.fileobj, key.data)
        now = time.monotonic()
        if now >= self._next_word_at_s:
            self._next_word_at_s = now + 1.0
            self._speak()
        while self._waiting and now >= self._allowed_at_s:
            self._allowed_at_s = max(self._allowed_at_s, now - TICK_S) + 1 / COMEBACKS_PER_SECOND
            self._open(self._waiting.popleft())

    def stop(self) -> dict[str, int]:
        """Close all connections, and return the counts."""
        for held in [*self._said, *(of[0] for of in self._datagrams)]:
            held.close()
        self._selector.close()
        return {"opened": self.opened, "closed_by_the_edge": self.closed}

    def _open(self, port: int) -> None:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.bind((self._source, 0))
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        self.opened += 1
        self._said[connection] = 0
        self._selector.register(connection, selectors.EVENT_READ, port)
        if self._kind == HANDSHAKE:
            # On loopback a connection is up at once. If the port's backlog is full, nothing is sent.
            with contextlib.suppress(OSError):
                connection.send(self._hello)

    def _open_udp(self, port: int, packet: bytes) -> None:
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        held.bind((self._source, 0))
        held.setblocking(False)
        self.opened += 1
        self._datagrams.append((held, port, packet))
        with contextlib.suppress(OSError):
            held.sendto(packet, ("127.0.0.1", port))

    def _on_answer(self, connection: object, port: int) -> None:
        assert isinstance(connection, socket.socket), "nothing else is registered"
        try:
            if connection.recv(65_536):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.closed += 1
        self._selector.unregister(connection)
        del self._said[connection]
        connection.close()
        self._waiting.append(port)

    def _speak(self) -> None:
        for held, port, packet in self._datagrams:
            with contextlib.suppress(OSError):
                held.sendto(packet, ("127.0.0.1", port))
        if self._kind != DRIBBLE:
            return
        for connection, said in self._said.items():
            with contextlib.suppress(OSError):
                self._said[connection] += connection.send(self._hello[said : said + 1])


def _allow_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * ATTACKERS_MAX + 200
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most)
    )


def main() -> None:
    """Serve commands until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--packets", type=Path, required=True, help="first packets of QUIC, a line of hex each"
    )
    parser.add_argument("ports", type=int, nargs="+", help="the link's port first")
    options = parser.parse_args()
    _allow_files()
    packets = [bytes.fromhex(line) for line in options.packets.read_text().split()]
    attack: Attack | None = None
    commands = selectors.DefaultSelector()
    commands.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        if commands.select(0.0 if attack else None):
            line = sys.stdin.readline()
            if not line:
                return
            word, _, rest = line.strip().partition(" ")
            if word == "attack":
                kind, count, source = rest.split("|")
                attack = Attack(kind, min(int(count), ATTACKERS_MAX), source, options.ports, packets)
                print(json.dumps({"opened": attack.opened}), flush=True)
            else:
                print(json.dumps(attack.stop() if attack else {}), flush=True)
                attack = None
        if attack:
            attack.step(TICK_S)


if __name__ == "__main__":
    main()
