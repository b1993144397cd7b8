"""What tests share: surroundings of their own, and an edge broker inside the test's process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import mez
from tests.pipeline_runs import Running
from tests.pipelines_kafka import Kafka

# That of whoever runs the tests, before `surroundings` gives each test its own.
HOME = os.environ["HOME"]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the keys, the state or the brokers of whoever runs it."""
    for name in ("MEZ_KEYS", "MEZ_EDGE", "MEZ_LOG", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MEZ_STATE", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A real Kafka on loopback, for all tests of this process. It takes about three seconds to start."""
    kafka = Kafka(tmp_path_factory.mktemp("kafka"), HOME)
    yield kafka
    kafka.stop()


@pytest.fixture
def edge() -> Iterator[mez.Edge]:
    """An edge broker of this test alone."""
    with mez.edge() as edge:
        yield edge


@pytest.fixture
def running(request: pytest.FixtureRequest, tmp_path: Path, edge: mez.Edge) -> Running:
    """A pipeline on the bus that the test asks for; by default Mez's own."""
    kafka = request.getfixturevalue("kafka") if getattr(request, "param", "mez") == "kafka" else None
    return Running(tmp_path, edge.socket, kafka)


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures, to be profiled."""
    # Not above: most tests need no OpenCV.
    from tests.profiles import write_video

    folder = tmp_path_factory.mktemp("video")
    write_video(folder)
    return folder


@pytest.fixture(scope="session")
def app_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Applications to be profiled, good and bad."""
    from tests.profiles import APP

    path = tmp_path_factory.mktemp("apps") / "squares.py"
    path.write_text(APP)
    return path
