"""Results of applications on their way back to the camera."""

import threading
import time

import numpy as np
import pytest

import mez
from tests.support import deliver, picture


def test_a_reply_comes_back_by_frame(edge: mez.Edge) -> None:
    """With the application's name; NumPy's arrays and numbers are plain values by then."""
    subscription = mez.subscribe("cam", edge=edge, application="people", deliver="every")
    with mez.publisher("cam", edge=edge) as camera, subscription as frames:
        frame = deliver(camera, frames)
        frame.reply(b"\x00raw")
        assert camera.next_reply(timeout=30) == mez.Reply(frame.id, "people", b"\x00raw")

        boxes = [{"box": np.array([1, 2, 3, 4]), "score": np.float32(0.5), "label": "person"}]
        frame_id = camera.send(picture(1))
        frames.next(timeout=30).reply(boxes)
        reply = camera.next_reply(timeout=30)
        assert reply.frame == frame_id
        assert reply.json() == [{"box": [1, 2, 3, 4], "score": 0.5, "label": "person"}]
        # The edge's answer to the application and the reply itself take different ways.
        deadline = time.monotonic() + 30
        while frames.reply_counts.sent < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert frames.reply_counts == mez.ReplyCounts(queued=2, sent=2, dropped=0, failed=0)


def test_replies_are_iterated_until_the_publisher_is_closed(edge: mez.Edge) -> None:
    """A thread takes them while another publishes."""
    taken: list[object] = []
    came = threading.Event()
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:

        def take() -> None:
            for reply in camera.replies():
                taken.append(reply.json())
                came.set()

        thread = threading.Thread(target=take)
        thread.start()
        deliver(camera, frames).reply({"n": 1})
        assert came.wait(30)
        camera.close()
        thread.join(30)
        assert not thread.is_alive()
    assert taken == [{"n": 1}]
    with pytest.raises(mez.EndedError, match="publisher of camera cam is closed"):
        camera.next_reply()


def test_replies_that_are_on_their_way_survive_the_end_of_the_application(edge: mez.Edge) -> None:
    """An application that replies to the last frame and ends has replied."""
    with mez.publisher("cam", edge=edge) as camera:
        with edge.subscribe("cam") as frames:
            frame = deliver(camera, frames)
            for number in range(20):
                frame.reply(number)
        assert [camera.next_reply(timeout=30).json() for _ in range(20)] == list(range(20))


def test_what_cannot_be_a_reply_is_refused(edge: mez.Edge) -> None:
    """At the call, by name, and nothing is lost."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        frame = deliver(camera, frames)
        with pytest.raises(mez.ReplyTooLargeError, match="65537 bytes, more than the limit of 65536"):
            frame.reply(bytes(65537))
        with pytest.raises(mez.ArgumentTypeError, match="cannot be written as JSON") as refused:
            frame.reply({"when": object()})
        assert refused.value.field == "result"
        with pytest.raises(mez.WaitTimeoutError, match=r"no reply for camera cam within 0\.05 s"):
            camera.next_reply(timeout=0.05)
        frame.reply(bytes(65536))
        assert len(camera.next_reply(timeout=30).payload) == 65536


def test_replies_without_a_camera_are_counted(edge: mez.Edge) -> None:
    """They are lost, not queued."""
    with edge.subscribe("cam") as frames:
        with mez.publisher("cam", edge=edge) as camera:
            frame = deliver(camera, frames)
        while edge.cameras("cam")[0].connected:
            pass
        frame.reply([])
        while frames.reply_counts.failed == 0:
            pass
        assert frames.reply_counts.sent == 0
