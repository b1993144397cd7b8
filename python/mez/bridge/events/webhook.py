"""Posts events to a URL with an id, a time and a signature, as in the Standard Webhooks specification."""

import base64
import binascii
import contextlib
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import mez
from mez.bridge.events.delivery import Failed
from mez.bridge.events.file import Webhook
from mez.pipeline.errors import BusError

_ANSWER_BYTES_MAX: Final = 64 << 10
_PREFIX: Final = b"whsec_"
# Statuses that concern this event: the receiver will not accept it later either.
_FOR_GOOD: Final = frozenset({400, 413, 415, 422})


class WebhookSender:
    """Posts events to one URL.

    Args:
        webhook: The table of the file.
        bridge: The bridge's name.

    Raises:
        BusError: The secret or the authorities cannot be read.
    """

    def __init__(self, webhook: Webhook, bridge: str) -> None:
        field = f"webhook.{webhook.name}"
        self._webhook = webhook
        self._bridge = bridge
        self._secret = None if webhook.secret is None else _key(webhook.secret.read(f"{field}.secret"), field)
        self._parts = urlsplit(webhook.url)
        self._tls: ssl.SSLContext | None = None
        if self._parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=webhook.choice.ca)
            except OSError as error:
                raise BusError(f"{field}.ca: {webhook.choice.ca} cannot be used ({error})") from error
        self._connection: http.client.HTTPConnection | None = None

    def send(self, event: Mapping[str, Any], dropped: int) -> Failed | None:
        """Post an event, over the connection of the previous one if it still exists."""
        body = json.dumps(message(event, self._bridge, dropped)).encode()
        if self._connection is not None:
            # If a kept connection fails, the event is posted again. The receiver drops a duplicate by its id.
            failed = self._post(self._connection, event["id"], body)
            if failed is None or not failed.is_broken:
                return failed
        self._connection = self._connect()
        return self._post(self._connection, event["id"], body)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        host, port, timeout_s = self._parts.hostname or "", self._parts.port, self._webhook.choice.timeout_s
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)

    def _post(self, connection: http.client.HTTPConnection, id: str, body: bytes) -> Failed | None:  # noqa: A002
        at_s = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"mez/{mez.__version__}",
            "webhook-id": id,
            "webhook-timestamp": at_s,
        }
        if self._secret is not None:
            headers["webhook-signature"] = signature(self._secret, id, at_s, body)
        path = self._parts.path or "/"
        if self._parts.query:
            path += f"?{self._parts.query}"
        timeout_s = self._webhook.choice.timeout_s
        bound = _Bound(timeout_s)
        try:
            if connection.sock is None:
                connection.connect()
            # The socket is kept here, because `connection` may drop it before the answer was read.
            bound.watch(connection.sock)
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            read = answer.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if bound.is_over or isinstance(error, TimeoutError):
                return Failed(f"no answer in {timeout_s:g} s")
            return Failed(f"cannot be reached ({error})", is_broken=True)
        finally:
            bound.cancel()
        if len(read) == _ANSWER_BYTES_MAX or bound.is_over:
            self.close()
        return judged(answer.status, answer.headers)


class _Bound:
    """Cuts a connection off after a time. Unlike a socket's timeout, it does not restart with each byte.

    Args:
        after_s: The time from now, in seconds.
    """

    def __init__(self, after_s: float) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self.is_over = False
        """Whether the time is over."""
        self._timer = threading.Timer(after_s, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, sock: socket.socket) -> None:
        """Set the connection that is to be cut off.

        Raises:
            TimeoutError: The time is over already.
        """
        with self._lock:
            if self.is_over:
                raise TimeoutError
            self._sock = sock

    def cancel(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _cut(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self.is_over = True
            if self._sock is not None:
                # Only shut down, without TLS: the thread that waits for the answer closes the socket.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


def message(event: Mapping[str, Any], bridge: str, dropped: int) -> dict[str, Any]:
    """The message for webhooks and MQTT: the type, the time, and the event with its bridge.

    Args:
        event: The event.
        bridge: The bridge's name.
        dropped: How many events before it were dropped.
    """
    at = datetime.fromtimestamp(event["utc_ms"] / 1000, UTC)
    return {
        "type": f"mez.{event['kind']}.{event['state']}",
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": {**event, "bridge": bridge, "dropped": dropped},
    }


def signature(secret: bytes, id: str, at_s: str, body: bytes) -> str:  # noqa: A002
    """The header `webhook-signature`: HMAC-SHA256 of id, time and body, with dots between them."""
    signed = hmac.new(secret, f"{id}.{at_s}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def judged(status: int, headers: Message) -> Failed | None:
    """The failure that an answer means. `None`: the receiver has the event."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        host = urlsplit(headers.get("Location") or "").hostname or "another path"
        return Failed(f"answers {status}, a redirect to {host}, which is not followed; give the final URL")
    return Failed(f"answers {status}", _asked_s(headers.get("Retry-After")), status in _FOR_GOOD)


def _asked_s(after: str | None) -> float:
    """The wait that `Retry-After` asks for, in seconds. The header has a number of seconds, or a date."""
    if after is None:
        return 0.0
    try:
        if after.strip().isdigit():
            return float(after)
        return parsedate_to_datetime(after).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _key(secret: bytes, field: str) -> bytes:
    """The bytes of the secret. After `whsec_` they are in base64, as in Standard Webhooks."""
    if not secret.startswith(_PREFIX):
        return secret
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise BusError(
            f"{field}.secret: the text after whsec_ is not base64; copy the secret again"
        ) from error
