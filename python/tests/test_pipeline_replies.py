"""Stages answer the camera: `Record.reply`, from any stage, on both buses."""

from pathlib import Path

import numpy as np
import pytest

import mez
from mez.pipeline import record as records
from mez.pipeline.replies import Replies
from tests.pipeline_runs import Running
from tests.pipelines import made, until
from tests.pipelines_kafka import Kafka
from tests.support import picture

# On a busy machine Kafka, and a handful of interpreters, take their time to start.
pytestmark = pytest.mark.timeout(300)

STAGES = '''
from pathlib import Path


def detect(record):
    record.reply({"stage": "detect", "frame": record.frame.sequence})
    return record.picture(record.image[:8, :8])


def name(record, folder):
    """Fails the first time, after it has replied."""
    record.reply([(1, 2, 3, 4, 0.5, "Ann")])
    once = Path(folder) / f"once-{record.frame.sequence}"
    if not once.exists():
        once.touch()
        raise ValueError("not this time")
    made = record.derive({"name": "Ann"})
    made.reply("the frame of this record is the same")
    return made
'''


@pytest.fixture(params=["mez", "kafka"])
def running(request: pytest.FixtureRequest, tmp_path: Path, edge: mez.Edge) -> Running:
    """A pipeline on either bus."""
    kafka: Kafka | None = request.getfixturevalue("kafka") if request.param == "kafka" else None
    found = Running(tmp_path, edge.socket, kafka)
    (tmp_path / "stages.py").write_text(STAGES)
    bus = "mez" if kafka is None else "kafka"
    found.write(
        f"""
[stage.detect]
run = "stages.py:detect"
cameras = "dock/*"
bus = "{bus}"

[stage.name]
run = "stages.py:name"
after = "detect"
bus = "{bus}"
options.folder = "{tmp_path}"
"""
    )
    return found


def test_every_stage_may_answer_the_camera(running: Running, edge: mez.Edge) -> None:
    """In the pixels of its frame. A try that fails has answered nothing.

    Replies of one stage come in order; those of two may overtake each other.
    """
    with mez.publisher("dock/cam1", edge=edge) as camera, running.run():
        camera.wait_connected(timeout=30)
        for number in range(2):
            frame = camera.send(picture(number, 64, 48))
            replies = [camera.next_reply(timeout=60) for _ in range(3)]
            assert {reply.frame for reply in replies} == {frame}
            of_detect = [reply for reply in replies if reply.application == f"{running.name}.detect-0"]
            assert [reply.json() for reply in of_detect] == [{"stage": "detect", "frame": number}]
            second, third = (reply for reply in replies if reply not in of_detect)
            assert second.detections is not None
            assert second.detections.size == (64, 48)
            assert second.detections.xyxy.tolist() == [[1, 2, 3, 4]]
            assert second.detections.class_names == ["Ann"]
            assert third.json() == "the frame of this record is the same"
        with pytest.raises(mez.WaitTimeoutError):
            camera.next_reply(timeout=0.5)


def test_replies_have_to_be_what_cameras_understand() -> None:
    """The stage that made them hears of it."""
    record = made(1)
    records.begin(record)
    with pytest.raises(mez.ArgumentTypeError, match="cannot be written as JSON"):
        record.reply({1, 2})
    with pytest.raises(mez.ArgumentError, match="give left, top, right and bottom"):
        record.reply(np.array([[4.0, 2.0, 3.0, 4.0]]))
    record.published_size = None
    with pytest.raises(mez.ArgumentError, match="the size of dock/cam1's frame is unknown; send bytes"):
        record.reply([(1, 2, 3, 4)])
    record.reply(b"opaque")
    assert [reply.payload for reply in records.replies(record)] == [b"opaque"]
    records.begin(record)
    assert list(records.replies(record)) == []


def test_an_edge_that_is_away_costs_replies_and_no_time(tmp_path: Path) -> None:
    """It is not dialled for each."""
    record = made(1)
    record.reply("nobody hears this")
    replies = Replies([f"unix://{tmp_path}/none"], None, "faces.name-0")
    for lost in (1, 2, 3):
        replies.send(record, records.replies(record))
        assert replies.lost == lost
    replies.close()


def test_a_stage_without_the_right_to_reply_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Its log says which grant is missing."""
    with (
        mez.edge(rights={"app/**": {"watch": "dock/*"}}) as edge,
        mez.publisher("dock/cam1", edge=edge) as camera,
    ):
        camera.wait_connected(timeout=30)
        frame = camera.send(picture(0))
        assert frame is not None
        record = made(frame.sequence)
        record.reply("nobody hears this")
        assert edge.grpc_address is not None
        replies = Replies([edge.grpc_address], edge.keys, "faces.name-0")

        def lost() -> int:
            replies.send(record, records.replies(record))
            return replies.lost

        # A reply does not wait for the edge: the refusal is told by a later one.
        until(lost, lambda count: count > 0, "it is refused")
        replies.close()
    assert "may not reply to dock/cam1" in caplog.text
    assert "mez keys grant" in caplog.text
