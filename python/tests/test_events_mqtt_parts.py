"""The connection to an MQTT broker without a broker: what is told, what is taken away, how it ends."""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mez._commands import Teller
from mez.bridge.events import command, file, home, mqtt
from mez.bridge.events.spool import Spool
from mez.pipeline.errors import BusError
from tests.bridge_files import written

FILE = '[bridge]\nname = "hall7"\n[mqtt]\nserver = "localhost"\n'


@dataclass
class Info:
    """A message on its way."""

    topic: str
    text: str
    qos: int
    rc: int = 0
    is_there: bool = False

    def wait_for_publish(self, _timeout_s: float) -> None:
        """It comes at once or not at all."""

    def is_published(self) -> bool:
        """Whether the broker has it."""
        return self.is_there


@dataclass
class Client:
    """What stands in for the library."""

    confirms: bool = True
    sent: list[Info] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def publish(self, topic: str, text: str, qos: int, *, retain: bool = False) -> Info:
        """Note it."""
        assert retain
        self.sent.append(Info(topic, text, qos, is_there=self.confirms))
        return self.sent[-1]

    def disconnect(self) -> None:
        """Say good-bye."""
        self.ended.append("disconnect")

    def loop_stop(self) -> None:
        """Stop."""
        self.ended.append("stop")


@dataclass(frozen=True)
class Code:
    """What a broker answers."""

    is_failure: bool

    def __str__(self) -> str:
        """For people."""
        return "Not authorized"


class Bench:
    """A sender, its client, and what people are told."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str = "") -> None:
        """Of a file."""
        self.client = Client()
        monkeypatch.setattr(mqtt, "client_of", lambda *_: self.client)
        bridge = file.read(written(tmp_path, FILE + more))
        assert bridge.mqtt is not None
        self.mqtt = bridge.mqtt
        self.spool = Spool(tmp_path, {"mqtt": bridge.mqtt.choice})
        self._out = io.StringIO()
        self.sender = mqtt.MqttSender(bridge.mqtt, bridge.name, self.spool, Teller(out=self._out))

    def told(self) -> list[str]:
        """The sentences."""
        return [line.partition(" ")[2] for line in self._out.getvalue().splitlines()]

    def connect(self, *, is_failure: bool = False) -> None:
        """The broker answers."""
        self.sender._on_connect(None, None, None, Code(is_failure), None)

    def taken_away(self) -> list[str]:
        """The topics."""
        return [info.topic for info in self.client.sent if not info.text]


def camera(name: str) -> dict[str, Any]:
    """A camera, as the edge tells it."""
    return {
        "name": name,
        "contracts": [],
        "newest": None,
        "source": None,
        "connected": True,
        "frames_per_second": None,
    }


def test_each_outage_says_once_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is away, refuses, and is away again."""
    bench = Bench(tmp_path, monkeypatch)
    away = "mqtt: localhost:1883 cannot be reached; check server, security and ca"
    refused = "mqtt: localhost:1883 refuses this bridge: Not authorized"
    connected = "mqtt: connected to localhost:1883"
    for _ in range(3):
        bench.sender._on_connect_fail(None, None)
    assert bench.told() == [away]
    bench.connect(is_failure=True)
    bench.connect(is_failure=True)
    bench.sender._on_disconnect(None, None, None, Code(is_failure=True), None)  # type: ignore[arg-type]
    assert bench.told() == [away, refused]
    bench.connect()
    bench.sender._on_connect_fail(None, None)
    bench.sender._on_connect_fail(None, None)
    assert bench.told() == [away, refused, connected, away]


def test_topics_are_forgotten_once_the_broker_has_taken_them_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a camera that is gone, over a restart, and those of a prefix that is no longer wanted."""
    bench = Bench(tmp_path, monkeypatch)
    bench.connect()
    bench.sender.show([camera("dock/a"), camera("dock/b")])
    config, state = home.config_topic(bench.mqtt, "dock/b"), home.camera_topic(bench.mqtt, "dock/b")
    bench.client.confirms = False
    bench.sender.show([camera("dock/a")])
    assert sorted(bench.taken_away()) == sorted([config, state])
    assert {info.qos for info in bench.client.sent if not info.text} == {1}
    bench.sender.show([camera("dock/a")])
    assert len(bench.taken_away()) == 2, "once, while it is not confirmed"
    assert {config, state} <= set(bench.spool.topics)
    bench.spool.write()
    again = Bench(tmp_path, monkeypatch, 'discovery = ""\n')
    again.connect()
    again.sender.show([camera("dock/a")])
    assert sorted(again.taken_away()) == sorted([config, state, home.config_topic(bench.mqtt, "dock/a")])
    again.sender.show([camera("dock/a")])
    assert again.spool.topics == ["mez/hall7/cameras/dock/a", "mez/hall7/status"]
    assert len(again.taken_away()) == 3


def test_without_discovery_nothing_is_published_outside_the_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a camera goes."""
    bench = Bench(tmp_path, monkeypatch, 'discovery = ""\n')
    bench.connect()
    bench.sender.show([camera("dock/a")])
    bench.sender.show([])
    assert all(info.topic.startswith("mez/hall7/") for info in bench.client.sent)
    assert bench.taken_away() == ["mez/hall7/cameras/dock/a"]


def test_whoever_cannot_say_good_bye_leaves_it_to_the_last_will(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DISCONNECT would take the last will back, and the broker would keep `online`."""
    bench = Bench(tmp_path, monkeypatch)
    bench.connect()
    bench.sender.close()
    assert bench.client.ended == ["disconnect", "stop"]
    assert bench.client.sent[-1].text == "offline"
    bench.sender.show([camera("dock/a")])
    assert bench.client.sent[-1].text == "offline", "nothing comes after it"
    bench = Bench(tmp_path, monkeypatch)
    bench.connect()
    bench.client.confirms = False
    bench.sender.close()
    assert bench.client.ended == ["stop"]


def test_a_check_reads_the_password_of_the_broker(tmp_path: Path) -> None:
    """As the bridge would, and says what is wrong."""
    path = written(tmp_path, FILE + 'credentials = "secrets.toml"\n')
    secrets = tmp_path / "secrets.toml"
    with pytest.raises(BusError, match=r"mqtt\.credentials"):
        command.check(path, is_file_only=False)
    secrets.touch(mode=0o600)
    secrets.write_text('username = "a"\n')
    with pytest.raises(BusError, match="no username and password"):
        command.check(path, is_file_only=False)
