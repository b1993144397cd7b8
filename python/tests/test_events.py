"""Events of a real edge, sent to a server that fails, hangs, refuses and redirects."""

import base64
import contextlib
import hashlib
import hmac
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mez
from tests.pages import EdgeProcess, running, scene
from tests.receivers import EventsBridge, Post, Receiver, certificate, wait_for

SECRET = "a secret of more than sixteen bytes"


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeProcess]:
    """An edge with a page."""
    with running(tmp_path_factory.mktemp("events"), "--event-lag-records", "5") as edge:
        yield edge


@contextmanager
def camera(edge: EdgeProcess, name: str) -> Iterator[mez.Publisher]:
    """A camera that is connected."""
    with mez.publisher(name, edge=edge.address, keys=edge.keys, state=edge.folder / name) as camera:
        camera.wait_connected(timeout=30)
        camera.send(scene(1, 8)[0])
        yield camera


def file_for(edge: EdgeProcess, target: str) -> str:
    """A bridge's file."""
    return f"""
[bridge]
name = "hall7"
[mez]
edge = "{edge.socket}"
keys = "{edge.keys}"
[watch]
away_s = 2
{target}
"""


def states(posts: list[Post], of: str) -> list[tuple[str, str]]:
    """What was told of a camera."""
    return [(post.data["kind"], post.data["state"]) for post in posts if post.data["camera"] == of]


def test_events_arrive_signed_once_and_in_order_over_every_failure(edge: EdgeProcess, tmp_path: Path) -> None:
    """A server that fails, hangs, asks for time and redirects gets the same event until it takes it."""
    ca = certificate(tmp_path)
    with Receiver(ca) as receiver, Receiver() as other:
        receiver.answers = [
            (503, {}),
            None,
            (429, {"Retry-After": "1"}),
            (302, {"Location": other.url}),
            (204, {}),
            (400, {}),
        ]
        target = f"""
[webhook.ops]
url = "{receiver.url}?a=b"
secret_variable = "OPS_SECRET"
ca = "{ca}"
cameras = "first/*"
timeout_s = 0.5
retry_s_max = 0.2
"""
        bridge = EventsBridge(tmp_path, file_for(edge, target), {"OPS_SECRET": SECRET})
        with bridge:
            wait_for(bridge.is_ready, bridge.said)
            with camera(edge, "elsewhere/cam"), camera(edge, "first/cam"):
                wait_for(
                    lambda: ("camera", "connected") in states(receiver.taken(), "first/cam"), bridge.said
                )
            wait_for(lambda: len(receiver.posts) >= 6, bridge.said)
            with camera(edge, "first/two"):
                wait_for(
                    lambda: ("camera", "connected") in states(receiver.taken(), "first/two"), bridge.said
                )
            assert bridge.end() == 0
        tries = receiver.posts[:5]
        assert len({post.id for post in tries}) == 1, "an event keeps its id over retries"
        assert len({post.body for post in tries}) == 1, "and its body"
        assert other.posts == [], "redirects are not followed"
        assert not states(receiver.posts, "elsewhere/cam")
        # The next one was refused for good: it is counted, and the one after it says so.
        assert receiver.posts[5].answered == 400
        assert [post.data["dropped"] for post in receiver.taken()][:2] == [0, 1]
        numbers = [int(post.id.rpartition("-")[2]) for post in receiver.taken()]
        assert numbers == sorted(numbers)
        for post in receiver.posts:
            signed = f"{post.id}.{post.headers['webhook-timestamp']}.".encode() + post.body
            expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
            assert post.headers["webhook-signature"] == f"v1,{expected}"
            assert post.path == "/hook?a=b"
        assert SECRET not in bridge.said()


def test_a_bridge_goes_on_where_it_was(edge: EdgeProcess, tmp_path: Path) -> None:
    """Killed, and beside an edge that is restarted: nothing is told twice, and what is missed is said."""
    with Receiver() as receiver:
        bridge = EventsBridge(
            tmp_path, file_for(edge, f'[webhook.ops]\nurl = "{receiver.url}"\nretry_s_max = 0.2\n')
        )
        with bridge:
            wait_for(bridge.is_ready, bridge.said)
            # What the receiver does not take is written down, and outlives a SIGKILL.
            receiver.otherwise = 500
            with camera(edge, "restart/cam"):
                wait_for(
                    lambda: any(
                        event["camera"] == "restart/cam"
                        for event in bridge.kept()["targets"]["webhook.ops"]["events"]
                    ),
                    bridge.said,
                )
                bridge.end(signal.SIGKILL)
            receiver.otherwise = 204
            bridge.start()
            # The camera went while nobody listened; the edge still knows.
            wait_for(lambda: ("camera", "absent") in states(receiver.taken(), "restart/cam"), bridge.said)
            edge.stop()
            wait_for(lambda: ("edge", "away") in states_of_edge(receiver.taken()), bridge.said)
            edge.start()
            wait_for(lambda: ("edge", "answers") in states_of_edge(receiver.taken()), bridge.said)
            wait_for(lambda: ("missed", "unknown") in states_of_edge(receiver.taken()), bridge.said)
            with camera(edge, "restart/new"):
                wait_for(
                    lambda: ("camera", "connected") in states(receiver.taken(), "restart/new"), bridge.said
                )
            assert bridge.end() == 0
        taken = [post.id for post in receiver.taken()]
        assert len(taken) == len(set(taken))
        assert states(receiver.taken(), "restart/cam")[0] == ("camera", "connected")


def test_a_group_that_is_behind_is_told_and_that_it_has_caught_up(edge: EdgeProcess, tmp_path: Path) -> None:
    """By the edge that the group reads from."""
    with (
        Receiver() as receiver,
        EventsBridge(tmp_path, file_for(edge, f'[webhook.ops]\nurl = "{receiver.url}"\n')) as bridge,
        camera(edge, "group/cam") as source,
        mez.subscribe("group/cam", edge=edge.socket, group="slow", deliver="every") as member,
    ):
        wait_for(bridge.is_ready, bridge.said)
        # A group is at a place once a member has asked.
        source.send(scene(2, 8)[0])
        first = member.next(timeout=30)

        def is_behind() -> bool:
            source.send(scene(2, 8)[0])
            return ("group", "behind") in states_of_edge(receiver.taken())

        wait_for(is_behind, bridge.said)

        first.done()

        def has_caught_up() -> bool:
            with contextlib.suppress(mez.WaitTimeoutError):
                member.next(timeout=0.1).done()
            return ("group", "ok") in states_of_edge(receiver.taken())

        wait_for(has_caught_up, bridge.said)


def test_certificates_near_their_end_are_told(edge: EdgeProcess, tmp_path: Path) -> None:
    """With a period before the end that all certificates of the edge are within."""
    with (
        Receiver() as receiver,
        EventsBridge(tmp_path, file_for(edge, f'[webhook.ops]\nurl = "{receiver.url}"\n')) as bridge,
    ):
        wait_for(bridge.is_ready, bridge.said)
        edge.stop()
        words, edge.words = edge.words, ("--event-certificate-days", "36500")
        edge.start()
        edge.words = words

        def told() -> list[str]:
            return [post.data["sentence"] for post in receiver.taken() if post.data["kind"] == "certificate"]

        wait_for(lambda: len(told()) >= 2, bridge.said)
        first, *others = told()
        assert first.startswith("the certificate of edge/main expires in ")
        assert any(sentence.startswith("the certificate of authority expires in ") for sentence in others)


def states_of_edge(posts: list[Post]) -> list[tuple[str, str]]:
    """What was told that is of no camera."""
    return [(post.data["kind"], post.data["state"]) for post in posts if post.data["camera"] is None]
