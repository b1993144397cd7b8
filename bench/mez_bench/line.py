"""Two hosts on this machine, as network namespaces, and a cable whose rate a token bucket sets."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mez_bench.errors import ExperimentError

DEVICE: Final = "cable"
ADDRESSES: Final = ("10.77.0.1", "10.77.0.2")
"""Addresses of the two hosts."""

BURST_BYTES: Final = 32 << 10
"""Size of the token bucket. The kernel splits larger packets to the cable's packet size first."""

QUEUE_BYTES_MAX: Final = 8 << 20
"""Limit of the queue in front of the cable. Socket buffers are smaller: so a sender waits as in front of a
real network card, and the queue drops nothing."""

_PACKET_BYTES: Final = 2_000
"""More than a packet of the cable, and less than two."""

_RANDOM: Final = 0xFFFFF000 + 56
"""The offset at which a BPF program reads a random number."""

UP_S_MAX: Final = 10.0

_numbers = itertools.count()


class Line:
    """Two hosts and the cable between them. Made by `line`.

    Args:
        names: Names of the namespaces.
    """

    def __init__(self, names: tuple[str, str]) -> None:
        self._names = names

    def within(self, host: int) -> list[str]:
        """Return the words before a command that run it on a host: 0 or 1."""
        # The full path: the program that runs this command may not search PATH.
        return [shutil.which("ip") or "ip", "netns", "exec", self._names[host]]

    def limit(self, bits_per_second: int, lost: float = 0.0) -> None:
        """Set the rate of the cable, both ways. Headers of Ethernet count, as they do in `sent_bytes`.

        Args:
            bits_per_second: The rate.
            lost: Share of packets to lose. Lost packets take no time of the cable, and do not count in
                `sent_bytes`.
        """
        # A bucket with room for one packet splits large packets before any packet is lost.
        burst = _PACKET_BYTES if lost else BURST_BYTES
        shaped = ["rate", f"{bits_per_second}bit", "burst", f"{burst}b", "limit", f"{QUEUE_BYTES_MAX}b"]
        for name in self._names:
            self._clear(name)
            _ran("tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", "handle", "1:", "tbf", *shaped)
            if lost:
                self._lose(name, ("parent", "1:1"), lost)

    def lose(self, share: float) -> None:
        """Lose this share of all packets from now on, both ways, and remove the limit of the rate."""
        for name in self._names:
            self._clear(name)
            self._lose(name, ("root",), share)

    def _clear(self, name: str) -> None:
        # Fails if the cable has no rate or loss yet.
        words = ("tc", "-n", name, "qdisc", "delete", "dev", DEVICE, "root")
        subprocess.run(words, check=False, stderr=subprocess.DEVNULL)

    def _lose(self, name: str, place: Sequence[str], share: float) -> None:
        """Lose packets below `place`.

        Not every kernel has `netem`. So a BPF filter draws a random number for each packet, and sends this
        share of packets to a queue without room.
        """
        drawn = f"4,32 0 0 {_RANDOM},53 0 1 {round(share * 2**32)},6 0 0 0,6 0 0 {0xFFFFFFFF}"
        tc, inside = ("tc", "-n", name), ("dev", DEVICE, "parent", "2:")
        _ran(*tc, "qdisc", "add", "dev", DEVICE, *place, "handle", "2:", "htb", "default", "1")
        for number, rate in ((1, "10gbit"), (2, "8kbit")):
            _ran(*tc, "class", "add", *inside, "classid", f"2:{number}", "htb", "rate", rate)
        for number, most in ((1, QUEUE_BYTES_MAX), (2, 1)):
            _ran(*tc, "qdisc", "add", "dev", DEVICE, "parent", f"2:{number}", "bfifo", "limit", f"{most}b")
        lost = ("protocol", "all", "bpf", "bytecode", drawn, "flowid", "2:2")
        _ran(*tc, "filter", "add", *inside, *lost)


@contextmanager
def line() -> Iterator[Line]:
    """Make two hosts, joined by a cable without multicast and without a limit of its rate. Needs root.

    Raises:
        ExperimentError: The kernel refuses, or the tools are missing.
    """
    if shutil.which("ip") is None or shutil.which("tc") is None:
        raise ExperimentError("two hosts on one machine need the commands ip and tc; install iproute2")
    number = next(_numbers)
    first, second = (f"mez-{os.getpid()}-{number}-{host}" for host in (1, 2))
    names = (first, second)
    try:
        for name in names:
            _ran("ip", "netns", "add", name)
            _ran("ip", "-n", name, "link", "set", "lo", "up")
        _ran(
            *("ip", "link", "add", DEVICE, "netns", first, "type", "veth"),
            *("peer", "name", DEVICE, "netns", second),
        )
        for name, address in zip(names, ADDRESSES, strict=True):
            _ran("ip", "-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
            _ran("ip", "-n", name, "link", "set", DEVICE, "multicast", "off", "up")
        _await_up(names)
        yield Line(names)
    finally:
        for name in names:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def sent_bytes(pid: int) -> int:
    """Return the bytes that the host of a process has sent over the cable so far, with Ethernet headers."""
    for row in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, counts = row.partition(":")
        if name.strip() == DEVICE:
            return int(counts.split()[8])
    raise ExperimentError(f"process {pid} does not run on a host with a cable")


def _await_up(names: Sequence[str]) -> None:
    """Wait until the link layer of both ends is up. Some programs look once, at their start."""
    deadline = time.monotonic() + UP_S_MAX
    while not all("state UP" in _ran("ip", "-n", name, "link", "show", DEVICE) for name in names):
        if time.monotonic() > deadline:
            raise ExperimentError("the cable between the two hosts did not come up")
        time.sleep(0.02)


def _ran(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ExperimentError(f"{' '.join(words)}: {done.stderr.strip()}; network namespaces need root")
    return done.stdout
