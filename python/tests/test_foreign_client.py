"""A client that shares no code with Mez, generated from the `.proto` alone, beside our own."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import numpy as np
import pytest

import mez
from tests.support import camera_broker, deliver, enrolled, picture, profile_of
from tests.test_boxes import publishing
from tests.test_sources import source_of, until

CLIENT = Path(__file__).parents[2] / "examples" / "foreign_client" / "client.py"

Said = dict[str, object]


@contextmanager
def client(*words: str) -> Iterator[Iterator[Said]]:
    """The example as a process, and what it says, line by line."""
    with subprocess.Popen([sys.executable, CLIENT, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield (json.loads(line) for line in process.stdout)
        finally:
            process.kill()


def of_kind(said: Iterator[Said], kind: str) -> Said:
    """The next thing of a kind that it says."""
    for what in said:
        assert what["event"] != "error", what
        if what["event"] == kind:
            return what
    raise AssertionError(f"it ended without {kind}")


def test_it_receives_what_python_publishes(edge: mez.Edge) -> None:
    """Byte by byte, with its age, on the Unix socket; and its reply comes back."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/cam1", deliver="every") as frames,
    ):
        deliver(camera, frames)
        words = ["subscribe", "--broker", f"unix:{edge.socket}", "dock/*"]
        words += ["--latency-ms", "60000", "--reply", "seen"]
        with client(*words) as said:
            assert of_kind(said, "started")["cameras"] == ["dock/cam1"]
            sent = camera.send(picture(5))
            ours = frames.next(timeout=30)
            theirs = of_kind(said, "frame")
            assert (theirs["camera"], theirs["epoch"], theirs["sequence"]) == ("dock/cam1", *ours.id)
            assert theirs["payload_sha256"] == hashlib.sha256(ours.payload).hexdigest()
            # Its bound of a minute is kept.
            assert theirs["contract"] == "CONTRACT_STATE_OK"
            assert isinstance(theirs["age_ms"], float)
            reply = camera.next_reply(timeout=30)
            assert (reply.frame, reply.application, reply.payload) == (sent, "foreign_client", b"seen")


def test_its_box_comes_back_in_the_pixels_of_the_camera(edge: mez.Edge) -> None:
    """It gives the box in the pixels of a frame at half the size; who publishes gets its own pixels."""
    size, rung = (640, 480), "jpeg/w320/q70/420"
    terms = {"accuracy": 0.9, "latency_ms": 5000, "profile": profile_of(*size, 0.95, rung=rung)}
    words = ["subscribe", "--broker", f"unix:{edge.socket}", "cam", "--box", "0.25", "0.5", "0.75", "1"]
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", **terms) as contract,
        publishing(camera, picture(3, *size)),
        client(*words) as said,
    ):
        next(frame for frame in contract if frame.rung == rung)
        while (theirs := of_kind(said, "frame"))["rung"] != rung:
            pass
        assert (theirs["width"], theirs["published"]) == (320, [*size])
        while (reply := camera.next_reply(timeout=30)).frame < (theirs["epoch"], theirs["sequence"]):
            pass
        assert reply.application == "foreign_client"
        assert reply.detections is not None
        assert reply.detections.size == size
        assert reply.detections.xyxy.tolist() == [[160, 240, 480, 480]]
        assert reply.detections.class_names == ["example"]


def test_it_says_that_its_camera_is_lost(edge: mez.Edge, tmp_path: Path) -> None:
    """It has no more frames to give, and a reason: with nothing but the interface."""
    socket = tmp_path / "camera.sock"
    words = ["publish", "--broker", f"unix:{socket}", "--frames", "3", "--lost", "the cable is out"]
    with camera_broker("cam", edge, socket), client(*words) as said:
        assert of_kind(said, "published")["frames"] == 3
        until(lambda: getattr(source_of(edge), "reason", "") == "the cable is out", "it is lost")
        lost = source_of(edge)
        assert lost is not None
        assert lost.state == "lost"


def test_it_receives_over_tls(edge: mez.Edge, tmp_path: Path) -> None:
    """With an identity that joined the site, and so do we."""
    identity = enrolled(edge, "app/viewer", tmp_path / "keys")
    assert edge.grpc_address is not None
    words = ["subscribe", "--broker", edge.grpc_address, "cam", "--frames", "1"]
    words += ["--authority", str(identity.parent / "authority.pem"), "--identity", str(identity)]
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", deliver="every") as frames:
        deliver(camera, frames)
        with client(*words) as said:
            of_kind(said, "started")
            camera.send(picture(5))
            assert of_kind(said, "frame")["payload_bytes"] == len(frames.next(timeout=30).payload)
        assert [info.camera for info in mez.cameras(edge=edge.grpc_address, keys=identity.parent)] == ["cam"]


def test_python_receives_what_it_publishes(edge: mez.Edge, tmp_path: Path) -> None:
    """Raw grey pixels through a separate camera broker; our reply reaches it."""
    socket = tmp_path / "camera.sock"
    with camera_broker("dock/cam2", edge, socket), edge.subscribe("dock/cam2", timeout=30) as frames:
        words = ["publish", "--broker", f"unix:{socket}", "--frames", "200", "--fps", "20", "--linger", "5"]
        with client(*words) as said:
            assert of_kind(said, "started")["camera"] == "dock/cam2"
            frame = frames.next()
            assert (frame.encoding, frame.width, frame.height) == ("gray8", 160, 120)
            pixels = np.frombuffer(frame.payload, np.uint8).reshape(120, 160)
            assert np.array_equal(frame.image, np.dstack([pixels] * 3))
            assert frame.age_ms is not None
            frame.reply(b"got it")
            reply = of_kind(said, "reply")
            assert (reply["sequence"], reply["payload"]) == (frame.sequence, "got it")


def test_it_takes_answers(edge: mez.Edge, tmp_path: Path) -> None:
    """Pictures that were made of the frames that somebody publishes at the same broker."""
    made = mez._native.encode_jpeg(picture(7, 32, 24), 80)
    broker = f"unix://{tmp_path / 'camera.sock'}"
    stop = threading.Event()
    with (
        camera_broker("cam", edge, tmp_path / "camera.sock"),
        mez.publisher("cam", broker=broker) as camera,
        edge.subscribe("cam") as frames,
        client("answers", "--broker", broker, "--bound-ms", "20000", "--answers", "3") as said,
    ):

        def answer() -> None:
            while not stop.is_set():
                deliver(camera, frames).answer(made)

        of_kind(said, "started")
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            answers = [of_kind(said, "answer") for _ in range(3)]
            assert of_kind(said, "taken")["answers"] == 3
        finally:
            stop.set()
            thread.join()
        first = answers[0]
        assert (first["width"], first["height"], first["content_type"]) == (32, 24, "image/jpeg")
        assert all(answer["payload_sha256"] == hashlib.sha256(made).hexdigest() for answer in answers)
        sequences = [int(str(answer["sequence"])) for answer in answers]
        assert sequences == sorted(set(sequences))
        assert isinstance(first["stages_ms"], dict)
        assert isinstance(first["age_ms"], float)
        assert first["age_ms"] >= first["stages_ms"]["ANSWER_STAGE_ARRIVED"]


def test_errors_have_a_stable_name(edge: mez.Edge) -> None:
    """What is refused is refused with the code and sentence that any client can read."""
    with client("subscribe", "--broker", f"unix:{edge.socket}", "dock/cam*") as said:
        *_, error = said
        assert (error["event"], error["code"]) == ("error", "INVALID_ARGUMENT")
        assert "mixes '*' with other characters" in str(error["message"])


def raw_channel(edge: mez.Edge) -> grpc.Channel:
    """A channel to the edge's Unix socket."""
    options = [("grpc.default_authority", "localhost")]
    return grpc.insecure_channel(f"unix:{edge.socket}", options=options)


def test_what_is_no_message_is_refused_with_details(edge: mez.Edge) -> None:
    """And so is one that is too large."""
    with raw_channel(edge) as channel:
        call = channel.unary_unary("/mez.v1.EdgeBroker/GetCameraInfo")
        for sent, reason in ((b"\xff" * 40, b"MALFORMED"), (bytes(2 << 20), b"MESSAGE_TOO_LARGE")):
            with pytest.raises(grpc.RpcError) as refused:
                call(sent, timeout=30)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert reason in dict(refused.value.trailing_metadata())["grpc-status-details-bin"]


def test_one_stream_too_many_is_answered(edge: mez.Edge) -> None:
    """With the limit, for programs; without a word, HTTP/2 would let it wait."""
    with raw_channel(edge) as channel:
        subscribe = channel.unary_stream("/mez.v1.EdgeBroker/Subscribe")
        pattern = b"\x0a\x02**"
        streams = [subscribe(pattern) for _ in range(256)]
        for stream in streams:
            next(stream)
        with pytest.raises(grpc.RpcError) as refused:
            next(subscribe(pattern, timeout=30))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert b"_max" in dict(refused.value.trailing_metadata())["grpc-status-details-bin"]
