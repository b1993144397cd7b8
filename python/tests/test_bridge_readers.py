"""Readers of bridges, without an edge: what they are called, and that no fault of theirs stays unseen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from mez import _notes
from mez._commands import Teller
from mez.bridge import file as kafka_file
from mez.bridge import notes
from mez.bridge.dds import file as dds_file
from mez.bridge.dds.run import DdsRun
from mez.bridge.frames import FrameReader, Wanted
from mez.bridge.notes import WantedNotes
from mez.bridge.reader import Reader
from mez.errors import BrokerError, ConnectError
from mez.pipeline.errors import BusError
from tests.bridge_files import written

KAFKA = '[bridge]\nname = "b"\n[kafka]\nservers = "k:9092"\n[notes]\ncameras = "dock/*"\n'
DDS = '[bridge]\nname = "b"\n[dds]\n[detections]\ncameras = "dock/*"\n'


class Heard:
    """A board that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def tell(self, sentence: str) -> None:
        """Keep a sentence."""
        self.said.append(sentence)

    def event(self, kind: str, camera: str | None, **told: Any) -> None:  # noqa: ANN401, plain values
        """Events do not matter here."""

    def lose(self, count: int) -> None:
        """Nor does what is lost."""


class Cut(Reader):
    """Its connection breaks, and then cannot be let go of."""

    def open(self) -> None:
        """The edge is away."""
        raise ConnectError("no broker")

    def read(self) -> None:
        """The edge is away."""
        raise ConnectError("no broker")

    def leave(self) -> None:
        """A fault that nobody foresaw."""
        raise RuntimeError("cannot let go")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reader_that_cannot_let_go_of_its_connection_has_failed() -> None:
    """It does not end in silence: the bridge looks at `failure`."""
    reader = Cut("out.dock", Heard())
    reader.start()
    with pytest.raises(RuntimeError, match="cannot let go"):
        reader.close()
    assert str(reader.failure) == "cannot let go"


def test_an_edge_that_is_away_is_told_with_the_table_that_wants_it() -> None:
    """`stream.NAME` for Kafka, `out.NAME` for DDS, and the same words for both."""
    board = Heard()
    Cut("out.dock", board).open_or_tell()
    assert board.said == ["out.dock: no broker; trying again"]
    wanted = Wanted("out.dock", "dock", "dock/*", {}, None, 1, ("unix:///no/edge.sock",), None, "bridge b")
    FrameReader(wanted, board, ()).open_or_tell()
    assert board.said[1].startswith("out.dock: ")
    assert board.said[1].endswith("; trying again")


@pytest.mark.parametrize(
    ("wanted", "table"),
    [
        (lambda path: kafka_file.read(written(path, KAFKA)).wanted_notes(), "notes"),
        (lambda path: dds_file.read(written(path, DDS)).wanted_notes(), "detections"),
    ],
)
def test_errors_of_notes_name_a_table_that_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Path], WantedNotes], table: str
) -> None:
    """A missing grant, and an edge without logs on disk."""

    class Client:
        known: list[Any] | None = None

        def observable(self, _: str) -> list[Any] | None:
            """The cameras, or nothing without the grant."""
            return self.known

    client = Client()
    monkeypatch.setattr(notes, "connect", lambda *_, **__: client)
    with pytest.raises(BusError, match=rf"^{table}\.cameras: this program may not observe dock/\*"):
        notes.check(wanted(tmp_path))

    def no_notes(*_: object) -> None:
        error = BrokerError("there are no logs")
        error.reason = "NO_NOTES"
        raise error

    client.known = [cast("Any", type("Record", (), {"camera": "dock/cam1"}))]
    monkeypatch.setattr(_notes, "after", no_notes)
    with pytest.raises(BusError, match=rf"^{table}: .* or leave \[{table}\] out$"):
        notes.check(wanted(tmp_path))


def test_a_bridge_leaves_its_domain_also_if_a_reader_cannot_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other readers end too."""
    left: list[str] = []

    class Participant:
        """Notes that it was closed."""

        def __init__(self, *_: object) -> None:
            """Nothing is entered."""

        def close(self) -> None:
            """Leave."""
            left.append("domain")

    class Second(Cut):
        def leave(self) -> None:
            """Ends in order."""
            left.append("second")

    monkeypatch.setattr("mez.bridge.dds.run.Participant", Participant)
    run = DdsRun(dds_file.read(written(tmp_path, DDS)), tmp_path, Teller(is_json=False), 0.0)
    run._readers = [Cut("out.a", Heard()), Second("out.b", Heard())]
    with pytest.raises(RuntimeError):
        run._close()
    assert left == ["second", "domain"]
