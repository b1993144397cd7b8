"""Publishes events and figures to an MQTT broker."""

import importlib
import json
import ssl
import threading
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mez._commands import Teller
from mez.bridge.events import home
from mez.bridge.events.delivery import Failed
from mez.bridge.events.file import Mqtt, matches
from mez.bridge.events.spool import Spool
from mez.bridge.events.webhook import message
from mez.errors import MissingPackageError
from mez.pipeline import keys
from mez.pipeline.errors import BusError

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessageInfo
    from paho.mqtt.reasoncodes import ReasonCode

CAMERAS_MAX: Final = 1000
"""The most cameras whose figures are published."""
GOING_MAX: Final = 64
"""The most topics that are removed at once."""
RETRY_S_MAX: Final = 30.0
"""The longest wait between two tries to connect, or to publish an event, in seconds."""
KEEPALIVE_S: Final = 30
"""If the broker is silent for about twice this time, in seconds, the connection counts as lost."""


class MqttSender:
    """A connection to an MQTT broker, which reconnects by itself.

    Args:
        mqtt: The table of the file.
        bridge: The bridge's name.
        spool: Keeps the topics that were published with retained messages.
        teller: Prints changes of the connection.

    Raises:
        BusError: Password or authorities cannot be read.
        MissingPackageError: The library is not installed.
    """

    def __init__(self, mqtt: Mqtt, bridge: str, spool: Spool, teller: Teller) -> None:
        self._mqtt = mqtt
        self._bridge = bridge
        self._spool = spool
        self._teller = teller
        self._connected = threading.Event()
        self._is_new = threading.Event()
        self._told: dict[str, str] = {}
        """The retained messages of the broker, by topic."""
        self._pending: tuple[str, MQTTMessageInfo] | None = None
        self._going: dict[str, MQTTMessageInfo] = {}
        """Topics that are being removed, until the broker confirms it."""
        self._why = ""
        """The reported reason why there is no connection. Empty: connected, or not tried yet."""
        self._is_closed = False
        self._client = client_of(mqtt, bridge)
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_connect_fail
        self._client.on_disconnect = self._on_disconnect

    @property
    def is_new(self) -> bool:
        """Whether nothing was published since the connection was made."""
        return self._connected.is_set() and self._is_new.is_set()

    def start(self) -> None:
        """Start to connect, on a thread of the library."""
        self._client.connect_async(self._mqtt.host, self._mqtt.port, keepalive=KEEPALIVE_S)
        self._client.loop_start()

    def send(self, event: Mapping[str, Any], dropped: int) -> Failed | None:
        """Publish an event, and wait until the broker confirms it."""
        timeout_s = self._mqtt.choice.timeout_s
        if not self._connected.wait(timeout_s):
            return Failed(self._why or f"{self._where} cannot be reached")
        if self._pending is None or self._pending[0] != event["id"]:
            text = json.dumps(message(event, self._bridge, dropped))
            info = self._client.publish(f"{self._mqtt.topic}/events", text, qos=1)
            self._pending = (event["id"], info)
        info = self._pending[1]
        try:
            # After a reconnection, the library sends unconfirmed messages again.
            info.wait_for_publish(timeout_s)
            is_published = info.is_published()
        except (RuntimeError, ValueError):
            self._pending = None
            return Failed("the connection was lost")
        return None if is_published else Failed(f"no confirmation in {timeout_s:g} s")

    def show(self, cameras: Sequence[Mapping[str, Any]]) -> None:
        """Publish the figures of cameras that have changed; of all, if the broker may have lost them."""
        if not self._begin(is_online=True):
            return
        shown = [of for of in cameras if matches(self._mqtt.choice.cameras, of["name"])][:CAMERAS_MAX]
        wanted = {}
        for camera in shown:
            name = camera["name"]
            if self._mqtt.discovery:
                topic = home.config_topic(self._mqtt, name)
                wanted[topic] = json.dumps(home.device(self._mqtt, name))
            wanted[home.camera_topic(self._mqtt, name)] = json.dumps(home.figures(camera))
        kept = {*wanted, home.status_topic(self._mqtt)}
        # Stored before publishing: an extra topic is removed later, but a missing one would stay for ever.
        self._spool.topics = sorted({*self._spool.topics, *kept})
        self._take_away(kept)
        for topic, text in wanted.items():
            if topic not in self._going:
                self._keep(topic, text)

    def away(self) -> None:
        """Publish that figures are not known at present."""
        self._begin(is_online=False)

    def close(self) -> None:
        """Publish that the bridge is offline, and disconnect."""
        self._is_closed = True
        if not self._connected.is_set() or self._is_confirmed("offline"):
            self._client.disconnect()
        else:
            # Then the broker publishes the last will, which has the same content.
            self._teller.tell("mqtt: could not publish the status offline; the broker's last will does it")
        self._client.loop_stop()

    @property
    def _where(self) -> str:
        return f"{self._mqtt.host}:{self._mqtt.port}"

    def _is_confirmed(self, status: str) -> bool:
        info = self._client.publish(home.status_topic(self._mqtt), status, qos=1, retain=True)
        try:
            info.wait_for_publish(2.0)
            return info.is_published()
        except (RuntimeError, ValueError):
            return False

    def _take_away(self, kept: Collection[str]) -> None:
        """Remove retained messages that are not wanted any more, and forget confirmed removals."""
        for topic, info in list(self._going.items()):
            try:
                is_gone = info.is_published()
            except (RuntimeError, ValueError):
                del self._going[topic]
                continue
            if is_gone:
                del self._going[topic]
                if topic not in kept:
                    self._spool.topics = [known for known in self._spool.topics if known != topic]
        for topic in self._spool.topics:
            if topic not in kept and topic not in self._going and len(self._going) < GOING_MAX:
                # An empty payload removes the retained message.
                self._going[topic] = self._client.publish(topic, "", qos=1, retain=True)
                self._told.pop(topic, None)

    def _begin(self, *, is_online: bool) -> bool:
        """Publish the status first. `False`: the broker is away."""
        if self._is_closed or not self._connected.is_set():
            return False
        if self._is_new.is_set():
            self._is_new.clear()
            self._told.clear()
        self._keep(home.status_topic(self._mqtt), "online" if is_online else "offline")
        return True

    def _keep(self, topic: str, text: str) -> None:
        """Publish a retained state, if it has changed."""
        if self._told.get(topic) == text:
            return
        info = self._client.publish(topic, text, qos=0, retain=True)
        if info.rc == 0:
            self._told[topic] = text

    def _on_connect(self, _client: object, _data: object, _flags: object, code: Any, _more: object) -> None:  # noqa: ANN401
        if code.is_failure:
            self._failed(f"{self._where} refuses this bridge: {code}")
            return
        self._why = ""
        self._is_new.set()
        self._connected.set()
        self._teller.tell(f"mqtt: connected to {self._where}")

    def _on_connect_fail(self, _client: object, _data: object) -> None:
        self._connected.clear()
        self._failed(f"{self._where} cannot be reached; check server, security and ca")

    def _on_disconnect(
        self, _client: object, _data: object, _flags: object, code: "ReasonCode", _more: object
    ) -> None:
        if code.is_failure and self._connected.is_set():
            self._teller.tell(f"mqtt: the connection was lost ({code})")
        elif code.is_failure and not self._why:
            # It was closed before the CONNACK: the other side uses another protocol.
            self._failed(f"{self._where} cannot be reached; check server, security and ca")
        self._connected.clear()

    def _failed(self, why: str) -> None:
        """Report why there is no connection: once, until there is a connection or another reason."""
        if why != self._why:
            self._why = why
            self._teller.tell(f"mqtt: {why}")


def client_of(mqtt: Mqtt, bridge: str) -> "Client":
    """A client of the broker that has not connected yet.

    Args:
        mqtt: The table of the file.
        bridge: The bridge's name.

    Raises:
        BusError: Password or authorities cannot be read.
        MissingPackageError: The library is not there.
    """
    try:
        paho: Any = importlib.import_module("paho.mqtt.client")
    except ImportError as error:
        raise MissingPackageError(
            f"MQTT needs the package paho-mqtt ({error}); run: pip install 'mez[mqtt]'"
        ) from error
    client: Client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, client_id=f"mez-{bridge}", clean_session=True
    )
    client.reconnect_delay_set(1, int(RETRY_S_MAX))
    client.connect_timeout = mqtt.choice.timeout_s
    # One event at a time, and removals of topics; figures are not queued.
    client.max_queued_messages_set(GOING_MAX + 4)
    client.will_set(home.status_topic(mqtt), "offline", qos=1, retain=True)
    if mqtt.is_tls:
        try:
            client.tls_set_context(ssl.create_default_context(cafile=mqtt.choice.ca))
        except OSError as error:
            raise BusError(
                f"mqtt.ca: {mqtt.choice.ca} cannot be used ({error}); give a PEM file with the authorities"
            ) from error
    if mqtt.credentials is not None:
        client.username_pw_set(*_credentials(mqtt.credentials))
    return client


def _credentials(path: Path) -> tuple[str, str]:
    try:
        told = tomllib.loads(keys.owned(path, "mqtt.credentials", "put username and password there"))
    except tomllib.TOMLDecodeError as error:
        raise BusError(
            f"mqtt.credentials: {path} is not valid TOML ({error}); give username and password"
        ) from error
    user, password = told.get("username"), told.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise BusError(f"mqtt.credentials: {path} has no username and password; put both there as texts")
    return user, password
