"""Spans of records, as a receiver of OTLP has them that parses with the protocol's own classes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mez import _otlp
from mez._otlp import Exporter
from mez._spans import Span
from mez.pipeline import otlp
from mez.pipeline.report import reading
from mez.pipeline.spans import of_hop, of_ways
from tests.pipelines import until
from tests.pipelines_otlp import Receiver, parsed, receiving
from tests.test_pipeline_report import MS, WALL_NS, event, written


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of this test alone."""
    with receiving() as receiver:
        yield receiver


def spans_of(tmp_path: Path, *events: dict[str, Any]) -> list[Span]:
    """The spans of events."""
    return list(of_ways(reading.read(written(tmp_path / "events", *events)).ways))


def test_a_record_s_life_is_a_tree_of_spans(tmp_path: Path) -> None:
    """The way from the camera is the root; below a stage's work are its steps, and the next stage."""
    found = spans_of(tmp_path, event())
    by_id = {span.id: span for span in found}
    above = {span.name: by_id[span.parent].name if span.parent else "" for span in found}
    assert above == {
        "ingest": "",
        "fetch": "ingest",
        "detect": "ingest",
        "resized": "detect",
        "ai.detected": "detect",
        "rest": "detect",
        "queue": "detect",
        "wait": "detect",
        "identify": "detect",
        "confirm": "identify",
    }
    assert len(by_id) == len(found) == 11, "two of them are called wait"
    assert len({span.trace for span in found}) == 1
    work = next(span for span in found if span.name == "identify")
    assert (work.start_ns - WALL_NS, work.end_ns - WALL_NS) == (71 * MS, 101 * MS)
    assert work.attributes["mez.record"] == "dock/cam1@1-0/detect.0/identify.0"
    root = next(span for span in found if span.name == "ingest")
    assert root.attributes["mez.error_ms_max"] == 2.0


def test_workers_agree_on_spans_and_frames_have_traces_of_their_own(tmp_path: Path) -> None:
    """Each stage alone gives what the whole way gives. A frame's faces share its trace, and its root."""
    first, second, other = event(0), event(0, face=1), event(1)
    ways = reading.read(written(tmp_path / "apart", first, second, other)).ways
    together = {span.id for span in of_ways(ways)}
    apart = [span for way in ways for place in (1, 2) for span in of_hop(way, place)]
    assert {span.id for span in apart} == together
    assert len({span.trace for span in of_ways(ways)}) == 2
    roots = [span for span in of_ways(ways) if not span.parent]
    assert len(roots) == 2
    elsewhere = {**first, "captured_ns": first["captured_ns"] + 1}
    assert spans_of(tmp_path / ".." / tmp_path.name, elsewhere)[0].trace not in {span.trace for span in apart}


def test_a_file_of_spans_is_otlp(tmp_path: Path) -> None:
    """Each line is a message of the protocol, which says who made what."""
    found = spans_of(tmp_path, *(event(number) for number in range(100)))
    assert otlp.write(found, tmp_path / "spans.jsonl") == len(found) == 1100
    lines = (tmp_path / "spans.jsonl").read_bytes().splitlines()
    assert len(lines) == 3
    messages = [parsed(line) for line in lines]
    got = [
        (span.trace_id.hex(), span.span_id.hex(), span.name, span.start_time_unix_nano)
        for message in messages
        for resource in message.resource_spans
        for span in resource.scope_spans[0].spans
    ]
    assert sorted(got) == sorted((span.trace, span.id, span.name, span.start_ns) for span in found)
    resources = {
        tuple((each.key, each.value.string_value) for each in resource.resource.attributes)
        for message in messages
        for resource in message.resource_spans
    }
    assert (
        ("service.name", "faces.detect"),
        ("service.instance.id", "detect-0@host"),
        ("host.name", "host"),
    ) in resources


def test_spans_reach_a_receiver(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that asks for patience; headers are those of the environment."""
    monkeypatch.setenv(_otlp.HEADERS, "x-tenant=dock%20one,empty")
    receiver.answers = [503, 200]
    found = spans_of(tmp_path, event(0), event(1))
    exporter = Exporter(receiver.address)
    exporter.put(found)
    until(lambda: exporter.sent, lambda sent: sent == len(found), "all are sent")
    exporter.close()
    assert sorted(span.span_id.hex() for span in receiver.spans()) == sorted(span.id for span in found)
    assert receiver.headers[0]["x-tenant"] == "dock one"
    assert (exporter.dropped, receiver.requests) == (0, 2)


def test_spans_that_cannot_be_sent_are_counted_and_hold_up_nobody(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """A receiver that refuses is not asked again; of one that is away nobody waits for long."""
    found = spans_of(tmp_path, event(0))
    receiver.answers = [400]
    exporter = Exporter(receiver.address)
    exporter.put(found)
    exporter.close()
    assert (exporter.sent, exporter.dropped, receiver.requests) == (0, len(found), 1)
    away = Exporter("http://127.0.0.1:9")
    away.put(found * 1000)
    assert away.dropped == len(found) * 1000 - _otlp.QUEUE_MAX
    away.close()
    assert away.dropped == len(found) * 1000
    assert "11000 spans were not sent to http://127.0.0.1:9" in caplog.text
