"""Measures what a channel itself takes: the same bytes as bare datagrams, without any messaging system."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from mez_bench.children import mez
from mez_bench.errors import ExperimentError
from mez_bench.offload.networks import Network
from mez_bench.offload.shown import WARM_UP_S
from mez_bench.run import Run
from mez_bench.stats import Values

DATAGRAM_BYTES: Final = 1_400
NUMBER_BYTES: Final = 4
"""Each datagram begins with the number of its frame."""

LOOK_S: Final = 0.2
"""How long a thread waits for a datagram until it looks whether the measurement is over."""

LAST_S: Final = 1.0
"""How long answers may come after the last frame."""


Whole = Callable[[int, tuple[str, int]], None]
"""Takes the number of a payload that has come, and the address that it came from."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A frame and its answer.

    Attributes:
        request_bytes: Size of the frame.
        response_bytes: Size of the answer.
        compute_ms: Time between the two at the other end. Frames do not wait for each other there.
    """

    request_bytes: int
    response_bytes: int
    compute_ms: float


def times_ms(
    run: Run, network: Network, exchange: Exchange, *, seconds: float, fps: float, seed: int
) -> Values:
    """Return the milliseconds from a frame until all of its answer is back, of all that came back.

    Raises:
        ExperimentError: No answer came back.
    """
    sent_s: dict[int, float] = {}
    took_s: dict[int, float] = {}
    over = threading.Event()
    with run.apart(), _socket() as engine, _socket() as device:
        engine.bind(("127.0.0.1", 0))
        scenario = network.scenario(run.folder, seconds, fps, seed)
        to = f"127.0.0.1:{engine.getsockname()[1]}"
        link = run.children.start("link", mez("measure", "emulate", "--scenario", str(scenario), "--to", to))
        host, _, port = link.answer()["cameras"][0]["address"].rpartition(":")
        device.connect((host, int(port)))

        def answer(number: int, address: tuple[str, int]) -> None:
            time.sleep(exchange.compute_ms / 1e3)
            for datagram in _datagrams(number, exchange.response_bytes):
                engine.sendto(datagram, address)

        def note(number: int, _: tuple[str, int]) -> None:
            took_s[number] = time.monotonic() - sent_s[number]

        def reply(number: int, address: tuple[str, int]) -> None:
            threading.Thread(target=answer, args=(number, address), daemon=True).start()

        takers = [
            threading.Thread(target=_take, args=(over, engine, exchange.request_bytes, reply)),
            threading.Thread(target=_take, args=(over, device, exchange.response_bytes, note)),
        ]
        for taker in takers:
            taker.start()
        try:
            link.ask("begin")
            began_s = time.monotonic()
            for number in range(round(seconds * fps)):
                time.sleep(max(0.0, began_s + number / fps - time.monotonic()))
                sent_s[number] = time.monotonic()
                for datagram in _datagrams(number, exchange.request_bytes):
                    device.send(datagram)
            time.sleep(LAST_S)
        finally:
            over.set()
            for taker in takers:
                taker.join()
    took_ms = [1e3 * took for number, took in took_s.items() if number >= WARM_UP_S * fps]
    if not took_ms:
        raise ExperimentError(f"no bare datagrams came back over the link {network.name}")
    return np.array(took_ms)


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(LOOK_S)
    return made


def _datagrams(number: int, count: int) -> list[bytes]:
    """Return a payload of `count` bytes in datagrams."""
    head = number.to_bytes(NUMBER_BYTES, "big")
    sizes = [min(DATAGRAM_BYTES, count - begin) for begin in range(0, count, DATAGRAM_BYTES)]
    return [head + bytes(max(0, size - NUMBER_BYTES)) for size in sizes]


def _take(over: threading.Event, of: socket.socket, count: int, whole: Whole) -> None:
    """Take datagrams, and call `whole` with the number of each payload of which all have come."""
    came: Counter[int] = Counter()
    datagrams = len(_datagrams(0, count))
    while not over.is_set():
        try:
            datagram, address = of.recvfrom(DATAGRAM_BYTES)
        except TimeoutError:
            continue
        number = int.from_bytes(datagram[:NUMBER_BYTES], "big")
        came[number] += 1
        if came[number] == datagrams:
            whole(number, address)
