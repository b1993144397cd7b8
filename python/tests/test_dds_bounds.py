"""The bounds of the bridge to DDS: participants without end, and keys without end."""

import itertools
import os
import socket
import struct
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mez.bridge.dds import cdr, fence, names, types
from mez.bridge.dds.domain import KEYS_MAX, Network, Participant, Qos
from mez.bridge.dds.errors import FenceError
from mez.bridge.dds.neighbours import PARTICIPANTS_MAX, Neighbours
from mez.bridge.dds.run import DdsRun
from tests.pipelines import until

# On a busy machine a handful of processes take their time to find each other.
pytestmark = pytest.mark.timeout(180)

RELIABLE = Qos(is_reliable=True, depth=10)

# Not those of `test_dds.py`, which may run beside this file.
_domains = itertools.count(60 + os.getpid() % 18 * 2)


@pytest.fixture
def domain() -> int:
    """The number of a domain of this test alone."""
    return next(_domains)


def announcement(number: int) -> bytes:
    """A packet by which a participant that is not there says that it is (SPDP), with a lease of 300 s."""
    name = b"\x01\x10none" + struct.pack("<IH", number, 7)

    def parameter(kind: int, value: bytes) -> bytes:
        return struct.pack("<HH", kind, len(value)) + value

    place = struct.pack("<iI12x4B", 1, 9, 127, 0, 0, 1)
    parameters = (
        parameter(0x15, b"\2\1\0\0")
        + parameter(0x16, b"\x01\x10\0\0")
        + parameter(0x50, name + b"\0\0\1\xc1")
        + parameter(0x58, struct.pack("<I", 0xC3F))
        + parameter(0x31, place)
        + parameter(0x32, place)
        + parameter(0x02, struct.pack("<iI", 300, 0))
        + parameter(0x01, b"")
    )
    data = struct.pack("<HH4s4sq", 0, 16, b"\0\1\0\xc7", b"\0\1\0\xc2", 1 << 32) + b"\0\3\0\0" + parameters
    return b"RTPS\2\1\x01\x10" + name + struct.pack("<BBH", 0x15, 5, len(data)) + data


def test_participants_without_end_are_kept_out(domain: int) -> None:
    """At the bound the kernel drops packets of those that are not known, and lets the known ones through."""
    participant = Participant(Network(domain, ("lo",), (), False, 1 << 20))
    around = participant.neighbours
    port = 7410 + 250 * domain
    try:
        with socket.socket(type=socket.SOCK_DGRAM) as sender:

            def send(first: int, count: int) -> None:
                for number in range(first, first + count):
                    sender.sendto(announcement(number), ("127.0.0.1", port))

            def known() -> int:
                around.look()
                return around.count

            send(0, 100)
            until(known, lambda count: count == 101, "they are known, and this one")
            assert not around.is_closed
            send(100, PARTICIPANTS_MAX)
            until(known, lambda count: count >= PARTICIPANTS_MAX, "the bound is reached")
            assert around.is_closed
            # Those that were in the socket before the kernel was told come in. There are no more than sent.
            send(10_000, 1000)
            time.sleep(0.5)
            assert known() <= 1 + 100 + PARTICIPANTS_MAX
    finally:
        participant.close()


def test_a_socket_that_is_kept_to_names_takes_packets_of_these_alone() -> None:
    """And of all, once it is not kept to names any more."""
    names_known = [bytes([number]) * 12 for number in range(PARTICIPANTS_MAX)]
    nearly = names_known[0][:11] + b"x"
    with socket.socket(type=socket.SOCK_DGRAM) as receiver, socket.socket(type=socket.SOCK_DGRAM) as sender:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)

        def received(kept: list[bytes] | None) -> list[bytes]:
            fence.keep([receiver.fileno()], fence.indexes(("lo",)), kept)
            for name in (nearly, names_known[-1], names_known[0]):
                sender.sendto(b"RTPS\2\1\x01\x10" + name + b"content", receiver.getsockname())
            count = 3 if kept is None else 2
            return [receiver.recv(100)[8:20] for _ in range(count)]

        assert received(names_known) == [names_known[-1], names_known[0]]
        assert received(None) == [nearly, names_known[-1], names_known[0]]


def test_a_filter_looks_at_each_packet_a_few_times_whatever_the_number_of_names() -> None:
    """Loads of a packet become a dozen instructions each, and some kernels give a socket 20 kB for all."""
    names = [bytes([number]) * 12 for number in range(PARTICIPANTS_MAX)]
    program = fence._program([1], names)
    assert sum(code == fence._LOAD_WORD for code, *_ in program) == 1 + 3


def test_a_reader_goes_on_when_there_are_too_many_keys(domain: int) -> None:
    """Samples of further keys are counted, and those of others and of other topics still come."""
    network = Network(domain, ("lo",), (), False, 1 << 20)
    reading = Participant(network)
    try:
        reader = reading.reader(names.FRAMES, types.FRAME, RELIABLE)
        script = textwrap.dedent(f"""
            import sys, time
            from mez.bridge.dds import cdr, names, types
            from mez.bridge.dds.domain import Network, Participant, Qos
            network = Network({domain}, ("lo",), (), False, 1 << 20)
            qos = Qos(is_reliable=True, depth=10, is_kept=True)
            writing = Participant(network)
            writer = writing.writer(names.FRAMES, types.FRAME, qos)
            while not writer.readers:
                time.sleep(0.05)
            for number in [*range({KEYS_MAX} + 6), 0]:
                value = {{"camera": f"cam{{number}}", "epoch": 1, "sequence": number, "captured_ns": 1,
                    "encoding": "jpeg", "width": 0, "height": 0, "rung": "original", "state": "ok",
                    "reason": "", "data": b"x"}}
                writer.write(cdr.encode(types.FRAME, value))
            sys.stdin.read()
        """)
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
            try:
                rejected = 0
                is_known = False

                def count() -> int:
                    nonlocal rejected, is_known
                    more, are_keys_many = reader.rejected()
                    rejected, is_known = rejected + more, is_known or are_keys_many
                    return rejected

                until(count, lambda count: count >= 6, "samples of too many keys are counted")
                assert is_known
                taken: list[str] = []

                def take() -> list[str]:
                    with reader.take() as samples:
                        taken.extend(cdr.decode(types.FRAME, sample)["camera"] for sample in samples)
                    return taken

                until(take, lambda taken: len(taken) >= KEYS_MAX + 1, "all other samples are taken")
                assert len(set(taken)) == KEYS_MAX
                assert taken.count("cam0") == 2
            finally:
                assert process.stdin is not None
                process.stdin.close()
    finally:
        reading.close()


class Known(Neighbours):
    """Neighbours whose names a test says."""

    def __init__(self) -> None:
        library: Any = SimpleNamespace(done=lambda *_: 1, dds_create_reader=lambda *_: 1)
        super().__init__(library, 1, [], [1])
        self.names: list[bytes] = []

    def _known(self) -> list[bytes]:
        return self.names


def test_those_who_were_known_before_a_flood_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever order the library lists them."""
    kept: list[list[bytes] | None] = []
    monkeypatch.setattr(fence, "keep", lambda *told: kept.append(told[2]))
    around = Known()
    before = [b"robot %06d" % number for number in range(20)]
    around.names = before
    assert not around.look()
    around.names = [b"flood %06d" % number for number in range(PARTICIPANTS_MAX)] + before
    assert around.look()
    (names,) = kept
    assert names is not None
    assert len(names) == PARTICIPANTS_MAX
    assert set(before) < set(names)


def test_a_kernel_that_refuses_the_filter_does_not_end_the_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """People are told once what to do, and it is tried again."""
    tries: list[object] = []

    def keep(*told: object) -> None:
        tries.append(told)
        if len(tries) < 3:
            raise FenceError("no memory; raise net.core.optmem_max (sysctl)")

    monkeypatch.setattr(fence, "keep", keep)
    around = Known()
    around.names = [b"flood %06d" % number for number in range(PARTICIPANTS_MAX)]
    said: list[str] = []
    run = DdsRun.__new__(DdsRun)
    told: dict[str, Any] = {
        "_bridge": SimpleNamespace(network=SimpleNamespace(interfaces=("lo",))),
        "_participant": SimpleNamespace(neighbours=around),
        "_teller": SimpleNamespace(tell=said.append),
        "_has_told_of_fence": False,
    }
    for name, value in told.items():
        setattr(run, name, value)
    for _ in range(2):
        run._look_around()
        assert not around.is_closed
    assert len(said) == 1
    assert "raise net.core.optmem_max" in said[0]
    run._look_around()
    assert around.is_closed
    assert "packets of others are dropped" in said[1]
