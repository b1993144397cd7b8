"""The parts of the bridge for events: its file, its queues, what it watches, what an answer means."""

import random
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from mez.bridge.events import file
from mez.bridge.events.delivery import ASKED_S_MAX, retry_s
from mez.bridge.events.spool import Spool
from mez.bridge.events.watch import Watch
from mez.bridge.events.webhook import judged
from mez.pipeline.errors import BusError
from tests.bridge_files import faults, written

CHECKOUT = Path(__file__).parents[2]
SMALL = '[bridge]\nname = "hall7"\n[webhook.ops]\nurl = "https://ops.example/hook"\nqueue_max = 3\n'


def event(number: int, camera: str | None = "dock/a", kind: str = "camera") -> dict[str, Any]:
    """An event."""
    return {"id": f"e-{number}", "kind": kind, "camera": camera, "utc_ms": number, "state": "absent"}


def waiting(spool: Spool) -> list[str]:
    """The ids of what waits."""
    return [each["id"] for each in spool.queues["webhook.ops"].events]


def spool_of(tmp_path: Path, text: str = SMALL) -> tuple[file.EventsBridge, Spool]:
    """A spool of one webhook."""
    bridge = file.read(written(tmp_path, text))
    return bridge, Spool(tmp_path, {"webhook.ops": bridge.webhooks["ops"].choice})


def test_a_file_tells_all_its_faults(tmp_path: Path) -> None:
    """Each with its field; secrets and plaintext are refused."""
    told = faults(
        file.read,
        tmp_path,
        """
[bridge]
name = "Hall 7"
[mez]
web = "edge.local"
edge = "unix:///run/mez/edge.sock"
[webhook.a]
url = "http://ops.example/hook"
[webhook.b]
url = "https://user:word@ops.example/hook"
secret = "x"
[webhook.c]
url = "https://ops.example"
kinds = ["contract", "camra"]
secret_file = "a"
secret_variable = "B"
[mqtt]
server = "broker.example"
security = "plaintext"
credentials = "secrets.toml"
topic = "a/#"
""",
    )
    assert set(told) == {
        "bridge.name",
        "mez.edge",
        "webhook.a.url",
        "webhook.b.url",
        "webhook.b.secret",
        "webhook.c.kinds",
        "webhook.c.secret_variable",
        "mqtt.security",
        "mqtt.topic",
    }
    assert "unencrypted" in told["webhook.a.url"]
    assert faults(file.read, tmp_path, '[bridge]\nname = "b"\n').keys() == {"webhook"}
    for url, says in (("https://a..b/hook", "not a URL"), ("https://ops.example/h\u00f6rer", "% escapes")):
        told = faults(file.read, tmp_path, f'[bridge]\nname = "b"\n[webhook.a]\nurl = "{url}"\n')
        assert says in told["webhook.a.url"]
    told = faults(file.read, tmp_path, '[bridge]\nname = "b"\n[mqtt]\nserver = "a..b"\n')
    assert told.keys() == {"mqtt.server"}
    for cameras in ("dock/cam*", "dock//a", "dock/", "", "d\u00f6ck"):
        told = faults(file.read, tmp_path, SMALL + f'cameras = "{cameras}"\n')
        assert told.keys() == {"webhook.ops.cameras"}
    assert (CHECKOUT / "docs/schema/events.json").read_text() == file.schema()


def test_secrets_that_others_can_read_are_refused(tmp_path: Path) -> None:
    """And those that are too short to be one."""
    path = tmp_path / "secret"
    path.write_text("a secret of some length\n")
    path.chmod(0o644)
    with pytest.raises(BusError, match="chmod 600"):
        file.Secret(path, None).read("webhook.a.secret")
    path.chmod(0o600)
    assert file.Secret(path, None).read("webhook.a.secret") == b"a secret of some length"
    with pytest.raises(BusError, match="16 to"):
        file.Secret(None, "NO_SUCH_VARIABLE_OF_HALL").read("webhook.a.secret")


def test_a_full_queue_drops_the_oldest_but_not_what_is_under_way(tmp_path: Path) -> None:
    """What was dropped is counted until a delivery has told of it, also over a restart."""
    _, spool = spool_of(tmp_path)
    queue = spool.queues["webhook.ops"]
    spool.take(event(0))
    assert queue.next(0) == (event(0), 0)
    for number in range(1, 6):
        spool.take(event(number), last=str(number))
    assert waiting(spool) == ["e-0", "e-4", "e-5"]
    queue.settle(arrived=True)
    spool.write()
    _, again = spool_of(tmp_path)
    assert (waiting(again), again.last) == (["e-4", "e-5"], "5")
    queue = again.queues["webhook.ops"]
    assert queue.next(0) == (event(4), 3)
    # One more is dropped while that is told; the body of the event is what it was, also over a restart.
    queue.drop()
    assert queue.next(0) == (event(4), 3)
    again.write()
    _, again = spool_of(tmp_path)
    queue = again.queues["webhook.ops"]
    assert queue.next(0) == (event(4), 3)
    queue.settle(arrived=True)
    assert queue.next(0) == (event(5), 1)
    queue.settle(arrived=False)
    assert (queue.dropped, list(queue.events)) == (2, [])


def test_only_what_is_chosen_is_taken(tmp_path: Path) -> None:
    """By kind and by camera. That events were missed is told to everybody."""
    _, spool = spool_of(tmp_path, SMALL + 'kinds = "camera,group"\ncameras = "dock/**"\n')
    for number, (camera, kind) in enumerate(
        [("dock/a", "camera"), ("yard/a", "camera"), ("dock/a", "store"), (None, "group"), (None, "missed")]
    ):
        spool.take(event(number, camera, kind))
    assert waiting(spool) == ["e-0", "e-3", "e-4"]
    assert file.matches("**", "a/b")
    assert file.matches("*/b", "a/b")
    assert file.matches("a/**/b", "a/b")
    assert not file.matches("a/*", "a/b/c")
    assert not file.matches("*", "a/b")


def test_an_edge_is_told_as_away_once(tmp_path: Path) -> None:
    """And as back once; a restart of the bridge tells nothing again."""
    _, spool = spool_of(tmp_path)
    watch = Watch(spool)
    watch.answers("main", 1)
    watch.away(2, "no route")
    watch.away(3, "no route")
    spool.write()
    _, spool = spool_of(tmp_path)
    watch = Watch(spool)
    watch.away(4, "refused")
    watch.answers("main", 5)
    told = [(each["state"], each["before"], each["sentence"]) for each in spool.queues["webhook.ops"].events]
    assert told == [("away", "answers", "no route"), ("answers", "away", "the edge answers again")]


def test_answers_say_whether_and_when_to_try_again() -> None:
    """`Retry-After` may be seconds or a date, and may be nonsense."""

    def headers(after: str) -> Message:
        message = Message()
        message["Retry-After"] = after
        return message

    assert judged(204, Message()) is None
    refused = judged(422, Message())
    assert refused is not None
    assert refused.for_good
    for status in (301, 401, 404, 408, 429, 500):
        failed = judged(status, Message())
        assert failed is not None
        assert not failed.for_good
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for after, low, high in (("17", 17, 17), (date, 3000, 3601), ("soon", 0, 0), ("-5", -6, 0)):
        failed = judged(429, headers(after))
        assert failed is not None
        assert low <= failed.after_s <= high


def test_waits_grow_to_their_bound() -> None:
    """About twice as long each time, never all at once, and as long as the receiver asks."""
    random.seed(7)
    waits = [retry_s(failures, 300, 0) for failures in range(1, 200)]
    assert all(min(300, 2**at) / 2 <= wait_s <= min(300, 2**at) for at, wait_s in enumerate(waits))
    assert len({retry_s(1, 300, 0) for _ in range(10)}) == 10
    assert retry_s(1, 300, 1000) == 1000
    assert retry_s(1, 300, 1e9) == ASKED_S_MAX
