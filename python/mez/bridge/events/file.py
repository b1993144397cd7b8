"""Reads and checks the file of a bridge for events: which events go to which targets."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mez._hosts import is_loopback
from mez._web import is_host
from mez.bridge import file as bridge_file
from mez.pipeline import keys
from mez.pipeline.errors import BusError, FileError
from mez.pipeline.keys import Key

PAGE: Final = "docs/events.md"
WEBHOOKS_MAX: Final = 16
SECRET_BYTES_MAX: Final = 4096

KINDS: Final = ("contract", "camera", "source", "store", "certificate", "group", "edge", "missed")
"""The kinds of events. A target that chooses none gets all; any choice includes `missed`."""

_BRIDGE: Final = (
    Key("name", "text", "The bridge's name: small letters, digits, _ and -; at most 31", needed=True),
)  # fmt: skip
_MEZ: Final = (
    Key("web", "text", "HOST or HOST:PORT of mez edge --web. Default: the edge of this host, by its socket"),
    Key("edge", "text", "Without web: the socket of the edge of this host, as in mez edge open"),
    Key("keys", "text", "The folder of keys"),
)  # fmt: skip
_WATCH: Final = (
    Key("away_s", "number", "After how many seconds without an answer the edge is told as away", 10.0, low=2,
        high=86_400),
)  # fmt: skip
_CHOICE: Final = (
    Key("kinds", "texts", f"The kinds of events: some of {', '.join(KINDS)}. Default: all"),
    Key("cameras", "text", "Events of these cameras, and those that are of no camera: dock/*", "**"),
    Key("queue_max", "whole", "The most events that wait; above it the oldest is dropped, and counted", 1000,
        low=2, high=10_000),
    Key("timeout_s", "number", "How long one try may take, in seconds", 10.0, low=0.1, high=300),
    Key("ca", "text", "A PEM file with the authorities of the other side. Default: those of this host"),
)  # fmt: skip
_WEBHOOK: Final = (
    Key("url", "text", "Where events are posted: https://…, or http:// on this host", needed=True),
    Key("secret_file", "text", "A file with the secret that signs; readable for its owner alone"),
    Key("secret_variable", "text", "The environment variable with the secret, instead of a file"),
    Key("retry_s_max", "number", "The longest wait between two tries, in seconds", 300.0, low=0.1,
        high=86_400),
    *_CHOICE,
)  # fmt: skip
_MQTT: Final = (
    Key("server", "text", "HOST or HOST:PORT of the broker. Default port: 8883, without TLS 1883",
        needed=True),
    Key("security", "text", "tls, or plaintext. Default: plaintext if the broker is on loopback, else tls",
        choices=("tls", "plaintext")),
    Key("credentials", "text", "A TOML file with username and password; readable for its owner alone"),
    Key("topic", "text", "What all topics begin with. Default: mez/ and the bridge's name"),
    Key("discovery", "text", "The prefix of Home Assistant's discovery; empty: none", "homeassistant"),
    Key("figures_s", "number", "How often figures of cameras are told, in seconds", 10.0, low=1, high=3600),
    *_CHOICE,
)  # fmt: skip
_TABLES: Final = {"bridge": _BRIDGE, "mez": _MEZ, "watch": _WATCH, "mqtt": _MQTT}
# A segment of a pattern of cameras, as in crates/core/src/name.rs.
_SEGMENT: Final = re.compile(r"\*\*?|(?!\.+\Z)[A-Za-z0-9._-]{1,64}")
_PATTERNS: Final = "give a name such as dock/cam1, with * for one whole segment and ** for any number"
_TOPIC: Final = re.compile(r"[^/#+\0$][^#+\0]{0,199}")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which events a target gets, and how it gets them.

    Attributes:
        kinds: The kinds.
        cameras: The cameras. Events without a camera go to all targets.
        queue_max: The most events that wait.
        timeout_s: How long one try may take, in seconds.
        ca: The authorities of the other side; `None`: those of this host.
    """

    kinds: frozenset[str]
    cameras: str
    queue_max: int
    timeout_s: float
    ca: Path | None

    def wants(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is chosen."""
        camera = event["camera"]
        return event["kind"] in self.kinds and (camera is None or matches(self.cameras, camera))


@dataclass(frozen=True, slots=True)
class Webhook:
    """A table `webhook.NAME`.

    Attributes:
        name: Its name.
        url: Where events are posted.
        secret: The secret for signatures. `None`: events are not signed.
        retry_s_max: The longest wait between two tries, in seconds, unless the receiver asks for more.
        choice: Which events.
    """

    name: str
    url: str
    secret: "Secret | None"
    retry_s_max: float
    choice: Choice


@dataclass(frozen=True, slots=True)
class Secret:
    """The place of a secret: a file or a variable."""

    file: Path | None
    variable: str | None

    def read(self, field: str) -> bytes:
        """The secret, without white space around it.

        Raises:
            BusError: It is missing, or others can read it.
        """
        if self.file is None:
            text = os.environ.get(self.variable or "", "")
            told = f"the variable {self.variable}"
        else:
            text, told = keys.owned(self.file, field, "put the secret there"), str(self.file)
        if not 16 <= len(text.strip().encode()) <= SECRET_BYTES_MAX:
            raise BusError(f"{field}: {told} has no secret of 16 to {SECRET_BYTES_MAX} bytes; put one there")
        return text.strip().encode()


@dataclass(frozen=True, slots=True)
class Mqtt:
    """The table `mqtt`.

    Attributes:
        host: The broker.
        port: Its port.
        is_tls: Whether TLS is used.
        credentials: The file with user name and password. `None`: no login.
        topic: The prefix of all topics.
        discovery: The prefix of Home Assistant's discovery; empty: none.
        figures_s: The interval at which figures are published, in seconds.
        choice: Which events, and the cameras whose figures are published.
    """

    host: str
    port: int
    is_tls: bool
    credentials: Path | None
    topic: str
    discovery: str
    figures_s: float
    choice: Choice


@dataclass(frozen=True, slots=True)
class EventsBridge:
    """A checked file of a bridge for events.

    Attributes:
        name: The bridge's name.
        web: The address of `mez edge --web`. `None`: the edge of this host.
        edge: Without an address: the socket.
        keys: The folder of keys.
        away_s: After how many seconds without an answer the edge is reported as away.
        webhooks: By name.
        mqtt: The MQTT broker.
    """

    name: str
    web: str | None
    edge: str | None
    keys: Path | None
    away_s: float
    webhooks: Mapping[str, Webhook]
    mqtt: Mqtt | None

    @property
    def state_name(self) -> str:
        """The name of its folder for state. The dot keeps it different from those of bridges to Kafka."""
        return f"events.{self.name}"


def matches(pattern: str, camera: str) -> bool:
    """Whether a pattern matches a camera: `*` is one segment, `**` is any number of segments."""
    return _matches(pattern.split("/"), camera.split("/"))


def _matches(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_matches(pattern[1:], name[skip:]) for skip in range(len(name) + 1))
    return bool(name) and pattern[0] in ("*", name[0]) and _matches(pattern[1:], name[1:])


def is_events(path: Path) -> bool:
    """Whether a file is one of a bridge for events.

    Raises:
        FileError: It cannot be read, or is not TOML.
    """
    return bool({"webhook", "mqtt"} & keys.table(path, PAGE).keys())


def read(path: Path) -> EventsBridge:
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
    """The JSON schema of files of bridges for events."""
    told = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Bridges of Mez for events",
        "type": "object",
        "additionalProperties": False,
        "required": ["bridge"],
        "properties": {
            **{name: keys.schema(of) for name, of in _TABLES.items()},
            "webhook": {
                "type": "object",
                "description": "The webhooks by name",
                "additionalProperties": keys.schema(_WEBHOOK),
            },
        },
    }
    return json.dumps(told, indent=2, sort_keys=True) + "\n"


def _bridge(folder: Path, told: dict[str, Any], faults: list[tuple[str, str]]) -> EventsBridge:
    for name in told.keys() - {*_TABLES, "webhook"}:
        faults.append((name, f"unknown table; the tables are {', '.join(_TABLES)} and webhook.NAME"))
    own = keys.read(told.get("bridge", {}), _BRIDGE, "bridge", faults)
    edge = keys.read(told.get("mez", {}), _MEZ, "mez", faults)
    watch = keys.read(told.get("watch", {}), _WATCH, "watch", faults)
    bridge_file.check_name("bridge.name", own["name"], faults)
    if edge["web"] is not None and edge["edge"] is not None:
        faults.append(("mez.edge", "names an edge, and mez.web names one too; give only one of them"))
    webhooks = _webhooks(told.get("webhook", {}), folder, faults)
    mqtt = _mqtt(told["mqtt"], own["name"], folder, faults) if "mqtt" in told else None
    if not (webhooks or mqtt or faults):
        faults.append(("webhook", "there is no target for events; give a table [webhook.NAME], or [mqtt]"))
    return EventsBridge(
        own["name"],
        edge["web"],
        edge["edge"],
        keys.path(folder, edge["keys"]),
        float(watch["away_s"]),
        webhooks,
        mqtt,
    )


def _webhooks(tables: object, folder: Path, faults: list[tuple[str, str]]) -> dict[str, Webhook]:
    if not isinstance(tables, dict):
        faults.append(("webhook", f"is {tables!r}; give tables [webhook.NAME]"))
        return {}
    if len(tables) > WEBHOOKS_MAX:
        faults.append(("webhook", f"there are {len(tables)} webhooks; give at most {WEBHOOKS_MAX}"))
        return {}
    found = {}
    for name, table in tables.items():
        place = f"webhook.{name}"
        bridge_file.check_name(place, name, faults)
        if isinstance(table, dict) and "secret" in table:
            faults.append((f"{place}.secret", "this file must not contain secrets; give secret_file"))
            table = {key: value for key, value in table.items() if key != "secret"}
        of = keys.read(table, _WEBHOOK, place, faults)
        _check_url(f"{place}.url", of["url"], faults)
        file, variable = keys.path(folder, of["secret_file"]), of["secret_variable"]
        if file is not None and variable is not None:
            faults.append((f"{place}.secret_variable", "secret_file is given too; give only one of them"))
        secret = Secret(file, variable) if file or variable else None
        found[name] = Webhook(
            name, of["url"] or "", secret, float(of["retry_s_max"]), _choice(of, place, folder, faults)
        )
    return found


def _mqtt(table: object, name: object, folder: Path, faults: list[tuple[str, str]]) -> Mqtt:
    of = keys.read(table, _MQTT, "mqtt", faults)
    told = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]@]+)(?::(\d{1,5}))?", of["server"] or "")
    if told is None or int(told[2] or 1) > 65535 or not is_host(told[1]):
        faults.append(("mqtt.server", f"{of['server']!r} is not an address; give HOST or HOST:PORT"))
    host = told[1].strip("[]") if told else ""
    near = is_loopback(host)
    is_tls = of["security"] != "plaintext" if of["security"] is not None else not near
    if not is_tls and not near and of["credentials"] is not None:
        faults.append(("mqtt.security", "a password would cross the network unencrypted; give tls"))
    topic = of["topic"] or f"mez/{name}"
    for field, text in (("topic", topic), ("discovery", of["discovery"])):
        if text and not _TOPIC.fullmatch(text):
            faults.append(
                (f"mqtt.{field}", f"{text!r} is not a topic; give up to 200 characters, without # and +")
            )
    port = int(told[2]) if told and told[2] else 8883 if is_tls else 1883
    credentials = keys.path(folder, of["credentials"])
    choice = _choice(of, "mqtt", folder, faults)
    return Mqtt(host, port, is_tls, credentials, topic, of["discovery"], float(of["figures_s"]), choice)


def _choice(of: Mapping[str, Any], place: str, folder: Path, faults: list[tuple[str, str]]) -> Choice:
    kinds = keys.several(of["kinds"]) or KINDS
    for kind in kinds:
        if kind not in KINDS:
            faults.append(
                (f"{place}.kinds", f"{kind!r} is not a kind of event; the kinds are {', '.join(KINDS)}")
            )
    if any(not _SEGMENT.fullmatch(segment) for segment in of["cameras"].split("/")):
        faults.append((f"{place}.cameras", f"{of['cameras']!r} is not a pattern of cameras; {_PATTERNS}"))
    ca = keys.path(folder, of["ca"])
    # Every target learns that events were missed or dropped.
    return Choice(frozenset({*kinds, "missed"}), of["cameras"], of["queue_max"], float(of["timeout_s"]), ca)


def _check_url(field: str, url: str | None, faults: list[tuple[str, str]]) -> None:
    if url is None:
        return
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        # For `a..b` this raises a UnicodeError, which is a ValueError.
        (host or "").encode("idna")
    except ValueError as error:
        faults.append((field, f"{url!r} is not a URL ({error}); give https://HOST/PATH"))
        return
    if parts.scheme not in ("https", "http") or not host or re.search(r"[\s\0-\x1f\x7f]", url):
        faults.append((field, f"{url!r} is not the URL of a webhook; give https://HOST/PATH"))
    elif not (parts.path + parts.query).isascii():
        faults.append((field, f"{url!r} has characters other than ASCII; write them with % escapes"))
    elif parts.username is not None or parts.password is not None:
        faults.append((field, "contains a password; leave it out, and let the receiver check the signature"))
    elif parts.scheme == "http" and not is_loopback(host):
        faults.append((field, "events would cross the network unencrypted; give an https URL"))
