"""The lives of frames as spans, as a receiver of OTLP has them."""

import contextlib
from collections.abc import Iterator
from itertools import pairwise

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

import mez
from tests.pipelines import until
from tests.pipelines_otlp import Receiver, receiving
from tests.support import picture


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of this test alone."""
    with receiving() as receiver:
        yield receiver


def attributes(span: Span) -> dict[str, str | int]:
    """The attributes of a span that are texts or whole numbers."""
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def services(receiver: Receiver) -> dict[str, set[str]]:
    """The names of spans, by service."""
    found: dict[str, set[str]] = {}
    for request in receiver.got:
        for resource in request.resource_spans:
            told = {each.key: each.value.string_value for each in resource.resource.attributes}
            names = {span.name for scope in resource.scope_spans for span in scope.spans}
            found.setdefault(told["service.name"], set()).update(names)
    return found


def take_traced(frames: mez.Subscription, camera: mez.Publisher, count: int) -> list[mez.Frame]:
    """Take so many frames whose ways are known: whose clocks have been compared."""
    taken: list[mez.Frame] = []
    for number in range(10_000):
        camera.send(picture(number, 64, 48))
        # The first ones may be there before the camera knows that somebody reads.
        with contextlib.suppress(mez.WaitTimeoutError):
            frame = frames.next(timeout=0.5)
            if frame.trace.ms:
                taken.append(frame)
        if len(taken) == count:
            break
    return taken


def test_a_frame_is_a_tree_of_spans(edge: mez.Edge, receiver: Receiver) -> None:
    """From the capture to the end of the work; each step begins where the one before ends."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        mez.subscribe(
            "dock/*", edge=edge, application="counter", traces=receiver.address, traced=1.0
        ) as frames,
    ):
        camera.wait_connected(timeout=30)
        frame = take_traced(frames, camera, 1)[0]
        assert frame.image.shape == (48, 64, 3)
    until(receiver.spans, lambda spans: len(spans) > 0, "they are sent when the subscription is closed")
    spans = {
        span.name: span for span in receiver.spans() if attributes_of_frame(span, receiver) == frame.sequence
    }
    root, delivery, work = spans["frame"], spans["delivery"], spans["work"]
    assert not root.parent_span_id
    assert delivery.parent_span_id == root.span_id
    steps = [spans[stage] for stage in frame.trace.ms]
    assert {step.parent_span_id for step in steps} == {root.span_id, delivery.span_id}
    assert steps[0].start_time_unix_nano == frame.captured_ns == root.start_time_unix_nano
    for before, after in pairwise(steps):
        assert after.start_time_unix_nano == before.end_time_unix_nano
    taken = spans["taken"]
    assert work.start_time_unix_nano == taken.end_time_unix_nano
    assert delivery.end_time_unix_nano == work.end_time_unix_nano >= work.start_time_unix_nano
    told = attributes(root)
    assert (told["mez.camera"], told["mez.frame"]) == ("dock/cam1", f"{frame.epoch}-{frame.sequence}")
    assert told["mez.rung"] == frame.rung
    names = services(receiver)
    assert {"frame", "published", "sent"} <= names["mez.camera"]
    assert {"arrived", "logged", "handed"} <= names["mez.edge"]
    assert {"delivery", "received", "taken", "opened", "work"} <= names["counter"]


def attributes_of_frame(span: Span, receiver: Receiver) -> int | None:
    """The number of the frame to whose trace a span belongs."""
    roots = {
        each.trace_id: attributes(each)["mez.frame"] for each in receiver.spans() if each.name == "frame"
    }
    told = roots.get(span.trace_id)
    return None if told is None else int(str(told).partition("-")[2])


def test_programs_choose_the_same_frames_and_agree_on_their_traces(
    edge: mez.Edge, receiver: Receiver
) -> None:
    """A half of them. What all have in common is the same span."""
    with (
        receiving() as other,
        mez.publisher("dock/cam1", edge=edge) as camera,
        mez.subscribe("dock/*", edge=edge, deliver="every", traces=receiver.address, traced=0.5) as frames,
        mez.subscribe("dock/*", edge=edge, deliver="every", traces=other.address, traced=0.5) as others,
    ):
        camera.wait_connected(timeout=30)
        taken = take_traced(frames, camera, 60)
        while others.next(timeout=30).sequence < taken[-1].sequence:
            pass
        frames.close()
        others.close()
        mine, theirs = (
            {span.span_id: span.trace_id for span in each.spans() if span.name == "frame"}
            for each in (receiver, other)
        )
        shared = mine.keys() & theirs.keys()
        # Clocks are compared for each of them: one may know the way of a frame more.
        assert len(shared) >= 10
        assert len(mine) < 50
        assert all(mine[span] == theirs[span] for span in shared)
        deliveries = [
            {span.span_id for span in each.spans() if span.name == "delivery"} for each in (receiver, other)
        ]
        assert deliveries[0]
        assert not deliveries[0] & deliveries[1], "each has its own"


def test_a_receiver_that_is_away_holds_up_no_frame(edge: mez.Edge, caplog: pytest.LogCaptureFixture) -> None:
    """What was dropped is told at the end."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        mez.subscribe("dock/*", edge=edge, traces="http://127.0.0.1:9", traced=1.0) as frames,
    ):
        camera.wait_connected(timeout=30)
        assert len(take_traced(frames, camera, 20)) == 20
    assert "spans were not sent to http://127.0.0.1:9" in caplog.text


@pytest.mark.parametrize(
    ("traces", "traced", "field", "says"),
    [
        ("localhost:4318", 0.01, "traces", "is not an address; give http://localhost:4318"),
        ("http://collector:4318", 0.01, "traces", "unencrypted; give https://"),
        ("https://me:guess@collector", 0.01, "traces", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://localhost:4318", 0.0, "traced", "give a share above 0, at most 1"),
        ("http://localhost:4318", float("nan"), "traced", "give a share above 0, at most 1"),
    ],
)
def test_bad_arguments_are_refused(edge: mez.Edge, traces: str, traced: float, field: str, says: str) -> None:
    """They name the argument and the remedy."""
    with pytest.raises(mez.ArgumentError, match=says) as caught:
        mez.subscribe("dock/*", edge=edge, traces=traces, traced=traced)
    assert caught.value.field == field
