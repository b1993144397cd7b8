"""Pipeline files: what they say, and what is refused with the field and what to do."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mez
from mez._reports import UNUSABLE
from mez.pipeline import Record, file, function
from mez.pipeline import record as records
from mez.pipeline.bus import Cameras, Made
from mez.pipeline.errors import FileError, StageError
from tests.pipelines import made

CHECKOUT = Path(__file__).parents[2]

WHOLE = """
[pipeline]
name = "faces"
bus = "kafka"
drain_s = 5

[mez]
edge = ["a.local", "b.local"]

[kafka]
servers = "kafka1:9093,kafka2:9093"
ca = "ca.pem"
sasl = "SCRAM-SHA-512"
credentials = "secrets/kafka.toml"

[stage.names]
run = "package.names:Names"
after = "crop"
bus = "mez"
plain = true

[stage.crop]
after = "detect"

[stage.detect]
run = "faces.py:detect"
cameras = "dock/*"
workers = 2
deliver = "newest"
accuracy = 0.9
profile = "profiles/people.json"
options = { threshold = 0.5 }
"""


def written(tmp_path: Path, text: str) -> Path:
    """A pipeline file."""
    path = tmp_path / "faces.toml"
    path.write_text(text)
    return path


def test_a_file_is_read_with_defaults_and_stages_in_order(tmp_path: Path) -> None:
    """Paths are relative to the file; a stage reads on the bus of the one before it."""
    pipeline = file.read(written(tmp_path, WHOLE))
    assert list(pipeline.stages) == ["detect", "crop", "names"]
    detect, crop, names = pipeline.stages.values()
    assert detect.source == Cameras("dock/*", True, None, 0.9, str(tmp_path / "profiles/people.json"))
    assert crop.source == Made("detect", "dock/*") and names.source == Made("crop", "dock/*")
    assert [(stage.reads_on, stage.bus) for stage in pipeline.stages.values()] == [
        ("mez", "kafka"),
        ("kafka", "kafka"),
        ("kafka", "mez"),
    ]
    # Without `run` a program of somebody else does the work.
    assert [stage.workers for stage in pipeline.stages.values()] == [2, 0, 1]
    assert pipeline.edge == ("a.local", "b.local")
    kafka = pipeline.kafka
    assert kafka is not None
    # Not on loopback: TLS, without being asked.
    assert kafka.tls and kafka.servers == ("kafka1:9093", "kafka2:9093")
    assert kafka.credentials == tmp_path / "secrets/kafka.toml"


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        ("workers = 2", "workers = 0", "stage.detect.workers", "give a whole number from 1 to 256"),
        ("workers = 2", 'workers = "two"', "stage.detect.workers", "is 'two'; give a whole number"),
        ("workers = 2", "worker = 2", "stage.detect.worker", "did you mean workers?"),
        ('after = "crop"', 'after = "corp"', "stage.names.after", "the other stages are crop, detect"),
        ('after = "detect"', 'after = "names"', "stage", "names, crop wait for each other"),
        ('cameras = "dock/*"', 'cameras = "dock/**"', "stage.detect.cameras", "would also match"),
        ('after = "crop"', 'after = "crop"\ncameras = "dock/*"', "stage.names", "give either cameras"),
        ('after = "crop"', 'after = "crop"\naccuracy = 0.9', "stage.names.accuracy", "leave it out"),
        ('after = "detect"', 'after = "detect"\nworkers = 3', "stage.crop.workers", "or give run"),
        ('run = "faces.py:detect"', 'run = "faces.py"', "stage.detect.run", "give FILE.py:NAME"),
        ('deliver = "newest"', 'deliver = "newest"\ntries = 3', "stage.detect.tries", "has no effect with"),
        ("[stage.crop]", "[stage.Crop]", "stage.Crop", "is not a valid name"),
        ("[stage.crop]", "[stage.camera]", "stage.camera", "give another"),
        ('bus = "kafka"', 'bus = "nats"', "pipeline.bus", "give 'mez' or 'kafka'"),
        ("drain_s = 5", "drain_s = -1", "pipeline.drain_s", "from 0 to 3600"),
        ('name = "faces"', "", "pipeline.name", "is missing"),
        ("drain_s = 5", 'otlp = "localhost:4318"', "pipeline.otlp", "is not an address; give http:"),
        ("drain_s = 5", 'otlp = "http://traces:4318"', "pipeline.otlp", "unencrypted; give https://"),
        ("drain_s = 5", 'otlp = "https://me:guess@traces"', "pipeline.otlp", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("drain_s = 5", 'otlp = "https://traces/v1/traces"', "pipeline.otlp", "leave it out"),
        ('ca = "ca.pem"', 'password = "guess"', "kafka.password", "must not contain secrets"),
        ('ca = "ca.pem"', 'security = "plaintext"', "kafka.security", "unencrypted"),
        ('ca = "ca.pem"', 'key = "key.pem"', "kafka.key", "go together"),
        ('sasl = "SCRAM-SHA-512"', "", "kafka.credentials", "has no effect without sasl or key"),
        ("[mez]", "[edge]", "edge", "unknown table"),
        ('servers = "kafka1:9093,kafka2:9093"', "", "kafka.servers", "is missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, field: str, says: str) -> None:
    """The field first, then what to do."""
    assert old in WHOLE
    with pytest.raises(FileError) as refused:
        file.read(written(tmp_path, WHOLE.replace(old, new, 1)))
    assert any(where == field and says in what for where, what in refused.value.faults), refused.value.faults


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    """A line for each."""
    text = WHOLE.replace("workers = 2", "workers = 0").replace("drain_s = 5", "drain_s = -1")
    with pytest.raises(FileError) as refused:
        file.read(written(tmp_path, text))
    assert len(str(refused.value).splitlines()) == 2
    with pytest.raises(FileError, match="cannot be read"):
        file.read(tmp_path / "none.toml")
    with pytest.raises(FileError, match="is not valid TOML"):
        file.read(written(tmp_path, "[pipeline"))


def test_the_schema_is_what_the_reader_takes() -> None:
    """After a change of a key: mez pipeline schema > docs/schema/pipeline.json."""
    written = (CHECKOUT / "docs" / "schema" / "pipeline.json").read_text()
    assert written == file.schema()
    told = json.loads(written)
    assert set(told["properties"]) == {"pipeline", "mez", "kafka", "stage"}
    assert told["properties"]["stage"]["additionalProperties"]["properties"]["workers"]["maximum"] == 256


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """`mez pipeline`."""
    line = [sys.executable, "-P", "-m", "mez", "pipeline", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def test_check_says_what_is_right_and_what_is_not(tmp_path: Path, edge: mez.Edge) -> None:
    """The file, the functions and their options, and whether the buses answer."""
    (tmp_path / "stages.py").write_text("def detect(record, threshold): ...\n")
    text = f"""
[pipeline]
name = "faces"
[mez]
edge = "unix://{edge.socket}"
[stage.detect]
run = "stages.py:detect"
cameras = "dock/*"
options.threshold = 0.5
"""
    path = written(tmp_path, text)
    said = command("check", path)
    assert said.returncode == 0, said.stderr
    assert "dock/* -mez-> detect x1" in said.stdout and "the bus mez answers" in said.stdout
    for old, new, told in (
        ("stages.py:detect", "stages.py:embed", "has no function or class embed"),
        ("stages.py:detect", "nothing.py:detect", "there is no file"),
        ("threshold = 0.5", "limit = 0.5", "does not accept its options (limit)"),
        (str(edge.socket), str(tmp_path / "nowhere"), "the edge"),
    ):
        said = command("check", written(tmp_path, text.replace(old, new)))
        assert said.returncode == 1 and told in said.stderr, (told, said.stderr)
    # A runner does not try again and again what cannot work.
    path = written(tmp_path, text.replace("stages.py:detect", "stages.py:embed"))
    assert command("worker", path, "detect", "0", tmp_path / "hand").returncode == UNUSABLE
    said = command("run", path)
    assert said.returncode == 1 and "detect-0 cannot run" in said.stderr


def test_a_stage_returns_records_or_is_told_so(tmp_path: Path) -> None:
    """What it made has identities of its own, also if it returns what it was given."""
    (tmp_path / "returns.py").write_text(
        "def same(record): return record\n"
        "def twice(record): return [record, record]\n"
        "def none(record): return None\n"
        "def text(record): return 'text'\n"
        "def among(record): yield record.derive(1); yield 2\n"
        "class Kept:\n    def __init__(self): raise OSError('no model')\n"
    )

    def called(name: str) -> list[Record]:
        given = made(1)
        records.begin(given)
        return function.Function(f"returns.py:{name}", tmp_path, {})(given, "embed", "embed-0@host")

    (same,) = called("same")
    assert same.id == "dock/cam1@1-1/detect.0/embed.0"
    assert [hop.stage for hop in same.hops] == ["camera", "detect", "embed"]
    assert [record.id[-7:] for record in called("twice")] == ["embed.0", "embed.1"]
    assert called("none") == []
    for name, told in (("text", "returned str; return None, a record"), ("among", "among them was int")):
        with pytest.raises(TypeError, match=told):
            called(name)
    with pytest.raises(mez.Error, match="failed: OSError: no model"):
        called("Kept")
    with pytest.raises(StageError, match=r"give FILE\.py:NAME beside the pipeline file"):
        function.Function("nothing.py:same", tmp_path, {})


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda record: record.mark("sent"), "step"),
        (lambda record: record.mark("Two words"), "step"),
        (lambda record: record.derive(1, headers={"mez-id": "x"}), "headers"),
        (lambda record: record.derive(1, headers={"a": 1}), "headers"),
        (lambda record: record.derive(1, headers={"a": "x" * (17 << 10)}), "headers"),
        (lambda record: record.derive(float("nan")), "payload"),
    ],
)
def test_what_a_record_does_not_take_is_refused(call: "object", field: str) -> None:
    """With the name of the argument."""
    assert callable(call)
    with pytest.raises(mez.Error) as refused:
        call(made(1))
    assert refused.value.field == field


def test_the_page_about_pipelines_shows_files_that_are_right(tmp_path: Path) -> None:
    """And its table has every key of a stage."""
    page = (CHECKOUT / "docs" / "pipelines.md").read_text()
    whole, based, kafka = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert list(file.read(written(tmp_path, based)).stages) == ["detect", "embed", "classify"]
    pipeline = file.read(written(tmp_path, whole.replace("[pipeline]", '[pipeline]\nbus = "kafka"') + kafka))
    assert list(pipeline.stages) == ["detect", "embed"] and pipeline.kafka is not None
    told = json.loads(file.schema())["properties"]["stage"]["additionalProperties"]["properties"]
    table = page[page.index("| `[stage.NAME]` |") : page.index("`[pipeline]` has")]
    assert set(
        re.findall(r"`([a-z_]+)`", "".join(line.split("|")[1] for line in table.splitlines()[2:] if line))
    ) == set(told)
