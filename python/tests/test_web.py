"""The client of an edge's data, with an edge that forgets sessions, breaks off, and is none."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import pytest

from mez import _web
from mez.errors import ArgumentError, ConnectError


class FakeEdge:
    """Serves `/ok` to whoever signed in with a token, without TLS."""

    def __init__(self) -> None:
        """Listen on a free port of this host."""
        self.cookies: set[str] = set()
        self.cut = False
        """It says that there is more than it sends."""
        self.tokens = 0
        edge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                edge.cookies.add(f"c={edge.tokens}")
                self._say(200, {}, f"c={edge.tokens}; Secure")

            def do_GET(self) -> None:
                known = self.headers["Cookie"] in edge.cookies
                self._say(200 if known else 401, {"ok": 1} if known else {"detail": "sign in"})

            def _say(self, status: int, told: object, cookie: str = "") -> None:
                body = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) + (5 if edge.cut else 0)))
                if cookie:
                    self.send_header("Set-Cookie", cookie)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = edge.cut

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        """Serve."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


class Plain(_web._Connection):
    """A connection without TLS."""

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.create_connection((self.host, self.port), 10)


class Client(_web.Web):
    """A client that gets its links from the test."""

    def __init__(self, edge: FakeEdge) -> None:
        """Of an edge."""
        super().__init__()
        self.fake = edge
        self.may_open = True

    def _link(self) -> tuple[_web._Connection, str]:
        if not self.may_open:
            raise ConnectError("the edge does not answer at its socket")
        self.fake.tokens += 1
        self._signed_at = ("127.0.0.1", self.fake.port)
        return _web._Connection(*self._signed_at, ssl.create_default_context()), "token"


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEdge]:
    """An edge whose clients need no keys."""
    monkeypatch.setattr(_web, "_Connection", Plain)
    monkeypatch.setattr(_web, "_context", lambda *_, **__: ssl.create_default_context())
    with FakeEdge() as edge:
        yield edge


def test_a_failed_sign_in_does_not_lock_a_client_out(edge: FakeEdge) -> None:
    """An edge is restarted: it has forgotten the session, and gives no new one at first."""
    web = Client(edge)
    assert web.get("/ok") == {"ok": 1}
    edge.cookies.clear()
    web.close()
    web.may_open = False
    with pytest.raises(ConnectError):
        web.get("/ok")
    web.may_open = True
    assert web.get("/ok") == {"ok": 1}
    web.close()


def test_an_answer_that_breaks_off_is_an_error_of_the_connection(edge: FakeEdge) -> None:
    """Callers wait and ask again."""
    web = Client(edge)
    assert web.get("/ok") == {"ok": 1}
    edge.cut = True
    with pytest.raises(ConnectError, match="is incomplete"):
        web.get("/ok")
    edge.cut = False
    assert web.get("/ok") == {"ok": 1}
    web.close()
    with pytest.raises(ConnectError, match="is incomplete"):
        _web._parsed_json(b'{"cut": [1, 2')


def test_who_is_no_edge_is_told_as_such(edge: FakeEdge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice is not that of an edge that is away."""

    def connect(self: Plain) -> None:
        raise ConnectError(f"{self.host} is not an edge of this site; give the address of an edge")

    monkeypatch.setattr(Plain, "connect", connect)
    with pytest.raises(ConnectError) as told:
        Client(edge).get("/ok")
    assert str(told.value) == "127.0.0.1 is not an edge of this site; give the address of an edge"


def test_hosts_that_cannot_be_looked_up_are_refused() -> None:
    """Before a thread fails with them."""
    with pytest.raises(ArgumentError):
        _web.Web("a..b:1")
