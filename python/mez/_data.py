"""Converts payloads of data records to bytes and back: JSON, text, arrays, tables. Never pickles."""

import importlib
import io
import json
import math
import re
from typing import Any, Final, NamedTuple

from mez._arguments import invalid, wrong_type
from mez._frame_id import FrameId
from mez.errors import DataError, MissingPackageError

BYTES: Final = "application/octet-stream"
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
ARRAY: Final = "application/x-npy"
TABLE: Final = "application/vnd.apache.arrow.stream"


class Origin(NamedTuple):
    """The frame or record that a data record was made of.

    Attributes:
        camera: The stream that it is in: a camera or a derived stream.
        id: Its identity in that stream.
        captured_ns: When it was captured, in nanoseconds since 1970-01-01 UTC.
    """

    camera: str
    id: FrameId
    captured_ns: int


def pack(payload: object, content_type: str | None) -> tuple[bytes, str]:
    """The bytes of a payload, and their content type."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), content_type or BYTES
    if (
        isinstance(payload, str)
        and content_type is not None
        and _charset(content_type) not in ("utf-8", "us-ascii")
    ):
        raise invalid(
            "content_type", f"content_type is {content_type!r}, but text is sent as UTF-8; give bytes"
        )
    kind, packed = _packed(payload)
    if content_type is not None and _kind(content_type) != _kind(kind):
        name = type(payload).__name__
        raise invalid(
            "content_type",
            f"content_type is {content_type!r}, but a payload of type {name} is sent as {kind}; give bytes",
        )
    return packed, content_type or kind


def unpack(payload: memoryview, content_type: str | None) -> Any:  # noqa: ANN401, what was published
    """The payload that `pack` was given. Bytes if the content type is unknown.

    Raises:
        DataError: The bytes are not what their content type says.
        MissingPackageError: It is a table, and pyarrow is not installed.
    """
    kind = _kind(content_type or BYTES)
    try:
        if kind == JSON:
            return json.loads(bytes(payload))
        if kind == "text":
            return str(payload, _charset(content_type or TEXT))
        if kind == ARRAY:
            return _array(payload)
        if kind == TABLE:
            return _table(payload)
    # LookupError: a charset that nobody knows. OSError and NotImplementedError: what pyarrow raises.
    except (
        ValueError,
        EOFError,
        RecursionError,
        OSError,
        OverflowError,
        LookupError,
        NotImplementedError,
    ) as error:
        raise DataError(
            f"the record has the content type {content_type}, but cannot be decoded as such ({error}); "
            "frame.payload has its bytes"
        ) from error
    return bytes(payload)


def essence(content_type: str | None) -> str:
    """Return the content type of this module that fits; else the type without parameters, in lower case."""
    kind = _kind(content_type or BYTES)
    return TEXT if kind == "text" else kind


def _charset(content_type: str) -> str:
    found = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", content_type, re.IGNORECASE)
    return found[1].lower() if found else "utf-8"


def _kind(content_type: str) -> str:
    essence = content_type.split(";")[0].strip().lower()
    if essence.startswith("text/"):
        return "text"
    return JSON if essence.endswith("+json") else essence


def _packed(payload: object) -> tuple[str, bytes]:
    module = type(payload).__module__.split(".")[0]
    if isinstance(payload, str):
        return TEXT, payload.encode()
    if module == "pyarrow":
        return TABLE, _table_bytes(payload)
    if module == "numpy":
        return ARRAY, _array_bytes(payload)
    try:
        return JSON, json.dumps(payload, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        name = type(payload).__name__
        raise wrong_type(
            "payload",
            f"payload has the type {name} and cannot be written as JSON ({error}); give bytes with a "
            "content_type, text, plain values, a NumPy array or a pyarrow table",
        ) from error


def _array_bytes(payload: object) -> bytes:
    import numpy as np

    array = np.asarray(payload)
    if array.dtype.hasobject:
        raise wrong_type(
            "payload", f"payload is an array of Python objects ({array.dtype}); give numbers, or send JSON"
        )
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue()


def _array(payload: memoryview) -> Any:  # noqa: ANN401, NumPy may be loaded late
    """The array, without a copy and read-only. Its shape must fit the number of bytes."""
    import numpy as np

    file = io.BytesIO(payload)
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, by_columns, dtype = np.lib.format.read_array_header_2_0(file)
    except Exception as error:  # NumPy's parser lets out what tokenize and literal_eval raise.
        raise ValueError(f"the header of the array is invalid: {error}") from error
    if dtype.hasobject:
        raise ValueError("an array of Python objects is not read")
    rest = payload[file.tell() :]
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != len(rest):
        raise ValueError(f"{len(rest)} bytes for an array of shape {shape} and type {dtype}")
    return np.ndarray(shape, dtype, rest, order="F" if by_columns else "C")


def _table_bytes(payload: Any) -> bytes:  # noqa: ANN401, pyarrow may not be there
    arrow = importlib.import_module("pyarrow")
    if not isinstance(payload, arrow.Table | arrow.RecordBatch):
        name = type(payload).__name__
        raise wrong_type("payload", f"payload is a {name} of pyarrow; give a Table or a RecordBatch")
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, payload.schema) as writer:
        writer.write(payload)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _table(payload: memoryview) -> Any:  # noqa: ANN401, pyarrow may not be there
    try:
        arrow: Any = importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingPackageError(
            "frame.data of a table needs the package pyarrow (pip install pyarrow); "
            "frame.payload has its bytes"
        ) from error
    version = tuple(int(part) for part in re.findall(r"\d+", arrow.__version__)[:3])
    if version < (14, 0, 1):
        raise MissingPackageError(
            "frame.data of a table needs pyarrow 14.0.1 or later, because earlier versions may run code from "
            "the table (pip install -U pyarrow); frame.payload has its bytes"
        )
    with arrow.ipc.open_stream(arrow.py_buffer(payload)) as reader:
        return reader.read_all()
