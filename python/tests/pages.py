"""What tests of the page share: an edge with a page, cameras whose pictures show something, a browser."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import mez
from mez import _native
from tests.support import profile_of

ROOT = Path(__file__).parents[2]
MEZ = str(Path(sys.executable).parent / "mez")
SIZE = (320, 180)
"""Width and height of the cameras' pictures."""
FRAMES_PER_SECOND = 10.0


def ran(*words: str) -> str:
    """What the command says."""
    return subprocess.run([MEZ, "--log", "error", *words], check=True, capture_output=True, text=True).stdout


class EdgeProcess:
    """`mez edge` with a page, on ports that stay the same when it is started again."""

    def __init__(self, folder: Path, *words: str) -> None:
        """Make a site in this folder and start the edge of it, with these words besides."""
        self.folder = folder
        self.words = words
        self.keys = folder / "keys"
        self.socket = f"unix://{folder / 'edge.sock'}"
        ran("keys", "init", "--site", "hall", "--keys", str(self.keys))
        ran("store", "key", "--keys", str(self.keys))
        self._listen = self._web = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it serves."""
        words = [MEZ, "--log", "error", "edge", "--name", "main", "--keys", str(self.keys)]
        words += ["--listen", self._listen, "--web", self._web, "--grpc", "127.0.0.1:0", "--enrol", "off"]
        words += ["--state", str(self.folder / "state"), "--socket", str(self.folder / "edge.sock")]
        words += ["--channel", "radio=hall/fine,hall/coarse", "--store", str(self.folder / "store")]
        words += self.words
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        self._listen, self._web = (self._said(ready, "link"), self._said(ready, "web"))

    @staticmethod
    def _said(ready: str, name: str) -> str:
        said = re.search(rf"\b{name}=(\S+)", ready)
        assert said, ready
        return said[1]

    @property
    def address(self) -> str:
        """Where cameras connect."""
        return self._listen

    @property
    def web(self) -> str:
        """Where the page is."""
        return self._web

    def link(self) -> str:
        """A link that signs a browser in, once."""
        said = ran("edge", "open", "--edge", self.socket)
        link = re.search(r"https://\S+", said)
        assert link, said
        return link[0]

    def stop(self) -> None:
        """Kill it, as a crash would, if it runs."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


def scene(number: int, hue: int) -> tuple[NDArray[np.uint8], tuple[int, int, int, int]]:
    """A picture of a floor with something that walks over it, and the box around that."""
    width, height = SIZE
    y, x = np.mgrid[0:height, 0:width]
    image = np.stack([90 + y // 3 + hue, 100 + x // 8, 110 + y // 4 - hue], axis=2).astype(np.uint8)
    image[(x // 32 + y // 32) % 2 == 0] -= 12
    left, top = 20 + number * 3 % (width - 60), 70
    image[top : top + 60, left : left + 22] = (40, 60, 170 - hue)
    image[top - 14 : top, left + 4 : left + 18] = (130, 170, 220)
    return image, (left, top - 14, left + 22, top + 60)


class Hall:
    """Six cameras: contract kept, contract that cannot be, read without one, read by nobody, data, gone.

    What is found in `hall/fine` is published as `hall/fine/people`, too.
    """

    NAMES = ("hall/fine", "hall/coarse", "hall/plain", "hall/alone", "hall/data", "yard/gone")

    def __init__(self, edge: EdgeProcess) -> None:
        """Start cameras and applications, each on a thread of its own."""
        self._edge = edge
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Publish, until `__exit__`."""
        cameras = {
            name: self._open.enter_context(
                mez.publisher(
                    name, edge=self._edge.address, keys=self._edge.keys, state=self._edge.folder / name
                )
            )
            for name in self.NAMES
        }
        gone = cameras.pop("yard/gone")
        with mez.subscribe("yard/gone", edge=self._edge.socket) as frames:
            gone.wait_connected(timeout=30)
            for number in range(200):
                gone.send(scene(number, 30)[0])
                with contextlib.suppress(mez.WaitTimeoutError):
                    frames.next(timeout=0.1)
                    break
        gone.close()
        self._begin(partial(self._publish, cameras))
        profile = {"latency_ms": 1000, "profile": profile_of(*SIZE, small=0.93, rung="jpeg/w160/q44/420")}
        self._begin(partial(self._read, "hall/fine", {**profile, "accuracy": 0.9, "application": "counter"}))
        self._begin(
            partial(self._read, "hall/coarse", {**profile, "accuracy": 0.95, "application": "plates"})
        )
        self._begin(partial(self._read, "hall/plain", {"application": "viewer"}))
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all of it."""
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=30)
        self._open.close()

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        self._threads.append(thread)

    def _publish(self, cameras: dict[str, mez.Publisher]) -> None:
        number = 0
        while not self._over.wait(1 / FRAMES_PER_SECOND):
            number += 1
            for hue, (name, camera) in enumerate(cameras.items()):
                if name == "hall/data":
                    camera.send_data(b"a record", content_type="text/plain")
                else:
                    camera.send(scene(number, 8 * hue)[0])

    def _read(self, camera: str, contract: dict[str, Any]) -> None:
        """Read, also over restarts of the edge, and reply with the box of what walks."""
        with ExitStack() as stack:
            frames = stack.enter_context(
                mez.subscribe(camera, edge=self._edge.socket, connect_timeout=None, **contract)
            )
            made = None
            if camera == "hall/fine":
                made = mez.publisher(f"{camera}/people", of=camera, edge=self._edge.socket)
                stack.enter_context(made)
            while not self._over.is_set():
                with contextlib.suppress(mez.WaitTimeoutError):
                    frame = frames.next(timeout=0.2)
                    if made is not None:
                        found = self._boxes(frame)
                        frame.reply(found)
                        # A publisher waits until an edge that was started again takes its records.
                        with contextlib.suppress(mez.Error):
                            made.send_data({"people": len(found)}, of=frame)

    @staticmethod
    def _boxes(frame: mez.Frame) -> mez.Detections:
        """What stands out of the floor by its colour."""
        image = frame.image.astype(np.int16)
        ys, xs = np.nonzero(image[:, :, 2] - image[:, :, 0] > 60)
        if len(xs) == 0:
            return mez.Detections([])
        box = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
        return mez.Detections([box], scores=[0.9], class_names=["person"])


@contextmanager
def sixteen(edge: EdgeProcess) -> Iterator[None]:
    """Sixteen cameras that publish, and an application with a contract on all of them."""
    names = [f"{place}/cam{number}" for place in ("dock", "gate", "hall", "yard") for number in range(1, 5)]
    over = threading.Event()
    # Made once: what cameras publish is not what is tested.
    pictures = [_native.encode_jpeg(scene(5 * number, number)[0], 90) for number in range(2 * len(names))]

    def publish(cameras: list[mez.Publisher]) -> None:
        number = 0
        while not over.wait(1 / FRAMES_PER_SECOND):
            number += 1
            for place, camera in enumerate(cameras):
                camera.send(pictures[(number + 2 * place) % len(pictures)])

    def read(frames: mez.Subscription) -> None:
        while not over.is_set():
            with contextlib.suppress(mez.WaitTimeoutError):
                frames.next(timeout=0.2)

    with ExitStack() as stack:
        cameras = [
            stack.enter_context(
                mez.publisher(name, edge=edge.address, keys=edge.keys, state=edge.folder / name)
            )
            for name in names
        ]
        frames = stack.enter_context(
            mez.subscribe("**", edge=edge.socket, latency_ms=5_000, application="counter")
        )
        threads = [
            threading.Thread(target=publish, args=(cameras,)),
            threading.Thread(target=read, args=(frames,)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(timeout=30)


@contextmanager
def video(edge: EdgeProcess) -> Iterator[None]:
    """A camera whose frames are H.264, because an application wants them so."""
    over = threading.Event()
    contract: dict[str, Any] = {"latency_ms": 1000, "accuracy": 0.9, "application": "counter"}
    contract["profile"] = profile_of(*SIZE, small=0.95, rung="h264/q28")

    def play() -> None:
        with (
            mez.publisher("hall/cam", edge=edge.address, keys=edge.keys, state=edge.folder / "cam") as camera,
            mez.subscribe("hall/*", edge=edge.socket, **contract) as frames,
        ):
            number = 0
            while not over.wait(1 / FRAMES_PER_SECOND):
                number += 1
                camera.send(scene(number, 8)[0])
                with contextlib.suppress(mez.WaitTimeoutError):
                    frames.next(timeout=0)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=30)


class Browser:
    """Chromium, driven by web/tests/stories.mjs."""

    def __init__(self, shots: Path) -> None:
        """Start it. Pictures of the screen are put into `shots`."""
        self._shots = shots
        shots.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            ["node", str(ROOT / "web/tests/stories.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, story: str, link: str) -> None:
        """Play a story of stories.mjs; an assertion of it is one of this test."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(
            json.dumps({"story": story, "link": link, "shots": str(self._shots)}) + "\n"
        )
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the browser's program ended; see above"
        failed = json.loads(answer)["failed"]
        assert failed is None, f"{story}: {failed}"

    def close(self) -> None:
        """End it, with its browser."""
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def missing() -> str | None:
    """What of the page's tests this machine lacks, as a sentence."""
    if not (ROOT / "web/dist/index.html").exists():
        return "the build has no page; `tools/page` says why"
    if not shutil.which("chromium"):
        return "there is no Chromium; `tools/setup --tests` installs it"
    return None


@contextmanager
def running(folder: Path, *words: str) -> Iterator[EdgeProcess]:
    """An edge with a page, started with these words besides."""
    edge = EdgeProcess(folder, *words)
    try:
        yield edge
    finally:
        edge.stop()
