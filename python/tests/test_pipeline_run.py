"""Pipelines as people run them: `mez pipeline`, with workers in processes of their own."""

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

import mez
from mez.pipeline import envelope
from mez.pipeline.record import Record
from tests.pipeline_runs import Running, publish
from tests.pipelines import until
from tests.pipelines_otlp import Receiver, receiving

# On a busy machine Kafka, and a handful of interpreters, take their time to start.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of traces of this test alone."""
    with receiving() as receiver:
        yield receiver


BOTH = pytest.mark.parametrize("running", ["mez", "kafka"], indirect=True)


@BOTH
def test_frames_go_through_all_stages_and_ctrl_c_drains(
    running: Running, edge: mez.Edge, receiver: Receiver
) -> None:
    """Every frame makes two results, which know their frame; the table says so; nothing waits in the end.

    Where the time went is in the events and in the traces.
    """
    running.usual(head=f'events = "events"\notlp = "{receiver.address}"')
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        mez.publisher("dock/cam2", edge=edge) as other,
        edge.subscribe("dock/*/count", deliver="every") as results,
        running.run(),
    ):
        for _ in range(5):
            publish(camera, 1)
            publish(other, 1)
            found = [results.next(timeout=60) for _ in range(4)]
            numbers = {
                (frame.of.camera, frame.data["number"], frame.data["half"]) for frame in found if frame.of
            }
            assert len(numbers) == 4
            assert all(frame.of and frame.of.id.sequence == frame.data["number"] for frame in found)
        told = until(
            running.status,
            lambda told: told["stages"]["count"]["taken"] == 20 and told["stages"]["count"]["waiting"] == 0,
            "the status has all",
        )
        assert told["stages"]["detect"]["made"] == 20
        assert (told["stages"]["count"]["ready"], told["stages"]["count"]["workers"]) == (2, 2)
        table = running.ask("status")
        assert "detect" in table and "running" in table
    assert "ended; nothing waits" in running.said[-1]
    lines = [
        line for file in (running.folder / "events").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    ways = [json.loads(line) for line in lines]
    assert len({way["id"] for way in ways}) == 20
    for way in ways:
        hops = {hop["stage"]: hop["at"] for hop in way["hops"]}
        assert list(hops) == ["camera", "detect", "count"]
        assert {"captured"} <= hops["camera"].keys()
        assert {"fetched", "found", "made", "sent"} <= hops["detect"].keys()
        assert {"fetched", "made", "sent", "confirmed"} <= hops["count"].keys()
        stamps = [stamp for at in hops.values() for stamp in at.values()]
        assert stamps[1:] == sorted(stamps[1:])
    _is_reported(running, receiver)
    assert running.ask("status").startswith(f"pipeline {running.name}: not running")


def _is_reported(running: Running, receiver: Receiver) -> None:
    """Ten frames, of which each made two records: in the report, and at the receiver of traces."""
    words = [*running.command("report")[:-1], str(running.folder / "events"), "--json", "--ai", "found"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    told = json.loads(done.stdout)
    assert (told["pipeline"], told["records"], told["left_out"]) == (running.name, 20, {})
    assert {name: stage["records"] for name, stage in told["stages"].items()} == {"detect": 20, "count": 20}
    assert told["stages"]["detect"]["ai_share"] > 0 and told["stages"]["count"]["ai_share"] is None
    assert told["ingestion"]["detect"]["frames"] == 10
    assert told["clocks"]["across"] == {}
    spans = receiver.spans()
    assert len({span.trace_id for span in spans}) == 10
    names = [span.name for span in spans if not span.parent_span_id]
    assert names == ["ingest"] * 10
    of_stages = {name: [span for span in spans if span.name == name] for name in ("detect", "count")}
    assert {name: len({span.span_id for span in of}) for name, of in of_stages.items()} == {
        "detect": 20,
        "count": 20,
    }
    # Sent by processes that know nothing of each other.
    assert {span.parent_span_id for span in of_stages["count"]} == {
        span.span_id for span in of_stages["detect"]
    }


@BOTH
def test_a_worker_that_is_killed_is_started_again_and_nothing_is_lost(
    running: Running, edge: mez.Edge
) -> None:
    """In the middle of a record, twice; it is told."""
    running.usual()
    for number in (2, 4):
        (running.folder / f"die-{number}").touch()
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*/count", deliver="every") as results,
        running.run(),
    ):
        for number in range(6):
            publish(camera, 1)
            found = running.counted(results, 2)
            assert {(one["number"], one["half"]) for one in found} == {(number, "0"), (number, "1")}
        until(running.status, lambda told: told["stages"]["count"]["restarts"] == 2, "both are told")
    deaths = [line for line in running.said if "killed by SIGKILL while processing" in line]
    assert len(deaths) == 2 and "restarts in 0.2 s" in deaths[0]


def test_a_poison_record_is_a_dead_letter(running: Running, edge: mez.Edge) -> None:
    """Its error is told; the others go on."""
    running.usual(more="options.poison = 1\ntries = 2\n")
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*/count", deliver="every") as results,
        running.run(),
    ):
        for number in range(4):
            publish(camera, 1)
            if number != 1:
                assert {one["number"] for one in running.counted(results, 2)} == {number}
        until(
            running.status, lambda told: told["stages"]["count"]["dead"] == 2, "both halves are dead letters"
        )
        said = running.ask("dead", "count")
        assert said.count("after 2 tries: ValueError: no face in it (stages.py:") == 2


@BOTH
def test_a_record_that_kills_its_worker_each_time_is_a_dead_letter(running: Running, edge: mez.Edge) -> None:
    """After its tries, though no worker was left to say so. The others go on."""
    running.usual(more="tries = 2\n")
    (running.folder / "deadly-1").touch()
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*/count", deliver="every") as results,
        running.run(),
    ):
        for number in range(3):
            publish(camera, 1)
            halves = [one["half"] for one in running.counted(results, 1 if number == 1 else 2)]
            assert sorted(halves) == (["1"] if number == 1 else ["0", "1"])
        until(running.status, lambda told: told["stages"]["count"]["dead"] == 1, "it is a dead letter")
        assert "after 2 tries: " in running.ask("dead", "count")
    assert sum("while processing dock/cam1@1-1/detect.0" in line for line in running.said) >= 2


def test_a_worker_that_hangs_is_killed_and_its_record_is_given_again(
    running: Running, edge: mez.Edge
) -> None:
    """After `again_after_s`."""
    running.usual(more="again_after_s = 1\n")
    (running.folder / "hang-0").touch()
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*/count", deliver="every") as results,
        running.run(),
    ):
        publish(camera, 1)
        assert {one["half"] for one in running.counted(results, 2)} == {"0", "1"}
        until(running.status, lambda told: told["stages"]["count"]["restarts"] >= 1, "it is told")
    assert any("worked for more than 1 s on dock/cam1@" in line for line in running.said)


def test_a_worker_that_leaks_is_started_again_between_records(running: Running, edge: mez.Edge) -> None:
    """It finishes its record first, so that none is given twice."""
    running.write(
        f"""
[stage.hog]
run = "stages.py:hog"
cameras = "dock/*"
plain = true
memory_mib_max = 200
options.folder = "{running.folder}"
"""
    )
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        # Frames cross because somebody watches, also while the only worker is away.
        edge.subscribe("dock/*"),
        edge.subscribe("dock/*/hog", deliver="every") as results,
        running.run(),
    ):
        origins, processes = [], set()
        for _ in range(5):
            publish(camera, 1)
            frame = results.next(timeout=60)
            assert frame.of is not None
            origins.append(frame.of.id.sequence)
            processes.add(frame.data)
        assert origins == [0, 1, 2, 3, 4]
        assert len(processes) > 1
    assert any("used more than 200 MiB of memory; it restarts" in line for line in running.said)


def test_what_waits_at_the_end_is_told_and_waits_for_the_next_start(running: Running, edge: mez.Edge) -> None:
    """The drain has its time; the groups keep their place as long as the edge runs."""
    running.usual(head="drain_s = 0.5", more="again_after_s = 60\n")
    wait = running.folder / "wait"
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*/count", deliver="every") as results,
    ):
        wait.touch()
        with running.run(expect=1), edge.subscribe("dock/cam1", deliver="every") as frames:
            for number in range(4):
                publish(camera, 1)
                # A link carries the newest frame: one after the other.
                assert frames.next(timeout=60).sequence == number
            until(running.status, lambda told: told["stages"]["detect"]["made"] == 8, "all were detected")
        assert (
            sum("did not end, and was killed; its record is given again" in line for line in running.said)
            == 2
        )
        assert "ended; waiting on the bus for the next start: 8 for count" in running.said[-1]
        wait.unlink()
        with running.run():
            found = running.counted(results, 8)
            assert {(one["number"], one["half"]) for one in found} == {(n, h) for n in range(4) for h in "01"}


def test_workers_end_with_the_runner(running: Running, edge: mez.Edge) -> None:
    """`kill -9` of the runner leaves no process, and the next start is not held up."""
    running.usual()
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*/count", deliver="every") as results,
    ):
        with running.run() as process:
            publish(camera, 1)
            pids = {one["pid"] for one in running.counted(results, 2)}
            process.kill()
            process.wait()
            until(lambda: any(map(_runs, pids)), lambda runs: not runs, "workers have ended")
        with running.run():
            publish(camera, 1)
            found: list[tuple[int, str]] = []
            # What was done and not yet said to be done may come twice.
            while not {(1, "0"), (1, "1")} <= set(found):
                (one,) = running.counted(results, 1)
                found.append((one["number"], one["half"]))
            assert {number for number, _ in found} <= {0, 1}


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_stage_s_records_are_read_by_name_of_the_envelope(running: Running, edge: mez.Edge) -> None:
    """What travels between stages says what it is, so that other programs can open it."""
    running.usual()
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*/detect", deliver="every") as records,
        running.run(),
    ):
        publish(camera, 1)
        frame = records.next(timeout=60)
        assert frame.content_type == envelope.ENVELOPE
        record: Record = envelope.unpack(frame.payload, 1)
        assert (record.id, record.content_type) == ("dock/cam1@1-0/detect.0", "application/json")
        assert record.data["number"] == 0
