"""How a worker waits until what it has published is on the edge's disk."""

import logging

import pytest

import mez
from mez.pipeline.errors import BusAwayError, BusRefusedError
from mez.pipeline.mez_bus import MezWriter
from mez.pipeline.record import Record
from tests.pipelines import made


class Stream:
    """A derived stream at an edge that answers as it is told."""

    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.asked: list[int] = []
        self.answers: dict[int, str] = {}
        self.every: str | None = None
        self.ended: mez.Error | None = None
        self.opened = self.closed = 0

    def send_data(self, payload: bytes, **_: object) -> mez.FrameId:
        """Publish."""
        self.published.append(bytes(payload))
        return mez.FrameId(1, len(self.published) - 1)

    def wait_on_disk(self, frame: mez.FrameId) -> None:
        """Answer."""
        self.asked.append(frame.sequence)
        if self.ended is not None:
            raise self.ended
        reason = self.every or self.answers.get(frame.sequence)
        if reason is not None:
            error = mez.NotOnDiskError("it is not")
            error.reason, error.frame = reason, frame
            raise error

    def close(self) -> None:
        """Close it."""
        self.closed += 1


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The stream of every camera."""
    stream = Stream()

    def opened(*_: object, **__: object) -> Stream:
        stream.opened += 1
        return stream

    monkeypatch.setattr(mez, "publisher", opened)
    return stream


def three() -> tuple[list[Record], list[bytes]]:
    """Records of one camera, and what is published of them."""
    records = [made(number) for number in range(3)]
    return records, [bytes(record.payload) for record in records]


def test_what_an_edge_lost_is_published_again_in_its_order(stream: Stream) -> None:
    """By the next send, which comes after a pause. What is on disk is not published twice."""
    writer = MezWriter("detect", None, None, plain=True, on_disk=True)
    records, payloads = three()
    stream.answers = {1: "RECORD_LOST", 2: "RECORD_LOST"}
    with pytest.raises(BusAwayError, match="lost records"):
        writer.send(records)
    assert stream.published == payloads
    writer.send(records)
    assert stream.published == [*payloads, *payloads[1:]]
    assert sorted(set(stream.asked)) == [0, 1, 2, 3, 4]


def test_an_edge_without_a_store_is_told_once_and_asked_again(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream may go on at another edge, whose store loses nothing that is confirmed."""
    writer = MezWriter("detect", None, None, plain=True, on_disk=True)
    records, _ = three()
    stream.every = "NO_STORE"
    with caplog.at_level(logging.INFO, "mez.pipeline.mez_bus"):
        writer.send(records[:1])
        writer.send(records[1:2])
    assert len([said for said in caplog.records if "in memory" in said.getMessage()]) == 1
    stream.every = "LOG_DEGRADED"
    with pytest.raises(BusAwayError):
        writer.send(records[2:])


def test_a_stream_that_the_edge_has_ended_is_opened_anew(stream: Stream) -> None:
    """A right may be taken away while a record waits for the disk, and given back."""
    writer = MezWriter("detect", None, None, plain=True, on_disk=True)
    records, payloads = three()
    stream.ended = mez.PermissionDenied("app/a may not publish")
    for tries in (1, 2):
        with pytest.raises(BusRefusedError, match="may not publish"):
            writer.send(records[:1])
        assert (stream.opened, stream.closed) == (tries, tries)
    stream.ended = None
    writer.send(records[:1])
    assert stream.published == payloads[:1]
