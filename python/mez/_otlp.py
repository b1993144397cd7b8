"""Encodes spans as OTLP, the protocol of OpenTelemetry, and sends them over HTTP.

OTLP's own JSON (opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding) differs from that of protobuf in
identities, which are hexadecimal. Files of such lines are read by the Collector's receiver `otlpjsonfile`.
Over HTTP every receiver of OTLP takes the same JSON.
"""

import http.client
import json
import logging
import os
import queue
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mez import _native
from mez._hosts import is_loopback
from mez._spans import Span, Value

LINE_SPANS_MAX: Final = 512
"""The most spans of a line, or of a request."""

QUEUE_MAX: Final = 4096
"""The most spans that wait to be sent. Further ones are dropped and counted."""

PAUSE_S: Final = 0.5
"""How long spans are gathered before they are sent, in seconds."""

ANSWER_S_MAX: Final = 5.0
AGAIN_S: Final = (0.5, 1.0, 2.0, 4.0)
"""Pauses before spans are sent again. After the last one they are dropped."""

CLOSE_S_MAX: Final = 2.0
"""How long the end of a worker waits for its last spans to be sent."""

AGAIN_STATUS: Final = (429, 502, 503, 504)
"""Status codes after which the protocol lets a client try again."""

HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
AUTHORITY: Final = "OTEL_EXPORTER_OTLP_CERTIFICATE"

_log = logging.getLogger("mez")


def fault_of(address: str) -> str | None:
    """What is wrong with the address of a receiver, and what to do. `None` if the address is valid."""
    try:
        parts = urllib.parse.urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_address = is_address and not parts.query and not parts.fragment
    except ValueError:
        is_address = False
    if not is_address:
        return f"{address!r} is not an address; give http://localhost:4318, or https://HOST:PORT"
    if parts.username is not None:
        return f"the address must not contain secrets; put them into {HEADERS}"
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        return "spans would cross the network unencrypted; give https://"
    if parts.path.rstrip("/").endswith("/v1/traces"):
        return "the path /v1/traces is added automatically; leave it out"
    return None


def message(spans: Sequence[Span]) -> dict[str, Any]:
    """An `ExportTraceServiceRequest`, which is also a `TracesData`: spans, grouped by service and worker."""
    by_maker: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        by_maker.setdefault((span.service, span.worker), []).append(span)
    scope = {"name": "mez", "version": _native.__version__}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(_resource(*maker))},
                "scopeSpans": [{"scope": scope, "spans": [_span(span) for span in own]}],
            }
            for maker, own in by_maker.items()
        ]
    }


def _resource(service: str, worker: str) -> dict[str, Value]:
    told: dict[str, Value] = {"service.name": service}
    if worker:
        told["service.instance.id"] = worker
        _, at, host = worker.partition("@")
        if at:
            told["host.name"] = host
    return told


def _span(span: Span) -> dict[str, Any]:
    told: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.id,
        "name": span.name,
        "kind": span.kind,
        # 64-bit numbers are texts in the JSON of protobuf.
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
    }
    if span.parent:
        told["parentSpanId"] = span.parent
    return told


def _attributes(told: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in told.items()]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def encoded(spans: Sequence[Span]) -> bytes:
    """A message as JSON, without a line break."""
    return json.dumps(message(spans), separators=(",", ":"), allow_nan=False).encode()


class Exporter:
    """Sends spans to a receiver of OTLP over HTTP, from its own thread. It never delays a record.

    As for all exporters of OpenTelemetry, headers, such as those of a tenant, come from the variable
    `OTEL_EXPORTER_OTLP_HEADERS` (`NAME=VALUE,…`), and a private authority from
    `OTEL_EXPORTER_OTLP_CERTIFICATE`.

    Args:
        endpoint: The address without the path `/v1/traces`: `http://localhost:4318`.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = urllib.parse.urlsplit(endpoint)
        self._headers = {"Content-Type": "application/json", **_headers(os.environ.get(HEADERS, ""))}
        self._queue: queue.Queue[Span] = queue.Queue(QUEUE_MAX)
        self._over = threading.Event()
        self._until_s = float("inf")
        self._away = False
        self.sent = 0
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def put(self, spans: Iterable[Span]) -> None:
        """Queue spans to be sent. Spans for which there is no room are dropped and counted."""
        for span in spans:
            try:
                self._queue.put_nowait(span)
            except queue.Full:
                self.dropped += 1

    def close(self) -> None:
        """Send the spans that wait, for a short time, and log how many were dropped."""
        self._until_s = time.monotonic() + CLOSE_S_MAX
        self._over.set()
        self._thread.join(CLOSE_S_MAX)
        if self._thread.is_alive():
            # The receiver accepts connections but does not answer: stop waiting.
            self.dropped += self._queue.qsize()
        if self.dropped:
            _log.warning("%d spans were not sent to %s", self.dropped, self._endpoint.geturl())

    def _run(self) -> None:
        while True:
            is_over = self._over.wait(PAUSE_S)
            while spans := self._gathered():
                self._send(encoded(spans), len(spans))
            if is_over:
                return

    def _gathered(self) -> list[Span]:
        spans: list[Span] = []
        while len(spans) < LINE_SPANS_MAX:
            try:
                spans.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return spans

    def _send(self, body: bytes, count: int) -> None:
        """Send a message, and send it again if the protocol allows this."""
        for pause_s in (*AGAIN_S, None):
            why, is_again = self._post(body)
            if not why:
                self.sent += count
                self._away = False
                return
            if not self._away:
                self._away = True
                _log.warning("%s does not accept spans: %s", self._endpoint.geturl(), why)
            if pause_s is None or not is_again or time.monotonic() + pause_s > self._until_s:
                break
            # After `close`, the remaining tries follow without a pause.
            self._over.wait(pause_s)
        self.dropped += count

    def _post(self, body: bytes) -> tuple[str, bool]:
        """Post a message. Return why it was not accepted (empty: it was), and whether to try again."""
        try:
            connection = self._connection()
            try:
                path = self._endpoint.path.rstrip("/") + "/v1/traces"
                connection.request("POST", path, body, self._headers)
                answer = connection.getresponse()
                said = answer.read(1000)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__, True
        except ValueError as error:
            # A header or a name that HTTP cannot carry.
            return str(error), False
        if 200 <= answer.status < 300:
            return "", False
        return f"{answer.status} {said.decode(errors='replace')[:200]}", answer.status in AGAIN_STATUS

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._endpoint.hostname or "", self._endpoint.port
        if self._endpoint.scheme == "https":
            trusted = ssl.create_default_context(cafile=os.environ.get(AUTHORITY))
            return http.client.HTTPSConnection(host, port, timeout=ANSWER_S_MAX, context=trusted)
        return http.client.HTTPConnection(host, port, timeout=ANSWER_S_MAX)


def _headers(told: str) -> dict[str, str]:
    found = {}
    for part in told.split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip():
            found[name.strip()] = urllib.parse.unquote(value.strip())
    return found
