"""Reads recorded streams of data records.

| recording | what it is |
| --- | --- |
| a folder | a file for each record, in the order of their names: `.json`, `.npy`, `.arrow`, `.txt`, `.bin` |
| `FILE.jsonl` | a JSON record in each line |
| `FILE.mcap` | a file that `mez store export CAMERA FILE.mcap` writes |
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mez import _data
from mez.errors import DataError
from mez.profile.errors import RecordError
from mez.profile.stream import mcap

CONTENT_TYPES: Final = {
    ".json": _data.JSON,
    ".npy": _data.ARRAY,
    ".arrow": _data.TABLE,
    ".txt": _data.TEXT,
    ".bin": _data.BYTES,
}
"""The content types of a folder's files, by suffix."""

RECORDS_MAX: Final = 100_000
"""The most records of a recording that are read."""

READS: Final = "a folder of .json, .npy, .arrow, .txt or .bin files, FILE.jsonl or FILE.mcap"


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was published.

    Attributes:
        name: For errors: the file, and the line or the number in it.
        payload: Its bytes.
        content_type: Their type.
    """

    name: str
    payload: bytes
    content_type: str

    def value(self) -> Any:  # noqa: ANN401, what was published
        """Return the value that the application gets.

        Raises:
            RecordError: The bytes do not fit the content type.
        """
        return decoded(self.payload, self)


@dataclass(frozen=True, slots=True)
class Stream:
    """A recorded stream.

    Attributes:
        name: The name of its file or folder.
        sha256: Digest of all its records.
        records: The records, in order of time.
    """

    name: str
    sha256: str
    records: Sequence[Record]


def decoded(payload: bytes, record: Record) -> Any:  # noqa: ANN401, what was published
    """Return the value of a degraded record's bytes.

    Raises:
        RecordError: They do not fit the record's content type.
    """
    try:
        return _data.unpack(memoryview(payload), record.content_type)
    except DataError as error:
        raise RecordError(f"{record.name} cannot be read: {error}") from error


def load(path: Path) -> Stream:
    """Read a recording.

    Raises:
        RecordError: It does not exist, or contains no records that can be read.
    """
    if path.is_dir():
        records = _folder(path)
    elif not path.is_file():
        raise RecordError(f"there is no recording {path}; give {READS}")
    elif path.suffix == ".jsonl":
        records = _lines(path)
    elif path.suffix == ".mcap":
        records = _exported(path)
    else:
        raise RecordError(f"{path} is not a recording of data records; give {READS}")
    digest = hashlib.sha256()
    for record in records:
        digest.update(f"{record.content_type} {len(record.payload)}\n".encode())
        digest.update(record.payload)
        if not record.payload:
            raise RecordError(f"{record.name} is empty; a record has at least one byte")
    return Stream(path.name, digest.hexdigest(), records)


def _folder(path: Path) -> list[Record]:
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    known = [file for file in files if file.suffix in CONTENT_TYPES]
    if not known:
        raise RecordError(f"the folder {path} holds no records; give {READS}")
    if other := next((file for file in files if file.suffix not in CONTENT_TYPES), None):
        raise RecordError(
            f"{other} is not a record: names end in {', '.join(CONTENT_TYPES)}; move other files away"
        )
    _check_count(len(known), path)
    return [Record(str(file), file.read_bytes(), CONTENT_TYPES[file.suffix]) for file in known]


def _lines(path: Path) -> list[Record]:
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    if not lines:
        raise RecordError(f"{path} is empty; it should have a record of JSON in each line")
    _check_count(len(lines), path)
    return [Record(f"{path} line {at}", line, _data.JSON) for at, line in enumerate(lines, 1)]


def _exported(path: Path) -> list[Record]:
    found = mcap.messages(path)
    topics = sorted({message.topic for message in found})
    if len(topics) > 1:
        raise RecordError(f"{path} has the records of {', '.join(topics)}; export one stream to a file")
    _check_count(len(found), path)
    return [
        Record(f"{path} record {at}", message.payload, message.content_type)
        for at, message in enumerate(found, 1)
    ]


def _check_count(count: int, path: Path) -> None:
    if count > RECORDS_MAX:
        raise RecordError(f"{path} has {count} records, more than {RECORDS_MAX}; give a part of it")
