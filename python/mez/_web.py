"""A client of the edge's HTTP interface (docs/schema/openapi.json), with the rights of the calling user."""

import http.client
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mez._processes import ProcessError, mez_command, run_to_end
from mez.errors import ArgumentError, BrokerError, ConnectError, Error, KeysError, PermissionDenied

PORT: Final = 7653
ANSWER_S_MAX: Final = 10.0
"""How long an answer may take, in seconds."""
SILENCE_S_MAX: Final = 40.0
"""How long a stream of events may be silent, in seconds. The edge writes something every 15 s."""
ANSWER_BYTES_MAX: Final = 64 << 20
_LINE_BYTES_MAX: Final = 1 << 20

Json = Mapping[str, Any]

# Every certificate of an edge has this name, wherever the edge is.
_EDGE: Final = "mez-edge"
_BROKEN: Final = "the edge's answer is incomplete; try again"


class Web:
    """An edge's data.

    With an address, this program shows the certificate of an application. Without one, it asks the edge of
    this host over its Unix socket for a session of the user that runs it (`mez edge open`).

    Not for several threads.

    Args:
        address: `HOST` or `HOST:PORT` of `mez edge --web`; `None`: the edge of this host.
        keys: The folder of keys. Default: `MEZ_KEYS`, else `~/.config/mez/keys`.
        edge: The Unix socket of the edge of this host: `unix:///run/mez/edge.sock`. Default: as for
            `mez edge open`.

    Raises:
        ArgumentError: The address is not valid.
    """

    def __init__(
        self, address: str | None = None, *, keys: Path | None = None, edge: str | None = None
    ) -> None:
        self._address = None if address is None else _parsed(address)
        self._keys = keys or Path(os.environ.get("MEZ_KEYS") or Path.home() / ".config/mez/keys")
        self._edge = edge
        self._cookie: str | None = None
        self._signed_at = ("localhost", PORT)
        self._kept: _Connection | None = None

    def get(self, path: str) -> Any:  # noqa: ANN401, what JSON holds
        """The edge's answer to a path such as `/api/v1/site`.

        Raises:
            ConnectError: The edge cannot be reached, or does not answer.
            KeysError: There are no keys, or they do not fit.
            PermissionDenied: A grant is missing, or the identity was revoked.
            BrokerError: The edge refuses for another reason.
        """
        if self._kept is not None:
            try:
                return self._get(self._kept, path)
            except Error:
                # The edge was restarted, or closed a connection that nobody used, or the session has ended.
                self.close()
        connection = self._connect()
        try:
            told = self._get(connection, path)
        except BaseException:
            # The next call needs a new connection: this one may have no session.
            connection.close()
            raise
        self._kept = connection
        return told

    def events(self, after: str | None = None) -> Iterator[Json | None]:
        """Events as they happen. `None` comes at the start, and if there were no events for a while.

        Args:
            after: The id of the last event that was read. `None`: begin with the events that the edge holds.

        Raises:
            Error: As `get`. The end of the stream is a `ConnectError`.
        """
        connection = self._connect()
        try:
            headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": after})
            connection.timeout = SILENCE_S_MAX
            answer = self._ask(connection, "GET", "/api/v1/events", headers)
            yield None
            while True:
                line = _line(answer)
                if line.startswith(b"data:"):
                    yield _parsed_json(line[5:])
                elif line.startswith(b":"):
                    yield None
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection. `get` opens it again."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _get(self, connection: "_Connection", path: str) -> Any:  # noqa: ANN401, what JSON holds
        return _parsed_json(_body(self._ask(connection, "GET", path, {})))

    def _ask(
        self, connection: "_Connection", method: str, path: str, headers: Json, body: bytes | None = None
    ) -> http.client.HTTPResponse:
        """Send a request, and raise an error if the edge refuses it. Sign in again if the session ended."""
        answer = connection.ask(method, path, {**headers, **self._cookies()}, body)
        if answer.status == http.HTTPStatus.UNAUTHORIZED and self._cookie is not None:
            _body(answer)
            self._sign_in(connection)
            answer = connection.ask(method, path, {**headers, **self._cookies()}, body)
        if answer.status < 300:
            return answer
        raise _refusal(answer.status, _body(answer))

    def _cookies(self) -> dict[str, str]:
        return {} if self._cookie is None else {"Cookie": self._cookie}

    def _connect(self) -> "_Connection":
        if self._address is not None:
            return _Connection(*self._address, _context(self._keys, shows=True))
        if self._cookie is None:
            connection, token = self._link()
            try:
                return self._signed_in(connection, token)
            except BaseException:
                connection.close()
                raise
        return _Connection(*self._signed_at, _context(self._keys, shows=False))

    def _link(self) -> tuple["_Connection", str]:
        """A connection to the address in a link of `mez edge open`, and the token of the link."""
        socket_words = [] if self._edge is None else ["--edge", self._edge]
        try:
            said = run_to_end("mez edge open", mez_command("--log", "error", "edge", "open", *socket_words))
        except ProcessError as error:
            raise ConnectError(str(error)) from error
        link = re.search(r"https://(\[[0-9a-f:]+\]|[^/:\s]+):(\d+)/#token=(\S+)", said)
        if link is None:
            raise ConnectError(f"mez edge open printed no link: {said[:200]!r}; update mez on this host")
        self._signed_at = (link[1].strip("[]"), int(link[2]))
        return _Connection(*self._signed_at, _context(self._keys, shows=False)), link[3]

    def _sign_in(self, connection: "_Connection") -> None:
        self._cookie = None
        other, token = self._link()
        other.close()
        self._signed_in(connection, token)

    def _signed_in(self, connection: "_Connection", token: str) -> "_Connection":
        body = json.dumps({"token": token}).encode()
        answer = self._ask(connection, "POST", "/api/v1/session", {"Content-Type": "application/json"}, body)
        self._cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
        _body(answer)
        return connection


class _Connection(http.client.HTTPSConnection):
    """A connection to an edge, which is identified by its certificate and not by its address."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=ANSWER_S_MAX, context=context)
        self._tls = context

    def connect(self) -> None:
        """Connect, and check that the other side is an edge of the site."""
        plain = socket.create_connection((self.host, self.port), ANSWER_S_MAX)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=_EDGE)
        except BaseException:
            plain.close()
            raise
        names: Any = (self.sock.getpeercert() or {}).get("subjectAltName", ())
        if not any(kind == "URI" and "/edge/" in name for kind, name in names):
            self.close()
            raise ConnectError(
                f"{self.host}:{self.port} is not an edge of this site; give the address of an edge"
            )

    def ask(self, method: str, path: str, headers: Json, body: bytes | None) -> http.client.HTTPResponse:
        try:
            self.request(method, path, body, dict(headers))
            if self.sock is not None:
                # A stream of events may be silent for longer than other answers.
                self.sock.settimeout(self.timeout)
            return self.getresponse()
        except ConnectError:
            # The other side is not an edge: the message of `connect` says what to do.
            raise
        except ssl.SSLCertVerificationError as error:
            raise KeysError(
                f"the edge at {self.host}:{self.port} does not belong to the site of these keys "
                f"({error.verify_message}); give the folder of keys of its site"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectError(
                f"the edge does not answer at {self.host}:{self.port} ({error}); is `mez edge --web` running?"
            ) from error


def _line(answer: http.client.HTTPResponse) -> bytes:
    try:
        line = answer.readline(_LINE_BYTES_MAX)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ConnectError(f"the stream of events was interrupted ({error}); open it again") from error
    if not line:
        raise ConnectError("the stream of events has ended; open it again")
    return line


def _body(answer: http.client.HTTPResponse) -> bytes:
    try:
        body = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise ConnectError(f"the edge's answer is incomplete ({error}); try again") from error
    if len(body) > ANSWER_BYTES_MAX:
        raise BrokerError(f"the edge's answer has more than {ANSWER_BYTES_MAX} bytes; request less")
    if answer.length:
        raise ConnectError(_BROKEN)
    return body


def _parsed_json(text: bytes) -> Any:  # noqa: ANN401, what JSON holds
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConnectError(_BROKEN) from error


def _refusal(status: int, body: bytes) -> BrokerError:
    try:
        detail = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"the edge answered with the status {status}"
    kind = PermissionDenied if status in (401, 403) else BrokerError
    return kind(detail)


def is_host(host: str) -> bool:
    """Whether a text can be looked up as the name of a host: `a..b` cannot."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _parsed(address: str) -> tuple[str, int]:
    given = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?", address)
    if given is None or int(given[2] or PORT) > 65535 or not is_host(given[1]):
        raise ArgumentError(f"{address!r} is not an address; give HOST or HOST:PORT of mez edge --web")
    return given[1].strip("[]"), int(given[2] or PORT)


def _context(keys: Path, *, shows: bool) -> ssl.SSLContext:
    """TLS with the site's authority. Read again for each connection, because certificates are renewed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(keys / "authority.pem")
        if shows:
            context.load_cert_chain(_application(keys))
    except OSError as error:
        raise KeysError(f"the keys in {keys} cannot be used ({error}); run mez keys enrol here") from error
    return context


def _application(keys: Path) -> Path:
    """The identity of the one application in a folder of keys."""
    found = sorted(keys.glob("app+*.pem"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise KeysError(f"{keys} has no keys of an application; run mez keys enrol with a token for one")
    names = ", ".join(path.stem.replace("+", "/") for path in found)
    raise KeysError(f"{keys} has keys of several applications ({names}); use a folder with only one")
