"""What a span of OpenTelemetry is here, and how its identities are made.

They are made of those of frames and records. So programs that know nothing of each other agree on them.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

INTERNAL: Final = 1
PRODUCER: Final = 4
CONSUMER: Final = 5
"""Kinds of spans, by their numbers in the protocol."""

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """A span.

    Attributes:
        trace: Its trace: 32 hexadecimal digits, as the identities below 16.
        id: Its identity.
        parent: That of the span above it; empty: none.
        service: The service that did it: `faces.detect` of a pipeline, `mez.edge` of a frame.
        worker: Which of its processes; empty: nobody knows.
        name: What it is.
        kind: `INTERNAL`, `PRODUCER` or `CONSUMER`.
        start_ns: Its start, in nanoseconds since 1970 by the wall clock of the host that stamped it.
        end_ns: Its end, never before its start.
        attributes: What is to be known about it.
    """

    trace: str
    id: str
    parent: str
    service: str
    worker: str
    name: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)


def trace_of(root: str, captured_ns: int) -> str:
    """The trace of a camera's frame. The capture time tells apart cameras of one name at several sites.

    Args:
        root: The frame's identity: `CAMERA@EPOCH-SEQUENCE`.
        captured_ns: When it was captured, in nanoseconds since 1970-01-01 UTC.
    """
    return hashed(16, root, str(captured_ns))


def hashed(size: int, *parts: str) -> str:
    """So many bytes that stand for these parts, in hexadecimal digits."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=size).hexdigest()
