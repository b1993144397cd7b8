"""Converts the ways of records to spans of OpenTelemetry: a trace for each frame of a camera.

The identities of traces and spans are computed from the record's identity. So independent workers compute the
same ones, a record that is processed twice has the same spans twice, and spans of a file can be joined with
spans that were sent.

The parent of a stage's spans is the work of the previous stage; for the first stage, it is the way from the
camera (`ingest`), which is the root. Waiting and work are siblings. Steps of a function are children of work.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mez import _spans
from mez._spans import CONSUMER, INTERNAL, PRODUCER, Span, Value, hashed
from mez.pipeline.record import CAMERA, Hop, Record
from mez.pipeline.report.reading import Way
from mez.pipeline.report.steps import Kind, Step, steps

_KINDS: Final = {
    "queue": PRODUCER,
    "send": PRODUCER,
    "confirm": PRODUCER,
    "wait": CONSUMER,
    "fetch": CONSUMER,
}


def trace_of(way: Way) -> str:
    """The trace of a camera's frame."""
    return _spans.trace_of(way.root, way.captured_ns)


def of_ways(ways: Iterable[Way], ai: Sequence[str] = ()) -> Iterator[Span]:
    """The spans of whole ways. A span that several records share is given once."""
    known: set[str] = set()
    for way in ways:
        for place in range(1, len(way.hops)):
            for span in of_hop(way, place, ai):
                if span.id not in known:
                    known.add(span.id)
                    yield span


def of_hop(way: Way, place: int, ai: Sequence[str] = ()) -> list[Span]:
    """The spans of one stage, and of the way from the previous one. For the first stage, with the root."""
    here = [step for step in steps(way, ai) if step.hop == place]
    if not here:
        return []
    is_first = way.hops[place - 1].stage == CAMERA
    before = _id(way, place - 1, "ingest" if is_first else "work")
    spans = [
        _span(way, step, before if step.name != "ingest" else "")
        for step in here
        if step.kind in (Kind.WAITING, Kind.INGESTION)
    ]
    worked = [step for step in here if step.kind not in (Kind.WAITING, Kind.INGESTION)]
    if worked:
        whole = _work(way, place, worked, before)
        spans.append(whole)
        # A function without marks has one step, which is all of it.
        if len(worked) > 1:
            spans += [_span(way, step, whole.id) for step in worked]
    return spans


def way_of(record: Record, pipeline: str, hops: tuple[Hop, ...]) -> Way:
    """A record that a stage has worked on, as a way."""
    frame = f"{record.frame.epoch}-{record.frame.sequence}"
    return Way(pipeline, record.id, record.camera, frame, record.captured_ns, hops)


def _work(way: Way, place: int, worked: Sequence[Step], parent: str) -> Span:
    hop = way.hops[place]
    attributes: dict[str, Value] = {
        "mez.record": way.identity(place),
        "mez.camera": way.camera,
        "mez.frame": way.frame,
        "mez.attempt": hop.attempt,
        "mez.payload_bytes": hop.size,
    }
    start_ns, end_ns = worked[0].start_ns, worked[-1].end_ns
    return Span(
        trace_of(way),
        _id(way, place, "work"),
        parent,
        f"{way.pipeline}.{hop.stage}",
        hop.worker,
        hop.stage,
        CONSUMER,
        start_ns,
        max(start_ns, end_ns),
        attributes,
    )


def _span(way: Way, step: Step, parent: str) -> Span:
    hop = way.hops[step.hop]
    attributes: dict[str, Value] = {"mez.kind": step.kind.value}
    if step.error_ns is None:
        attributes["mez.clock"] = "wall clocks; their error is not known"
    elif step.error_ns:
        attributes["mez.error_ms_max"] = step.error_ns / 1e6
    own = step.hop - 1 if step.name == "ingest" else step.hop
    identity = _id(way, own, step.name)
    if step.name == "confirm":
        parent = _id(way, step.hop, "work")
    return Span(
        trace_of(way),
        identity,
        parent,
        f"{way.pipeline}.{hop.stage}",
        hop.worker,
        step.name,
        _KINDS.get(step.name, INTERNAL),
        step.start_ns,
        # With two clocks, the later event may have the earlier stamp.
        max(step.start_ns, step.end_ns),
        attributes,
    )


def _id(way: Way, place: int, name: str) -> str:
    return hashed(8, way.root, str(way.captured_ns), way.identity(place), name)
