"""What people are told of something that is waited for."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

import pytest
from confluent_kafka import KafkaError

from mez._hand import Hand
from mez._waits import AGAIN_S, CHANGE_S, Waits
from mez.pipeline import file, kafka_table
from mez.pipeline.errors import BusAwayError, BusError, BusRefusedError, BusUnsureError, RecordTooLargeError
from mez.pipeline.file import Pipeline
from mez.pipeline.function import Function
from mez.pipeline.kafka_client import Link
from mez.pipeline.record import Record
from mez.pipeline.replies import Replies
from mez.pipeline.run import Run
from mez.pipeline.worker import Worker
from tests.pipelines import made

COUNT_UNKNOWN: Final = "the number of waiting records is unknown"
COUNT_KNOWN: Final = "the number of waiting records is known again"


def test_it_is_said_once_then_each_minute_and_when_it_is_over() -> None:
    """Asked ten times a second for three minutes; it waits two of them."""
    said: list[tuple[float, str]] = []
    now_s = 0.0
    waits = Waits(lambda line: said.append((now_s, line)), "detect waits", "detect continues", lambda: now_s)
    for tenth in range(1800):
        now_s = tenth / 10
        waits.hear("no broker" if 10 <= now_s < 130 else "")
    assert said == [
        (10.0, "detect waits: no broker"),
        (10.0 + AGAIN_S, "detect waits, for 60 s so far: no broker"),
        (130.0, "detect continues, after 120 s"),
    ]


def test_a_new_reason_is_said_and_one_that_comes_and_goes_does_not_flood() -> None:
    """Two reasons in turn, ten times a second for a minute: a line each five seconds at most."""
    said: list[str] = []
    now_s = 0.0
    waits = Waits(said.append, "the bus is away", "the bus answers again", lambda: now_s)
    for tenth in range(600):
        now_s = tenth / 10
        waits.hear(("no broker", "no route")[tenth % 2])
    assert said[0] == "the bus is away: no broker"
    assert any(line.endswith("so far: no route") for line in said)
    assert len(said) <= 60 / CHANGE_S + 1


def faces(tmp_path: Path, more: str = "") -> Pipeline:
    """A pipeline of one stage."""
    (tmp_path / "stages.py").write_text("def detect(record):\n    return record.derive(1)\n")
    path = tmp_path / "faces.toml"
    path.write_text(
        '[pipeline]\nname = "faces"\n[stage.detect]\nrun = "stages.py:detect"\ncameras = "dock/*"\n' + more
    )
    return file.read(path)


@pytest.fixture
def told() -> list[str]:
    """What people are told."""
    return []


@pytest.fixture
def runner(tmp_path: Path, told: list[str]) -> Iterator[Run]:
    """A pipeline with two workers that is not started."""
    run = Run(faces(tmp_path, "workers = 2\n"), tmp_path, told.append)
    try:
        yield run
    finally:
        run._asking.close()


@pytest.mark.parametrize(
    ("fault", "begins", "goes_on"),
    [
        (BusAwayError("no broker"), "the bus is away", "the bus answers again"),
        (BusRefusedError("give it DESCRIBE"), COUNT_UNKNOWN, COUNT_KNOWN),
        (BusError("it does not say"), COUNT_UNKNOWN, COUNT_KNOWN),
        (BusUnsureError("Kafka does not know them now; try again"), COUNT_UNKNOWN, COUNT_KNOWN),
    ],
)
def test_a_bus_that_does_not_say_how_many_wait_is_not_away(
    runner: Run, told: list[str], fault: BusError, begins: str, goes_on: str
) -> None:
    """Records flow all the same."""
    runner._asking._fault = fault
    runner._write()
    runner._asking._fault = None
    runner._write()
    assert len(told) == 2
    assert told[0] == f"{begins}: {fault}"
    assert told[1].startswith(f"{goes_on}, after ")


@pytest.mark.parametrize("refused", [0, 1])
def test_a_refused_worker_is_seen_behind_one_whose_bus_is_away(runner: Run, refused: int) -> None:
    """Wherever it stands: nothing was done yet, so it is a mistake of set-up."""
    posts = runner._crew.of(["detect"])
    for number, post in enumerate(posts):
        post.report.away = "no right" if number == refused else "no broker"
        post.report.is_refused = number == refused
    with pytest.raises(BusRefusedError, match="detect cannot run: no right"):
        runner._look()


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordTooLargeError, r"raise max\.message\.bytes"),
        (KafkaError.RECORD_LIST_TOO_LARGE, RecordTooLargeError, r"raise max\.message\.bytes"),
        (KafkaError.INVALID_MSG_SIZE, RecordTooLargeError, r"raise max\.message\.bytes"),
        (KafkaError.INVALID_RECORD, BusError, "; this record cannot be sent$"),
        (KafkaError.INVALID_TIMESTAMP, BusError, "; this record cannot be sent$"),
        (KafkaError.INVALID_MSG, BusError, "; this record cannot be sent$"),
    ],
)
def test_larger_records_are_only_spoken_of_where_size_is_the_fault(
    code: int, kind: type[BusError], says: str
) -> None:
    """All of these are of the record alone, so none is waited for."""
    faults: list[tuple[str, str]] = []
    settings = kafka_table.read({"servers": "k:9092"}, Path(), faults)
    assert settings is not None, faults
    failed = Link(settings).failed("faces.detect", KafkaError(code))
    assert type(failed) is kind
    assert re.search(says, str(failed)), failed


def test_waiting_for_a_bus_is_no_work(tmp_path: Path) -> None:
    """The runner kills a worker by what this one reports: nothing, while the bus is away or refuses."""
    pipeline = faces(tmp_path)
    stage = pipeline.stages["detect"]
    assert stage.run is not None
    function = Function(stage.run, tmp_path, {})
    worker = Worker(stage, "detect-0", function, Hand(tmp_path / "hand"), True, Replies((), None, "faces"))
    told: list[tuple[float, str, bool]] = []

    class Bus:
        """Is away, then refuses, then takes what was made."""

        faults: ClassVar = [BusAwayError("away"), BusRefusedError("no right")]

        def send(self, _: Sequence[Record]) -> None:
            report = worker.now()
            told.append((report.in_hand_s, report.away, report.is_refused))
            if self.faults:
                raise self.faults.pop(0)

        def close(self) -> None:
            """Nothing is held."""

    settled: list[str] = []

    class Given:
        """A record in the worker's hands."""

        record = made(1)

        def done(self) -> None:
            settled.append("done")

        def failed(self, error: str) -> None:
            settled.append(error)

    worker.handle(Given(), Bus())
    assert told == [(0.0, "", False), (0.0, "away", False), (0.0, "no right", True)]
    assert settled == ["done"]
