"""The envelope of a record: its metadata as text, in one form for both buses.

`fields` returns the metadata. The bus `kafka` carries each field as a header of the message. The bus `mez`
has no headers: `pack` puts the fields as JSON in front of the payload, with a content type of its own.
docs/pipelines.md describes both for other languages.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from mez._frame_id import FrameId
from mez.errors import DataError
from mez.pipeline.record import HOPS_MAX, Hop, Record

ENVELOPE: Final = "application/vnd.mez.record"
"""The content type of a data record that is a record of a pipeline with its envelope."""

VERSION: Final = "1"

HEAD_BYTES_MAX: Final = 256 << 10
"""The largest head that is accepted."""

_LENGTH: Final = struct.Struct(">I")
_OWN: Final = "mez-"


def fields(record: Record) -> dict[str, str]:
    """The metadata of a record. The record's own headers keep their names."""
    told = {
        "mez-version": VERSION,
        "mez-id": record.id,
        "mez-camera": record.camera,
        "mez-frame": f"{record.frame.epoch}-{record.frame.sequence}",
        "mez-captured-ns": str(record.captured_ns),
        "content-type": record.content_type,
        "mez-hops": json.dumps([hop.plain() for hop in record.hops], separators=(",", ":")),
    }
    if record.published_size is not None:
        told["mez-published-size"] = "{}x{}".format(*record.published_size)
    return {**record.headers, **told}


def plain_fields(record: Record) -> dict[str, str]:
    """The metadata of a record without an envelope: its content type, and the frame that it was made of."""
    told = fields(record)
    return {name: told[name] for name in ("content-type", "mez-camera", "mez-frame", "mez-captured-ns")}


def opened(told: Mapping[str, str], payload: memoryview, attempt: int) -> Record:
    """The record with these fields.

    Raises:
        DataError: The fields are not those of a record, or of another version.
    """
    if told.get("mez-version") != VERSION:
        raise DataError(
            f"the record's envelope has version {told.get('mez-version')!r}, not {VERSION}; "
            "run one version of Mez on all hosts"
        )
    try:
        epoch, sequence = map(int, told["mez-frame"].split("-"))
        size = told.get("mez-published-size")
        width, height = map(int, size.split("x")) if size else (0, 0)
        hops = json.loads(told["mez-hops"])
        if not isinstance(hops, list) or len(hops) > HOPS_MAX:
            raise ValueError(f"hops is not a list of at most {HOPS_MAX} items")
        return Record(
            id=told["mez-id"],
            camera=told["mez-camera"],
            frame=FrameId(epoch, sequence),
            captured_ns=int(told["mez-captured-ns"]),
            payload=payload,
            content_type=told["content-type"],
            headers={
                name: value
                for name, value in told.items()
                if not name.startswith(_OWN) and name != "content-type"
            },
            published_size=(width, height) if size else None,
            hops=tuple(Hop.from_plain(hop) for hop in hops),
            attempt=attempt,
        )
    except (KeyError, ValueError, RecursionError) as error:
        raise DataError(
            f"the record's envelope cannot be read ({error!r}); check that a pipeline wrote it"
        ) from error


def pack(record: Record) -> bytes:
    """A record with its envelope as bytes: the head's length (4 bytes, big-endian), the head, the payload."""
    head = json.dumps(fields(record), separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(head)), head, record.payload))


def unpack(packed: memoryview, attempt: int) -> Record:
    """The record that `pack` was given. The payload is not copied.

    Raises:
        DataError: The bytes are not such a record.
    """
    try:
        (length,) = _LENGTH.unpack_from(packed)
        if length > min(HEAD_BYTES_MAX, len(packed) - _LENGTH.size):
            raise ValueError(f"the head has {length} bytes, and the record {len(packed)}")
        told: Any = json.loads(bytes(packed[_LENGTH.size : _LENGTH.size + length]))
        if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
            raise ValueError("the head is not a table of texts")
    except (struct.error, ValueError, RecursionError) as error:
        raise DataError(
            f"the record's envelope cannot be read ({error}); check that a pipeline wrote it"
        ) from error
    return opened(told, packed[_LENGTH.size + length :], attempt)
