"""What faults leave of a bridge: of Kafka, of the edge, of the bridge itself, of rights and of topics."""

import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import mez
from mez.pipeline import mez_bus
from tests.bridges import (
    BridgeProcess,
    complete,
    held,
    in_topic,
    records_of,
    tables,
    with_password,
    without_repeats,
)
from tests.kafka_rules import Forbidden
from tests.pipelines import until
from tests.pipelines_kafka import Kafka
from tests.support import flowing, picture
from tests.test_store import store_key

# On a busy machine Kafka, and a handful of interpreters, take their time to start.
pytestmark = pytest.mark.timeout(300)


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
            until(partial(records_of, bridge), lambda count: count > 20, "records flow")
            kafka.stop()
            bridge.hears("does not confirm records")
            until(
                lambda: bridge.status["streams"]["frames"]["waiting"] or 0,
                lambda count: count > 50,
                "records wait at the edge",
            )
            assert bridge.status["streams"]["frames"]["unconfirmed"] == 16
            assert "does not confirm records" in bridge.status["kafka"]
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


def test_ctrl_c_while_kafka_is_unreachable_ends_at_once_and_says_what_waits_where(
    tmp_path: Path, kafka: Kafka, edge: mez.Edge
) -> None:
    """It has up to an hour for what is under way, and does not take it. The next start copies all of it."""
    name = kafka.name()
    text = tables(edge, kafka, name).replace('name = "hall7"', 'name = "hall7"\ndrain_s = 3600')
    with BridgeProcess(tmp_path, text.replace(kafka.server, "127.0.0.1:1")) as bridge:
        bridge.hears("Kafka at 127.0.0.1:1 does not answer")
        bridge.runs()
        with flowing("dock/cam1", edge=edge):
            until(lambda: held(edge, "dock/cam1"), lambda frames: len(frames) > 20, "frames cross the link")
        assert bridge.interrupt() == 1
        assert any("Kafka is away; ending without waiting for it" in line for line in bridge.said)
        waiting = re.search(
            r"; waiting at the edge for the next start: (\d+) in the group (\S+)$", bridge.said[-1]
        )
        assert waiting is not None, bridge.said
        due = held(edge, "dock/cam1")
        assert (waiting[2], 20 < int(waiting[1]) <= len(due)) == ("bridge.hall7.frames", True)
        bridge.file.write_text(text)
        bridge.start()
        found = until(lambda: in_topic(kafka, f"{name}.frames"), lambda at: bool(at), "records come")
        found = complete(edge, kafka, f"{name}.frames", "dock/cam1")
        assert bridge.interrupt() == 0
    assert [message.id for message in found] == due[-int(waiting[1]) :]


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
                records = records_of(bridge)
                until(partial(records_of, bridge), partial(int.__lt__, records + 20), "records flow")
                time.sleep(draw.uniform(0.0, 0.1))
                bridge.kill()
                bridge.status = {}
                time.sleep(0.3)
                bridge.start()
            until(partial(records_of, bridge), lambda count: count > 20, "records flow")
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
            until(partial(records_of, bridge), lambda count: count > 20, "records flow")
        before = records_of(bridge)
        with mez.edge(**places) as edge:
            with flowing("dock/cam1", edge=edge):
                until(partial(records_of, bridge), lambda count: count > before + 20, "records flow again")
            found = complete(edge, kafka, f"{name}.frames", "dock/cam1")
            until(
                lambda: mez_bus.groups((f"unix://{edge.socket}",), None)[0]["account"]["open"],
                lambda count: count == 0,
                "all is settled",
            )
            assert bridge.interrupt() == 0
    epochs = {message.id.rpartition("-")[0] for message in found}
    assert len(epochs) == 2, "frames of before and after"


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
        sentence = bridge.hears(" refuses ")
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
    """Nothing is lost meanwhile, also if the bridge ends and is started again, and other topics go on."""
    name = kafka.name()
    topic = f"{name}.frames"
    forbidden = Forbidden(kafka, topic)
    text = with_password(edge, kafka, name).replace('name = "hall7"', 'name = "hall7"\ndrain_s = 3600')
    with BridgeProcess(tmp_path, text) as bridge:
        bridge.runs()
        with flowing("dock/cam1", edge=edge):
            assert "give it the right (ACL)" in bridge.hears(f"{topic}: ")
            until(lambda: in_topic(kafka, f"{name}.events"), lambda found: bool(found), "other topics go on")
            assert in_topic(kafka, topic) == []
            bridge.hears("does not confirm records")
            # At once, though it may wait for an hour.
            assert bridge.interrupt() == 1
            assert "unconfirmed records are sent again at the next start" in bridge.said[-1]
            bridge.start()
            bridge.hears("does not confirm records")
            forbidden.allow()
            until(lambda: in_topic(kafka, topic), lambda found: bool(found), "records come")
        found = complete(edge, kafka, topic, "dock/cam1")
        assert bridge.interrupt() == 0
    ids = [message.id for message in found]
    assert len(ids) == len(set(ids)), "each once"
    # What the first bridge had in its hands may come behind newer ones, and says so.
    first_tries = [message.id for message in found if "mez-attempt" not in message.headers]
    assert first_tries == sorted(first_tries, key=lambda at: int(at.rpartition("-")[2]))
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
        until(partial(records_of, bridge), lambda count: count > 20, "records flow")
        admin = AdminClient({"bootstrap.servers": kafka.server})
        admin.delete_topics([topic])[topic].result()
        bridge.hears("creating the missing topic")
        found = until(lambda: in_topic(kafka, topic), lambda at: len(at) > 20, "records flow again")
        assert bridge.interrupt() == 0
    ids = [message.id for message in found]
    assert ids == sorted(set(ids), key=lambda at: int(at.rpartition("-")[2]))
