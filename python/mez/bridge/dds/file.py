"""Reads and checks the file of a bridge to DDS: cameras for topics, and topics that become cameras."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from mez.bridge import file as bridge_file
from mez.bridge.dds import fence, names
from mez.bridge.dds.domain import HISTORY_BYTES_MAX, Network, Qos
from mez.bridge.notes import WantedNotes
from mez.pipeline import keys
from mez.pipeline.errors import FileError
from mez.pipeline.keys import Key

PAGE: Final = "docs/dds.md"

INPUTS_MAX: Final = 64
"""The most topics that become cameras."""

DEPTH_NEWEST: Final = 1
DEPTH_EVERY: Final = 10
"""The history of a writer, in samples, with `deliver` newest and every."""

USUAL: Final = "usual"
"""The name of the contract in a stream's own table."""

CONTRACTS_MAX: Final = 16
"""The most contracts that readers can request."""

HISTORY_MIB_MAX: Final = HISTORY_BYTES_MAX >> 20
"""The most MiB of a topic's history: number of samples times the size of the largest one."""

BLOCK_NS: Final = 100_000_000
"""How long a frame may wait for reliable readers, in nanoseconds."""

_TYPES: Final = ("compressed", "image", "frame")
_DELIVER: Final = ("newest", "every")

_MEZ: Final = (
    *keys.MEZ,
    Key("publish_edge", "texts", "The edge for the cameras that topics become, as in mez.publisher. Default: "
        "that of edge"),
    Key("publish_keys", "text", "The folder with the keys of these cameras. Default: that of keys"),
)  # fmt: skip
_BRIDGE: Final = (
    Key("name", "text", "The bridge's name: small letters, digits, _ and -; at most 31", needed=True),
)
_DDS: Final = (
    Key("domain", "whole", "The number of the domain, as ROS_DOMAIN_ID", 0, low=0, high=230),
    Key("interfaces", "texts", "Names of the interfaces on which DDS is spoken. DDS has no encryption and no "
        "rights here: whoever reaches them reads the frames", "lo"),
    Key("peers", "texts", "Hosts that are found by unicast: names or addresses"),
    Key("multicast", "switch", "Find others, and send to them, by multicast too", False),
    Key("partition", "text", "The partition of all topics, such as the site's name. ROS 2 uses none", ""),
    Key("sample_mib_max", "whole", "Larger samples are neither sent nor taken, in MiB", 32, low=1, high=1024),
)  # fmt: skip
_TERMS: Final = (
    *bridge_file.CONTRACT,
    Key("min_fps", "number", "The lowest useful frame rate, as in mez.subscribe", low=0.01, high=1000),
)
_OUT: Final = (
    Key("cameras", "text", "The cameras: dock/*", needed=True),
    Key("types", "texts", "compressed: sensor_msgs/CompressedImage in NAME/compressed. image: "
        "sensor_msgs/Image in NAME/image, decoded. frame: mez::Frame in mez/frame, of all cameras",
        "compressed"),
    Key("deliver", "text", "newest: the newest frame of each camera. every: each frame that crosses the link",
        "newest", choices=_DELIVER),
    Key("reliable", "switch", "Offer to send again what is lost. Readers that ask for best effort fit too. "
        "false: readers that ask for reliable do not fit, and late ones wait for the next frame", True),
    Key("history", "whole", "Samples that are kept for sending again, and for readers that come later. "
        f"Default: {DEPTH_NEWEST}, with every {DEPTH_EVERY}", low=1, high=1000),
    Key("offers", "texts", "Names of tables contract.NAME. Whoever writes to the request topic can choose "
        "one of them for this stream instead of the contract below"),
    *_TERMS,
)  # fmt: skip
_IN: Final = (
    Key("topic", "text", "The topic, as ROS 2 calls it: /robot1/front/image_raw. With type = frame, as DDS "
        "calls it: mez/frame", needed=True),
    Key("camera", "text", "The camera that it becomes. The keys must allow its name", needed=True),
    Key("type", "text", "compressed: sensor_msgs/CompressedImage with JPEGs. image: sensor_msgs/Image. "
        "frame: mez::Frame with JPEGs", "compressed", choices=_TYPES),
    Key("key", "text", "With type = frame: the camera whose frames are taken of the topic"),
    Key("deliver", "text", "newest: the newest image. every: each image, sent again if it was missed; with "
        "type = frame it is not sent again", "newest", choices=_DELIVER),
    Key("stamps", "text", "When a frame was captured. arrival: when it came. sender: what its header says",
        "arrival", choices=("arrival", "sender")),
    Key("quality", "whole", "JPEG quality of pixels, 1 to 100", 95, low=1, high=100),
)  # fmt: skip
_DETECTIONS: Final = (
    Key("cameras", "text", "The cameras whose detections, the replies of applications, are copied to "
        "NAME/detections. The edge has to have logs on disk (--store)", needed=True),
)  # fmt: skip

_TABLES: Final = {"bridge": _BRIDGE, "mez": _MEZ, "dds": _DDS, "detections": _DETECTIONS}
_PARTITION: Final = re.compile(r"[A-Za-z0-9_./-]{0,255}")
_INTERFACE: Final = re.compile(r"[A-Za-z0-9_.@-]{1,15}")
_HOST: Final = re.compile(r"[A-Za-z0-9_.:-]{1,253}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Out:
    """A table `out.NAME`.

    Attributes:
        name: Its name.
        cameras: The cameras.
        types: The types that are written: some of `compressed`, `image` and `frame`.
        is_every: Every frame that crosses the link, instead of the newest.
        qos: The quality of service that writers offer.
        contract: The arguments of `mez.subscribe` that make its contract.
        offers: The arguments for contracts that readers can request, by name.
    """

    name: str
    cameras: str
    types: tuple[str, ...]
    is_every: bool
    qos: Qos
    contract: Mapping[str, Any]
    offers: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class In:
    """A table `in.NAME`.

    Attributes:
        name: Its name.
        topic: The topic, as in the file.
        camera: The camera.
        type: `compressed`, `image` or `frame`.
        key: For `frame`: the camera whose samples are taken. Otherwise `None`.
        qos: The quality of service that the reader requests.
        is_stamped: Whether the capture time comes from the header.
        quality: JPEG quality of pixels.
    """

    name: str
    topic: str
    camera: str
    type: str
    key: str | None
    qos: Qos
    is_stamped: bool
    quality: int

    @property
    def dds_topic(self) -> str:
        """The topic's name in DDS."""
        return self.topic if self.key is not None else names.dds_topic(self.topic)


@dataclass(frozen=True, slots=True)
class DdsBridge:
    """A checked file of a bridge to DDS.

    Attributes:
        name: The bridge's name.
        edge: The edges; empty: the defaults.
        keys: The folder of keys.
        publish_edge: The edges for cameras; empty: the defaults.
        publish_keys: The folder with the keys of cameras.
        network: The network of the domain.
        partition: The partition of all topics.
        outs: The streams of frames into topics, by name.
        ins: The topics that become cameras, by name.
        detections: The cameras whose detections are copied; `None`: none.
    """

    name: str
    edge: tuple[str, ...]
    keys: Path | None
    publish_edge: tuple[str, ...]
    publish_keys: Path | None
    network: Network
    partition: str
    outs: Mapping[str, Out]
    ins: Mapping[str, In]
    detections: str | None

    def group(self, stream: str) -> str:
        """The name of a stream's group at the edge. It differs from those of a bridge to Kafka."""
        return f"dds.{self.name}.{stream}"

    @property
    def request_topic(self) -> str:
        """The topic for requests of contracts: its name in ROS 2."""
        return f"/mez{names.ros_name(self.name)}/contract"

    @property
    def state_name(self) -> str:
        """The name of its folder for state. The dot keeps it different from those of bridges to Kafka."""
        return f"dds.{self.name}"

    def wanted_notes(self) -> WantedNotes:
        """The notes to copy. The file must have a table `detections`."""
        assert self.detections is not None, "the caller looked"
        return WantedNotes("detections", self.detections, self.edge, self.keys, f"bridge {self.name}")


def is_dds(path: Path) -> bool:
    """Whether a file is one of a bridge to DDS.

    Raises:
        FileError: It cannot be read, or is not TOML.
    """
    return "dds" in keys.table(path, PAGE)


def read(path: Path) -> DdsBridge:
    """Read a bridge's file and check all of it.

    Raises:
        FileError: It cannot be read, or has faults. The message has a line for each fault.
    """
    told = keys.table(path, PAGE)
    faults: list[tuple[str, str]] = []
    bridge = _bridge(path.resolve().parent, told, faults)
    if faults:
        raise FileError(path, faults)
    return bridge


def schema() -> str:
    """The JSON schema of files of bridges to DDS."""
    several = {
        "out": ("Streams of frames into topics, by name", _OUT),
        "in": ("Topics that become cameras, by name", _IN),
        "contract": ("Contracts that readers can ask for, by name", _TERMS),
    }
    told = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Bridges of Mez to DDS",
        "type": "object",
        "additionalProperties": False,
        "required": ["bridge", "dds"],
        "properties": {
            **{name: keys.schema(of) for name, of in _TABLES.items()},
            **{
                name: {"type": "object", "description": says, "additionalProperties": keys.schema(of)}
                for name, (says, of) in several.items()
            },
        },
    }
    return json.dumps(told, indent=2, sort_keys=True) + "\n"


def _bridge(folder: Path, told: dict[str, Any], faults: list[tuple[str, str]]) -> DdsBridge:
    for name in told.keys() - {*_TABLES, "out", "in", "contract"}:
        several = "out.NAME, in.NAME and contract.NAME"
        faults.append((name, f"unknown table; the tables are {', '.join(_TABLES)}, {several}"))
    if "dds" not in told:
        faults.append(("dds", "is missing; give [dds], which may be empty"))
    own = keys.read(told.get("bridge", {}), _BRIDGE, "bridge", faults)
    edge = keys.read(told.get("mez", {}), _MEZ, "mez", faults)
    bridge_file.check_name("bridge.name", own["name"], faults)
    dds = keys.read(told.get("dds", {}), _DDS, "dds", faults)
    offers = _several(told, "contract", CONTRACTS_MAX, faults, partial(_terms, folder=folder, faults=faults))
    made = partial(_out, folder=folder, offers=offers, faults=faults)
    outs = _several(told, "out", bridge_file.STREAMS_MAX, faults, made)
    ins = _several(told, "in", INPUTS_MAX, faults, partial(_in, faults=faults))
    found = None
    if "detections" in told:
        found = keys.read(told["detections"], _DETECTIONS, "detections", faults)["cameras"]
    if not (outs or ins or found or faults):
        faults.append(("out", "there is nothing to copy; give [out.NAME], [in.NAME] or [detections]"))
    _check_twice(ins, faults)
    _check_histories(outs, ins, dds["sample_mib_max"], faults)
    for name in keys.several(edge["publish_edge"]):
        if name.startswith("unix:"):
            faults.append(
                (
                    "mez.publish_edge",
                    f"{name} is a Unix socket, but cameras need the address of an edge; give host:port, as "
                    "in mez.publisher",
                )
            )
    network = _network(dds, faults)
    partition = dds["partition"]
    if not _PARTITION.fullmatch(partition):
        faults.append(
            ("dds.partition", f"{partition!r} is not a valid name; give letters, digits, _, ., / and -")
        )
    return DdsBridge(
        own["name"],
        keys.several(edge["edge"]),
        keys.path(folder, edge["keys"]),
        # Cameras cannot use a Unix socket. One in `edge` is only for reading.
        tuple(
            name
            for name in keys.several(edge["publish_edge"] or edge["edge"])
            if not name.startswith("unix:")
        ),
        keys.path(folder, edge["publish_keys"] or edge["keys"]),
        network,
        partition,
        outs,
        ins,
        found,
    )


def _network(dds: Mapping[str, Any], faults: list[tuple[str, str]]) -> Network:
    interfaces, peers = keys.several(dds["interfaces"]), keys.several(dds["peers"])
    for name in interfaces:
        if not _INTERFACE.fullmatch(name) or name[0].isdigit():
            faults.append(
                ("dds.interfaces", f"{name!r} is not an interface's name; give names such as lo or eth1")
            )
    if len(interfaces) > fence.INTERFACES_MAX:
        faults.append(("dds.interfaces", f"there are {len(interfaces)}; give at most {fence.INTERFACES_MAX}"))
    for name in peers:
        if not _HOST.fullmatch(name):
            faults.append(("dds.peers", f"{name!r} is not a host; give names or addresses"))
    return Network(dds["domain"], interfaces, peers, dds["multicast"], dds["sample_mib_max"] << 20)


def _several(
    told: Mapping[str, Any],
    kind: str,
    count_max: int,
    faults: list[tuple[str, str]],
    make: Callable[[str, object], T],
) -> dict[str, T]:
    tables = told.get(kind, {})
    if not isinstance(tables, dict):
        faults.append((kind, f"is {tables!r}; give tables [{kind}.NAME]"))
        return {}
    if len(tables) > count_max:
        faults.append((kind, f"there are {len(tables)}; give at most {count_max}"))
        return {}
    for name in tables:
        bridge_file.check_name(f"{kind}.{name}", name, faults)
    return {name: make(name, table) for name, table in tables.items()}


def _terms(name: str, table: object, *, folder: Path, faults: list[tuple[str, str]]) -> Mapping[str, Any]:
    if name == USUAL:
        faults.append(
            (f"contract.{name}", "is the reserved name of the contract in out.NAME; give another name")
        )
    return bridge_file.contract(keys.read(table, _TERMS, f"contract.{name}", faults), _TERMS, folder)


def _out(
    name: str,
    table: object,
    *,
    folder: Path,
    offers: Mapping[str, Mapping[str, Any]],
    faults: list[tuple[str, str]],
) -> Out:
    place = f"out.{name}"
    of = keys.read(table, _OUT, place, faults)
    chosen = keys.several(of["types"])
    for each in chosen:
        if each not in _TYPES:
            faults.append(
                (f"{place}.types", f"{each!r} is not a type; give {' or '.join(map(repr, _TYPES))}")
            )
    is_every = of["deliver"] == "every"
    contract = bridge_file.contract(of, _TERMS, folder)
    offered = {}
    for each in keys.several(of["offers"]):
        if each in offers:
            offered[each] = offers[each]
        else:
            faults.append((f"{place}.offers", f"there is no table contract.{each}; add it"))
    # A writer's quality of service is fixed, so it fits the contract with the longest times.
    terms = (contract, *offered.values())
    latency_ms = _largest(each.get("latency_ms") for each in terms)
    period_s = _largest(1 / fps if (fps := each.get("min_fps")) else None for each in terms)
    qos = Qos(
        is_reliable=of["reliable"],
        depth=of["history"] or (DEPTH_EVERY if is_every else DEPTH_NEWEST),
        is_kept=True,
        lifespan_ns=None if latency_ms is None else int(latency_ms * 1e6),
        deadline_ns=None if period_s is None else int(1e9 * period_s),
        block_ns=BLOCK_NS,
    )
    return Out(name, of["cameras"], tuple(dict.fromkeys(chosen)), is_every, qos, contract, offered)


def _largest(values: Iterable[float | None]) -> float | None:
    """The largest value; `None` if one of them is `None`, which means that there is no bound."""
    known = list(values)
    return None if None in known else max(filter(None, known))


def _in(name: str, table: object, *, faults: list[tuple[str, str]]) -> In:
    place = f"in.{name}"
    of = keys.read(table, _IN, place, faults)
    topic, camera = of["topic"] or "", of["camera"] or ""
    key, is_frame = of["key"], of["type"] == "frame"
    if is_frame != (key is not None):
        faults.append(
            (f"{place}.key", 'is needed with type = "frame", and only then; give the camera in its samples')
        )
    if topic and not names.is_ros_name(f"/{topic}" if is_frame else topic):
        wanted = (
            f"DDS; give a name such as {names.FRAMES}"
            if is_frame
            else ("ROS 2; give a full name such as /robot1/image_raw")
        )
        faults.append((f"{place}.topic", f"{topic!r} is not a topic of {wanted}"))
    if camera and not names.CAMERA.fullmatch(camera):
        faults.append(
            (f"{place}.camera", f"{camera!r} is not a camera's name; give up to eight segments of letters, "
             "digits, ., _ and -")
        )  # fmt: skip
    is_every = of["deliver"] == "every"
    # A reliable reader of a topic with keys would stop if a program wrote more keys than it has room for.
    qos = Qos(is_reliable=is_every and not is_frame, depth=DEPTH_EVERY if is_every else DEPTH_NEWEST)
    return In(name, topic, camera, of["type"], key, qos, of["stamps"] == "sender", of["quality"])


def _check_histories(
    outs: Mapping[str, Out], ins: Mapping[str, In], sample_mib_max: int, faults: list[tuple[str, str]]
) -> None:
    """Check that the bytes of each topic's history stay below the limit."""
    fields = [(f"out.{name}.history", of.qos.depth, "a shorter history") for name, of in outs.items()]
    fields += [(f"in.{name}.deliver", of.qos.depth, 'deliver = "newest"') for name, of in ins.items()]
    for field, depth, give in fields:
        if depth * sample_mib_max > HISTORY_MIB_MAX:
            faults.append(
                (
                    field,
                    f"{depth} samples of {sample_mib_max} MiB are {depth * sample_mib_max} MiB, but a topic "
                    f"may hold {HISTORY_MIB_MAX} MiB; give {give}, or a smaller dds.sample_mib_max",
                )
            )


def _check_twice(ins: Mapping[str, In], faults: list[tuple[str, str]]) -> None:
    seen: dict[str, str] = {}
    for name, of in ins.items():
        first = seen.setdefault(of.camera, name)
        if of.camera and first != name:
            faults.append(
                (f"in.{name}.camera", f"{of.camera} is also the camera of in.{first}; give each its own")
            )
