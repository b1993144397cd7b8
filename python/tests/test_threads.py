"""Other Python threads run while Mez encodes, decodes and waits."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import cv2
import numpy as np
import pytest

import mez
from mez import _native
from tests.support import deliver, number_of, picture, profile_of, video


@contextmanager
def no_switching() -> Iterator[None]:
    """A thread keeps the interpreter until it gives it up by itself."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def _large() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(5).integers(0, 256, (1080, 1920, 3), np.uint8)


def _encodes(_: mez.Edge) -> Callable[[], object]:
    image = _large()
    return lambda: _native.encode_jpeg(image, 95)


def _decodes(_: mez.Edge) -> Callable[[], object]:
    jpeg, image = _native.encode_jpeg(_large(), 95), np.empty((1080, 1920, 3), np.uint8)
    return lambda: _native.decode_into("jpeg", jpeg, image)


def _decodes_png(_: mez.Edge) -> Callable[[], object]:
    png, image = cv2.imencode(".png", _large())[1], np.empty((1080, 1920, 3), np.uint8)
    return lambda: _native.decode_into("png", png.tobytes(), image)


def _shows_video(edge: mez.Edge) -> Callable[[], object]:
    contract = {"accuracy": 0.9, "latency_ms": 5000, "profile": profile_of(1920, 1080, rung="h264/q24")}
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", **contract) as frames:
        frame = next(video(camera, frames, 1920, 1080))
    shown, image = frame._picture, np.empty((1080, 1920, 3), np.uint8)
    assert shown is not None
    return lambda: shown.show_into(image)


def _sends(edge: mez.Edge) -> Callable[[], object]:
    image, camera = _large(), mez.publisher("cam", edge=edge)
    return lambda: camera.send(image)


def _waits(edge: mez.Edge) -> Callable[[], object]:
    frames = edge.subscribe("cam")

    def wait() -> None:
        with pytest.raises(mez.WaitTimeoutError):
            frames.next(timeout=0.02)

    return wait


@pytest.mark.parametrize("prepare", [_encodes, _decodes, _decodes_png, _shows_video, _sends, _waits])
def test_other_threads_run_meanwhile(
    edge: mez.Edge, prepare: Callable[[mez.Edge], Callable[[], object]]
) -> None:
    """With switching turned off, another thread counts only where these calls give the interpreter up.

    It gives it back after every step, so that the calls can go on.
    """
    work = prepare(edge)
    work()
    counted = 0
    ready, go = threading.Event(), threading.Event()

    def count() -> None:
        nonlocal counted
        ready.set()
        go.wait()
        for _ in range(1000):
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    ready.wait()
    with no_switching():
        go.set()
        for _ in range(20):
            work()
        # Nothing between the calls gave the interpreter up.
        seen = counted
    thread.join()
    assert seen > 0


def test_many_threads_publish_and_subscribe_at_once(edge: mez.Edge) -> None:
    """Each frame gets its own number, and nothing is lost in between."""
    numbers: list[mez.FrameId | None] = []
    with mez.publisher("cam", edge=edge) as camera:

        def send() -> None:
            for number in range(25):
                numbers.append(camera.send(picture(number)))

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(number.sequence for number in numbers if number) == list(range(100))
        assert camera.published == 100


def test_threads_look_at_the_same_frame_of_video(edge: mez.Edge) -> None:
    """Whoever is first lets go of the decoded picture; the others have their pixels all the same."""
    contract = {"accuracy": 0.9, "latency_ms": 5000, "profile": profile_of(64, 48, rung="h264/q24")}
    failures: list[Exception] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", **contract) as frames:
            for _, frame in zip(range(50), video(camera, frames), strict=False):
                together = threading.Barrier(8)

                def look(frame: mez.Frame = frame, together: threading.Barrier = together) -> None:
                    together.wait()
                    try:
                        assert abs(number_of(frame.image) - frame.sequence % 90) <= 1
                    except Exception as failure:
                        failures.append(failure)

                threads = [threading.Thread(target=look) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures, failures


def test_two_threads_cannot_share_a_subscription(edge: mez.Edge) -> None:
    """Each would take the other's frames; the second is told so, and the first goes on."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        deliver(camera, frames)
        got: list[mez.Frame] = []
        thread = threading.Thread(target=lambda: got.append(frames.next(timeout=30)))
        thread.start()
        time.sleep(0.2)
        with pytest.raises(mez.Error, match="another thread is waiting"):
            frames.next()
        camera.send(picture(1))
        thread.join()
        assert len(got) == 1
