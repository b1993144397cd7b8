"""One webhook without an edge: how long a try may take, and when an event is posted again."""

import contextlib
import socket
import threading
from pathlib import Path

from mez.bridge.events import file
from mez.bridge.events.webhook import WebhookSender
from tests.bridge_files import written
from tests.receivers import Receiver

EVENT = {"id": "e-1", "utc_ms": 1, "kind": "camera", "camera": "dock/a", "state": "absent"}
BYTES_MAX = 300


def sender(tmp_path: Path, url: str) -> WebhookSender:
    """A sender that waits for half a second."""
    text = f'[bridge]\nname = "hall7"\n[webhook.ops]\nurl = "{url}"\ntimeout_s = 0.5\n'
    return WebhookSender(file.read(written(tmp_path, text)).webhooks["ops"], "hall7")


def test_an_event_without_an_answer_is_not_posted_again_at_once(tmp_path: Path) -> None:
    """Over a connection that was kept; that is for whoever counts the waits."""
    with Receiver() as receiver:
        receiver.answers = [(204, {}), None]
        ops = sender(tmp_path, receiver.url)
        assert ops.send(EVENT, 0) is None
        failed = ops.send(EVENT, 0)
        assert failed is not None
        assert "no answer" in failed.why
        assert len(receiver.posts) == 2
        ops.close()


def test_an_answer_that_never_ends_is_cut_off(tmp_path: Path) -> None:
    """A byte now and then, of a receiver that says that it closes the connection."""
    sent, broken = [0], threading.Event()

    def answer(server: socket.socket) -> None:
        near, _ = server.accept()
        with near, contextlib.suppress(OSError):
            near.recv(65536)
            near.sendall(b"HTTP/1.1 503 no\r\nConnection: close\r\n\r\n")
            while sent[0] < BYTES_MAX and not broken.wait(0.05):
                near.sendall(b"x")
                sent[0] += 1

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        ops = sender(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}/hook")
        assert ops.send(EVENT, 0) is not None
        ops.close()
        thread.join()
    assert sent[0] < BYTES_MAX


def test_a_url_that_cannot_be_sent_is_a_failure(tmp_path: Path) -> None:
    """The thread that delivers outlives it."""
    ops = sender(tmp_path, "https://ops.example/hook")
    ops._parts = ops._parts._replace(path="/h\u00f6rer", netloc="a..b")
    assert ops.send(EVENT, 0) is not None
