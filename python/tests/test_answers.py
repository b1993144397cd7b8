"""Pictures that applications make of frames, on their way back to the camera."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

import mez
from tests.support import camera_broker, deliver, picture

# The edge hears a moment after the publisher that answers are wanted.
_PATIENCE_S = 30.0

_Publishing = Callable[[mez.Edge], AbstractContextManager[mez.Publisher]]


@pytest.fixture(params=["here", "broker"])
def publishing(request: pytest.FixtureRequest, tmp_path: Path) -> _Publishing:
    """Makes a publisher of `cam`: with the camera broker in this process, and with one in another."""

    @contextmanager
    def publisher(edge: mez.Edge) -> Iterator[mez.Publisher]:
        if request.param == "here":
            with mez.publisher("cam", edge=edge) as camera:
                yield camera
            return
        socket = tmp_path / "camera.sock"
        with camera_broker("cam", edge, socket), mez.publisher("cam", broker=f"unix://{socket}") as camera:
            yield camera

    return publisher


def _answered(
    camera: mez.Publisher, frames: mez.Subscription, answers: mez.Answers, image: object
) -> tuple[mez.Frame, mez.Answer]:
    """A frame, and the answer to it: answered until the edge knows that somebody takes answers."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        frame = deliver(camera, frames)
        frame.answer(image)
        try:
            return frame, answers.next(timeout=0.5)
        except mez.WaitTimeoutError:
            pass
    raise AssertionError(f"no answer: {answers.skipped}, {frames.answer_counts}")


def test_a_picture_comes_back_with_its_times(edge: mez.Edge, publishing: _Publishing) -> None:
    """Of another size than the frame; close to what was sent, as JPEG is."""
    made = np.zeros((40, 60, 3), np.uint8)
    made[:, :, 2] = 200
    with (
        publishing(edge) as camera,
        edge.subscribe("cam") as frames,
        camera.answers(answer_ms=20_000) as answers,
    ):
        frame, answer = _answered(camera, frames, answers, made)
        assert answer.frame == frame.id
        assert (answer.width, answer.height, answer.image.shape) == (60, 40, (40, 60, 3))
        assert np.abs(answer.image.astype(int) - made).max() < 12
        assert abs(answer.captured_ns - frame.captured_ns) < 1e9
        stages = list(answer.ms)
        assert [stage for stage in stages if stage not in ("up", "made", "sent")] == [
            "arriving",
            "arrived",
            "taken",
            "decoded",
        ]
        assert list(answer.ms.values()) == sorted(answer.ms.values())
        assert answer.age_ms == answer.ms["taken"]

        # Bytes of a JPEG go as they are.
        jpeg = picture(3)
        encoded = mez._native.encode_jpeg(jpeg, 50)
        _, answer = _answered(camera, frames, answers, encoded)
        assert answer.payload == encoded


def _corner() -> mez.Overlay:
    """An overlay of the frame's size that hides its left upper quarter and shows the rest."""
    pixels = np.zeros((48, 64, 4), np.uint8)
    pixels[:24, :32] = (10, 20, 200, 255)
    pixels[24:, 32:, :3] = 77
    return mez.Overlay(pixels)


def test_an_overlay_comes_back_and_is_drawn_over_the_frame(edge: mez.Edge) -> None:
    """Without loss; what is transparent has no colour. In far fewer bytes than the picture."""
    below = picture(5)
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam") as frames,
        camera.answers(answer_ms=20_000) as answers,
    ):
        _, answer = _answered(camera, frames, answers, _corner())
        assert (answer.kind, answer.width, answer.height) == ("overlay", 64, 48)
        assert (answer.overlay[:24, :32] == (10, 20, 200, 255)).all()
        assert not answer.overlay[24:].any()
        shown = answer.over(below)
        assert (shown[:24, :32] == (10, 20, 200)).all()
        assert (shown[24:] == below[24:]).all()
        assert (below == picture(5)).all()
        assert "decoded" in answer.ms
        with pytest.raises(mez.ImageError, match="no picture"):
            _ = answer.image
        with pytest.raises(mez.ImageError, match="no boxes"):
            _ = answer.detections

        # Half the size, half transparent: stretched over the frame.
        half = mez.Overlay(np.full((24, 32, 4), (255, 255, 255, 128), np.uint8))
        _, answer = _answered(camera, frames, answers, half)
        expected = below * (127 / 255) + 128
        assert np.abs(answer.over(below) - expected).max() <= 1
        # The bytes of a PNG go as they are.
        payload = answer.payload
        _, answer = _answered(camera, frames, answers, payload)
        assert (answer.kind, answer.payload) == ("overlay", payload)
        grey = np.ascontiguousarray(below[:, :, 0])
        assert np.abs(answer.over(grey)[:, :, 2] - (grey * (127 / 255) + 128)).max() <= 1
        with pytest.raises(mez.ImageError, match="to be uint8"):
            answer.over(below / 255)


def test_boxes_come_back_in_pixels_of_the_published_frame(edge: mez.Edge) -> None:
    """Found in a smaller picture; drawn with their names by the device."""
    below = picture(5)
    found = mez.Detections([(4.0, 4.0, 16.0, 12.0)], scores=[0.75], class_names=["cup"], size=(32, 24))
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam") as frames,
        camera.answers(answer_ms=20_000) as answers,
    ):
        _, answer = _answered(camera, frames, answers, found)
        assert (answer.kind, answer.width, answer.height) == ("boxes", 64, 48)
        assert len(answer.payload) < 200
        assert answer.detections.xyxy.tolist() == [[8.0, 8.0, 32.0, 24.0]]
        assert answer.detections.class_names == ["cup"]
        changed = (answer.over(below) != below).any(axis=2)
        assert changed[10:22, 8].all()
        assert not changed[40:].any()
        # Nothing found is an answer too.
        _, answer = _answered(camera, frames, answers, [])
        assert (answer.over(below) == below).all()


def test_an_answer_may_be_larger_than_the_largest_frame(publishing: _Publishing) -> None:
    """Answers have a limit of their own."""
    made = np.random.default_rng(7).integers(0, 256, (480, 480, 3), np.uint8)
    with (
        mez.edge(frame_bytes_max=50_000) as edge,
        publishing(edge) as camera,
        edge.subscribe("cam") as frames,
        camera.answers(answer_ms=20_000) as answers,
    ):
        jpeg = mez._native.encode_jpeg(made, 90)
        assert len(jpeg) > 100_000
        _, answer = _answered(camera, frames, answers, jpeg)
        assert answer.payload == jpeg
        assert frames.answer_counts.failed == 0


def test_answers_that_nobody_takes_in_time_are_told(edge: mez.Edge, publishing: _Publishing) -> None:
    """The newest is given, and what is given and told is what was answered."""
    made = np.full((16, 16), 128, np.uint8)
    with (
        publishing(edge) as camera,
        edge.subscribe("cam") as frames,
        camera.answers(answer_ms=20_000) as answers,
    ):
        _answered(camera, frames, answers, made)
        # Those that nobody wanted may be told after the first answer.
        deadline = time.monotonic() + _PATIENCE_S
        while frames.answer_counts.queued - 1 > sum(answers.skipped.values()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert frames.answer_counts.queued - 1 == sum(answers.skipped.values())
        for _ in range(5):
            frame = deliver(camera, frames)
            frame.answer(made)
        frame.answer(made)
        answered = frames.answer_counts.queued - 1
        given, last = 0, None
        deadline = time.monotonic() + _PATIENCE_S
        while given + sum(answers.skipped.values()) < answered and time.monotonic() < deadline:
            try:
                answer = answers.next(timeout=0.2)
            except mez.WaitTimeoutError:
                continue
            assert last is None or answer.frame > last
            given, last = given + 1, answer.frame
        assert last == frame.id
        assert given + sum(answers.skipped.values()) == answered
        assert answers.skipped.get("repeated", 0) + answers.skipped.get("replaced", 0) >= 1


def test_what_is_no_picture_is_refused(edge: mez.Edge) -> None:
    """At the call, and nothing is sent."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        frame = deliver(camera, frames)
        with pytest.raises(mez.ImageError, match="not 8-bit"):
            frame.answer(np.full((8, 8, 3), np.nan))
        with pytest.raises(mez.ImageError, match="not a whole jpeg"):
            frame.answer(b"no picture")
        with pytest.raises(mez.ArgumentTypeError, match="the image is None"):
            frame.answer(None)
        with pytest.raises(mez.ImageError, match=r"wrap boxes in mez\.Detections"):
            frame.answer(np.zeros((7, 6), np.float32))
        with pytest.raises(mez.ImageError, match="red, green, blue and alpha"):
            frame.answer(mez._native.encode_png(picture(1)))
        with pytest.raises(mez.ImageError, match=r"shape \(height, width, 4\)"):
            mez.Overlay(picture(1))
        with pytest.raises(mez.ArgumentTypeError, match="an array"):
            mez.Overlay("red")  # type: ignore[arg-type]
        with pytest.raises(mez.ArgumentError, match="box 0 is"):
            frame.answer([{"xyxy": (4.0, 4.0, 1.0, 1.0)}])
        assert frames.answer_counts.queued == 0
        for wrong in (0, -1, float("nan"), None):
            with pytest.raises(mez.ArgumentError, match="answer_ms is"):
                camera.answers(answer_ms=wrong)  # type: ignore[arg-type]


def test_answers_end_with_their_publisher(edge: mez.Edge, publishing: _Publishing) -> None:
    """Also in the middle of waiting for one."""
    ended = threading.Event()
    with publishing(edge) as camera:
        answers: Iterator[mez.Answer] = camera.answers()

        def take() -> None:
            for _ in answers:
                pass
            ended.set()

        thread = threading.Thread(target=take)
        thread.start()
        camera.close()
        assert ended.wait(30)
        thread.join(30)
        with pytest.raises(mez.EndedError):
            camera.answers()


def test_answers_are_taken_once_and_end_when_they_are_closed(edge: mez.Edge, publishing: _Publishing) -> None:
    """Also in the middle of waiting for one."""
    with publishing(edge) as camera:
        answers = camera.answers()
        with pytest.raises(mez.BusyError, match="already being received"):
            camera.answers()
        thread = threading.Thread(target=lambda: list(answers))
        thread.start()
        answers.close()
        thread.join(30)
        assert not thread.is_alive()
        with pytest.raises(mez.EndedError, match="are closed"):
            answers.next()
        camera.answers().close()


def test_answers_come_again_when_their_broker_does(edge: mez.Edge, tmp_path: Path) -> None:
    """The publisher asks again by itself."""
    made = np.full((16, 16), 128, np.uint8)
    socket = tmp_path / "camera.sock"
    with edge.subscribe("cam") as frames:
        with camera_broker("cam", edge, socket):
            camera = mez.publisher("cam", broker=f"unix://{socket}")
            answers = camera.answers(answer_ms=20_000)
            frame, answer = _answered(camera, frames, answers, made)
            assert answer.frame == frame.id
        with camera, answers, camera_broker("cam", edge, socket):
            camera.wait_connected(timeout=30)
            deadline = time.monotonic() + _PATIENCE_S
            asked, answered = set(), answer.frame
            while answered == answer.frame and time.monotonic() < deadline:
                try:
                    camera.send(picture(0))
                    frame = frames.next(timeout=0.1)
                    frame.answer(made)
                    asked.add(frame.id)
                    answered = answers.next(timeout=0.5).frame
                except mez.WaitTimeoutError:
                    pass
            assert answered in asked
            assert answered.epoch > answer.frame.epoch


def test_one_program_at_a_time_takes_the_answers_of_a_broker(edge: mez.Edge, tmp_path: Path) -> None:
    """Another one is told who does. When the first one ends, it may."""
    made = np.full((16, 16), 128, np.uint8)
    socket = tmp_path / "camera.sock"
    broker = f"unix://{socket}"
    with (
        camera_broker("cam", edge, socket),
        mez.publisher("cam", broker=broker) as camera,
        mez.publisher("cam", broker=broker) as other,
        edge.subscribe("cam") as frames,
    ):
        with camera.answers():
            with pytest.raises(mez.BusyError, match="takes the answers of camera cam already") as busy:
                other.answers()
            assert busy.value.reason == "ANSWERS_TAKEN"
        with other.answers(answer_ms=20_000) as answers:
            frame, answer = _answered(camera, frames, answers, made)
            assert answer.frame == frame.id


def test_a_derived_stream_has_no_answers(edge: mez.Edge) -> None:
    """Nobody makes pictures of its records."""
    with (
        mez.publisher("cam/boxes", of="cam", edge=edge) as stream,
        pytest.raises(mez.ArgumentError, match="derived stream") as wrong,
    ):
        stream.answers()
    assert wrong.value.field == "of"


def test_a_program_on_another_host_needs_the_right_to_reply() -> None:
    """Over gRPC. An answer does not wait for the edge, so that a later one says what is missing."""
    made = np.full((16, 16), 128, np.uint8)
    grants = {"app/**": {"watch": "dock/*", "reply": "dock/cam1"}}
    with (
        mez.edge(rights=grants) as edge,
        mez.publisher("dock/cam1", edge=edge) as camera,
        mez.publisher("dock/cam2", edge=edge) as other,
        camera.answers(answer_ms=20_000) as answers,
    ):
        with mez.subscribe("dock/cam1", edge=edge.grpc_address, keys=edge.keys) as frames:
            frame, answer = _answered(camera, frames, answers, made)
            assert answer.frame == frame.id
        with mez.subscribe("dock/cam2", edge=edge.grpc_address, keys=edge.keys) as frames:
            frame = deliver(other, frames)
            with pytest.raises(mez.PermissionDenied, match=r"mez keys grant app/\S+ reply dock/cam2"):
                for _ in range(300):
                    frame.answer(made)
                    time.sleep(0.1)
            assert frames.answer_counts.sent == 0
