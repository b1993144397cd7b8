"""What a report says of the events of a pipeline, and what becomes of folders that cannot be used."""

import itertools
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mez.pipeline import command
from mez.pipeline.errors import EventsError
from mez.pipeline.events import Events
from mez.pipeline.report import picture, reading, table
from mez.pipeline.report.reading import CUT_OFF, DAMAGED, OTHER_VERSION, TWICE, Way
from mez.pipeline.report.steps import Kind, steps
from mez.pipeline.report.summary import summary
from tests.pipelines import made

MS = 1_000_000
WALL_NS = 1_790_000_000_000_000_000
HERE, THERE = "boot-1", "boot-2"


def hop(stage: str, at: Mapping[str, float], clock: str = HERE, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """A hop of an event; stamps in milliseconds."""
    worker = "" if stage == "camera" else f"{stage}-0@host"
    stamps = {step: round(ms * MS) for step, ms in at.items()}
    told = {"stage": stage, "worker": worker, "clock": clock, "wall_ns": WALL_NS, "at": stamps}
    return {**told, "size": 100, "attempt": 1, **more}


def event(
    number: int = 0,
    *,
    face: int = 0,
    begin_ms: float | None = None,
    of_second: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A face of a frame: ingested in 10 ms, detected in 50 (AI 20), waited for 8, identified in 30."""
    at = number * 100.0 if begin_ms is None else begin_ms
    camera = hop("camera", {"captured": at}, error_ns=2 * MS)
    detect = hop(
        "detect",
        {
            "logged": at + 10,
            "handed": at + 11,
            "fetched": at + 12,
            "resized": at + 22,
            "ai.detected": at + 42,
            "made": at + 62,
            "sent": at + 63,
        },
    )
    identify = hop(
        "identify", {"fetched": at + 71, "made": at + 101, "sent": at + 101, "confirmed": at + 103}
    )
    return {
        "version": 1,
        "pipeline": "faces",
        "id": f"dock/cam1@1-{number}/detect.{face}/identify.0",
        "camera": "dock/cam1",
        "frame": f"1-{number}",
        "captured_ns": WALL_NS + round(at * MS),
        "hops": [camera, detect, {**identify, **(of_second or {})}],
    }


def written(folder: Path, *events: dict[str, Any], name: str = "identify-0", end: str = "") -> Path:
    """A folder with a file of these events."""
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(each) + "\n" for each in events)
    (folder / f"{name}.jsonl").write_text(lines + end)
    return folder


def way(told: dict[str, Any], tmp_path: Path) -> Way:
    """An event as it is read."""
    return reading.read(written(tmp_path / "one", told)).ways[0]


def test_the_steps_of_a_record_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    """From the capture to the confirmation; the marks say what was AI."""
    found = steps(way(event(), tmp_path))
    assert [(step.stage, step.name, step.kind, step.ns / MS) for step in found] == [
        ("detect", "ingest", Kind.INGESTION, 10),
        ("detect", "wait", Kind.WAITING, 1),
        ("detect", "fetch", Kind.WAITING, 1),
        ("detect", "resized", Kind.PRE, 10),
        ("detect", "ai.detected", Kind.AI, 20),
        ("detect", "rest", Kind.POST, 20),
        ("identify", "queue", Kind.WAITING, 1),
        ("identify", "wait", Kind.WAITING, 8),
        ("identify", "rest", Kind.WORK, 30),
        ("identify", "confirm", Kind.WAITING, 2),
    ]
    for before, after in itertools.pairwise(found):
        assert after.start_ns == before.end_ns
    assert (found[0].error_ns, found[1].error_ns) == (2 * MS, 0)


def test_a_mark_that_is_set_again_ends_its_step_later(tmp_path: Path) -> None:
    """Steps are cut by stamps, not by the order in the table; other marks can be declared as AI."""
    told = event()
    told["hops"][1]["at"] = {"fetched": 0, "found": 30, "cropped": 20, "made": 40}
    detect = [step for step in steps(way(told, tmp_path), ["found"]) if step.stage == "detect"][1:]
    assert [(step.name, step.kind, step.ns) for step in detect] == [
        ("cropped", Kind.PRE, 20),
        ("found", Kind.AI, 10),
        ("rest", Kind.POST, 10),
    ]


def test_means_and_shares_are_those_of_the_records(tmp_path: Path) -> None:
    """By stage and by kind; waiting is all that is between functions."""
    events = [event(number) for number in range(20)]
    found = summary(reading.read(written(tmp_path / "events", *events)))
    assert found.whole.mean == pytest.approx(101)
    detect, identify = found.stages["detect"], found.stages["identify"]
    assert (detect.records, identify.records) == (20, 20)
    assert detect.kinds[Kind.AI].mean == pytest.approx(20)
    assert detect.ai_share == pytest.approx(0.4) and detect.faster_max == pytest.approx(1 / 0.6)
    assert identify.ai_share is None
    assert found.waiting_share == pytest.approx(11 / 101)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.end is not None and found.end.mean == pytest.approx(2)
    assert found.clocks.captured_error_ms == 2 and not found.clocks.across


def test_what_records_have_in_common_counts_once(tmp_path: Path) -> None:
    """Two records that a last stage made of one face: one detection."""
    first, second = event(), event()
    second["id"] = second["id"].replace("identify.0", "identify.1")
    found = summary(reading.read(written(tmp_path / "events", first, second)))
    assert (found.stages["detect"].records, found.stages["identify"].records) == (1, 2)


def test_stamps_of_two_clocks_are_told_with_their_error(tmp_path: Path) -> None:
    """They are placed by the wall clocks. A step below zero shows by how much these differ at least."""
    other = {"clock": THERE, "wall_ns": WALL_NS - 20 * MS}
    found = summary(
        reading.read(written(tmp_path / "events", *(event(n, of_second=other) for n in range(3))))
    )
    assert found.clocks.across == {"identify": 3}
    assert found.clocks.smallest_ms["identify"] == pytest.approx(-12)
    notes = " ".join(table.notes_of(found))
    assert "3 steps before identify are measured with the clocks of two hosts" in notes
    assert "these clocks differ by at least 12.0 ms" in notes


def test_ingestion_that_cannot_keep_up_falls_behind_as_theory_says(tmp_path: Path) -> None:
    """A worker needs 51 ms for a frame that comes every 40: in a second of the camera that makes 275 ms."""
    events = []
    for number in range(50):
        late = event(number, begin_ms=number * 40.0)
        for one in late["hops"][1:]:
            one["at"] = {step: stamp + number * 11 * MS for step, stamp in one["at"].items()}
        events.append(late)
    found = summary(reading.read(written(tmp_path / "events", *events)))
    of = found.ingestion["detect"]
    assert (of.frames, of.cameras, of.workers, of.interval_ms) == (50, 1, 1, 40)
    assert of.set_ms == pytest.approx(51)
    assert of.growth_ms_per_s == pytest.approx(275) and of.expected_ms_per_s == pytest.approx(275)
    assert any("its delay grows by 275 ms/s" in note for note in table.notes_of(found))


def test_lines_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    """Cut off, damaged, of another version, twice; the others are there."""
    folder = written(tmp_path / "events", event(0), event(1), event(1), end=json.dumps(event(2))[:90])
    other = {**event(3), "version": 2}
    no_hops = {**event(4), "hops": []}
    written(folder, other, no_hops, {"version": 1}, name="identify-1", end="no JSON\n[]\n")
    written(folder, name="identify-2")
    found = reading.read(folder)
    assert [way.frame for way in found.ways] == ["1-0", "1-1"]
    assert found.files == 3
    assert found.left_out == {CUT_OFF: 1, TWICE: 1, OTHER_VERSION: 1, DAMAGED: 4}
    assert "left out: 1 line cut off at the end of a file" in table.notes_of(summary(found))[0]


def test_a_worker_that_is_started_again_begins_a_line(tmp_path: Path) -> None:
    """What the one before it left of a line is one line that cannot be used, and no more."""
    folder = written(tmp_path / "events", event(0), end='{"version": 1, "id')
    record = made(1)
    log = Events(folder, "faces", "identify-0")
    log.ended([(record, record.hops)])
    log.close()
    found = reading.read(folder)
    assert [way.frame for way in found.ways] == ["1-0", "1-1"]
    assert found.left_out == {DAMAGED: 1}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (None, "is not a folder; give the folder that events in [pipeline] names"),
        ([], "has no files of events (*.jsonl)"),
        ([""], "has no event in 1 file (no lines)"),
        (['{"version": 1, "id'], "(1 line cut off at the end of a file)"),
        (['{"version": 2}\n'], "(1 line of another version than 1)"),
    ],
)
def test_a_folder_without_events_is_told(tmp_path: Path, lines: list[str] | None, says: str) -> None:
    """With what is there instead."""
    folder = tmp_path / "events"
    if lines is not None:
        folder.mkdir()
        for number, text in enumerate(lines):
            (folder / f"identify-{number}.jsonl").write_text(text)
    with pytest.raises(EventsError) as refused:
        reading.read(folder)
    assert says in str(refused.value)


def test_the_command_prints_draws_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables and JSON on the standard output, and a picture of every kind."""
    folder = written(tmp_path / "events", *(event(number) for number in range(30)), end="{")
    drawn = tmp_path / "out" / "report.svg"
    words = [sys.executable, "-P", "-m", "mez", "pipeline", "report", str(folder)]
    done = subprocess.run(
        [*words, "--picture", str(drawn)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "pipeline faces: 30 records, mean 101.0 ms" in done.stdout
    assert "identify: no mark says which part is AI" in " ".join(done.stdout.split())
    assert "post-processing" in drawn.read_text()
    assert command.run(["report", str(folder), "--json", "--ai", "x"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stages"]["detect"]["kinds"]["AI"]["mean_ms"] == 20
    assert told["left_out"] == {CUT_OFF: 1}
    picture.draw(summary(reading.read(folder)), tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(EventsError, match=r"ends in \.svg"):
        picture.draw(summary(reading.read(folder)), tmp_path / "report.txt")
    assert command.run(["report", str(tmp_path / "nowhere")]) == 1
    assert "nowhere is not a folder; give the folder that events" in capsys.readouterr().err
