"""Reads and checks pipeline files: stages, their workers, and their buses."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mez._otlp import fault_of
from mez.pipeline import kafka_table, keys, shipped
from mez.pipeline.bus import Cameras, Made
from mez.pipeline.errors import FileError
from mez.pipeline.kafka_table import KafkaSettings
from mez.pipeline.keys import Key
from mez.pipeline.record import CAMERA, HOPS_MAX

BUSES: Final = ("mez", "kafka")
WORKERS_MAX: Final = 256
STAGES_MAX: Final = HOPS_MAX - 1

_PIPELINE: Final = (
    Key("name", "text", "The pipeline's name: small letters, digits, _ and -; at most 31", needed=True),
    Key(
        "base",
        "text",
        "A pipeline that comes with Mez, whose keys count where this file gives none: faces, objects",
    ),
    Key("bus", "text", "The bus on which stages put what they make", "mez", choices=BUSES),
    Key(
        "drain_s", "number", "How long Ctrl-C waits for what is under way, in seconds", 10.0, low=0, high=3600
    ),
    Key("events", "text", "A folder for the ways of records that leave the pipeline, a line of JSON each"),
    Key(
        "otlp",
        "text",
        "Where the ways of records go as OpenTelemetry traces, over HTTP: http://localhost:4318",
    ),
)
_MEZ: Final = (
    *keys.MEZ,
    Key(
        "confirmed",
        "text",
        "When a record is confirmed: on the edge's disk, if the edge has a store, or in its memory",
        "disk",
        choices=("disk", "memory"),
    ),
)
_STAGE: Final = (
    Key("run", "text", "The function or class: FILE.py:NAME, or MODULE:NAME. Without it a program of your "
        "own does this stage"),
    Key("cameras", "text", "The cameras whose frames it takes: dock/*"),
    Key("after", "text", "The stage whose records it takes"),
    Key("workers", "whole", "Processes on this host", 1, low=1, high=WORKERS_MAX),
    Key("bus", "text", "The bus for what it makes. Default: that of the pipeline", choices=BUSES),
    Key("plain", "switch", "Put payload and content type alone on the bus, for programs that know "
        "nothing of pipelines", False),
    Key("deliver", "text", "every: each frame at least once. newest: the newest of each camera, once",
        "every", choices=("every", "newest")),
    Key("ordered", "switch", "Work on the records of a camera one after the other", False),
    Key("tries", "whole", "How often a record is given before it is a dead letter", 5, low=1, high=100),
    Key("again_after_s", "number", "How long a worker may work on a record, in seconds. Then it counts as "
        "hung, and is started again", 30.0, low=1, high=3600),
    Key("memory_mib_max", "whole", "Memory of a worker in MiB, above which it is started again", low=16,
        high=1 << 24),
    Key("latency_ms", "number", "Of cameras: the latency bound, as in mez.subscribe", low=1, high=1e6),
    Key("accuracy", "number", "Of cameras: the accuracy floor, as in mez.subscribe", low=0, high=1),
    Key("profile", "text", "Of cameras: the profile of the detector, as in mez.subscribe"),
    Key("options", "table", "Arguments for the function or class, by name"),
)  # fmt: skip

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")
_OF_CAMERAS: Final = ("latency_ms", "accuracy", "profile")


@dataclass(frozen=True, slots=True)
class Stage:
    """A table `stage.NAME`.

    Attributes:
        name: Its name.
        run: The function or class that its workers run. `None`: another program does its work.
        source: The cameras or the stage that it reads.
        reads_on: The bus that it reads from.
        bus: The bus that it writes to.
        workers: Processes on this host.
        plain: Whether its records go without their envelope.
        ordered: Whether a camera's records are worked on one after the other.
        tries: How often a record is given.
        again_after_s: How long a worker may work on a record, in seconds.
        memory_mib_max: Memory above which a worker is started again, in MiB.
        options: Arguments for the function or class.
    """

    name: str
    run: str | None
    source: Cameras | Made
    reads_on: str
    bus: str
    workers: int
    plain: bool
    ordered: bool
    tries: int
    again_after_s: float
    memory_mib_max: int | None
    options: Mapping[str, Any]

    @property
    def after(self) -> str | None:
        """The stage whose records it takes; `None`: it takes frames of cameras."""
        return self.source.stage if isinstance(self.source, Made) else None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked pipeline file.

    Attributes:
        path: The file. Paths in it are relative to its folder.
        name: The pipeline's name.
        drain_s: How long the end waits for records that are under way, in seconds.
        events: The folder for events.
        otlp: The receiver of traces: its address without `/v1/traces`.
        edge: The edges of the bus `mez`; empty: its defaults.
        keys: The folder of keys.
        on_disk: Whether the bus `mez` confirms records when they are on the edge's disk, if it has a store.
        kafka: The bus `kafka`, if a stage uses it.
        stages: The stages by name, each after the stage that it reads.
    """

    path: Path
    name: str
    drain_s: float
    events: Path | None
    otlp: str | None
    edge: tuple[str, ...]
    keys: Path | None
    on_disk: bool
    kafka: KafkaSettings | None
    stages: Mapping[str, Stage]

    def readers(self, stage: str) -> list[str]:
        """The stages that read the records of a stage."""
        return [name for name, other in self.stages.items() if other.after == stage]


def read(path: Path) -> Pipeline:
    """Read a pipeline file and check all of it.

    Raises:
        FileError: It cannot be read, or has faults. The message has a line for each fault.
    """
    told = keys.table(path, "docs/pipelines.md")
    faults: list[tuple[str, str]] = []
    told = _on_base(told, faults)
    pipeline = None if faults else _Reading(path.resolve(), told, faults).pipeline()
    if faults or pipeline is None:
        raise FileError(path, faults)
    return pipeline


def _on_base(told: dict[str, Any], faults: list[tuple[str, str]]) -> dict[str, Any]:
    """A file's tables, merged over those of its base."""
    head = told.get("pipeline")
    name = head.get("base") if isinstance(head, dict) else None
    if not isinstance(head, dict) or name is None:
        return told
    base = shipped.find(name) if isinstance(name, str) else None
    if base is None:
        faults.append(("pipeline.base", f"there is no pipeline {name!r} in Mez; {shipped.known()}"))
        return told
    return _merged(tomllib.loads(base.read_text()), told)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = base.get(name)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merged(below, value)
        merged[name] = value
    return merged


def schema() -> str:
    """The JSON schema of pipeline files."""
    tables = {"pipeline": _PIPELINE, "mez": _MEZ, "kafka": kafka_table.KEYS}
    told = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Pipelines of Mez",
        "type": "object",
        "additionalProperties": False,
        "required": ["pipeline"],
        "properties": {
            **{name: keys.schema(of) for name, of in tables.items()},
            "stage": {
                "type": "object",
                "description": "The stages by name",
                "additionalProperties": keys.schema(_STAGE),
            },
        },
    }
    return json.dumps(told, indent=2, sort_keys=True) + "\n"


class _Reading:
    """Reads one file, and collects its faults."""

    def __init__(self, path: Path, told: dict[str, Any], faults: list[tuple[str, str]]) -> None:
        self._path = path
        self._told = told
        self._faults = faults

    def pipeline(self) -> Pipeline | None:
        for name in self._told.keys() - {"pipeline", "mez", "kafka", "stage"}:
            self._wrong(name, "unknown table; the tables are pipeline, mez, kafka and stage.NAME")
        own = keys.read(self._told.get("pipeline", {}), _PIPELINE, "pipeline", self._faults)
        edge = keys.read(self._told.get("mez", {}), _MEZ, "mez", self._faults)
        self._named("pipeline.name", own["name"])
        self._receiver(own["otlp"])
        stages = self._stages(own["bus"])
        used = {stage.bus for stage in stages.values()} | {stage.reads_on for stage in stages.values()}
        kafka = None
        if "kafka" in self._told:
            kafka = kafka_table.read(self._told["kafka"], self._path.parent, self._faults)
        elif "kafka" in used:
            self._wrong("kafka", 'is missing, but a stage has bus = "kafka"; give [kafka] with servers')
        if self._faults:
            return None
        return Pipeline(
            path=self._path,
            name=own["name"],
            drain_s=float(own["drain_s"]),
            events=self._file(own["events"]),
            otlp=own["otlp"],
            edge=keys.several(edge["edge"]),
            keys=self._file(edge["keys"]),
            on_disk=edge["confirmed"] == "disk",
            kafka=kafka,
            stages=stages,
        )

    def _stages(self, bus: str) -> dict[str, Stage]:
        tables = self._told.get("stage")
        if not isinstance(tables, dict) or not tables:
            self._wrong("stage", "there is no stage; give at least one table [stage.NAME]")
            return {}
        if len(tables) > STAGES_MAX:
            self._wrong("stage", f"there are {len(tables)} stages; give at most {STAGES_MAX}")
            return {}
        values = {}
        for name, table in tables.items():
            place = f"stage.{name}"
            self._named(place, name)
            if name == CAMERA:
                self._wrong(place, f"the name {CAMERA} is reserved; give another name")
            values[name] = keys.read(table, _STAGE, place, self._faults)
            self._agree(place, values[name], table if isinstance(table, dict) else {})
        if self._faults:
            return {}
        return self._in_order(values, bus)

    def _agree(self, place: str, values: dict[str, Any], given: dict[str, Any]) -> None:
        """Check that the keys of a stage fit together."""
        if (values["cameras"] is None) == (values["after"] is None):
            self._wrong(place, "give either cameras (a pattern of cameras) or after (the name of a stage)")
        if values["cameras"] is not None and "**" in values["cameras"]:
            self._wrong(
                f"{place}.cameras", "** would also match the stages' own streams; give * for each segment"
            )
        if values["cameras"] is None:
            for name in (*_OF_CAMERAS, "deliver"):
                if name in given:
                    self._wrong(f"{place}.{name}", "is for stages that take frames of cameras; leave it out")
        if values["deliver"] == "newest":
            for name in ("tries", "ordered"):
                if name in given:
                    self._wrong(
                        f"{place}.{name}",
                        'has no effect with deliver = "newest"; leave it out, or give "every"',
                    )
        if values["run"] is None:
            for name in ("workers", "options", "memory_mib_max"):
                if name in given:
                    self._wrong(f"{place}.{name}", "is for stages with run; leave it out, or give run")
        elif not all(values["run"].rpartition(":")[::2]):
            self._wrong(f"{place}.run", f"is {values['run']!r}; give FILE.py:NAME or MODULE:NAME")

    def _in_order(self, values: dict[str, dict[str, Any]], bus: str) -> dict[str, Stage]:
        """The stages, each after the stage that it reads."""
        stages: dict[str, Stage] = {}
        left = dict(values)
        for name, of in values.items():
            if of["after"] is not None and of["after"] not in values:
                known = ", ".join(other for other in values if other != name)
                self._wrong(
                    f"stage.{name}.after",
                    f"there is no stage {of['after']}; the other stages are {known or 'none'}",
                )
                return {}
        while left:
            ready = [name for name, of in left.items() if of["after"] is None or of["after"] in stages]
            if not ready:
                circle = ", ".join(left)
                self._wrong(
                    "stage", f"{circle} wait for each other; give one of them cameras instead of after"
                )
                return {}
            for name in ready:
                stages[name] = self._stage(name, left.pop(name), stages, bus)
        return stages

    def _stage(self, name: str, of: dict[str, Any], before: Mapping[str, Stage], bus: str) -> Stage:
        source: Cameras | Made
        if of["after"] is None:
            contract = {key: of[key] for key in _OF_CAMERAS}
            if contract["profile"] is not None and "/" in contract["profile"]:
                contract["profile"] = str(self._file(contract["profile"]))
            source = Cameras(of["cameras"], of["deliver"] == "newest", **contract)
            reads_on = "mez"
        else:
            source = Made(of["after"], before[of["after"]].source.pattern)
            reads_on = before[of["after"]].bus
        return Stage(
            name=name,
            run=of["run"],
            source=source,
            reads_on=reads_on,
            bus=of["bus"] or bus,
            workers=of["workers"] if of["run"] is not None else 0,
            plain=of["plain"],
            ordered=of["ordered"],
            tries=of["tries"],
            again_after_s=float(of["again_after_s"]),
            memory_mib_max=of["memory_mib_max"],
            options=of["options"] or {},
        )

    def _named(self, field: str, name: object) -> None:
        if isinstance(name, str) and not _NAME.fullmatch(name):
            self._wrong(field, f"{name!r} is not a valid name; give small letters, digits, _, -, at most 31")

    def _receiver(self, address: str | None) -> None:
        """Check the address of a receiver of traces."""
        if address is None:
            return
        fault = fault_of(address)
        if fault is not None:
            self._wrong("pipeline.otlp", fault)

    def _file(self, name: str | None) -> Path | None:
        return keys.path(self._path.parent, name)

    def _wrong(self, field: str, says: str) -> None:
        self._faults.append((field, says))
