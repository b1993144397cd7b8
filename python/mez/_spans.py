"""Spans of OpenTelemetry, and their identities.

The identities are hashes of those of frames and records, so that independent programs compute the same ones.
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
        trace: The identity of its trace: 32 hexadecimal digits.
        id: Its identity: 16 hexadecimal digits.
        parent: The identity of its parent span. Empty: it has none.
        service: The service that did it: `faces.detect` of a pipeline, `mez.edge` of a frame.
        worker: The process of this service. Empty if it is unknown.
        name: Its name.
        kind: `INTERNAL`, `PRODUCER` or `CONSUMER`.
        start_ns: Its start, in nanoseconds since 1970 by the wall clock of the host that stamped it.
        end_ns: Its end, never before its start.
        attributes: Its attributes.
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
    """A hash of the parts, of `size` bytes, in hexadecimal digits."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=size).hexdigest()
