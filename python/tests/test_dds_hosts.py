"""The bridge to DDS and other implementations on two hosts: network namespaces with a cable between them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mez
from mez import _native
from mez.bridge.dds import cdr, names, types
from mez_bench.line import DEVICE, line
from tests.bridges import BridgeProcess
from tests.dds_peers import Peer, decoded, message, peer_program, publishing, rust_peer_program, tables
from tests.support import picture

pytestmark = [
    # On a busy machine a handful of processes take their time to find each other.
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that is Fast DDS."""
    return peer_program(tmp_path_factory.mktemp("peer"))


def test_hosts_find_each_other_by_unicast_alone(tmp_path: Path, program: Path, edge: mez.Edge) -> None:
    """Two namespaces whose cable has no multicast, every frame, and samples of 10 MB in fragments."""
    large = np.random.default_rng(1).integers(0, 255, (20, 25, 3), np.uint8).repeat(90, 0).repeat(80, 1)
    jpeg = _native.encode_jpeg(large, 60)
    more = f"""
    interfaces = "{DEVICE}"
    peers = "10.77.0.2"
    [out.dock]
    cameras = "dock/*"
    types = "image"
    deliver = "every"
    """
    with line() as cable:
        here, there = cable.within(0), cable.within(1)
        told = tables(edge, 1, more)
        with (
            BridgeProcess(tmp_path, told, command="dds", within=here) as bridge,
            Peer(
                program, "read", "rt/dock/cam1/image", types.IMAGE, domain=1, reliable=True, own="10.77.0.2",
                peer="10.77.0.1", within=there,
            ) as reader,
        ):  # fmt: skip
            bridge.runs()
            # Sockets hold a small part of such a sample. The rest is sent again, which takes a while.
            with publishing(edge, jpeg, each_s=1):
                samples = reader.reads(3)
        expected = np.empty(large.shape, np.uint8)
        _native.decode_into("jpeg", jpeg, expected)
        for sample in samples:
            assert len(sample) > 10_000_000
            image = message(types.IMAGE, sample)
            assert np.array_equal(image.data.reshape(large.shape), expected)


def test_rust_dds_on_another_host_is_found_by_multicast(tmp_path: Path, edge: mez.Edge) -> None:
    """It reads a camera's pictures as they are, in both types."""
    jpegs = [_native.encode_jpeg(picture(number), 90) for number in (10, 60)]
    more = f"""
    interfaces = "{DEVICE}"
    multicast = true
    [out.dock]
    cameras = "dock/*"
    types = ["compressed", "image"]
    """
    with line() as cable:
        here, there = cable.within(0), cable.within(1)
        for host in (here, there):
            subprocess.run([*host, "ip", "link", "set", DEVICE, "multicast", "on"], check=True)

        def peer(ending: str, kind: cdr.Struct) -> Peer:
            topic = f"rt/dock/cam1/{ending}"
            return Peer(
                rust_peer_program(),
                "read",
                topic,
                kind,
                domain=1,
                reliable=True,
                own="10.77.0.2",
                within=there,
            )

        with (
            BridgeProcess(tmp_path, tables(edge, 1, more), command="dds", within=here) as bridge,
            peer("compressed", types.COMPRESSED_IMAGE) as compressed,
            peer("image", types.IMAGE) as image,
        ):
            bridge.runs()
            with publishing(edge, *jpegs):
                compressed.reads(5)
                image.reads(5)
            for sample in compressed.samples:
                assert bytes(message(types.COMPRESSED_IMAGE, sample).data) in jpegs
            shown = [decoded(jpeg) for jpeg in jpegs]
            for sample in image.samples:
                told = message(types.IMAGE, sample)
                pixels = told.data.reshape(told.height, told.width, 3)
                assert any(np.array_equal(pixels, one) for one in shown)


def test_frames_cross_a_cable_that_loses_a_fifth_of_all_packets(
    tmp_path: Path, program: Path, edge: mez.Edge
) -> None:
    """Whole ones, each once and in order. What the history dropped is missing, and the sequence shows it."""
    jpeg = _native.encode_jpeg(picture(1), 90)
    more = f"""
    interfaces = "{DEVICE}"
    peers = "10.77.0.2"
    [out.dock]
    cameras = "dock/*"
    types = "frame"
    """
    with line() as cable:
        cable.lose(0.2)
        with (
            BridgeProcess(tmp_path, tables(edge, 1, more), command="dds", within=cable.within(0)) as bridge,
            Peer(
                program, "read", names.FRAMES, types.FRAME, domain=1, reliable=True, own="10.77.0.2",
                peer="10.77.0.1", within=cable.within(1),
            ) as reader,
        ):  # fmt: skip
            bridge.runs()
            with publishing(edge, jpeg, each_s=0.1):
                told = [cdr.decode(types.FRAME, sample) for sample in reader.reads(20)]
    sequences = [each["sequence"] for each in told]
    assert sequences == sorted(set(sequences))
    assert all(bytes(each["data"]) == jpeg for each in told)


def test_nothing_comes_by_interfaces_that_the_file_does_not_name() -> None:
    """The library's sockets listen on all addresses. The kernel drops what comes by another interface."""
    with line() as cable:
        here, there = cable.within(0), cable.within(1)
        for interface, expected in (("lo", "dropped"), (DEVICE, "received")):
            words = [*here, sys.executable, "-c", _LISTENS, interface]
            with subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as listener:
                assert listener.stdout is not None
                ports = listener.stdout.readline().split()
                assert len(ports) >= 2, "one for discovery, one for samples"
                _run(there, _SENDS.format(host="10.77.0.1", ports=ports))
                told, _ = listener.communicate("sent", timeout=60)
            assert told.split() == [expected] * len(ports), interface


_SENDS = """
import socket
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    for port in {ports}:
        sender.sendto(b"no packet of DDS", ("{host}", int(port)))
"""
_LISTENS = """
import sys
from pathlib import Path
from mez.bridge.dds.domain import Network, Participant

def drops():
    lines = [line.split() for line in Path("/proc/self/net/udp").read_text().splitlines()[1:]]
    return {int(of[1].split(":")[1], 16): int(of[-1]) for of in lines if of[1].startswith("00000000:")}

participant = Participant(Network(5, (sys.argv[1],), (), False, 1 << 20))
before = drops()
print(*before, flush=True)
sys.stdin.read()
now = drops()
print(*("dropped" if now[port] > before[port] else "received" for port in before))
participant.close()
"""


def _run(within: list[str], code: str) -> None:
    subprocess.run([*within, sys.executable, "-c", code], check=True)
