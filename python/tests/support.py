"""Pictures that can be told apart, getting a first frame through, a camera broker, keys."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import mez
from mez import _native


def picture(number: int, width: int = 64, height: int = 48) -> NDArray[np.uint8]:
    """A smooth BGR picture, whose mean brightness tells its number (0 to 99)."""
    y, x = np.mgrid[0:height, 0:width]
    ramp = (x / width + y / height) * 10
    channels = [ramp + 10 + 2 * number, ramp + 20 + 2 * number, ramp[::-1] + 30 + 2 * number]
    return np.stack(channels, axis=2).astype(np.uint8)


def groups(edge: mez.Edge) -> list[dict[str, Any]]:
    """What `mez groups --json` says."""
    words = [str(Path(sys.executable).parent / "mez"), "groups", "--json", "--edge", f"unix://{edge.socket}"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    return [json.loads(line) for line in said.splitlines()]


def number_of(image: NDArray[np.uint8]) -> int:
    """The number of a picture that went through JPEG."""
    return round((float(image.mean()) - float(picture(0).mean())) / 2)


def deliver(
    publisher: mez.Publisher, subscription: mez.Subscription, image: NDArray[np.uint8] | bytes | None = None
) -> mez.Frame:
    """Publish until something arrives: a subscription takes a moment to reach the camera. The last one."""
    publisher.wait_connected(timeout=30)
    for _ in range(200):
        publisher.send(picture(0) if image is None else image)
        try:
            frame = subscription.next(timeout=0.1)
            while frame.sequence < publisher.published - 1:
                frame = subscription.next(timeout=0.5)
        except mez.WaitTimeoutError:
            continue
        return frame
    raise AssertionError("nothing was delivered")


def video(
    camera: mez.Publisher, frames: mez.Subscription, width: int = 64, height: int = 48
) -> Iterator[mez.Frame]:
    """Publish, and give those frames that come as video. Pictures tell their number modulo 90."""
    camera.wait_connected(timeout=30)
    for _ in range(600):
        camera.send(picture(camera.published % 90, width, height))
        try:
            frame = frames.next(timeout=0.1)
        except mez.WaitTimeoutError:
            continue
        if frame.encoding == "h264":
            yield frame
    raise AssertionError("too little came as video")


class HasLink(Protocol):
    """Whatever cameras connect to."""

    @property
    def address(self) -> str:
        """Where it listens."""

    @property
    def keys(self) -> Path:
        """The folder of keys."""


@contextmanager
def camera_broker(camera: str, edge: HasLink, socket: Path) -> Iterator[subprocess.Popen[str]]:
    """`mez camera` without a source, as a process of its own, which is killed in the end."""
    words = [str(Path(sys.executable).parent / "mez"), "--log", "error", "camera", camera]
    words += ["--edge", edge.address, "--keys", str(edge.keys), "--socket", str(socket)]
    words += ["--state", str(socket.with_suffix(".state"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
            yield process
        finally:
            process.kill()


@contextmanager
def flowing(
    *names: str, edge: mez.Edge | str, keys: Path | None = None, fps: float = 40.0
) -> Iterator[list[mez.Publisher]]:
    """Cameras that publish all the time, while the block runs."""
    stop = threading.Event()
    cameras = [mez.publisher(name, edge=edge, keys=keys) for name in names]
    image = _native.encode_jpeg(picture(1), 90)

    def publish(camera: mez.Publisher) -> None:
        while not stop.wait(1 / fps):
            camera.send(image)

    threads = [threading.Thread(target=publish, args=(camera,)) for camera in cameras]
    for camera, thread in zip(cameras, threads, strict=True):
        camera.wait_connected(timeout=30)
        thread.start()
    try:
        yield cameras
    finally:
        stop.set()
        for camera, thread in zip(cameras, threads, strict=True):
            thread.join()
            camera.close()


class Site:
    """A site with its file of rights, and an edge of this process that follows it.

    Args:
        folder: Its keys are in the folder `keys` there.
    """

    def __init__(self, folder: Path) -> None:
        self.keys = folder / "keys"
        self.run("init", "--site", "test")

    def run(self, *words: str) -> None:
        """`mez keys`."""
        command = [str(Path(sys.executable).parent / "mez"), "keys", *words, "--keys", str(self.keys)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def edge(self) -> mez.Edge:
        """An edge of the site."""
        return mez.edge(keys=self.keys)

    def remote(self, edge: mez.Edge) -> dict[str, Any]:
        """How a program of another host comes: by gRPC, and as no user of this one."""
        return {"edge": edge.grpc_address, "keys": self.keys}


class HasKeys(Protocol):
    """Whatever has the keys of a site."""

    @property
    def keys(self) -> Path:
        """The folder of keys."""


def enrolled(edge: HasKeys, identity: str, folder: Path, *words: str) -> Path:
    """The file of an identity that joined the edge's site, with the commands that users have.

    `words` are more options of `mez keys token`.
    """
    mez_command = str(Path(sys.executable).parent / "mez")

    def run(*words: str) -> str:
        return subprocess.run(
            [mez_command, "keys", *words], check=True, capture_output=True, text=True
        ).stdout

    token = run("token", identity, *words, "--keys", str(edge.keys)).strip()
    serve = [
        mez_command,
        "--log",
        "error",
        "keys",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--keys",
        str(edge.keys),
    ]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = re.search(r"at (127\.0\.0\.1:\d+)\.", server.stdout.readline())
            assert said
            run("enrol", token, "--edge", said[1], "--keys", str(folder))
        finally:
            server.terminate()
            server.communicate()
    return folder / f"{identity.replace('/', '+')}.pem"


def profile_of(
    width: int,
    height: int,
    small: float = 0.93,
    original: float | None = None,
    rung: str = "jpeg/w32/q44/420",
) -> dict[str, object]:
    """A profile of frames of a size: a small rung, and the frame as it is, if that is given an accuracy."""
    rungs = [(rung, 900, small)]
    rungs += [("original", 4000, original)] if original is not None else []
    return {
        "format": "mez-profile",
        "version": 1,
        "app": "people",
        "width": width,
        "height": height,
        "rungs": [
            {
                "rung": name,
                "bytes": {"mean": size, "p05": size / 2, "p50": size, "p95": size * 2},
                "accuracy_normalised": {"value": accuracy},
            }
            for name, size, accuracy in rungs
        ],
    }
