"""A receiver of OTLP over HTTP for tests. It parses with the protocol's own classes (opentelemetry-proto)."""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def parsed(body: bytes) -> ExportTraceServiceRequest:
    """A message, read strictly: a field that the protocol does not have is refused.

    OTLP has identities in hexadecimal, where the JSON of protobuf has base64. All else is the same.
    """
    told = json.loads(body)
    for resource in told["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    request = ExportTraceServiceRequest()
    json_format.ParseDict(told, request)
    return request


class Receiver(ThreadingHTTPServer):
    """A receiver of OTLP over HTTP. It answers as it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.requests = 0

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[Any]:
        """All spans that it has."""
        return [
            span
            for request in self.got
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Handler(BaseHTTPRequestHandler):
    """What the receiver does with a request."""

    server: Receiver

    def do_POST(self) -> None:
        """Parse it, and answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        status = self.server.answers.pop(0) if self.server.answers else 200
        if self.path != "/v1/traces" or self.headers["Content-Type"] != "application/json":
            status = 404
        if status == 200:
            self.server.headers.append(dict(self.headers))
            self.server.got.append(parsed(body))
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that runs until the end of the `with`."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()
