"""Whether the source of a camera gives frames: who is told, and cameras that are forgotten."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import mez
from tests.support import camera_broker, deliver, picture


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    for _ in range(1000):
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError(what)


def publish(camera: mez.Publisher, frames: int = 10) -> None:
    """Publish 50 frames a second for a moment, so that the source has a rate of its own."""
    for number in range(frames):
        camera.send(picture(number))
        time.sleep(0.02)


def source_of(edge: mez.Edge) -> mez.Source | None:
    """What the edge knows of its only camera's source."""
    (camera,) = edge.cameras()
    return camera.source


def test_who_waits_for_a_publisher_that_stalls_is_told(edge: mez.Edge) -> None:
    """It is no silent wait, and no missed latency; frames make it live again."""
    events: list[mez.Event] = []
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", latency_ms=10_000, on_event=events.append) as frames,
    ):
        deliver(camera, frames)
        publish(camera)
        until(lambda: source_of(edge) is not None, "it publishes")
        until(lambda: getattr(source_of(edge), "state", "") == "stalled", "it stalls")
        with pytest.raises(
            mez.WaitTimeoutError, match="cam: the camera's source has stalled: no frames any more"
        ):
            while True:
                frames.next(timeout=0.5)
        assert frames.sources["cam"].state == "stalled"
        assert frames.contracts["cam"].state == "source_lost"
        (event,) = [event for event in events if event.kind == "source"]
        assert event.camera == "cam"
        assert event.source is not None
        assert event.source.lasts_s is not None
        assert event.source.lasts_s > 0.2

        publish(camera)
        frames.next(timeout=10)
        until(lambda: getattr(source_of(edge), "state", "") == "live", "it is back")
        while frames.sources:
            camera.send(picture(1))
            frames.next(timeout=10)
        assert not [event for event in events if event.state == "latency_miss"]


@pytest.mark.parametrize("separate", [False, True])
def test_a_publisher_that_closes_has_ended(edge: mez.Edge, tmp_path: Path, separate: bool) -> None:
    """In a process of its own or in this one: whoever waits reads why there is nothing."""
    socket = tmp_path / "camera.sock"
    with edge.subscribe("cam") as frames:
        if separate:
            with camera_broker("cam", edge, socket):
                with mez.publisher("cam", broker=f"unix://{socket}") as camera:
                    deliver(camera, frames)
                until(lambda: getattr(source_of(edge), "state", "") == "ended", "it ends")
                with pytest.raises(mez.WaitTimeoutError, match="the camera's source has ended"):
                    frames.next(timeout=0.5)
                assert edge.cameras()[0].connected, "the broker is still there"
            # It is killed. That is no state of its source.
            until(lambda: not edge.cameras()[0].connected, "it is absent")
        else:
            with mez.publisher("cam", edge=edge) as camera:
                deliver(camera, frames)
            until(lambda: not edge.cameras()[0].connected, "it is absent")
        ended = source_of(edge)
        assert ended is not None
        assert (ended.state, ended.reason, ended.retry_in_s) == ("ended", "", None)
        with pytest.raises(mez.WaitTimeoutError, match="no matching camera is connected"):
            frames.next(timeout=0.5)


def test_a_camera_is_forgotten(edge: mez.Edge) -> None:
    """If it is not connected; and what is subscribed to everything goes on."""
    with edge.subscribe("**", latency_ms=1000) as frames:
        with mez.publisher("cam", edge=edge) as camera:
            deliver(camera, frames)
            with pytest.raises(mez.BrokerError, match="camera cam is connected") as refused:
                edge.forget_camera("cam")
            assert refused.value.reason == "CAMERA_CONNECTED"
        until(lambda: not edge.cameras()[0].connected, "it is absent")
        assert mez.forget_camera("cam", edge=edge) is None
        assert edge.cameras() == []
        with pytest.raises(mez.NotFoundError):
            edge.forget_camera("cam")
        with mez.publisher("cam", edge=edge) as camera:
            assert deliver(camera, frames).epoch == 2


def test_an_edge_forgets_by_itself() -> None:
    """After as long as it was told."""
    with mez.edge(forget_after=0.2) as edge:
        with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
            deliver(camera, frames)
        until(lambda: edge.cameras() == [], "it is forgotten")


def test_a_source_that_ended_begins_anew(edge: mez.Edge) -> None:
    """What an absent camera said last is nothing to who comes later, and is over when frames come."""
    with edge.subscribe("cam") as frames, mez.publisher("cam", edge=edge) as camera:
        deliver(camera, frames)
    until(lambda: not edge.cameras()[0].connected, "it is absent")
    with edge.subscribe("cam", latency_ms=10_000) as frames:
        with pytest.raises(mez.WaitTimeoutError, match="no matching camera is connected"):
            frames.next(timeout=0.2)
        assert frames.sources == {}
        with mez.publisher("cam", edge=edge) as camera:
            deliver(camera, frames)
            assert frames.sources == {}
            assert frames.contracts["cam"].state in ("ok", "unverified")
