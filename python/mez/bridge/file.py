"""Reads and checks the file of a bridge: which streams of the edge go into which topics."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mez.bridge.notes import WantedNotes
from mez.pipeline import kafka_table, keys
from mez.pipeline.errors import FileError
from mez.pipeline.kafka_table import KafkaSettings
from mez.pipeline.keys import Key

STREAMS_MAX: Final = 15
"""The most streams of a bridge: each is a group at the edge, and an identity has 16."""

PAGE: Final = "docs/bridge.md"

_BRIDGE: Final = (
    Key("name", "text", "The bridge's name: small letters, digits, _ and -; at most 31. Bridges that share "
        "topics have different names", needed=True),
    Key("drain_s", "number", "How long Ctrl-C waits for confirmations of what is under way, in seconds", 10.0,
        low=0, high=3600),
    Key("unconfirmed_max", "whole", "The most records of a stream that Kafka has not confirmed", 256, low=2,
        high=10_000),
    Key("unconfirmed_mib_max", "whole", "The most MiB of a stream that Kafka has not confirmed", 64, low=1,
        high=4096),
    Key("events", "text", "The topic for events: of contracts and sources (notes), and of the bridge itself",
        "mez.events"),
    Key("dead", "text", "The topic for what Kafka refuses for good, without its payload", "mez.dead"),
)  # fmt: skip
_NOTES: Final = (
    Key("cameras", "text", "The cameras whose results and events are copied: dock/*. The edge has to have "
        "logs on disk (--store)", needed=True),
    Key("results", "text", "The topic for results: the replies of applications", "mez.results"),
)  # fmt: skip
CONTRACT: Final = (
    Key("latency_ms", "number", "The latency bound, as in mez.subscribe", low=1, high=1e6),
    Key("accuracy", "number", "The accuracy floor, as in mez.subscribe", low=0, high=1),
    Key("profile", "text", "The profile of the detector, as in mez.subscribe"),
)
"""The keys of a stream that make its contract."""

_STREAM: Final = (
    Key("cameras", "text", "The cameras or derived streams: dock/*, dock/*/faces", needed=True),
    Key("topic", "text", "The topic. Default: mez. and the stream's name"),
    Key("deliver", "text", "every: each frame that crosses the link, at least once. newest: the newest of "
        "each camera; what Kafka is too slow for is skipped", "every", choices=("every", "newest")),
    *CONTRACT,
)  # fmt: skip

_TABLES: Final = {"bridge": _BRIDGE, "mez": keys.MEZ, "kafka": kafka_table.KEYS, "notes": _NOTES}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}")


@dataclass(frozen=True, slots=True)
class Stream:
    """A table `stream.NAME`.

    Attributes:
        name: Its name.
        cameras: The cameras or derived streams.
        topic: The topic.
        is_every: Every frame that crosses the link, instead of the newest.
        contract: The arguments of `mez.subscribe` that make its contract.
    """

    name: str
    cameras: str
    topic: str
    is_every: bool
    contract: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Notes:
    """The table `notes`.

    Attributes:
        cameras: The cameras whose results and events are copied.
        results: The topic for results.
    """

    cameras: str
    results: str


@dataclass(frozen=True, slots=True)
class Bridge:
    """A checked file of a bridge.

    Attributes:
        path: The file. Paths in it are relative to its folder.
        name: The bridge's name.
        drain_s: How long the end waits for confirmations, in seconds.
        unconfirmed_max: The most records of a stream that are not confirmed.
        unconfirmed_bytes_max: The most bytes of a stream that are not confirmed.
        events: The topic for events.
        dead: The topic for records that Kafka refuses permanently.
        edge: The edges; empty: the defaults.
        keys: The folder of keys.
        kafka: The cluster.
        notes: The cameras whose results and events are copied. `None`: none.
        streams: The streams by name.
    """

    path: Path
    name: str
    drain_s: float
    unconfirmed_max: int
    unconfirmed_bytes_max: int
    events: str
    dead: str
    edge: tuple[str, ...]
    keys: Path | None
    kafka: KafkaSettings
    notes: Notes | None
    streams: Mapping[str, Stream]

    @property
    def topics(self) -> list[str]:
        """All its topics."""
        results = [self.notes.results] if self.notes else []
        of_streams = [stream.topic for stream in self.streams.values()]
        return list(dict.fromkeys([*of_streams, *results, self.events, self.dead]))

    def group(self, stream: str) -> str:
        """The name of a stream's group at the edge."""
        return f"bridge.{self.name}.{stream}"

    def wanted_notes(self) -> WantedNotes:
        """The notes to copy. The file must have a table `notes`."""
        assert self.notes is not None, "the caller looked"
        return WantedNotes("notes", self.notes.cameras, self.edge, self.keys, f"bridge {self.name}")


def read(path: Path) -> Bridge:
    """Read a bridge's file and check all of it.

    Raises:
        FileError: It cannot be read, or has faults. The message has a line for each fault.
    """
    told = keys.table(path, PAGE)
    faults: list[tuple[str, str]] = []
    bridge = _bridge(path.resolve(), told, faults)
    if bridge is None:
        raise FileError(path, faults)
    return bridge


def schema() -> str:
    """The JSON schema of files of bridges."""
    told = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Bridges of Mez",
        "type": "object",
        "additionalProperties": False,
        "required": ["bridge", "kafka"],
        "properties": {
            **{name: keys.schema(of) for name, of in _TABLES.items()},
            "stream": {
                "type": "object",
                "description": "The streams by name",
                "additionalProperties": keys.schema(_STREAM),
            },
        },
    }
    return json.dumps(told, indent=2, sort_keys=True) + "\n"


def _bridge(path: Path, told: dict[str, Any], faults: list[tuple[str, str]]) -> Bridge | None:
    for name in told.keys() - {*_TABLES, "stream"}:
        faults.append((name, f"unknown table; the tables are {', '.join(_TABLES)} and stream.NAME"))
    own = keys.read(told.get("bridge", {}), _BRIDGE, "bridge", faults)
    edge = keys.read(told.get("mez", {}), keys.MEZ, "mez", faults)
    check_name("bridge.name", own["name"], faults)
    streams = _streams(told.get("stream", {}), path.parent, faults)
    notes = _notes(told["notes"], faults) if "notes" in told else None
    if not streams and notes is None and not faults:
        faults.append(("stream", "there is nothing to copy; give a table [stream.NAME], or [notes]"))
    for field in ("events", "dead"):
        _check_topic(f"bridge.{field}", own[field], faults)
    kafka = None
    if "kafka" in told:
        kafka = kafka_table.read(told["kafka"], path.parent, faults)
    else:
        faults.append(("kafka", "is missing; give [kafka] with servers"))
    if faults or kafka is None:
        return None
    return Bridge(
        path=path,
        name=own["name"],
        drain_s=float(own["drain_s"]),
        unconfirmed_max=own["unconfirmed_max"],
        unconfirmed_bytes_max=own["unconfirmed_mib_max"] << 20,
        events=own["events"],
        dead=own["dead"],
        edge=keys.several(edge["edge"]),
        keys=keys.path(path.parent, edge["keys"]),
        kafka=kafka,
        notes=notes,
        streams=streams,
    )


def _streams(tables: object, folder: Path, faults: list[tuple[str, str]]) -> dict[str, Stream]:
    if not isinstance(tables, dict):
        faults.append(("stream", f"is {tables!r}; give tables [stream.NAME]"))
        return {}
    if len(tables) > STREAMS_MAX:
        faults.append(
            (
                "stream",
                f"there are {len(tables)} streams; give at most {STREAMS_MAX}, and the rest to another "
                "bridge with another identity",
            )
        )
        return {}
    return {name: _stream(name, table, folder, faults) for name, table in tables.items()}


def _stream(name: str, table: object, folder: Path, faults: list[tuple[str, str]]) -> Stream:
    place = f"stream.{name}"
    check_name(place, name, faults)
    of = keys.read(table, _STREAM, place, faults)
    topic = of["topic"] or f"mez.{name}"
    _check_topic(f"{place}.topic", topic, faults)
    return Stream(name, of["cameras"], topic, of["deliver"] == "every", contract(of, CONTRACT, folder))


def contract(of: Mapping[str, Any], terms: Sequence[Key], folder: Path) -> dict[str, Any]:
    """The arguments of `mez.subscribe` in a table.

    Args:
        of: The table's values.
        terms: The keys that are terms of a contract.
        folder: The file's folder, to which the path of a profile is relative.
    """
    told = {key.name: of[key.name] for key in terms if of[key.name] is not None}
    if "/" in told.get("profile", ""):
        told["profile"] = str(keys.path(folder, told["profile"]))
    return told


def _notes(table: object, faults: list[tuple[str, str]]) -> Notes:
    of = keys.read(table, _NOTES, "notes", faults)
    _check_topic("notes.results", of["results"], faults)
    return Notes(of["cameras"], of["results"])


def check_name(field: str, name: object, faults: list[tuple[str, str]]) -> None:
    """Check the name of a bridge or a stream."""
    _check(field, name, _NAME, "small letters, digits, _ and -, at most 31", faults)


def _check_topic(field: str, topic: object, faults: list[tuple[str, str]]) -> None:
    _check(field, topic, _TOPIC, "letters, digits, ., _ and -, at most 249, as topics of Kafka", faults)


def _check(
    field: str, name: object, shape: "re.Pattern[str]", give: str, faults: list[tuple[str, str]]
) -> None:
    if isinstance(name, str) and not shape.fullmatch(name):
        faults.append((field, f"{name!r} is not a valid name; give {give}"))
