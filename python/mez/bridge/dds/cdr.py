"""The encoding of samples (CDR version 1, as ROS 2 uses it), by tables of fields. Pure.

A sample is a header of four bytes and the fields in order. A number of N bytes is aligned to N, counted from
the end of the header. A text is its length with the final zero (32 bits), its bytes, and the zero. A sequence
is its length (32 bits) and its items. The last two bits of the header are the number of padding bytes after
the last field.

Samples are encoded little-endian. The library converts big-endian samples before they come here.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from mez.bridge.dds.errors import EncodingError

HEADER: Final = b"\x00\x01\x00\x00"
"""The header of plain CDR version 1, little-endian, without padding."""

TEXT_BYTES_MAX: Final = 4096
"""The longest text that is read, in bytes."""

BLOB_COPY_MAX: Final = 1024
"""Blobs of at most this many octets are copied. Larger ones become parts of their own."""

Number: TypeAlias = Literal["u8", "i32", "u32", "i64", "u64", "f64"]
Value: TypeAlias = Mapping[str, Any]
Part: TypeAlias = bytes | bytearray | memoryview

NUMBERS: Final[dict[str, tuple[str, int]]] = {
    "u8": ("<B", 1),
    "i32": ("<i", 4),
    "u32": ("<I", 4),
    "i64": ("<q", 8),
    "u64": ("<Q", 8),
    "f64": ("<d", 8),
}
"""For each number: its `struct` format, and its size in bytes."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array of fixed length.

    Attributes:
        of: The kind of the numbers.
        count: Their number.
    """

    of: Number
    count: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A type with fields.

    Attributes:
        name: Its name in ROS 2, such as `sensor_msgs/msg/Image`. For a type that is not of ROS 2: its name in
            DDS, such as `mez::Frame`.
        fields: Name and kind of each field, in order.
        key: The field that is the key of instances in a topic. Empty: there is no key.
    """

    name: str
    fields: "tuple[tuple[str, Kind], ...]"
    key: str = ""


@dataclass(frozen=True, slots=True)
class Sequence:
    """Any number of structures.

    Attributes:
        of: Their type.
        count_max: More are refused.
    """

    of: Struct
    count_max: int


Kind: TypeAlias = Number | Literal["text", "blob"] | Array | Sequence | Struct
"""A number; a text in UTF-8; a blob: a sequence of octets; or a type composed of these."""


def encode(kind: Struct, value: Value) -> list[Part]:
    """A sample, as consecutive parts. Long blobs are parts of their own, without a copy.

    Args:
        kind: Its type.
        value: A value for each field, by name. A sequence has a list.

    Raises:
        EncodingError: A value is missing, or does not fit.
    """
    made = _Made()
    _put(made, kind, value, "")
    return made.finish()


def decode(kind: Struct, sample: Part) -> dict[str, Any]:
    """The fields of a sample. Blobs are views into it, without a copy.

    Memory for a length is only allocated if the sample has that many bytes.

    Args:
        kind: Its type.
        sample: All of it, with its header.

    Raises:
        EncodingError: It is not a sample of this type.
    """
    view = memoryview(sample).toreadonly().cast("B")
    if len(view) < len(HEADER):
        raise EncodingError("", f"has {len(view)} bytes; a sample has a header of {len(HEADER)}")
    if view[:2] != HEADER[:2]:
        raise EncodingError("", f"is encoded as 0x{bytes(view[:2]).hex()}; only plain CDR (0x0001) is read")
    padding = view[3] & 3
    if len(view) < len(HEADER) + padding:
        raise EncodingError("", "ends within its padding")
    given = _Given(view[len(HEADER) : len(view) - padding])
    value: dict[str, Any] = _get(given, kind, "")
    # Some writers pad to four bytes without stating the number of padding bytes.
    if given.left > 3:
        raise EncodingError("", f"has {given.left} bytes after its last field")
    return value


def least_bytes(kind: Kind) -> int:
    """The fewest bytes that a value can have, without padding."""
    if isinstance(kind, Struct):
        return sum(least_bytes(of) for _, of in kind.fields)
    if isinstance(kind, Array):
        return kind.count * NUMBERS[kind.of][1]
    if isinstance(kind, Sequence) or kind == "blob":
        return 4
    return 5 if kind == "text" else NUMBERS[kind][1]


class _Made:
    """A sample that is being encoded."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._tail = bytearray(HEADER)
        # Bytes of the parts before the tail, without the header.
        self._before = -len(HEADER)

    def number(self, kind: Number, value: float) -> None:
        layout, size = NUMBERS[kind]
        self._tail += bytes(-self._size % size) + struct.pack(layout, value)

    def bytes(self, value: Part) -> None:
        if len(value) <= BLOB_COPY_MAX:
            self._tail += value
            return
        self._parts += [self._tail, value]
        self._before += len(self._tail) + len(value)
        self._tail = bytearray()

    def finish(self) -> list[Part]:
        padding = -self._size % 4
        self._tail += bytes(padding)
        parts = [*self._parts, self._tail] if self._tail else self._parts
        head = parts[0]
        assert isinstance(head, bytearray), "the first part begins with the header"
        head[3] = padding
        return parts

    @property
    def _size(self) -> int:
        return self._before + len(self._tail)


def _put(made: _Made, kind: Kind, value: Any, field: str) -> None:  # noqa: ANN401, by its kind
    try:
        if isinstance(kind, Struct):
            for name, of in kind.fields:
                _put(made, of, value[name], f"{field}.{name}" if field else name)
        elif isinstance(kind, Sequence):
            if len(value) > kind.count_max:
                raise EncodingError(field, f"has {len(value)} items; the limit is {kind.count_max}")
            made.number("u32", len(value))
            for at, item in enumerate(value):
                _put(made, kind.of, item, f"{field}[{at}]")
        elif isinstance(kind, Array):
            if len(value) != kind.count:
                raise EncodingError(field, f"has {len(value)} numbers; it needs {kind.count}")
            for number in value:
                made.number(kind.of, number)
        elif kind == "text":
            text = str.encode(value)
            if b"\0" in text:
                raise EncodingError(field, "contains a zero byte, which would end the text")
            made.number("u32", len(text) + 1)
            made.bytes(text + b"\0")
        elif kind == "blob":
            octets = value if isinstance(value, bytes) else memoryview(value).cast("B")
            made.number("u32", len(octets))
            made.bytes(octets)
        else:
            made.number(kind, value)
    except KeyError as error:
        raise EncodingError(field, f"{error.args[0]} is missing") from error
    except (struct.error, TypeError, UnicodeEncodeError) as error:
        raise EncodingError(field, f"{value!r:.60} does not fit: {error}") from error


class _Given:
    """A sample that is being decoded."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return len(self._view) - self._at

    def number(self, kind: Number, field: str) -> Any:  # noqa: ANN401, by its kind
        layout, size = NUMBERS[kind]
        self._at += -self._at % size
        return struct.unpack(layout, self.bytes(size, field))[0]

    def bytes(self, count: int, field: str) -> memoryview:
        if count > self.left:
            raise EncodingError(field, f"needs {count} bytes, but the sample has {max(0, self.left)} more")
        self._at += count
        return self._view[self._at - count : self._at]


def _get(given: _Given, kind: Kind, field: str) -> Any:  # noqa: ANN401, by its kind
    if isinstance(kind, Struct):
        return {name: _get(given, of, f"{field}.{name}" if field else name) for name, of in kind.fields}
    if isinstance(kind, Sequence):
        return _items(given, kind, field)
    if isinstance(kind, Array):
        return [given.number(kind.of, field) for _ in range(kind.count)]
    if kind == "text":
        return _text(given, field)
    if kind == "blob":
        return given.bytes(given.number("u32", field), field)
    return given.number(kind, field)


def _items(given: _Given, kind: Sequence, field: str) -> list[Any]:
    count = given.number("u32", field)
    if count > kind.count_max:
        raise EncodingError(field, f"has {count} items; the limit is {kind.count_max}")
    if count * least_bytes(kind.of) > given.left:
        raise EncodingError(field, f"has {count} items, but the sample only {given.left} more bytes")
    return [_get(given, kind.of, f"{field}[{at}]") for at in range(count)]


def _text(given: _Given, field: str) -> str:
    count = given.number("u32", field)
    if not 1 <= count <= TEXT_BYTES_MAX:
        raise EncodingError(field, f"is a text of {count} bytes; 1 to {TEXT_BYTES_MAX} are allowed")
    text = bytes(given.bytes(count, field))
    if text.find(b"\0") != count - 1:
        raise EncodingError(field, "is a text that does not end with its only zero byte")
    try:
        return text[:-1].decode()
    except UnicodeDecodeError as error:
        raise EncodingError(field, f"is not a text in UTF-8: {error}") from error
