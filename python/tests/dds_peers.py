"""What tests of the bridge to DDS share: Fast DDS and RustDDS as the other side, rosbags as the encoder."""

import itertools
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

import mez
from mez import _native
from mez.bridge.dds import cdr, types
from mez.bridge.dds.cdr import Kind, Struct
from tests.pipelines import until
from tests.support import picture

SOURCE = Path(__file__).with_name("dds_peer.cpp")

_MESSAGE = {
    "u8": "uint8",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "f64": "float64",
    "text": "string",
    "blob": "uint8[]",
}

# Rosbags has no package vision_msgs. Its messages, as that package defines them, written by hand.
_VISION = {
    "Point2D": "float64 x\nfloat64 y",
    "Pose2D": "vision_msgs/Point2D position\nfloat64 theta",
    "BoundingBox2D": "vision_msgs/Pose2D center\nfloat64 size_x\nfloat64 size_y",
    "ObjectHypothesis": "string class_id\nfloat64 score",
    "ObjectHypothesisWithPose": "ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose",
    "Detection2D": "std_msgs/Header header\nObjectHypothesisWithPose[] results\n"
    "BoundingBox2D bbox\nstring id",
    "Detection2DArray": "std_msgs/Header header\nDetection2D[] detections",
}


def typestore() -> Any:  # noqa: ANN401, its types are made when it runs
    """Rosbags' types of ROS 2 Humble, those of `vision_msgs`, and `mez::Frame` as if it were one."""
    store = get_typestore(Stores.ROS2_HUMBLE)
    for name, text in _VISION.items():
        store.register(get_types_from_msg(text, f"vision_msgs/msg/{name}"))
    store.register(get_types_from_msg(definition(types.FRAME), ros_name(types.FRAME)))
    return store


def ros_name(kind: Struct) -> str:
    """What rosbags calls a type."""
    return kind.name.replace("::", "/msg/")


def definition(kind: Struct) -> str:
    """A type as a message definition of ROS 2."""

    def name(of: Kind) -> str:
        if isinstance(of, Struct):
            return of.name.replace("/msg/", "/")
        if isinstance(of, cdr.Sequence):
            return f"{name(of.of)}[]"
        if isinstance(of, cdr.Array):
            return f"{_MESSAGE[of.of]}[{of.count}]"
        return _MESSAGE[of]

    return "\n".join(f"{name(of)} {field}" for field, of in kind.fields)


def peer_program(folder: Path) -> Path:
    """The program of `dds_peer.cpp`, compiled."""
    program = folder / "dds_peer"
    words = ["g++", "-std=c++17", "-o", str(program), str(SOURCE), "-lfastrtps", "-lfastcdr"]
    subprocess.run(words, check=True)
    return program


def rust_peer_program() -> Path:
    """The program that `tools/build --tests` compiles. Rustup does not work in a test's own HOME."""
    program = Path(__file__).parents[2] / "target/dds_rust_peer/debug/mez-dds-rust-peer"
    assert program.exists(), f"{program} is missing: run `tools/build --tests`"
    return program


class Peer:
    """A participant that is Fast DDS or RustDDS, as a process of its own, which leaves in order in the end.

    Args:
        program: The compiled program.
        does: `write` or `read`.
        topic: The topic of DDS.
        kind: Its type.
        domain: The domain.
        reliable: Whether lost samples are to be sent again.
        own: Its address.
        peer: The address that it asks.
        within: Words that start it, such as those of a network namespace.
    """

    def __init__(
        self,
        program: Path,
        does: str,
        topic: str,
        kind: Struct,
        *,
        domain: int,
        reliable: bool,
        own: str = "127.0.0.1",
        peer: str = "127.0.0.1",
        within: Sequence[str] = (),
    ) -> None:
        words = [*within, str(program), does, str(domain), own, peer, topic, types.dds_name(kind)]
        words += [types.HASHES.get(kind.name, "none"), "reliable" if reliable else "best_effort"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.samples: list[bytes] = []
        self.said: list[str] = []
        self._threads = [
            threading.Thread(target=listen, args=(pipe,), daemon=True)
            for listen, pipe in ((self._take, self.process.stdout), (self._listen, self.process.stderr))
        ]
        for thread in self._threads:
            thread.start()

    def write(self, sample: bytes | memoryview) -> None:
        """Write a sample once somebody reads the topic."""
        assert self.process.stdin is not None
        self.process.stdin.write(struct.pack("<I", len(sample)) + bytes(sample))
        self.process.stdin.flush()

    def write_until(self, sample: bytes | memoryview, is_known: Callable[[], bool], what: str) -> None:
        """Write a sample again and again, until it has arrived.

        A writer may know of a reader before the reader knows of it. What it writes then is lost.
        """

        def again() -> bool:
            self.write(sample)
            end = time.monotonic() + 1.0
            while not (known := is_known()) and time.monotonic() < end:
                time.sleep(0.02)
            return known

        until(again, bool, what)

    def reads(self, count: int = 1) -> list[bytes]:
        """What it has read, once that is so many samples."""
        return until(
            lambda: list(self.samples), lambda found: len(found) >= count, f"{count} samples are read"
        )

    def hears(self, line: str) -> None:
        """Wait until it has said a line."""
        until(lambda: list(self.said), lambda said: line in said, f"it says {line!r}")

    def _take(self, pipe: IO[bytes]) -> None:
        with pipe:
            while head := pipe.read(4):
                size = struct.unpack("<I", head)[0]
                sample = pipe.read(size)
                if len(sample) < size:
                    self.said.append(f"ended within a sample: {len(sample)} of {size} bytes")
                    return
                self.samples.append(sample)

    def _listen(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self.said.append(line.decode().strip())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
        for thread in self._threads:
            thread.join(60)


STORE: Any = typestore()
"""The types that samples have in these tests."""


def tables(edge: mez.Edge, domain: int, more: str) -> str:
    """A bridge's file."""
    return f"""
[bridge]
name = "hall7"

[mez]
edge = "unix://{edge.socket}"
publish_edge = "{edge.address}"
publish_keys = "{edge.keys}"

[dds]
domain = {domain}
{more}
"""


@contextmanager
def publishing(
    edge: mez.Edge, *images: bytes, name: str = "dock/cam1", each_s: float = 0.05
) -> Iterator[mez.Publisher]:
    """A camera that publishes these images over and over, while the block runs."""
    stop = threading.Event()
    with mez.publisher(name, edge=edge) as camera:
        camera.wait_connected(timeout=30)

        def publish() -> None:
            for image in itertools.cycle(images):
                if stop.wait(each_s):
                    return
                camera.send(image)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield camera
        finally:
            stop.set()
            thread.join()


def decoded(jpeg: bytes) -> NDArray[np.uint8]:
    """The pixels of a JPEG of the size of `picture`."""
    image = np.empty(picture(0).shape, np.uint8)
    _native.decode_into("jpeg", jpeg, image)
    return image


def message(kind: cdr.Struct, sample: bytes) -> Any:  # noqa: ANN401, a type that rosbags makes
    """A sample, decoded by rosbags."""
    return STORE.deserialize_cdr(sample, kind.name)
