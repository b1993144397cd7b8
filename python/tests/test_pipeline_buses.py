"""What every bus promises: one set of tests, for Mez's own and for a real Kafka."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mez
from mez.pipeline.bus import Bus, Writer
from mez.pipeline.errors import BusAwayError, BusError, RecordTooLargeError
from mez.pipeline.kafka_bus import KafkaBus
from mez.pipeline.mez_bus import MezBus
from mez.pipeline.record import Record
from tests.pipelines import Site, made, settings, taken, until
from tests.pipelines_kafka import Kafka

# On a busy machine Kafka, and a handful of interpreters, take their time to start.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["mez", "kafka"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A bus of this test alone."""
    bus: Bus
    if request.param == "mez":
        edge: mez.Edge = request.getfixturevalue("edge")
        bus = MezBus("faces", (f"unix://{edge.socket}",))
    else:
        kafka: Kafka = request.getfixturevalue("kafka")
        bus = KafkaBus(kafka.name(), settings(kafka))
    bus.prepare({"detect": ["embed", "count"]})
    yield Site(request.param, bus)
    bus.close()


def test_what_a_record_says_is_the_same_behind_the_bus(site: Site) -> None:
    """Identity, camera, frame, capture time, content type, headers, hops, and the bytes."""
    reader, writer = site.bus.reader(site.source(), site.terms()), site.bus.writer("detect")
    vector = np.arange(128, dtype=np.float32)
    sent = [
        made(1, name="Ada Ä"),
        made(2, payload=vector),
        made(3, payload="text"),
        made(4, payload=b"\0\xff"),
    ]
    writer.send(sent)
    for one in sent:
        delivery = taken(reader)
        got = delivery.record
        assert (got.id, got.camera, got.frame) == (one.id, one.camera, one.frame)
        assert (got.captured_ns, got.content_type, got.headers) == (
            one.captured_ns,
            one.content_type,
            one.headers,
        )
        assert (got.published_size, got.attempt) == (one.published_size, 1)
        assert bytes(got.payload) == bytes(one.payload)
        assert [hop.plain() for hop in got.hops] == [hop.plain() for hop in one.hops]
        assert list(got.hops[-1].at) == ["fetched", "found", "made", "sent"]
        delivery.done()
    assert sent[0].headers == {"name": "Ada Ä"}
    np.testing.assert_array_equal(sent[1].data, vector)
    reader.close()
    writer.close()


def test_each_record_is_one_worker_s(site: Site) -> None:
    """Workers of a stage share its records; every stage gets all of them."""
    writer = site.bus.writer("detect")
    readers = [site.bus.reader(site.source(), site.terms(number)) for number in range(2)]
    other = site.bus.reader(site.source(), site.terms().__class__("count"))
    got: list[str] = []
    writer.send([made(number, camera=f"dock/cam{number % 5}") for number in range(20)])

    def take() -> int:
        for reader in readers:
            delivery = reader.next(0.05)
            if delivery is not None:
                got.append(delivery.record.id)
                delivery.done()
        return len(got)

    until(take, lambda count: count >= 20, "all records come")
    for _ in range(20):
        delivery = taken(other)
        delivery.done()
    # On Kafka, a record that is in hand while a worker joins may be given again.
    site.standing(lambda standing: take() >= 20 and standing.waiting == 0)
    assert set(got) == {made(number, camera=f"dock/cam{number % 5}").id for number in range(20)}
    assert len(got) == 20 or site.kind == "kafka"
    assert all(reader.next(0.05) is None for reader in readers)
    for reader in (*readers, other):
        reader.close()


def test_a_record_that_was_not_settled_is_given_again(site: Site) -> None:
    """Its worker left in the middle of the work."""
    writer = site.bus.writer("detect")
    reader = site.bus.reader(site.source(), site.terms())
    writer.send([made(1), made(2)])
    taken(reader).done()
    left = taken(reader).record.id
    reader.close()
    again = site.bus.reader(site.source(), site.terms())
    delivery = taken(again)
    assert delivery.record.id == left == made(2).id
    delivery.done()
    site.standing(lambda standing: standing.waiting == 0 and not standing.open)
    again.close()


def test_a_poison_record_becomes_a_dead_letter_with_its_error(site: Site) -> None:
    """After its tries; the records behind it are not held up for ever."""
    writer = site.bus.writer("detect")
    reader = site.bus.reader(site.source(), site.terms(tries=3))
    writer.send([made(1), made(2)])
    attempts = []
    while True:
        delivery = taken(reader)
        if delivery.record.id != made(1).id:
            break
        attempts.append(delivery.record.attempt)
        delivery.failed(f"ValueError: no face ({len(attempts)})")
    assert attempts == [1, 2, 3]
    assert (delivery.record.id, delivery.record.attempt) == (made(2).id, 1)
    delivery.done()
    site.standing(lambda standing: standing.dead == 1 and standing.waiting == 0)
    (letter,) = site.bus.dead_letters("embed")
    assert (letter.tries, letter.error) == (3, "ValueError: no face (3)")
    assert letter.record in (made(1).id, "dock/cam1/detect@1-0")
    reader.close()


def test_records_of_a_camera_keep_their_order(site: Site) -> None:
    """One reader gets them as they were sent, those of other cameras in between."""
    writer = site.bus.writer("detect")
    reader = site.bus.reader(site.source(), site.terms(ordered=True))
    writer.send([made(number, camera=f"dock/cam{number % 2}") for number in range(30)])
    got: dict[str, list[int]] = {"dock/cam0": [], "dock/cam1": []}
    for _ in range(30):
        delivery = taken(reader)
        got[delivery.record.camera].append(delivery.record.data["number"])
        delivery.done()
    assert got == {"dock/cam0": list(range(0, 30, 2)), "dock/cam1": list(range(1, 30, 2))}
    reader.close()


def test_what_waits_is_told(site: Site) -> None:
    """Backpressure is visible: records that a stage was not given yet."""
    writer = site.bus.writer("detect")
    reader = site.bus.reader(site.source(), site.terms())
    writer.send([made(1)])
    taken(reader).done()
    writer.send([made(number) for number in range(2, 12)])
    held = taken(reader)
    standing = site.standing(lambda standing: (standing.waiting or 0) + (standing.open or 0) == 10)
    assert standing.dead == standing.lost == 0
    held.done()
    for _ in range(9):
        taken(reader).done()
    site.standing(lambda standing: standing.waiting == 0)
    reader.close()


def test_a_record_that_is_too_large_is_refused_and_nothing_is_sent(site: Site) -> None:
    """The caller is told which limit; the next record goes."""
    writer = site.bus.writer("detect")
    reader = site.bus.reader(site.source(), site.terms())
    with pytest.raises(RecordTooLargeError):
        writer.send([made(1, payload=bytes((8 << 20) + 1))])
    writer.send([made(2)])
    assert taken(reader).record.id == made(2).id
    reader.close()


def test_plain_records_are_for_programs_that_know_nothing_of_pipelines(site: Site) -> None:
    """A stage reads them too: they go back to their frame, without the hops."""
    writer = site.bus.writer("detect", plain=True)
    reader = site.bus.reader(site.source(), site.terms())
    writer.send([made(5)])
    got = taken(reader).record
    assert got.data == {"number": 5}
    assert (got.camera, got.content_type, got.headers) == ("dock/cam1", "application/json", {})
    assert [hop.stage for hop in got.hops] == ["camera"]
    reader.close()


def test_kafka_a_record_whose_worker_died_is_tried_so_often(kafka: Kafka) -> None:
    """Who takes up a dead worker's place goes one record at a time, and counts."""
    bus = KafkaBus(kafka.name(), settings(kafka))
    site = Site("kafka", bus)
    bus.prepare({"detect": ["embed"]})
    bus.writer("detect").send([made(1), made(2), made(3)])
    # None is closed: the next of the same number takes its place, as after a death.
    dead = [bus.reader(site.source(), site.terms(tries=2))]
    taken(dead[0]).done()
    assert taken(dead[0]).record.id == made(2).id
    for attempt in (1, 2):
        dead.append(bus.reader(site.source(), site.terms(tries=2)))
        delivery = taken(dead[-1])
        assert (delivery.record.id, delivery.record.attempt) == (made(2).id, attempt)
    last = bus.reader(site.source(), site.terms(tries=2))
    delivery = taken(last)
    assert delivery.record.id == made(3).id
    delivery.done()
    site.standing(lambda standing: standing.dead == 1 and standing.waiting == 0)
    (letter,) = bus.dead_letters("embed")
    assert (letter.record, letter.tries) == (made(2).id, 2)
    assert letter.error == "its worker died in each try"
    for reader in (last, *dead):
        reader.close()


def test_kafka_records_flow_again_after_a_restart_of_the_brokers(kafka: Kafka) -> None:
    """With the clients as they were; meanwhile it is told that the bus is away."""
    bus = KafkaBus(kafka.name(), settings(kafka))
    site = Site("kafka", bus)
    bus.prepare({"detect": ["embed"]})
    writer, reader = bus.writer("detect"), bus.reader(site.source(), site.terms())
    writer.send([made(1)])
    taken(reader).done()
    kafka.stop()
    with pytest.raises(BusAwayError, match=r"Kafka at 127\.0\.0\.1:\d+ does not answer"):
        bus.prepare({})
    assert reader.next(0.1) is None
    kafka.start()
    until(lambda: _is_sent(writer, made(2)), bool, "it takes records")
    delivery = taken(reader)
    assert delivery.record.id == made(2).id
    delivery.done()
    reader.close()


def _is_sent(writer: Writer, record: Record) -> bool:
    try:
        writer.send([record])
    except BusAwayError:
        return False
    return True


def test_kafka_with_tls_and_a_password_out_of_a_file(kafka: Kafka, tmp_path: Path) -> None:
    """Round trip; a wrong password and a wrong authority are told with the field to look at."""
    secure = settings(
        kafka,
        servers=(kafka.cluster["secure"],),
        tls=True,
        sasl="PLAIN",
        ca=Path(kafka.cluster["ca"]),
        credentials=Path(kafka.cluster["credentials"]),
    )
    name = kafka.name()
    bus = KafkaBus(name, secure)
    site = Site("kafka", bus)
    bus.prepare({"detect": ["embed"]})
    bus.writer("detect").send([made(1)])
    reader = bus.reader(site.source(), site.terms())
    delivery = taken(reader)
    assert delivery.record.id == made(1).id
    delivery.done()
    reader.close()
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('username = "mez"\npassword = "guess"\n')
    wrong.chmod(0o600)
    with pytest.raises(BusError, match=r"see kafka\.credentials"):
        KafkaBus(name, replace(secure, credentials=wrong)).prepare({})
    with pytest.raises(BusError, match=r"see kafka\.ca"):
        KafkaBus(name, replace(secure, ca=None)).prepare({})


def test_kafka_secrets_that_others_can_read_are_refused(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And missing ones are named, with where they may come from."""
    secrets = tmp_path / "kafka-secrets.toml"
    secrets.write_text('username = "mez"\npassword = "guess"\n')
    secrets.chmod(0o644)
    secure = settings(kafka, sasl="PLAIN", credentials=secrets)
    with pytest.raises(BusError, match=r"others can read .*; run: chmod 600"):
        KafkaBus("faces", secure)
    with pytest.raises(BusError, match=r"kafka\.sasl needs username; .*MEZ_KAFKA_USERNAME"):
        KafkaBus("faces", replace(secure, credentials=None))
    monkeypatch.setenv("MEZ_KAFKA_USERNAME", "mez")
    monkeypatch.setenv("MEZ_KAFKA_PASSWORD", "guess")
    KafkaBus("faces", replace(secure, credentials=None)).close()
