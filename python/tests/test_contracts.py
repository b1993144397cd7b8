"""What an application asks for, what comes of it, and what it is told."""

import contextlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import mez
from tests.support import picture, profile_of


def until(camera: mez.Publisher, frames: mez.Subscription, found: Callable[[mez.Frame], bool]) -> mez.Frame:
    """Publish until a frame comes that is looked for."""
    camera.wait_connected(timeout=30)
    for number in range(400):
        camera.send(picture(number % 100))
        try:
            frame = frames.next(timeout=0.05)
        except mez.WaitTimeoutError:
            continue
        if found(frame):
            return frame
        # Clients report five times a second when frames were taken.
        time.sleep(0.01)
    raise AssertionError(f"it never came; {frames.contracts}")


def test_a_profile_says_what_frames_may_be_reduced_to(edge: mez.Edge) -> None:
    """The camera fetches it, makes frames by it, and they say what it expects of them."""
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", latency_ms=1000, accuracy=0.92, profile=profile_of(64, 48)) as frames,
    ):
        frame = until(camera, frames, lambda frame: frame.rung == "jpeg/w32/q44/420")
        assert (frame.expected_accuracy, frame.infeasible, frame.width) == (0.93, False, 32)
        assert frame.contract.expected_accuracy == 0.93
        until(camera, frames, lambda frame: frame.contract.state == "ok")
        (standing,) = edge.cameras()[0].contracts
        assert standing.contract.state in ("ok", "unverified")

        frames.update(accuracy=None, profile=None)
        assert until(camera, frames, lambda frame: frame.rung == "original").expected_accuracy == 1.0


def test_profiles_are_named_at_the_edge_and_refused_where_they_serve_nobody(tmp_path: Path) -> None:
    """By its file's name, with or without the ending; what is no profile is refused with the reason."""
    (tmp_path / "people.json").write_text(json.dumps(profile_of(64, 48)))
    with (
        mez.edge(profiles=tmp_path) as edge,
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", accuracy=0.92, profile="people") as frames,
    ):
        until(camera, frames, lambda frame: frame.expected_accuracy == 0.93)
        with pytest.raises(mez.ArgumentError, match='no profile "faces" in'):
            edge.subscribe("cam", accuracy=0.9, profile="faces")
        with pytest.raises(mez.ArgumentError, match="this is not a profile: missing field"):
            edge.subscribe("cam", accuracy=0.9, profile={"rungs": []})


def test_who_skips_is_told_that_the_contract_is_infeasible(edge: mez.Edge) -> None:
    """Frames come and are left out: to ask whether the camera publishes would mislead."""
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe(
            "cam", accuracy=0.9999, profile=profile_of(64, 48), on_infeasible="skip", latency_ms=1000
        ) as frames,
    ):
        camera.wait_connected(timeout=30)
        said = ""
        for number in range(400):
            camera.send(picture(number % 100))
            try:
                frames.next(timeout=0.05)
            except mez.WaitTimeoutError as error:
                said = str(error)
                if "infeasible" in said:
                    break
        assert 'on_infeasible="skip" leaves such frames out; cam: no rung of the profile keeps' in said


def test_what_cannot_be_kept_is_told_as_an_event(edge: mez.Edge) -> None:
    """A floor that no setting keeps: frames are marked, and the event says why."""
    events: list[mez.Event] = []
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", accuracy=0.95, profile=profile_of(64, 48), on_event=events.append) as frames,
    ):
        until(camera, frames, lambda frame: frame.infeasible and frame.contract.state == "infeasible")
        until(camera, frames, lambda _: any(event.state == "infeasible" for event in events))
        told = next(event for event in events if event.state == "infeasible")
        assert (told.kind, told.camera) == ("contract", "cam")
        assert told.reason == "no rung of the profile keeps the floor 0.95; the best keeps 0.930"
        assert frames.contracts["cam"].state == "infeasible"


def test_what_an_application_measures_counts(edge: mez.Edge) -> None:
    """Below the floor on average, the state says that the profile does not fit."""
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", accuracy=0.92, profile=profile_of(64, 48)) as frames,
    ):
        frame = until(camera, frames, lambda frame: frame.contract.state == "ok")
        frames.report_accuracy(frame, 0.4)
        missed = until(camera, frames, lambda frame: frame.contract.state == "accuracy_miss")
        assert missed.contract.reason.startswith("measured accuracy 0.400 is below the floor 0.92")
        for _ in range(20):
            frames.report_accuracy("cam", 1.0)
        until(camera, frames, lambda frame: frame.contract.state == "ok")
        with pytest.raises(mez.ArgumentError, match="from 0 to 1") as refused:
            frames.report_accuracy(frame, 1.5)
        assert refused.value.field == "accuracy"
    with pytest.raises(mez.EndedError):
        frames.report_accuracy(frame, 1.0)


def test_a_program_that_takes_frames_late_is_told_so(edge: mez.Edge) -> None:
    """The contract ends in its hands: frames that waited for it longer than the bound are not on time."""
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", latency_ms=300, on_time_share=0.6) as frames,
    ):
        camera.wait_connected(timeout=30)
        for number in range(60):
            camera.send(picture(number))
            time.sleep(0.6)
            # The first ones may be sent before the subscription has reached the camera.
            with contextlib.suppress(mez.WaitTimeoutError):
                frame = frames.next(timeout=0.2)
                if frame.contract.state == "application_late":
                    break
        assert re.search("for (it|the application)|has taken no frame", frame.contract.reason)
        until(camera, frames, lambda frame: frame.contract.state == "ok")


def test_a_subscription_that_wants_all_or_nothing_ends(edge: mez.Edge) -> None:
    """Nothing below the floor comes, and the error says what stood against it."""
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", accuracy=0.95, profile=profile_of(64, 48), on_infeasible="stop") as frames,
        pytest.raises(mez.InfeasibleError, match="the best keeps 0"),
    ):
        until(camera, frames, lambda frame: frame.infeasible)


def test_a_running_subscription_refuses_what_makes_no_sense(edge: mez.Edge) -> None:
    """And goes on as it was."""
    with edge.subscribe("cam", accuracy=0.9) as frames:
        with pytest.raises(mez.ArgumentError) as refused:
            frames.update(accuracy=1.5)
        assert refused.value.field == "accuracy"
        frames.update(accuracy=0.8, latency_ms=100)
    with pytest.raises(mez.EndedError):
        frames.update(accuracy=0.7)
