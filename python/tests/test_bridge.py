"""The bridge, as a process of its own, between a real edge and a real Kafka, and what faults leave."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import mez
from mez import _native
from mez.pipeline import envelope
from tests.bridges import (
    BridgeProcess,
    complete,
    in_topic,
    tables,
    with_password,
    without_repeats,
)
from tests.kafka_rules import Forbidden
from tests.pipelines import until
from tests.pipelines_kafka import Kafka
from tests.support import enrolled, flowing, picture, profile_of
from tests.test_store import store_key

# On a busy machine Kafka, and a handful of interpreters, take their time to start.
pytestmark = pytest.mark.timeout(300)


def test_frames_derived_records_results_and_events_with_their_headers(tmp_path: Path, kafka: Kafka) -> None:
    """As docs/bridge.md describes them; Ctrl-C waits for confirmations and says what was done."""
    name = kafka.name()
    more = f'[stream.faces]\ncameras = "dock/*/faces"\ntopic = "{name}.faces"\n'
    more += f'[notes]\ncameras = "dock/*"\nresults = "{name}.results"\n'
    with (
        mez.edge(store=tmp_path / "store", store_key=store_key(tmp_path), state=tmp_path / "edge") as edge,
        BridgeProcess(tmp_path, tables(edge, kafka, name, more)) as bridge,
        mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as faces,
    ):
        bridge.runs()
        with (
            flowing("dock/cam1", edge=edge),
            edge.subscribe("dock/cam1", latency_ms=1000, application="counter") as frames,
        ):
            frame = frames.next(timeout=30)
            frame.reply([(1.0, 2.0, 30.0, 40.0, 0.9)])
            faces.send_data({"names": ["Ada"]}, of=frame)
            frame = frames.next(timeout=30)
            frame.reply({"count": 3})
            results = until(
                lambda: in_topic(kafka, f"{name}.results"), lambda found: len(found) >= 2, "results"
            )
            events = until(
                lambda: [at.json for at in in_topic(kafka, f"{name}.events")],
                lambda found: any(at["kind"] == "contract" for at in found),
                "a contract is told",
            )
        (face,) = until(lambda: in_topic(kafka, f"{name}.faces"), lambda found: bool(found), "a record")
        found = complete(edge, kafka, f"{name}.frames", "dock/cam1")
        assert bridge.interrupt() == 0
    first = found[0]
    told = first.headers
    assert first.key == told["mez-camera"] == told["mez-stream"] == "dock/cam1"
    assert first.id == f"dock/cam1@{told['mez-frame']}"
    assert first.value == _native.encode_jpeg(picture(1), 90)
    assert (told["content-type"], told["mez-encoding"], told["mez-rung"]) == (
        "image/jpeg",
        "jpeg",
        "original",
    )
    assert (told["mez-size"], told["mez-published-size"]) == ("64x48", "64x48")
    assert told["mez-contract-state"] in ("ok", "unverified")
    assert told["mez-contract-reason"]
    assert (told["mez-bridge"], told["mez-version"]) == ("hall7", "1")
    assert int(told["mez-captured-ns"]) <= time.time_ns()
    record = envelope.opened(told, memoryview(first.value), 1)
    assert (record.id, record.camera, record.published_size) == (first.id, "dock/cam1", (64, 48))
    assert [hop.stage for hop in record.hops] == ["camera"]
    assert face.json == {"names": ["Ada"]}
    assert (face.key, face.headers["mez-camera"]) == ("dock/cam1", "dock/cam1")
    assert face.headers["mez-stream"] == "dock/cam1/faces"
    assert face.id.startswith("dock/cam1/faces@")
    boxes = next(at.json for at in results if "detections" in at.json)
    count = next(at.json for at in results if "result" in at.json)
    assert boxes["frame"] == face.headers["mez-frame"]
    assert boxes["detections"][0]["xyxy"] == [1.0, 2.0, 30.0, 40.0]
    assert (count["result"], count["application"], count["kind"]) == ({"count": 3}, "counter", "result")
    assert f"dock/cam1@{count['frame']}" in {message.id for message in found}
    contract = next(at for at in events if at["kind"] == "contract")
    assert contract["camera"] == "dock/cam1"
    assert contract["state"]
    assert any(at["kind"] == "started" and at["bridge"] == "hall7" for at in events)
    assert [message.id for message in found] == without_repeats(found, "dock/cam1")
    assert bridge.status["lost"] == bridge.status["dead"] == bridge.status["unconfirmed"] == 0
    assert bridge.said[-1].startswith("ended: ")


def test_the_newest_frames_with_a_contract_and_what_is_skipped(
    tmp_path: Path, kafka: Kafka, edge: mez.Edge
) -> None:
    """Frames made by the profile say what to expect of them. While Kafka takes none, they are skipped."""
    name = kafka.name()
    topic = f"{name}.live"
    (tmp_path / "people.json").write_text(json.dumps(profile_of(64, 48)))
    forbidden = Forbidden(kafka, topic)
    text = with_password(edge, kafka, name)
    text = text[: text.index("[stream.frames]")].replace(
        'name = "hall7"', 'name = "hall7"\nunconfirmed_max = 2'
    )
    text += f'[stream.live]\ncameras = "dock/*"\ntopic = "{topic}"\ndeliver = "newest"\n'
    text += 'latency_ms = 1000\naccuracy = 0.92\nprofile = "./people.json"\n'
    with (
        BridgeProcess(tmp_path, text) as bridge,
        flowing("dock/cam1", edge=edge),
    ):
        bridge.runs()
        bridge.hears(f"{topic}: ")
        until(lambda: edge.cameras()[0].published, lambda count: (count or 0) > 60, "frames pass meanwhile")
        forbidden.allow()
        found = until(
            lambda: in_topic(kafka, topic),
            lambda at: any("mez-expected-accuracy" in message.headers for message in at[4:]),
            "frames come that were made by the profile",
        )
        assert bridge.interrupt() == 0
    numbers = [int(message.id.rpartition("-")[2]) for message in found]
    assert numbers == sorted(set(numbers)), "in order, each once"
    skipped = [json.loads(message.headers.get("mez-skipped", "{}")) for message in found[1:]]
    assert len(found) + sum(sum(of.values()) for of in skipped) == numbers[-1] - numbers[0] + 1
    assert max(sum(of.values()) for of in skipped) > 10, "what Kafka did not take is skipped"
    made = [message for message in found if message.headers["mez-rung"] == "jpeg/w32/q44/420"]
    assert {message.headers["mez-expected-accuracy"] for message in made} == {"0.93"}
    assert {message.headers["mez-size"] for message in made} == {"32x24"}


def test_a_missing_right_at_the_edge_is_told_with_the_grant(tmp_path: Path, kafka: Kafka) -> None:
    """By `check` and by `kafka`, before anything is copied."""
    with mez.edge(rights={"app/**": {"watch": "dock/*"}}) as edge:
        enrolled(edge, "app/bridge", tmp_path / "keys")
        text = tables(edge, kafka, kafka.name()).replace(
            f'edge = "unix://{edge.socket}"', f'edge = "{edge.grpc_address}"\nkeys = "keys"'
        )
        with BridgeProcess(tmp_path, text) as bridge:
            sentence = bridge.hears("may not read past frames of dock/*")
            assert bridge.process.wait(60) == 1
            assert "mez keys grant app/bridge read 'dock/*'" in sentence
        words = [sys.executable, "-m", "mez", "bridge", "check", str(bridge.file)]
        checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    assert "may not read past frames of dock/*" in checked.stderr


def test_check_asks_the_edge_and_kafka(tmp_path: Path, kafka: Kafka, edge: mez.Edge) -> None:
    """A file that is right; then one whose cluster is not there."""
    file = tmp_path / "bridge.toml"
    words = [sys.executable, "-m", "mez", "bridge", "check", str(file)]
    file.write_text(tables(edge, kafka, kafka.name()))
    checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"Kafka at {kafka.server} answers" in checked.stdout
    file.write_text(tables(edge, kafka, kafka.name()).replace(kafka.server, "127.0.0.1:1"))
    checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    assert "Kafka at 127.0.0.1:1 does not answer" in checked.stderr


def test_the_topics_are_those_of_a_real_cluster(kafka: Kafka) -> None:
    """The broker of the tests refuses what is no name of a topic, as the file does."""
    admin = AdminClient({"bootstrap.servers": kafka.server})
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("mez frames", 1, 1)])["mez frames"].result()
