"""The bridge, as a process of its own, between a real edge and a real Kafka, and what faults leave."""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

import mez
from mez import _native
from mez.pipeline import envelope, mez_bus
from tests.bridges import BridgeProcess, Found, held, in_topic, tables
from tests.pipelines import until
from tests.pipelines_kafka import Kafka
from tests.support import enrolled, picture
from tests.test_store import store_key

# On a busy machine Kafka, and a handful of interpreters, take their time to start.
pytestmark = pytest.mark.timeout(300)


@contextmanager
def flowing(*names: str, edge: mez.Edge, fps: float = 40.0) -> Iterator[list[mez.Publisher]]:
    """Cameras that publish all the time, while the block runs."""
    stop = threading.Event()
    cameras = [mez.publisher(name, edge=edge) for name in names]
    image = _native.encode_jpeg(picture(1), 90)

    def publish(camera: mez.Publisher) -> None:
        while not stop.wait(1 / fps):
            camera.send(image)

    threads = [threading.Thread(target=publish, args=(camera,)) for camera in cameras]
    for camera, thread in zip(cameras, threads, strict=True):
        camera.wait_connected(timeout=30)
        thread.start()
    try:
        yield cameras
    finally:
        stop.set()
        for camera, thread in zip(cameras, threads, strict=True):
            thread.join()
            camera.close()


def due(edge: mez.Edge, found: list[Found], camera: str) -> list[str]:
    """What the edge has of a camera from the first frame on that is in Kafka."""
    ids = {message.id for message in found}
    known = held(edge, camera)
    first = next((at for at, name in enumerate(known) if name in ids), len(known))
    return known[first:]


def complete(edge: mez.Edge, kafka: Kafka, topic: str, *cameras: str) -> list[Found]:
    """What is in a topic, once it has everything that is due."""
    return until(
        lambda: in_topic(kafka, topic),
        lambda found: (
            bool(found)
            and all(set(due(edge, found, camera)) <= {message.id for message in found} for camera in cameras)
        ),
        "everything is in Kafka",
    )


def without_repeats(found: list[Found], camera: str) -> list[str]:
    """The identities of a camera in the order of its partition, the first of equal ones."""
    return list(dict.fromkeys(message.id for message in found if message.key == camera))


def _records(bridge: BridgeProcess) -> int:
    count: int = bridge.status.get("records", 0)
    return count


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


def test_records_wait_at_the_edge_while_kafka_is_away_and_none_is_sent_twice(
    tmp_path: Path, kafka: Kafka
) -> None:
    """Stopped and started again while records flow: the window fills, the rest waits, all of it comes."""
    name = kafka.name()
    cameras = ("dock/cam1", "dock/cam2")
    with mez.edge() as edge, flowing(*cameras, edge=edge):
        text = tables(edge, kafka, name).replace('name = "hall7"', 'name = "hall7"\nunconfirmed_max = 16')
        with BridgeProcess(tmp_path, text) as bridge:
            bridge.runs()
            until(partial(_records, bridge), lambda count: count > 20, "records flow")
            kafka.stop()
            bridge.hears("confirms nothing")
            until(
                lambda: bridge.status["streams"]["frames"]["waiting"] or 0,
                lambda count: count > 50,
                "records wait at the edge",
            )
            assert bridge.status["streams"]["frames"]["unconfirmed"] == 16
            assert "confirms nothing" in bridge.status["kafka"]
            kafka.start()
            bridge.hears("Kafka confirms records again")
            until(
                lambda: bridge.status["waiting"],
                lambda count: count is not None and count < 20,
                "it caught up",
            )
            assert bridge.interrupt() == 0
        found = complete(edge, kafka, f"{name}.frames")
    for camera in cameras:
        ids = [message.id for message in found if message.key == camera]
        assert ids == sorted(set(ids), key=lambda name: int(name.rpartition("-")[2])), "in order, each once"
        sequences = [int(name.rpartition("-")[2]) for name in ids]
        assert len(sequences) > 50
    assert bridge.status["lost"] == 0


def lasting(folder: Path) -> dict[str, Any]:
    """Arguments of an edge that can be started again where it was: logs on disk, keys, its socket."""
    places: dict[str, Any] = {
        "store_key": store_key(folder),
        "store": folder / "store",
        "state": folder / "edge",
        "keys": folder / "keys",
        "socket": folder / "edge.sock",
    }
    words = ["keys", "init", "--site", "bridge", "--keys", str(places["keys"])]
    subprocess.run([sys.executable, "-m", "mez", *words], check=True, capture_output=True)
    return places


def test_a_killed_bridge_goes_on_where_it_was(tmp_path: Path, kafka: Kafka) -> None:
    """SIGKILL, and the edge started again with its logs: nothing is lost, and what comes twice says so."""
    name = kafka.name()
    draw = random.Random(7)
    places = lasting(tmp_path)
    with mez.edge(**places) as edge:
        with (
            flowing("dock/cam1", edge=edge),
            # While the bridge is dead, somebody else has frames cross the link.
            edge.subscribe("dock/*", deliver="every"),
            BridgeProcess(tmp_path, tables(edge, kafka, name)) as bridge,
        ):
            bridge.runs()
            for _ in range(2):
                records = _records(bridge)
                until(partial(_records, bridge), partial(int.__lt__, records + 20), "records flow")
                time.sleep(draw.uniform(0.0, 0.1))
                bridge.kill()
                bridge.status = {}
                time.sleep(0.3)
                bridge.start()
            until(partial(_records, bridge), lambda count: count > 20, "records flow")
            bridge.kill()
            time.sleep(0.5)
        last = held(edge, "dock/cam1")[-1]
    with mez.edge(**places) as edge, BridgeProcess(tmp_path, tables(edge, kafka, name)) as bridge:
        bridge.runs()
        found = complete(edge, kafka, f"{name}.frames", "dock/cam1")
        assert bridge.interrupt() == 0
    assert last in {message.id for message in found}
    ids = without_repeats(found, "dock/cam1")
    # What was under way when the bridge died may come behind newer ones, and says so.
    first_tries = without_repeats(
        [message for message in found if "mez-attempt" not in message.headers], "dock/cam1"
    )
    assert first_tries == sorted(first_tries, key=lambda name: int(name.rpartition("-")[2]))
    values = {(message.id, message.value) for message in found}
    assert len(values) == len(ids), "equal identity, equal bytes"
    assert max(Counter(message.id for message in found).values()) <= 4


def test_an_edge_that_is_started_again_under_a_bridge(tmp_path: Path, kafka: Kafka) -> None:
    """The bridge goes on by itself, nothing is lost, and nothing stays open in its group."""
    name = kafka.name()
    places = lasting(tmp_path)
    with ExitStack() as open_ones:
        with mez.edge(**places) as edge, flowing("dock/cam1", edge=edge):
            bridge = open_ones.enter_context(BridgeProcess(tmp_path, tables(edge, kafka, name)))
            bridge.runs()
            until(partial(_records, bridge), lambda count: count > 20, "records flow")
        before = _records(bridge)
        with mez.edge(**places) as edge:
            with flowing("dock/cam1", edge=edge):
                until(partial(_records, bridge), lambda count: count > before + 20, "records flow again")
            found = complete(edge, kafka, f"{name}.frames", "dock/cam1")
            until(
                lambda: mez_bus.groups((f"unix://{edge.socket}",), None)[0]["account"]["open"],
                lambda count: count == 0,
                "all is settled",
            )
            assert bridge.interrupt() == 0
    epochs = {message.id.rpartition("-")[0] for message in found}
    assert len(epochs) == 2, "frames of before and after"


class Forbidden:
    """A topic to which the user with a password may not write, until it is allowed."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": kafka.server})
        self._admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        place: Any = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        denied: Any = ("User:mez", "*", AclOperation.WRITE, AclPermissionType.DENY)
        allowed: Any = ("User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        self._filter = AclBindingFilter(*place, *denied)
        rules = [AclBinding(*place, *denied), AclBinding(*place, *allowed)]
        for future in self._admin.create_acls(rules).values():
            future.result()

    def allow(self) -> None:
        """Give the right."""
        self._admin.delete_acls([self._filter])[self._filter].result()


def with_password(edge: mez.Edge, kafka: Kafka, name: str) -> str:
    """The file of a bridge that comes as the user with a password."""
    cluster = kafka.cluster
    secure = (
        f'sasl = "PLAIN"\nca = "{cluster["ca"]}"\ncredentials = "{cluster["credentials"]}"\nsecurity = "tls"'
    )
    return tables(edge, kafka, name, kafka_more=secure).replace(kafka.server, cluster["secure"])


def test_a_record_that_is_too_large_becomes_a_dead_letter_and_the_rest_goes_on(
    tmp_path: Path, kafka: Kafka, edge: mez.Edge
) -> None:
    """The topic takes less than the bridge may send: its records are small, except for one.

    Its dead letter waits for a right, and holds nothing up.
    """
    name = kafka.name()
    forbidden = Forbidden(kafka, f"{name}.dead")
    admin = AdminClient({"bootstrap.servers": kafka.server})
    small = NewTopic(f"{name}.frames", 1, 1, config={"max.message.bytes": "20000"})
    admin.create_topics([small])[f"{name}.frames"].result()
    noise = np.random.default_rng(5).integers(0, 256, (320, 320, 3), np.uint8)
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        BridgeProcess(tmp_path, with_password(edge, kafka, name)) as bridge,
    ):
        bridge.runs()
        camera.wait_connected(timeout=30)
        large = None
        for number in range(60):
            frame = camera.send(noise if number == 30 else picture(number))
            large = frame if number == 30 else large
            time.sleep(0.02)
        sentence = bridge.hears("is refused by")
        found = complete(edge, kafka, f"{name}.frames")
        until(
            lambda: in_topic(kafka, f"{name}.frames")[-1].id, lambda at: at.endswith("-59"), "the rest came"
        )
        found = in_topic(kafka, f"{name}.frames")
        assert in_topic(kafka, f"{name}.dead") == []
        forbidden.allow()
        (letter,) = until(lambda: in_topic(kafka, f"{name}.dead"), lambda at: bool(at), "a dead letter")
        events = until(
            lambda: [at.json for at in in_topic(kafka, f"{name}.events")],
            lambda at: any(each["kind"] == "dead_letter" for each in at),
            "it is told",
        )
        assert bridge.interrupt() == 0
    assert large is not None
    poison = f"dock/cam1@{large.epoch}-{large.sequence}"
    assert poison in sentence
    assert "max.message.bytes" in sentence
    assert (letter.id, letter.value, letter.headers["mez-topic"]) == (poison, b"", f"{name}.frames")
    assert int(letter.headers["mez-bytes"]) > 20_000
    assert letter.headers["mez-error"]
    assert [at["record"] for at in events if at["kind"] == "dead_letter"] == [poison]
    ids = [message.id for message in found]
    sent = [at for at in held(edge, "dock/cam1") if at != poison]
    assert ids == sent[sent.index(ids[0]) :], "in order, each once"
    assert bridge.status["dead"] == 1


def test_a_topic_without_rights_is_told_and_its_records_come_once_they_are_given(
    tmp_path: Path, kafka: Kafka, edge: mez.Edge
) -> None:
    """Nothing is lost meanwhile, and other topics go on."""
    name = kafka.name()
    topic = f"{name}.frames"
    forbidden = Forbidden(kafka, topic)
    with BridgeProcess(tmp_path, with_password(edge, kafka, name)) as bridge:
        bridge.runs()
        with flowing("dock/cam1", edge=edge):
            assert "give it the right (ACL)" in bridge.hears(f"{topic}: ")
            until(lambda: in_topic(kafka, f"{name}.events"), lambda found: bool(found), "other topics go on")
            assert in_topic(kafka, topic) == []
            forbidden.allow()
            until(lambda: in_topic(kafka, topic), lambda found: bool(found), "records come")
        found = complete(edge, kafka, topic, "dock/cam1")
        assert bridge.interrupt() == 0
    ids = [message.id for message in found]
    assert ids == sorted(set(ids), key=lambda at: int(at.rpartition("-")[2]))
    assert bridge.status["lost"] == bridge.status["dead"] == 0


def test_what_the_edge_no_longer_holds_is_counted_and_told(tmp_path: Path, kafka: Kafka) -> None:
    """Its log is small, and the bridge cannot go on: published = copied + lost + skipped."""
    name = kafka.name()
    topic = f"{name}.frames"
    forbidden = Forbidden(kafka, topic)
    noise = np.random.default_rng(5).integers(0, 256, (320, 320, 3), np.uint8)
    with mez.edge(memory_bytes=2 << 20) as edge:
        text = with_password(edge, kafka, name).replace(
            'name = "hall7"', 'name = "hall7"\nunconfirmed_max = 4'
        )
        with (
            BridgeProcess(tmp_path, text) as bridge,
            mez.publisher("dock/cam1", edge=edge) as camera,
        ):
            bridge.runs()
            camera.wait_connected(timeout=30)
            for _ in range(100):
                camera.send(noise)
                time.sleep(0.01)
            bridge.hears(f"{topic}: ")
            forbidden.allow()
            until(
                lambda: in_topic(kafka, topic), lambda at: at != [] and at[-1].id.endswith("-99"), "the last"
            )
            assert bridge.interrupt() == 0
    found = in_topic(kafka, topic)
    events = [at.json for at in in_topic(kafka, f"{name}.events")]
    lost = sum(sum(at["counts"].values()) for at in events if at["kind"] == "lost")
    assert lost == bridge.status["lost"] > 0
    first = int(found[0].id.rpartition("-")[2])
    skipped = [json.loads(at.headers.get("mez-skipped", "{}")) for at in found[1:]]
    assert len(found) + sum(sum(at.values()) for at in skipped) == 100 - first
    assert sum(at.get("evicted", 0) for at in skipped) == lost


def test_a_topic_that_was_removed_is_made_again(tmp_path: Path, kafka: Kafka, edge: mez.Edge) -> None:
    """And gets what comes from then on, in order."""
    name = kafka.name()
    topic = f"{name}.frames"
    with flowing("dock/cam1", edge=edge), BridgeProcess(tmp_path, tables(edge, kafka, name)) as bridge:
        bridge.runs()
        until(partial(_records, bridge), lambda count: count > 20, "records flow")
        admin = AdminClient({"bootstrap.servers": kafka.server})
        admin.delete_topics([topic])[topic].result()
        bridge.hears("the topic is gone")
        found = until(lambda: in_topic(kafka, topic), lambda at: len(at) > 20, "records flow again")
        assert bridge.interrupt() == 0
    ids = [message.id for message in found]
    assert ids == sorted(set(ids), key=lambda at: int(at.rpartition("-")[2]))


def test_a_missing_right_at_the_edge_is_told_with_the_grant(tmp_path: Path, kafka: Kafka) -> None:
    """By `check` and by `kafka`, before anything is copied."""
    with mez.edge(rights={"app/**": {"watch": "dock/*"}}) as edge:
        enrolled(edge, "app/bridge", tmp_path / "keys")
        text = tables(edge, kafka, kafka.name()).replace(
            f'edge = "unix://{edge.socket}"', f'edge = "{edge.grpc_address}"\nkeys = "keys"'
        )
        with BridgeProcess(tmp_path, text) as bridge:
            sentence = bridge.hears("may not read the past of dock/*")
            assert bridge.process.wait(60) == 1
            assert "mez keys grant app/bridge read 'dock/*'" in sentence
        words = [sys.executable, "-m", "mez", "bridge", "check", str(bridge.file)]
        checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    assert "may not read the past of dock/*" in checked.stderr


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
