"""What tests of events share: a bridge as a process, and a server that misbehaves as it is told."""

import json
import os
import pwd
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from mez._processes import free_port

MEZ = str(Path(sys.executable).parent / "mez")


def certificate(folder: Path) -> Path:
    """A certificate of this host that signs itself; its key is `key.pem` in the same folder."""
    path = folder / "ca.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    words += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    words += ["-keyout", str(folder / "key.pem"), "-out", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    return path


@dataclass(frozen=True)
class Post:
    """What somebody posted."""

    path: str
    headers: dict[str, str]
    body: bytes
    answered: int

    @property
    def id(self) -> str:
        """The id of the event."""
        return self.headers["webhook-id"]

    @property
    def data(self) -> dict[str, Any]:
        """The event."""
        told: dict[str, Any] = json.loads(self.body)["data"]
        return told


class Receiver:
    """An HTTP server that answers as it is told, one answer after the other, and afterwards with 204.

    An answer is a status, with headers if need be, or `None`: it says nothing until the other side gives up.
    """

    def __init__(self, tls: Path | None = None) -> None:
        """Listen on a free port of this host, with TLS if there is a `certificate`."""
        self.posts: list[Post] = []
        self.answers: list[tuple[int, dict[str, str]] | None] = []
        self.otherwise = 204
        self._lock = threading.Lock()
        self._over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}/hook"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls, tls.with_name("key.pem"))
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request, and note it."""
        body = request.rfile.read(int(request.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in request.headers.items()}
        with self._lock:
            told = self.answers.pop(0) if self.answers else (self.otherwise, {})
            self.posts.append(Post(request.path, headers, body, told[0] if told else 0))
        if told is None:
            self._over.wait(30)
            request.close_connection = True
            return
        request.send_response(told[0])
        for name, value in told[1].items():
            request.send_header(name, value)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def taken(self) -> list[Post]:
        """Those that were answered well."""
        with self._lock:
            return [post for post in self.posts if 200 <= post.answered < 300]

    def __enter__(self) -> Self:
        """Serve."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


class EventsBridge:
    """`mez bridge events` as a process of its own."""

    def __init__(self, folder: Path, text: str, environment: dict[str, str] | None = None) -> None:
        """Write its file."""
        self._folder = folder
        self.file = folder / "events.toml"
        self.file.write_text(text)
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Start it."""
        words = [MEZ, "bridge", "events", str(self.file), "--state", str(self._folder), "--progress", "0"]
        with (self._folder / "bridge.log").open("a") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, text=True, env=self._environment)
        return self

    def said(self) -> str:
        """All that it has said."""
        return (self._folder / "bridge.log").read_text()

    def is_ready(self) -> bool:
        """Whether it has met its edge: from then on events are told."""
        return self.kept().get("since_utc_ms") is not None

    def kept(self) -> dict[str, Any]:
        """What it has written down."""
        path = self._folder / "bridges/events.hall7/events.json"
        told: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return told

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it, and return its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(timeout=60)

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """End it, whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Mosquitto:
    """A real MQTT broker with TLS and passwords, which forgets everything when it is restarted."""

    USER, READER, PASSWORD = "bridge", "reader", "a password"

    def __init__(self, folder: Path) -> None:
        """Make its keys, and start it."""
        self._folder = folder
        folder.mkdir(mode=0o755)
        self.port = free_port()
        self.ca = certificate(folder)
        self._users = folder / "users"
        self._users.touch(mode=0o600)
        (folder / "mosquitto.conf").write_text(
            f"user {pwd.getpwuid(os.geteuid()).pw_name}\nlistener {self.port} 127.0.0.1\n"
            f"allow_anonymous false\n"
            f"password_file {self._users}\ncertfile {self.ca}\nkeyfile {folder / 'key.pem'}\n"
        )
        self.start(self.READER, self.USER)

    def start(self, *users: str) -> None:
        """Start it, and let in these users. Clients try until it listens."""
        self._users.write_text("")
        for user in users:
            words = ["mosquitto_passwd", "-b", str(self._users), user, self.PASSWORD]
            subprocess.run(words, check=True, capture_output=True)
        program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "there is no mosquitto; `tools/setup --tests` installs it"
        with (self._folder / "log").open("a") as log:
            words = [program, "-c", str(self._folder / "mosquitto.conf")]
            self._process = subprocess.Popen(words, stdout=log, stderr=log)

    def let_in(self, user: str) -> None:
        """Let in one more user, while it runs."""
        words = ["mosquitto_passwd", "-b", str(self._users), user, self.PASSWORD]
        subprocess.run(words, check=True, capture_output=True)
        # It reads its users again.
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        """It runs already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()


class Reader:
    """A client that reads all topics of a broker, also over its restarts."""

    def __init__(self, broker: Mosquitto) -> None:
        """Connect, once the broker listens, and wait until it has taken the subscription."""
        self.messages: list[tuple[str, str]] = []
        self.kept: dict[str, str] = {}
        """The newest of each topic."""
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.username_pw_set(broker.READER, broker.PASSWORD)
        self._client.tls_set(str(broker.ca))
        self._client.reconnect_delay_set(1, 1)
        self._subscribed = threading.Event()
        self._client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_disconnect = lambda *_: self._subscribed.clear()
        self._client.on_message = self._take
        self._client.connect_async("localhost", broker.port)
        self._client.loop_start()
        self.wait_subscribed()

    def wait_subscribed(self) -> None:
        """Wait until the broker has taken the subscription: events that are published before never come."""
        assert self._subscribed.wait(60), "the broker does not answer"

    def is_subscribed(self) -> bool:
        """Whether events come."""
        return self._subscribed.is_set()

    def _take(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        text = message.payload.decode()
        self.messages.append((message.topic, text))
        self.kept[message.topic] = text

    def events(self, topic: str) -> list[dict[str, Any]]:
        """The events of a topic."""
        return [json.loads(text)["data"] for at, text in list(self.messages) if at == topic]

    def heard(self) -> str:
        """All messages, for people."""
        return "\n".join(f"{topic} {text}" for topic, text in list(self.messages))

    def state(self, topic: str) -> dict[str, Any]:
        """The newest state of a topic; empty: there is none."""
        told: dict[str, Any] = json.loads(self.kept.get(topic) or "{}")
        return told

    def __enter__(self) -> Self:
        """It reads already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._client.disconnect()
        self._client.loop_stop()


def wait_for(condition: Callable[[], object], what: Callable[[], object]) -> None:
    """Wait until something is so. How long it takes is not tested."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.05)
