"""The file of a bridge to DDS: what it may say, and every fault told with its field."""

import subprocess
import sys
from pathlib import Path

import pytest

from mez.bridge import file as kafka_file
from mez.bridge.dds import command, file
from mez.bridge.dds.domain import Network, Qos
from mez.bridge.dds.file import In
from tests.bridge_files import faults, written

CHECKOUT = Path(__file__).parents[2]

WHOLE = """
[bridge]
name = "hall7"

[mez]
edge = ["unix:///run/mez/edge.sock", "b.local"]
keys = "keys"

[dds]
domain = 7
interfaces = ["eth1", "wlan0"]
peers = "robot1.local,10.0.0.9"
partition = "hall7"
sample_mib_max = 16

[out.dock]
cameras = "dock/*"
types = ["compressed", "image"]
latency_ms = 250
min_fps = 4
offers = "slow"
accuracy = 0.9
profile = "./people.json"

[out.yard]
cameras = "yard/*"
deliver = "every"

[in.front]
topic = "/robot1/front/image_raw"
camera = "robots/front"
type = "image"
stamps = "sender"

[detections]
cameras = "dock/*"

[contract.slow]
latency_ms = 500
min_fps = 2
"""


def test_a_whole_file(tmp_path: Path) -> None:
    """Contracts become qualities of service: lifespan of the latency bound, deadline of the frame rate."""
    bridge = file.read(written(tmp_path, WHOLE))
    assert (bridge.edge, bridge.keys) == (("unix:///run/mez/edge.sock", "b.local"), tmp_path / "keys")
    assert (bridge.publish_edge, bridge.publish_keys) == (("b.local",), tmp_path / "keys")
    peers = ("robot1.local", "10.0.0.9")
    assert bridge.network == Network(7, ("eth1", "wlan0"), peers, False, 16 << 20)
    assert (bridge.partition, bridge.detections) == ("hall7", "dock/*")
    dock, yard = bridge.outs["dock"], bridge.outs["yard"]
    assert (dock.types, dock.is_every, yard.types, yard.is_every) == (
        ("compressed", "image"), False, ("compressed",), True,
    )  # fmt: skip
    # Of the contract with the longest times that somebody may ask for.
    assert dock.qos == Qos(True, 1, True, lifespan_ns=500_000_000, deadline_ns=500_000_000)
    assert dock.offers == {"slow": {"latency_ms": 500, "min_fps": 2}}
    assert bridge.request_topic == "/mez/hall7/contract"
    assert yard.qos == Qos(True, 10, True)
    assert dock.contract == {
        "latency_ms": 250, "accuracy": 0.9, "min_fps": 4, "profile": str(tmp_path / "people.json"),
    }  # fmt: skip
    front = In("front", "/robot1/front/image_raw", "robots/front", "image", None, Qos(False, 1), True, 95)
    assert front.dds_topic == "rt/robot1/front/image_raw"
    assert bridge.ins == {"front": front}


def test_a_bridge_speaks_on_loopback_unless_its_file_says_otherwise(tmp_path: Path) -> None:
    """By unicast, and without a partition, as ROS 2."""
    bridge = file.read(written(tmp_path, '[bridge]\nname = "b"\n[dds]\n[out.dock]\ncameras = "dock/*"\n'))
    assert bridge.network == Network(0, ("lo",), (), False, 32 << 20)
    assert (bridge.partition, bridge.publish_edge) == ("", ())


def test_all_faults_are_told_at_once_each_with_its_field(tmp_path: Path) -> None:
    """Misspelt and wrong ones, in every table."""
    told = faults(
        file.read,
        tmp_path,
        """
        [bridge]
        name = "Hall 7"
        [mez]
        publish_edge = ["b.local", "unix:///run/mez/edge.sock"]
        [dds]
        domain = 231
        interfaces = "0.0.0.0"
        peers = ["robot 1"]
        partition = "*"
        [outs]
        [out.dock]
        camera = "dock/*"
        types = ["jpeg"]
        offers = "fast"
        [contract.usual]
        latency_ms = 0
        [in.a]
        topic = "robot1/image"
        camera = "robots/front"
        [in.b]
        topic = "/robot2/image"
        camera = "robots/front"
        [in.c]
        topic = "/robot3/image"
        camera = "../c d"
        [in.d]
        type = "frame"
        topic = "a b"
        camera = "robots/there"
        """,
    )
    assert told.keys() == {
        "bridge.name",
        "mez.publish_edge",
        "dds.domain",
        "dds.interfaces",
        "dds.peers",
        "dds.partition",
        "outs",
        "out.dock.camera",
        "out.dock.cameras",
        "out.dock.types",
        "out.dock.offers",
        "contract.usual",
        "contract.usual.latency_ms",
        "in.a.topic",
        "in.b.camera",
        "in.c.camera",
        "in.d.key",
        "in.d.topic",
    }
    assert told["dds.interfaces"] == "'0.0.0.0' is not an interface's name; give names such as lo or eth1"
    assert told["mez.publish_edge"].startswith("unix:///run/mez/edge.sock is a Unix socket")
    assert told["in.b.camera"] == "robots/front is also the camera of in.a; give each its own"


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ('[bridge]\nname = "b"\n[out.a]\ncameras = "a"\n', "dds", "is missing"),
        ('[bridge]\nname = "b"\n[dds]\n', "out", "there is nothing to copy"),
        (
            '[bridge]\nname = "b"\n[dds]\n' + "".join(f'[out.s{n}]\ncameras = "a"\n' for n in range(16)),
            "out",
            "there are 16; give at most 15",
        ),
    ],
)
def test_what_is_missing_or_too_much(tmp_path: Path, text: str, field: str, says: str) -> None:
    """The table of DDS, something to copy, and room for groups at the edge."""
    assert says in faults(file.read, tmp_path, text)[field]


def test_a_bridge_to_kafka_of_the_same_name_shares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither groups at the edge nor the folder that has the place in the notes."""
    kafka = tmp_path / "kafka.toml"
    kafka.write_text(
        '[bridge]\nname = "hall7"\n[kafka]\nservers = "k:9092"\n[stream.yard]\ncameras = "yard/*"\n'
    )
    path = written(tmp_path, WHOLE)
    assert kafka_file.read(kafka).group("yard") == "bridge.hall7.yard"
    assert file.read(path).group("yard") == "dds.hall7.yard"
    places: list[Path] = []
    monkeypatch.setattr(command, "until_ended", lambda place, *_: places.append(place))
    command.run(path, tmp_path, is_json=False, progress_s=0)
    assert places == [tmp_path / "bridges" / "dds.hall7"]


def test_the_history_of_a_topic_is_bounded_in_bytes(tmp_path: Path) -> None:
    """Samples times the size of the largest one, of writers and of readers."""
    text = """
    [bridge]
    name = "b"
    [dds]
    sample_mib_max = {size}
    [out.newest]
    cameras = "a/*"
    [out.every]
    cameras = "b/*"
    deliver = "every"
    [out.long]
    cameras = "c/*"
    history = 1000
    [in.front]
    topic = "/front"
    camera = "front"
    deliver = "every"
    """
    told = faults(file.read, tmp_path, text.format(size=103))
    assert told.keys() == {"out.every.history", "out.long.history", "in.front.deliver"}
    assert told["out.every.history"] == (
        "10 samples of 103 MiB are 1030 MiB, but a topic may hold 1024 MiB; give a shorter history, or a "
        "smaller dds.sample_mib_max"
    )
    assert faults(file.read, tmp_path, text.format(size=102)).keys() == {"out.long.history"}
    assert file.read(written(tmp_path, text.format(size=1))).outs["long"].qos.depth == 1000


def test_check_tells_files_of_kafka_and_of_dds_apart(tmp_path: Path) -> None:
    """`--file-only` asks nobody, and needs no library."""
    words = [sys.executable, "-m", "mez", "bridge", "check", "--file-only", str(written(tmp_path, WHOLE))]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "dock/* (newest) -> rt/NAME/{compressed,image}" in said.stdout
    assert "rt/robot1/front/image_raw -> robots/front" in said.stdout


def test_the_schema_is_the_one_in_the_documents() -> None:
    """After a change of a key: mez bridge schema dds > docs/schema/bridge-dds.json."""
    assert (CHECKOUT / "docs" / "schema" / "bridge-dds.json").read_text() == file.schema()
