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
"""The most cameras that are shown."""
GOING_MAX: Final = 64
"""The most topics that are taken away at once."""
RETRY_S_MAX: Final = 30.0
"""The longest wait between two tries to connect, or to publish an event, in seconds."""
KEEPALIVE_S: Final = 30
"""A broker that is silent for longer than about twice this is taken for gone."""


class MqttSender:
    """A connection to an MQTT broker, which is made again whenever it breaks.

    Args:
        mqtt: The table of the file.
        bridge: The bridge's name.
        spool: Keeps which topics the broker was told of.
        teller: Told of the connection.

    Raises:
        BusError: Password or authorities cannot be read.
        MissingPackageError: The library is not there.
    """

    def __init__(self, mqtt: Mqtt, bridge: str, spool: Spool, teller: Teller) -> None:
        self._mqtt = mqtt
        self._bridge = bridge
        self._spool = spool
        self._teller = teller
        self._connected = threading.Event()
        self._is_new = threading.Event()
        self._told: dict[str, str] = {}
        """What the broker keeps, by topic."""
        self._pending: tuple[str, MQTTMessageInfo] | None = None
        self._going: dict[str, MQTTMessageInfo] = {}
        """Topics that are taken away, until the broker confirms it."""
        self._why = ""
        """Why there is no connection, as it was told; empty: there is one, or it was not tried yet."""
        self._is_closed = False
        self._client = client_of(mqtt, bridge)
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_connect_fail
        self._client.on_disconnect = self._on_disconnect

    @property
    def is_new(self) -> bool:
        """Whether the broker has not been told anything since it was connected to."""
        return self._connected.is_set() and self._is_new.is_set()

    def start(self) -> None:
        """Begin to connect, on a thread of the library."""
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
            # What is not confirmed is sent again by the library, once it is connected again.
            info.wait_for_publish(timeout_s)
            is_published = info.is_published()
        except (RuntimeError, ValueError):
            self._pending = None
            return Failed("the connection broke off")
        return None if is_published else Failed(f"no confirmation in {timeout_s:g} s")

    def show(self, cameras: Sequence[Mapping[str, Any]]) -> None:
        """Tell figures of cameras that have changed; all, if the broker may have forgotten them."""
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
        # Noted first: what is noted too much is taken away, what is noted too little stays there for ever.
        self._spool.topics = sorted({*self._spool.topics, *kept})
        self._take_away(kept)
        for topic, text in wanted.items():
            if topic not in self._going:
                self._keep(topic, text)

    def away(self) -> None:
        """Tell that figures are not known at present."""
        self._begin(is_online=False)

    def close(self) -> None:
        """Say good-bye: the broker is told that the bridge has gone."""
        self._is_closed = True
        if not self._connected.is_set() or self._is_confirmed("offline"):
            self._client.disconnect()
        else:
            # Whoever goes without a word has a last will, which says the same.
            self._teller.tell("mqtt: the broker could not be told of the end; it finds out by itself")
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
        """Take away what the broker keeps and nobody wants any more, and forget what is confirmed."""
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
                # An empty payload takes a retained one away.
                self._going[topic] = self._client.publish(topic, "", qos=1, retain=True)
                self._told.pop(topic, None)

    def _begin(self, *, is_online: bool) -> bool:
        """Tell what the broker has to know first. `False`: it is away."""
        if self._is_closed or not self._connected.is_set():
            return False
        if self._is_new.is_set():
            self._is_new.clear()
            self._told.clear()
        self._keep(home.status_topic(self._mqtt), "online" if is_online else "offline")
        return True

    def _keep(self, topic: str, text: str) -> None:
        """Publish a retained state, if it is another than before."""
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
            self._teller.tell(f"mqtt: the connection broke off ({code})")
        elif code.is_failure and not self._why:
            # It was never greeted: the other side speaks something else.
            self._failed(f"{self._where} cannot be reached; check server, security and ca")
        self._connected.clear()

    def _failed(self, why: str) -> None:
        """Tell why there is no connection: once, until there is one or there is another reason."""
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
    # One event at a time is under way, and what is taken away; figures are not queued.
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
            f"mqtt.credentials: {path} is no TOML ({error}); give username and password"
        ) from error
    user, password = told.get("username"), told.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise BusError(f"mqtt.credentials: {path} has no username and password; put both there as texts")
    return user, password
