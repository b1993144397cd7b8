"""The bridge's file: what it may say, and every fault told with its field."""

import subprocess
import sys
from pathlib import Path

import pytest

from mez.bridge import file
from mez.bridge.file import Stream
from mez.pipeline.errors import FileError
from tests.bridge_files import faults, written

CHECKOUT = Path(__file__).parents[2]

WHOLE = """
[bridge]
name = "hall7"
drain_s = 5
unconfirmed_mib_max = 8

[mez]
edge = ["a.local", "b.local"]
keys = "keys"

[kafka]
servers = "kafka1:9093,kafka2:9093"
ca = "ca.pem"
sasl = "SCRAM-SHA-512"
credentials = "secrets.toml"

[stream.frames]
cameras = "dock/*"
latency_ms = 200
accuracy = 0.9
profile = "./people.json"

[stream.faces]
cameras = "dock/*/faces"
topic = "hall7.faces"
deliver = "newest"

[notes]
cameras = "dock/*"
"""


def test_a_whole_file(tmp_path: Path) -> None:
    """Defaults, paths beside the file, and the topics that are needed."""
    bridge = file.read(written(tmp_path, WHOLE))
    assert (bridge.name, bridge.drain_s, bridge.unconfirmed_bytes_max) == ("hall7", 5.0, 8 << 20)
    assert (bridge.edge, bridge.keys) == (("a.local", "b.local"), tmp_path / "keys")
    assert (bridge.kafka.tls, bridge.kafka.ca) == (True, tmp_path / "ca.pem")
    contract = {"latency_ms": 200, "accuracy": 0.9, "profile": str(tmp_path / "people.json")}
    assert bridge.streams["frames"] == Stream("frames", "dock/*", "mez.frames", True, contract)
    assert bridge.streams["faces"] == Stream("faces", "dock/*/faces", "hall7.faces", False, {})
    assert bridge.topics == ["mez.frames", "hall7.faces", "mez.results", "mez.events", "mez.dead"]
    assert bridge.group("frames") == "bridge.hall7.frames"


def test_all_faults_are_told_at_once_each_with_its_field(tmp_path: Path) -> None:
    """Misspelt and wrong ones, in every table, and secrets."""
    told = faults(
        file.read,
        tmp_path,
        """
        [bridge]
        name = "Hall 7"
        unconfirmed_max = 1
        dead = "mez dead"
        [kafka]
        servers = "kafka1:9093"
        password = "guess"
        [streams]
        [stream.frames]
        camera = "dock/*"
        deliver = "all"
        [notes]
        cameras = "dock/*"
        result = "x"
        """,
    )
    assert told.keys() == {
        "streams",
        "bridge.name",
        "bridge.unconfirmed_max",
        "bridge.dead",
        "kafka.password",
        "stream.frames.camera",
        "stream.frames.cameras",
        "stream.frames.deliver",
        "notes.result",
    }
    assert told["stream.frames.camera"].endswith("did you mean cameras?")
    assert told["notes.result"].endswith("did you mean results?")
    assert told["stream.frames.deliver"] == "is 'all'; give 'every' or 'newest'"
    assert "kafka.credentials" in told["kafka.password"]
    assert "the tables are bridge, mez, kafka, notes and stream.NAME" in told["streams"]


@pytest.mark.parametrize(
    ("without", "field", "says"),
    [
        ("kafka", "kafka", "is missing; give [kafka] with servers"),
        ("everything", "stream", "there is nothing to copy"),
        ("room", "stream", "there are 16 streams; give at most 15"),
    ],
)
def test_what_is_missing_or_too_much(tmp_path: Path, without: str, field: str, says: str) -> None:
    """A cluster, something to copy, and room for groups at the edge."""
    kafka = '[kafka]\nservers = "127.0.0.1:9092"\n'
    streams = "".join(f'[stream.s{number}]\ncameras = "dock/*"\n' for number in range(16))
    text = {
        "kafka": '[bridge]\nname = "b"\n[stream.frames]\ncameras = "dock/*"\n',
        "everything": f'[bridge]\nname = "b"\n{kafka}',
        "room": f'[bridge]\nname = "b"\n{kafka}{streams}',
    }[without]
    assert says in faults(file.read, tmp_path, text)[field]


def test_a_file_that_is_not_there_or_no_toml(tmp_path: Path) -> None:
    """What to do stands in the message."""
    with pytest.raises(FileError, match=r"cannot be read .*; give the path of a file"):
        file.read(tmp_path / "none.toml")
    with pytest.raises(FileError, match=r"is not valid TOML: .*; see docs/bridge\.md"):
        file.read(written(tmp_path, "[bridge"))


def test_check_says_what_is_wrong(tmp_path: Path) -> None:
    """A line for each fault, and status 1; `--file-only` asks nobody."""
    words = [sys.executable, "-m", "mez", "bridge", "check", "--file-only"]
    right = subprocess.run(
        [*words, str(written(tmp_path, WHOLE))], capture_output=True, text=True, check=False
    )
    assert right.returncode == 0, right.stderr
    assert "2 streams, topics mez.frames, hall7.faces" in right.stdout
    wrong = written(tmp_path, WHOLE.replace("drain_s", "drain"))
    said = subprocess.run([*words, str(wrong)], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "bridge.drain: unknown key; did you mean drain_s?" in said.stderr


def test_the_schema_is_the_one_in_the_documents() -> None:
    """After a change of a key: mez bridge schema > docs/schema/bridge.json."""
    assert (CHECKOUT / "docs" / "schema" / "bridge.json").read_text() == file.schema()
