"""Sends an edge the requests of its page's grid, and decodes no picture: `grid.py AUTHORITY`.

It writes `ready`, reads a sign-in link, which works once, and answers with the figures of the first view.
Then it answers `begin` with `{}`, and `end` with the counts since then.

It follows `web/src/state/live.ts` and `web/src/parts/Picture.tsx`. A browser has one connection over HTTP/2;
this program has one over HTTP/1.1 for each camera, one for the list of cameras, and one for events.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from urllib.parse import quote, urlsplit

PICTURE_S = 0.2
RETRY_S = 2.0
"""Pause after an error, and between requests for replies while there are none."""

LOOK_S = 1.0
SITE_S = 10.0
FOUND_LASTS_MS = 2_000
NICENESS = 10
ANSWER_S_MAX = 20.0
FIRST_VIEW_S_MAX = 120.0
"""A run whose first view takes longer fails."""

_TOLD = ("connected", "source", "newest", "received_frames_per_second", "frames", "contracts")
"""Fields to report about a camera without pictures."""

_FILES = re.compile(rb'(?:src|href)="(/[^"]+)"')


@dataclass(slots=True)
class Counts:
    """What arrived since the counts were reset.

    Attributes:
        pictures: New pictures, or new frames of video where a camera gives H.264.
        unchanged: Answers that the picture is still the same, or that there is none yet.
        picture_bytes: Bytes of the new pictures.
        picture_age_ms: Age of each new picture when the edge answered, where the edge knows it.
        events: Events of the event stream.
        errors: Error messages.
        cpu_s: Processor time of this process.
    """

    pictures: int = 0
    unchanged: int = 0
    picture_bytes: int = 0
    picture_age_ms: list[float] = field(default_factory=list)
    events: int = 0
    errors: list[str] = field(default_factory=list)
    cpu_s: float = 0.0


class Connection:
    """A persistent connection.

    Args:
        grid: The grid whose session it uses.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._kept = http.client.HTTPSConnection(
            grid.host, grid.port, context=grid.context, timeout=ANSWER_S_MAX
        )

    def ask(
        self, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> http.client.HTTPResponse:
        """Send a request, and return the answer. The caller reads the body."""
        cookie = {"Cookie": self._grid.cookie} if self._grid.cookie else {}
        self._kept.request("GET" if body is None else "POST", path, body, {**cookie, **(headers or {})})
        answer = self._kept.getresponse()
        if answer.status >= 400:
            raise OSError(f"{path}: {answer.status} {answer.read().decode(errors='replace')}")
        return answer

    def json(self, path: str) -> dict[str, object]:
        """Send a request, and return the JSON of the answer."""
        told: dict[str, object] = json.loads(self.ask(path).read())
        return told

    def close(self) -> None:
        """Close it."""
        self._kept.close()


class Have:
    """What the page has of a camera, and what it asks for next.

    Args:
        camera: Name of the camera.
        path: Path of its pictures.
    """

    def __init__(self, camera: str, path: str) -> None:
        self._picture = path
        self._video = f"/api/v1/cameras/{quote(camera)}/video"
        self._etag, self._last = "", ""
        self._is_video = False

    def request(self, *, is_video: bool) -> tuple[str, dict[str, str]]:
        """Return the path and the headers of the next request."""
        self._is_video = is_video
        if is_video:
            return (f"{self._video}?after={self._last}" if self._last else self._video), {}
        return self._picture, ({"If-None-Match": self._etag} if self._etag else {})

    def took(self, answer: http.client.HTTPResponse) -> list[int]:
        """Read an answer, and return the bytes of each new picture."""
        body = answer.read()
        if answer.status != http.HTTPStatus.OK:
            return []
        if not self._is_video:
            self._etag = answer.headers["ETag"]
            return [len(body)]
        self._last = f"{answer.headers['mez-epoch']}-{answer.headers['mez-sequence']}"
        return list(_frame_bytes(body))


def _frame_bytes(body: bytes) -> Iterator[int]:
    """The bytes of each frame of a piece of video (docs/schema/openapi.json)."""
    at = 0
    while at < len(body):
        length = int.from_bytes(body[at : at + 4], "big") & 0x7FFF_FFFF
        yield length
        at += 4 + length


class Grid:
    """The grid of an open page.

    Args:
        authority: File with the certificate of the site's authority, to verify the edge with.
    """

    def __init__(self, authority: str) -> None:
        self.context = ssl.create_default_context(cafile=authority)
        self.host, self.port = "localhost", 443
        self.cookie = ""
        self._lock = threading.Lock()
        self._counts = Counts()
        self._cpu_s = 0.0
        self._waits_for: set[str] = set()
        self._videos: frozenset[str] = frozenset()
        self._listed: Mapping[str, Mapping[str, object]] = {}
        self._answers: Counter[tuple[str, str]] = Counter()
        self._complete = threading.Event()

    def open(self, link: str) -> dict[str, object]:
        """Open the page, and return how long it took, in milliseconds, and the bytes of its files."""
        begun = time.monotonic()
        address = urlsplit(link)
        self.host, self.port = address.hostname or self.host, address.port or self.port
        connection = Connection(self)
        file_bytes, files = self._files(connection)
        body = json.dumps({"token": address.fragment.removeprefix("token=")}).encode()
        signed = connection.ask("/api/v1/session", {"Content-Type": "application/json"}, body)
        self.cookie = (signed.headers["Set-Cookie"] or "").partition(";")[0]
        signed.read()
        cameras = self._cameras(connection)
        # A camera whose first frame has just come is not listed yet.
        while not cameras and time.monotonic() - begun < FIRST_VIEW_S_MAX:
            time.sleep(LOOK_S)
            cameras = self._cameras(connection)
        list_ms = (time.monotonic() - begun) * 1e3
        self._waits_for = set(cameras)
        self._begin(partial(self._look, connection))
        self._begin(self._hear)
        for name, path in cameras.items():
            self._begin(partial(self._follow, name, path))
        if not self._complete.wait(FIRST_VIEW_S_MAX):
            raise TimeoutError("; ".join(["no picture", *map(self._missing, sorted(self._waits_for))]))
        view_ms = (time.monotonic() - begun) * 1e3
        return {
            "first_list_ms": list_ms,
            "first_view_ms": view_ms,
            "page_bytes": file_bytes,
            "files": files,
            "cameras": len(cameras),
        }

    def counted(self) -> Counts:
        """Return the counts since the last call, and reset them."""
        with self._lock:
            counts, self._counts = self._counts, Counts()
        now = time.process_time()
        counts.cpu_s, self._cpu_s = now - self._cpu_s, now
        return counts

    def _missing(self, name: str) -> str:
        """Describe a camera without pictures, for an error message."""
        camera = self._listed[name]
        told = {key: camera[key] for key in _TOLD if key in camera}
        answers = {answer: count for (of, answer), count in self._answers.items() if of == name}
        return f"{name}: answers {answers}, errors {self._counts.errors[:1]}, {json.dumps(told)}"

    def _begin(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    def _files(self, connection: Connection) -> tuple[int, int]:
        """Fetch the page and all files that it names, as without a cache. Return their bytes and number."""
        page = connection.ask("/")
        text = page.read()
        transferred, names = _bytes_of(page, text), sorted(set(_FILES.findall(text)))
        for name in names:
            answer = connection.ask(name.decode())
            transferred += _bytes_of(answer, answer.read())
        return transferred, 1 + len(names)

    def _cameras(self, connection: Connection) -> dict[str, str]:
        """Return the cameras that have pictures, with the paths of their pictures."""
        told = connection.json("/api/v1/cameras")["cameras"]
        assert isinstance(told, list)
        self._listed = {camera["name"]: camera for camera in told}
        newest = {camera["name"]: camera["newest"] or {} for camera in told}
        self._videos = frozenset(name for name in newest if newest[name].get("encoding") == "h264")
        return {camera["name"]: camera["picture"] for camera in told if camera["picture"] is not None}

    def _look(self, connection: Connection) -> None:
        """Request the list of cameras every `LOOK_S`, and the site every `SITE_S`."""
        site_at = 0.0
        while True:
            with self._noted():
                self._cameras(connection)
                if time.monotonic() - site_at > SITE_S:
                    connection.json("/api/v1/site")
                    site_at = time.monotonic()
            time.sleep(LOOK_S)

    def _hear(self) -> None:
        """Read the stream of events."""
        with self._noted():
            stream = Connection(self).ask("/api/v1/events", {"Accept": "text/event-stream"})
            while line := stream.readline():
                if line.startswith(b"data:"):
                    with self._lock:
                        self._counts.events += 1

    def _follow(self, camera: str, path: str) -> None:
        """Request the newest picture of a camera and the replies to its frames, in a loop."""
        connection, replies_at = Connection(self), 0.0
        have = Have(camera, path)
        replies = f"/api/v1/cameras/{quote(camera)}/replies"
        while True:
            begun, wait_s = time.monotonic(), RETRY_S
            with self._noted():
                is_video = camera in self._videos
                answer = connection.ask(*have.request(is_video=is_video))
                self._answers[camera, f"{'video' if is_video else 'picture'} {answer.status}"] += 1
                self._took(camera, answer, have.took(answer))
                if time.monotonic() >= replies_at:
                    told = connection.json(replies)["replies"]
                    assert isinstance(told, list)
                    fresh = any(reply["since_ms"] < FOUND_LASTS_MS for reply in told)
                    replies_at = 0.0 if fresh else time.monotonic() + RETRY_S
                wait_s = PICTURE_S
            time.sleep(max(0.0, begun + wait_s - time.monotonic()))

    def _took(self, camera: str, answer: http.client.HTTPResponse, new: Sequence[int]) -> None:
        """Count an answer to a request for pictures; `new` has the bytes of each new picture."""
        with self._lock:
            if not new:
                self._counts.unchanged += 1
                return
            self._counts.pictures += len(new)
            self._counts.picture_bytes += sum(new)
            if (age := answer.headers["mez-age-ms"]) is not None:
                self._counts.picture_age_ms.append(float(age))
            self._waits_for.discard(camera)
            if not self._waits_for:
                self._complete.set()

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Record an error, and go on."""
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError) as error:
            with self._lock:
                self._counts.errors.append(str(error))


def _bytes_of(answer: http.client.HTTPResponse, body: bytes) -> int:
    """Return the bytes of an answer over HTTP/1.1: status line, headers and body."""
    headers = sum(len(name) + len(value) + len(": \r\n") for name, value in answer.headers.items())
    return len(f"HTTP/1.1 {answer.status} {answer.reason}\r\n\r\n") + headers + len(body)


def main(authority: str) -> None:
    """Open the page, and answer commands until standard input ends."""
    # The client stands for a browser on another host, so brokers and applications of this host go first.
    os.nice(NICENESS)
    grid = Grid(authority)
    print("ready", flush=True)
    print(json.dumps(grid.open(sys.stdin.readline().strip())), flush=True)
    for line in sys.stdin:
        counts = asdict(grid.counted())
        print(json.dumps(counts if line.strip() == "end" else {}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
