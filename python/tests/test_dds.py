"""The bridge to DDS, as a process of its own, between a real edge and Fast DDS or RustDDS."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mez
from mez import _native
from mez.bridge.dds import cdr, convert, names, types
from mez.bridge.dds.domain import Network, Participant, Qos
from mez.bridge.dds.errors import DdsError, RefusedError
from tests.bridges import BridgeProcess
from tests.dds_peers import STORE, Peer, decoded, message, peer_program, publishing, rust_peer_program, tables
from tests.pipelines import until
from tests.support import enrolled, picture
from tests.test_store import store_key

# On a busy machine a handful of processes take their time to find each other.
pytestmark = pytest.mark.timeout(180)

RELIABLE = Qos(is_reliable=True, depth=10, is_kept=True)

# From domain 101 on, the ports are those that the system gives to outgoing connections.
_domains = itertools.count(1 + os.getpid() % 18 * 2)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that is Fast DDS."""
    return peer_program(tmp_path_factory.mktemp("peer"))


@pytest.fixture
def domain() -> int:
    """The number of a domain of this test alone."""
    return next(_domains)


def compressed_sample(coded: bytes, coding: str) -> bytes:
    """A `CompressedImage`, encoded by rosbags."""
    time_type, header_type = STORE.types["builtin_interfaces/msg/Time"], STORE.types["std_msgs/msg/Header"]
    head = header_type(stamp=time_type(sec=1, nanosec=2), frame_id="side")
    made = STORE.types[types.COMPRESSED_IMAGE.name](head, coding, np.frombuffer(coded, np.uint8))
    return bytes(STORE.serialize_cdr(made, types.COMPRESSED_IMAGE.name))


def image_sample(image: NDArray[np.uint8], encoding: str, gap: int = 0) -> bytes:
    """An `Image`, encoded by rosbags; each row has a gap behind it."""
    height, width = image.shape[:2]
    rows = np.pad(image.reshape(height, -1), ((0, 0), (0, gap)))
    time_type, header_type = STORE.types["builtin_interfaces/msg/Time"], STORE.types["std_msgs/msg/Header"]
    head = header_type(stamp=time_type(sec=1, nanosec=2), frame_id="front")
    made = STORE.types[types.IMAGE.name](
        header=head, height=height, width=width, encoding=encoding, is_bigendian=0, step=rows.shape[1],
        data=rows.reshape(-1),
    )  # fmt: skip
    return bytes(STORE.serialize_cdr(made, types.IMAGE.name))


def test_cameras_and_detections_are_topics_for_fast_dds(tmp_path: Path, program: Path, domain: int) -> None:
    """Bytes and pixels are those of the frames, types and hashes those of ROS 2. Who comes late gets one.

    A bridge that was killed and is started again is found by those who read before; the sequence has a gap.
    """
    jpegs = [_native.encode_jpeg(picture(number), 90) for number in (10, 60)]
    more = """
    [out.dock]
    cameras = "dock/*"
    types = ["compressed", "image", "frame"]
    [detections]
    cameras = "dock/*"
    """
    with (
        mez.edge(store=tmp_path / "store", store_key=store_key(tmp_path), state=tmp_path / "edge") as edge,
        BridgeProcess(tmp_path, tables(edge, domain, more), command="dds") as bridge,
    ):
        assert "without encryption or rights" in bridge.hears(f"DDS domain {domain} is open on lo")

        def peer(ending: str, kind: cdr.Struct, *, reliable: bool = True) -> Peer:
            return Peer(program, "read", f"rt/dock/cam1/{ending}", kind, domain=domain, reliable=reliable)

        with (
            peer("compressed", types.COMPRESSED_IMAGE) as compressed,
            peer("image", types.IMAGE, reliable=False) as image,
            peer("detections", types.DETECTION_2D_ARRAY) as detections,
            Peer(program, "read", names.FRAMES, types.FRAME, domain=domain, reliable=True) as keyed,
        ):
            with publishing(edge, *jpegs), edge.subscribe("dock/cam1") as frames:
                frame = frames.next(timeout=30)
                frame.reply(mez.Detections([[1, 2, 5, 10]], scores=[0.5], class_names=["person"]))
                compressed.reads(6)
                image.reads(6)
                keyed.reads(6)
                (found,) = detections.reads()[:1]
            told = message(types.DETECTION_2D_ARRAY, found)
            assert told.detections[0].results[0].hypothesis.class_id == "person"
            assert convert.stamp_ns(cdr.decode(types.DETECTION_2D_ARRAY, found)) == frame.captured_ns
            for sample in compressed.samples:
                told = message(types.COMPRESSED_IMAGE, sample)
                assert (told.header.frame_id, told.format) == ("dock/cam1", "jpeg")
                assert bytes(told.data) in jpegs
            shown = [decoded(jpeg) for jpeg in jpegs]
            for sample in image.samples:
                told = message(types.IMAGE, sample)
                assert (told.encoding, told.step) == ("bgr8", 3 * told.width)
                pixels = told.data.reshape(told.height, told.width, 3)
                assert any(np.array_equal(pixels, one) for one in shown)
            frames_told = [cdr.decode(types.FRAME, sample) for sample in keyed.samples]
            assert [told["sequence"] for told in frames_told] == sorted(
                {told["sequence"] for told in frames_told}
            )
            for told in frames_told:
                assert (told["camera"], told["rung"], told["state"]) == ("dock/cam1", "original", "ok")
                assert bytes(told["data"]) in jpegs
            kind = types.COMPRESSED_IMAGE
            typehash = STORE.hash_rihs01(kind.name)
            compressed.hears(f"writer rt/dock/cam1/compressed {types.dds_name(kind)} typehash={typehash};")
        # Nothing is published any more.
        until(lambda: _stream(bridge, "out.dock"), lambda of: of["frames_per_s"] == 0, "all is copied")
        with (
            peer("compressed", types.COMPRESSED_IMAGE) as late,
            Peer(program, "read", names.FRAMES, types.FRAME, domain=domain, reliable=True) as keyed,
        ):
            assert bytes(message(types.COMPRESSED_IMAGE, late.reads()[0]).data) in jpegs
            with publishing(edge, *jpegs), edge.subscribe("dock/cam1") as frames:
                keyed.reads(len(keyed.samples) + 3)
                bridge.kill()
                for _ in range(10):
                    frames.next(timeout=30)
                bridge.start()
                late.reads(len(late.samples) + 3)
                keyed.reads(len(keyed.samples) + 3)
            sequences = [cdr.decode(types.FRAME, sample)["sequence"] for sample in keyed.samples]
            assert max(after - before for before, after in itertools.pairwise(sequences)) >= 9
        assert bridge.interrupt() == 0
        assert _stream(bridge, "out.dock")["refused"] == {}
        assert bridge.hears("ended: frames copied: out.dock ")


def test_topics_of_fast_dds_become_cameras(
    tmp_path: Path, program: Path, domain: int, edge: mez.Edge
) -> None:
    """Pixel for pixel, in any order of channels; what is no picture is counted, and the rest goes on."""
    more = """
    [in.front]
    topic = "/robot1/front/image_raw"
    camera = "robots/front"
    type = "image"
    deliver = "every"
    quality = 100
    [in.there]
    type = "frame"
    topic = "mez/frame"
    key = "there/cam"
    camera = "robots/there"
    deliver = "every"
    stamps = "sender"
    [in.side]
    topic = "/robot1/side/compressed"
    camera = "robots/side"
    deliver = "every"
    """
    jpeg = _native.encode_jpeg(picture(70), 80)
    red = picture(40)
    with (
        BridgeProcess(tmp_path, tables(edge, domain, more), command="dds") as bridge,
        edge.subscribe("robots/front") as frames,
        edge.subscribe("robots/side") as sides,
        edge.subscribe("robots/there") as theirs,
    ):
        bridge.hears("the camera robots/front is connected to the edge")
        topic = "rt/robot1/front/image_raw"
        with Peer(program, "write", topic, types.IMAGE, domain=domain, reliable=True) as writer:
            # A writer keeps nothing for a reader that it does not know yet.
            writer.write_until(
                image_sample(red, "bayer_rggb8"),
                lambda: bridge.has_said("not copied (encoding)"),
                "an unknown order of colours is not copied",
            )
            writer.write(image_sample(red, "rgb8")[:-40])
            for number in itertools.count():
                order = slice(None, None, -1) if number % 2 else slice(None)
                writer.write(image_sample(red[:, :, order], "rgb8" if number % 2 else "bgr8", gap=number % 3))
                try:
                    frame = frames.next(timeout=0.2)
                except mez.WaitTimeoutError:
                    continue
                if frame.sequence > 5:
                    break
            assert frame.camera == "robots/front"
            assert bytes(frame.payload) == _native.encode_jpeg(red, 100)
            # The second one does not even leave the library, which checks samples before it gives them.
            refused = until(
                lambda: _stream(bridge, "in.front").get("refused"), bool, "what was refused is counted"
            )
            assert set(refused or {}) == {"encoding"}
            assert "'bayer_rggb8'" in bridge.hears("not copied (encoding)")
        kind = types.COMPRESSED_IMAGE
        with Peer(
            program, "write", "rt/robot1/side/compressed", kind, domain=domain, reliable=True
        ) as writer:
            writer.write_until(
                compressed_sample(_native.encode_png(red), "png"),
                lambda: bridge.has_said("not copied (format)"),
                "a PNG is not copied",
            )
            writer.write(compressed_sample(jpeg, "jpeg"))
            assert bytes(sides.next(timeout=60).payload) == jpeg
            assert "'png', but only JPEG is accepted" in bridge.hears("not copied (format)")
        with Peer(program, "write", names.FRAMES, types.FRAME, domain=domain, reliable=True) as writer:
            # One topic for several cameras: the file says which of them is taken.
            begun_ns = time.time_ns()

            def sample(camera: str, number: int, content: bytes) -> bytes:
                value = {"camera": camera, "epoch": 1, "sequence": number} | {
                    "captured_ns": begun_ns + number, "encoding": "jpeg", "width": 0, "height": 0,
                    "rung": "original", "state": "ok", "reason": "", "data": content,
                }  # fmt: skip
                return b"".join(cdr.encode(types.FRAME, value))

            first = sample("there/cam", 7, jpeg)
            writer.write_until(first, lambda: _next_within(theirs, 0.05) is not None, "it is copied")
            writer.write(sample("other/cam", 8, _native.encode_jpeg(red, 90)))
            writer.write(sample("there/cam", 8, jpeg))
            copied = theirs.next(timeout=60)
            assert (copied.captured_ns, bytes(copied.payload)) == (begun_ns + 8, jpeg)
        bridge.hears("the topic /robot1/front/image_raw has no writer any more")
        source = until(
            lambda: {known.camera: known.source for known in edge.cameras()}["robots/front"],
            lambda source: source is not None and source.state == "lost",
            "the camera's source is lost",
        )
        assert source is not None
        assert "has no writer any more" in source.reason


def test_a_topic_of_rust_dds_becomes_a_camera(tmp_path: Path, domain: int, edge: mez.Edge) -> None:
    """Its pictures are those that were written. On one host it is found by loopback, without multicast."""
    more = """
    [in.side]
    topic = "/robot1/side/compressed"
    camera = "robots/side"
    """
    jpeg, topic = _native.encode_jpeg(picture(10), 90), "rt/robot1/side/compressed"
    kind, copied = types.COMPRESSED_IMAGE, list[mez.Frame]()
    with (
        BridgeProcess(tmp_path, tables(edge, domain, more), command="dds") as bridge,
        Peer(rust_peer_program(), "write", topic, kind, domain=domain, reliable=True) as writer,
        edge.subscribe("robots/side") as sides,
    ):
        bridge.hears("the camera robots/side is connected to the edge")

        def arrives() -> bool:
            copied.extend(filter(None, [_next_within(sides, 0.05)]))
            return bool(copied)

        writer.write_until(compressed_sample(jpeg, "jpeg"), arrives, "its picture arrives")
    assert bytes(copied[0].payload) == jpeg


def test_two_cameras_of_one_name_and_records_are_refused_and_counted(
    tmp_path: Path, domain: int, edge: mez.Edge
) -> None:
    """The first camera keeps its topic."""
    jpeg = _native.encode_jpeg(picture(1), 90)
    more = '[out.dock]\ncameras = "dock/*"\n'
    with (
        BridgeProcess(tmp_path, tables(edge, domain, more), command="dds") as bridge,
        publishing(edge, jpeg, name="dock/cam-1"),
    ):
        until(lambda: _stream(bridge, "out.dock").get("frames"), bool, "a frame is copied")
        with publishing(edge, jpeg, name="dock/cam_1"), mez.publisher("dock/data", edge=edge) as data:
            said = bridge.hears("not copied (name_taken)")
            assert "dock/cam_1: its name in ROS 2, /dock/cam_1, is used by dock/cam-1 of out.dock" in said
            data.wait_connected(timeout=30)
            until(
                lambda: (data.send_data({"n": 1}), _stream(bridge, "out.dock")["refused"])[1],
                lambda refused: refused.keys() == {"name_taken", "not_a_picture"},
                "both are counted",
            )


def test_a_contract_is_asked_for_by_name(tmp_path: Path, program: Path, domain: int, edge: mez.Edge) -> None:
    """Frames say what became of it. Only contracts of the file have names; other requests are counted."""
    jpeg = _native.encode_jpeg(picture(1), 90)
    more = """
    [out.dock]
    cameras = "dock/*"
    types = "frame"
    offers = "impossible"
    [contract.impossible]
    latency_ms = 1
    min_fps = 900
    """

    def peer(does: str, topic: str, kind: cdr.Struct) -> Peer:
        return Peer(program, does, topic, kind, domain=domain, reliable=True)

    def state() -> str:
        return str(cdr.decode(types.FRAME, frames.samples[-1])["state"])

    def ask(text: str) -> None:
        requests.write(b"".join(cdr.encode(types.STRING, {"data": text})))

    with (
        BridgeProcess(tmp_path, tables(edge, domain, more), command="dds") as bridge,
        peer("read", names.FRAMES, types.FRAME) as frames,
        peer("write", "rt/mez/hall7/contract", types.STRING) as requests,
        publishing(edge, jpeg),
    ):
        frames.reads()
        assert state() == "ok"
        requests.write_until(
            b"".join(cdr.encode(types.STRING, {"data": "dock everything"})),
            lambda: bridge.has_said("a request: not copied (request)"),
            "it is not offered",
        )
        assert "request one of: dock usual | impossible" in bridge.hears("a request: not copied (request)")
        ask("dock impossible")
        until(state, lambda told: told != "ok", "the contract is another")
        until(
            lambda: _stream(bridge, "out.dock").get("contract"),
            lambda told: told == "impossible",
            "it is told",
        )
        ask("dock usual")
        until(state, lambda told: told == "ok", "the contract is the usual one")
        bridge.hears("out.dock: the contract is usual now")
        until(
            lambda: _stream(bridge, "requests").get("refused"),
            lambda told: told is not None and set(told) == {"request"},
            "what is not offered is counted",
        )


@pytest.mark.parametrize("deliver", ["newest", "every"])
def test_a_reader_that_stands_still_changes_nothing_for_others(
    tmp_path: Path, program: Path, domain: int, edge: mez.Edge, deliver: str
) -> None:
    """A reliable one that confirms nothing: another one gets all frames all the same, in order."""
    # Ten of these are more than sockets hold.
    noise = np.random.default_rng(1).integers(0, 255, (300, 400, 3), np.uint8)
    jpegs = [_native.encode_jpeg(np.roll(noise, number, 0), 90) for number in range(3)]
    more = f'[out.dock]\ncameras = "dock/*"\ndeliver = "{deliver}"\n'

    def peer() -> Peer:
        return Peer(
            program, "read", "rt/dock/cam1/compressed", types.COMPRESSED_IMAGE, domain=domain, reliable=True
        )

    with (
        BridgeProcess(tmp_path, tables(edge, domain, more), command="dds"),
        peer() as stalled,
        peer() as other,
        publishing(edge, *jpegs),
    ):
        stalled.reads()
        other.reads()
        stalled.process.send_signal(signal.SIGSTOP)
        before = len(other.samples)
        other.reads(before + 40)
        assert len(stalled.samples) < before + 40
        stamps = [convert.stamp_ns(cdr.decode(types.COMPRESSED_IMAGE, sample)) for sample in other.samples]
        assert stamps == sorted(set(stamps))


def _next_within(frames: mez.Subscription, seconds: float) -> mez.Frame | None:
    try:
        return frames.next(timeout=seconds)
    except mez.WaitTimeoutError:
        return None


def _stream(bridge: BridgeProcess, name: str) -> dict[str, Any]:
    """How a stream of a bridge does; empty before the bridge has said so."""
    told: dict[str, Any] = bridge.status.get("streams", {}).get(name, {})
    return told


def test_a_camera_that_the_keys_do_not_allow_is_refused(tmp_path: Path, domain: int, edge: mez.Edge) -> None:
    """An identity has its own name and those below it; the bridge does not start with any other."""
    enrolled(edge, "camera/robots", tmp_path / "keys")
    more = '[in.front]\ntopic = "/front/compressed"\ncamera = "robots/front"\n'
    told = tables(edge, domain, more).replace(str(edge.keys), str(tmp_path / "keys"))
    with BridgeProcess(tmp_path, told, command="dds") as bridge:
        bridge.hears("the camera robots/front is connected to the edge")
        assert {known.camera for known in edge.cameras()} == {"robots/front"}
        assert bridge.interrupt() == 0
    with BridgeProcess(tmp_path, told.replace("robots/", "dock/"), command="dds") as bridge:
        bridge.hears("holds no identity camera/dock/front; it holds camera/robots")
        assert bridge.process.wait(60) == 1


def test_samples_that_are_none_or_too_large_do_not_leave_the_writer(domain: int) -> None:
    """The library checks what it is given, by the program that the type's table makes."""
    network = Network(domain, ("lo",), (), False, 1 << 20)
    participant = Participant(network)
    try:
        writer = participant.writer("rt/cam/compressed", types.COMPRESSED_IMAGE, RELIABLE)
        value = convert.compressed(convert.header(1, "cam"), "jpeg", b"x" * 5000)
        parts = [bytes(part) for part in cdr.encode(types.COMPRESSED_IMAGE, value)]
        assert len(parts) == 2
        writer.write(parts)
        for damaged in (parts[:1], [parts[0], parts[1][:-1]], [parts[0][:4]]):
            with pytest.raises(DdsError, match="does not fit its type"):
                writer.write(damaged)
        with pytest.raises(RefusedError, match=r"dds\.sample_mib_max"):
            writer.write([parts[0], bytes(1 << 20)])
        nested = participant.writer("rt/cam/detections", types.DETECTION_2D_ARRAY, RELIABLE)
        found = mez.Detections(np.ones((3, 4)), class_names=["a", "bcd", ""])
        sample = cdr.encode(types.DETECTION_2D_ARRAY, convert.detections(convert.header(1, "cam"), found))
        nested.write(sample)
        whole = b"".join(sample)
        for length in random.Random(1).sample(range(8, len(whole) - 8), 50):
            with pytest.raises(DdsError, match="does not fit its type"):
                nested.write([whole[:3] + b"\0" + whole[4:length]])
    finally:
        participant.close()


def test_check_enters_the_domain_and_names_what_is_missing(
    tmp_path: Path, domain: int, edge: mez.Edge
) -> None:
    """An interface that is not there is told before anything runs."""
    words = [sys.executable, "-m", "mez", "bridge", "check"]
    file = tmp_path / "check.toml"
    told = tables(edge, domain, 'interfaces = "lo"\n[out.dock]\ncameras = "dock/*"\n')
    file.write_text(told)
    right = subprocess.run([*words, str(file)], capture_output=True, text=True, check=False)
    assert right.returncode == 0, right.stderr
    assert f"DDS domain {domain} is open on lo, without encryption" in right.stdout
    file.write_text(told.replace('"lo"', '"nowhere0"'))
    wrong = subprocess.run([*words, str(file)], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "dds.interfaces: there is no interface nowhere0; give some of " in wrong.stderr
