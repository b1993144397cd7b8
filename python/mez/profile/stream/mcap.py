"""Reads the data records of an MCAP file, as `mez store export` writes them: without compression."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mez.profile.errors import RecordError

MAGIC: Final = b"\x89MCAP0\r\n"

_CHANNEL: Final = 0x04
_MESSAGE: Final = 0x05
_CHUNK: Final = 0x06
_DATA: Final = "/data"


class Message(NamedTuple):
    """A data record.

    Attributes:
        topic: The topic of its stream.
        content_type: The type of its bytes.
        at_ns: When it was captured, in nanoseconds since 1970-01-01 UTC.
        payload: Its bytes.
    """

    topic: str
    content_type: str
    at_ns: int
    payload: bytes


def messages(path: Path) -> list[Message]:
    """Return the data records of a file, in the order of their time.

    Raises:
        RecordError: It is not an MCAP file, is cut off, is compressed, or has no data record.
    """
    content = path.read_bytes()
    if not content.startswith(MAGIC):
        raise RecordError(f"{path} is not an MCAP file; make one with: mez store export CAMERA FILE.mcap")
    try:
        found = list(_messages(memoryview(content)[len(MAGIC) :], {}, path))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} is damaged or cut off ({error}); export it again") from error
    if not found:
        raise RecordError(f"{path} holds no data records; export a stream of send_data()")
    return sorted(found, key=lambda message: message.at_ns)


def _messages(content: memoryview, channels: dict[int, tuple[str, str]], path: Path) -> Iterator[Message]:
    while len(content) >= 9:
        kind, size = struct.unpack_from("<BQ", content)
        body, content = content[9 : 9 + size], content[9 + size :]
        if len(body) < size:
            raise struct.error(f"a record of {size} bytes has {len(body)}")
        if kind == _CHANNEL:
            number, _ = struct.unpack_from("<HH", body)
            topic, rest = _text(body[4:])
            _, rest = _text(rest)
            channels[number] = (topic, _map(rest).get("content_type", ""))
        elif kind == _CHUNK:
            compression, rest = _text(body[28:])
            if compression:
                raise RecordError(f"{path} is compressed ({compression}); export it with mez store export")
            (records,) = struct.unpack_from("<Q", rest)
            yield from _messages(rest[8 : 8 + records], channels, path)
        elif kind == _MESSAGE:
            number, _, _, at_ns = struct.unpack_from("<HIQQ", body)
            topic, content_type = channels.get(number, ("", ""))
            if topic.endswith(_DATA) and content_type:
                yield Message(topic.removesuffix(_DATA), content_type, at_ns, bytes(body[22:]))


def _text(content: memoryview) -> tuple[str, memoryview]:
    (size,) = struct.unpack_from("<I", content)
    return str(content[4 : 4 + size], "utf-8"), content[4 + size :]


def _map(content: memoryview) -> dict[str, str]:
    (size,) = struct.unpack_from("<I", content)
    content, found = content[4 : 4 + size], {}
    while len(content):
        key, content = _text(content)
        found[key], content = _text(content)
    return found
