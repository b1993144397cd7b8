"""What a detector sees in a frame is drawn at the same place by the camera, at every rung, over every way."""

import importlib.util
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import cv2
import grpc  # type: ignore[import-untyped]
import numpy as np
import pytest
from numpy.typing import NDArray

import mez
from mez.apps.boxes import Box, iou
from tests.support import deliver, enrolled, profile_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "foreign_client" / "client.py"

SIZES = [(640, 480), (513, 395)]
"""Width and height of the camera's pictures. One has odd sides, which H.264 does not code."""

OVERLAP_MIN = 0.99

Xyxy = tuple[float, float, float, float]


def ladder(width: int) -> list[str]:
    """The names of all rungs that a camera chooses from without a profile, as in `core/setting/ladder.rs`."""

    def named(numerator: int, denominator: int) -> str:
        return "" if numerator == denominator else f"/w{width * numerator // denominator // 2 * 2}"

    video = [(1, 1, 24), (1, 1, 28), (1, 1, 32), (2, 3, 30), (2, 3, 34), (1, 2, 34), (1, 3, 36)]
    # The coarse ones first: where nothing moves, tiles that are finer than the rung stay until their chain
    # ends, after 10 s.
    stills = [(1, 4, 50), (1, 3, 60), (1, 2, 70), (2, 3, 70), (1, 1, 70), (1, 1, 85)]
    return [
        *(f"h264{named(*share)}/q{quantiser}" for *share, quantiser in video),
        *(f"tiles{named(*share)}/q{quality}/420" for *share, quality in stills),
        *(f"jpeg{named(*share)}/q{quality}/420" for *share, quality in stills),
    ]


def terms(rung: str, size: tuple[int, int]) -> dict[str, Any]:
    """What a subscription asks for to get frames of this rung."""
    profile = profile_of(*size, 0.95, rung=rung)
    return {"accuracy": 0.9, "latency_ms": 5000, "profile": profile, "timeout": 30}


def same_form(one: str, other: str) -> bool:
    """Whether two rungs differ at most in H.264's quantiser, which a byte budget may change."""
    return one == other or (one.startswith("h264") and one.rpartition("/q")[0] == other.rpartition("/q")[0])


def scene(width: int, height: int) -> tuple[NDArray[np.uint8], Xyxy]:
    """A picture of one white object on black, and where the object is."""
    box = (width // 5, height // 4, width * 3 // 4, height * 9 // 10)
    image = np.zeros((height, width, 3), np.uint8)
    image[box[1] : box[3], box[0] : box[2]] = 255
    return image, (float(box[0]), float(box[1]), float(box[2]), float(box[3]))


def detect(image: NDArray[np.uint8]) -> Xyxy:
    """Where the white object is, to a fraction of a pixel: by its centre and its middle rows."""
    white = np.clip((image.mean(axis=2) - 25) / 205, 0, 1)
    x = float((white.sum(axis=0) * (np.arange(white.shape[1]) + 0.5)).sum() / white.sum())
    y = float((white.sum(axis=1) * (np.arange(white.shape[0]) + 0.5)).sum() / white.sum())
    near_y, near_x = white.shape[0] // 8, white.shape[1] // 8
    width = float(white[int(y) - near_y : int(y) + near_y].sum(axis=1).mean())
    height = float(white[:, int(x) - near_x : int(x) + near_x].sum(axis=0).mean())
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union."""
    first, second = (Box(x1, y1, x2 - x1, y2 - y1, 1.0) for x1, y1, x2, y2 in (one, other))
    return iou(first, second)


def decoded(jpeg: bytes) -> NDArray[np.uint8]:
    """The pixels of a JPEG, as another program decodes it."""
    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image.astype(np.uint8)


@contextmanager
def publishing(camera: mez.Publisher, image: NDArray[np.uint8] | bytes) -> Iterator[None]:
    """Publish one picture again and again, on a thread of its own."""
    over = threading.Event()

    def publish() -> None:
        while not over.wait(1 / 20):
            camera.send(image)

    camera.wait_connected(timeout=30)
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def drawn(camera: mez.Publisher, frame: tuple[int, int], size: tuple[int, int]) -> list[float]:
    """Where the camera draws the box that comes back for a frame."""
    reply = camera.next_reply(timeout=30)
    assert reply.frame == frame
    assert reply.detections is not None
    assert reply.detections.size == size
    (box,) = reply.detections.xyxy.tolist()
    return list(box)


@pytest.mark.parametrize("size", SIZES)
def test_boxes_are_drawn_where_they_were_seen(edge: mez.Edge, tmp_path: Path, size: tuple[int, int]) -> None:
    """At every rung, by four at once: in a frame's own pixels, published ones, video, from another host."""
    image, there = scene(*size)
    identity = enrolled(edge, "app/viewer", tmp_path / "keys")
    ways: dict[str, dict[str, Any]] = {
        "socket": {"edge": edge},
        "published": {"edge": edge, "size": "published"},
        "video": {"edge": edge, "accept": ["h264", "tiles", "jpeg"]},
        "tls": {"edge": edge.grpc_address, "keys": identity.parent},
    }
    overlaps = {}
    with ExitStack() as opened:
        camera = opened.enter_context(mez.publisher("cam", edge=edge))
        asked = terms(ladder(size[0])[0], size)
        viewers = {
            way: opened.enter_context(mez.subscribe("cam", **options, **asked))
            for way, options in ways.items()
        }
        opened.enter_context(publishing(camera, image))
        for rung in (*ladder(size[0]), "original"):
            for frames in viewers.values():
                if rung == "original":
                    # An application without a floor gets frames as they were published.
                    frames.update(accuracy=None, profile=None)
                else:
                    frames.update(profile=profile_of(*size, 0.95, rung=rung))
            for way, frames in viewers.items():
                frame = next(frame for frame in frames if same_form(frame.rung, rung))
                assert frame.published_size == size
                if way == "published":
                    assert frame.image.shape == (size[1], size[0], 3)
                    assert frame.scale == (1.0, 1.0)
                else:
                    assert frame.image.shape == (frame.height, frame.width, 3)
                # As numbers of Python and as an array.
                seen = detect(frame.image)
                frame.reply(np.array([seen]) if rung == "original" else [seen])
                overlaps[way, rung] = overlap(there, drawn(camera, frame.id, size))
    assert min(overlaps.values()) >= OVERLAP_MIN, overlaps


def foreign_client() -> Any:  # noqa: ANN401, a program
    """The example, as a module."""
    spec = importlib.util.spec_from_file_location("foreign_client", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("size", SIZES)
def test_boxes_of_plain_grpc_are_drawn_where_they_were_seen(edge: mez.Edge, size: tuple[int, int]) -> None:
    """A client of whatever language says what it searched and what its frame says; the edge converts."""
    example = foreign_client()
    messages, stubs = example.generate(example.PROTO)
    image, there = scene(*size)
    overlaps = {}
    with mez.publisher("cam", edge=edge) as camera, publishing(camera, image):
        options = [("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", 34 << 20)]
        with grpc.insecure_channel(f"unix:{edge.socket}", options=options) as channel:
            stub = stubs.EdgeBrokerStub(channel)

            def contract(rung: str) -> Any:  # noqa: ANN401, a generated message
                return messages.Contract(
                    latency_bound_ns=5 * 10**9,
                    accuracy_floor=0.9,
                    profile_inline=json.dumps(profile_of(*size, 0.95, rung=rung)).encode(),
                )

            rungs = ladder(size[0])
            events = stub.Subscribe(
                messages.SubscribeRequest(pattern="cam", contract=contract(rungs[0])), timeout=300
            )
            subscription = next(events).started.subscription_id
            for rung in rungs:
                change = messages.UpdateContractRequest(subscription_id=subscription, contract=contract(rung))
                stub.UpdateContract(change, timeout=30)
                frame = next(
                    event.frame
                    for event in events
                    if event.WhichOneof("event") == "frame" and same_form(event.frame.rung, rung)
                )
                assert (frame.published_width, frame.published_height) == size
                x1, y1, x2, y2 = detect(decoded(frame.payload))
                found = messages.Detections(width=frame.width, height=frame.height)
                found.detections.add(x1=x1, y1=y1, x2=x2, y2=y2)
                reply = messages.ReplyRequest(
                    camera="cam",
                    epoch=frame.epoch,
                    sequence=frame.sequence,
                    detections=found,
                    published_width=frame.published_width,
                    published_height=frame.published_height,
                )
                stub.Reply(reply, timeout=30)
                overlaps[rung] = overlap(there, drawn(camera, (frame.epoch, frame.sequence), size))
            events.cancel()

            # What would come back in the wrong pixels is refused.
            reply.published_width = 0
            with pytest.raises(grpc.RpcError, match="copy published_width") as refused:
                stub.Reply(reply, timeout=30)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            reply.published_width, reply.detections.detections[0].x1 = size[0], 1e9
            with pytest.raises(grpc.RpcError, match="ends before it begins"):
                stub.Reply(reply, timeout=30)
    assert min(overlaps.values()) >= OVERLAP_MIN, overlaps


def test_boxes_in_frames_of_the_past_are_converted_too(edge: mez.Edge) -> None:
    """Those that the edge keeps smaller than they were published, and those that the camera makes smaller."""
    size = SIZES[1]
    image, there = scene(*size)
    rung = f"jpeg/w{size[0] // 2 // 2 * 2}/q70/420"
    with mez.publisher("cam", edge=edge) as camera, publishing(camera, image):
        with mez.subscribe("cam", edge=edge, **terms(rung, size)) as frames:
            kept = next(frame for frame in frames if frame.rung == rung)
        for quality in (None, "jpeg/w128/q70/420"):
            with mez.read("cam", edge=edge, since=kept.captured_ns, quality=quality, timeout=30) as past:
                frame = next(iter(past))
            assert frame.rung == (quality or rung)
            assert (frame.id, frame.published_size) == (kept.id, size)
            frame.reply([detect(frame.image)])
            assert overlap(there, drawn(camera, frame.id, size)) >= OVERLAP_MIN


def test_the_orientation_that_a_jpeg_states_does_not_turn_boxes(edge: mez.Edge) -> None:
    """Pixels are those that are coded, in the published frame and in those that are made of it."""
    size = (320, 240)
    image, there = scene(*size)
    jpeg = cv2.imencode(".jpg", image)[1].tobytes()
    # One entry: the orientation, "turn by 90 degrees to the right".
    tiff = b"II*\0\x08\0\0\0\x01\0" + b"\x12\x01\x03\0\x01\0\0\0\x06\0\0\0" + bytes(4)
    exif = b"Exif\0\0" + tiff
    turned = jpeg[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + jpeg[2:]
    assert decoded(turned).shape == (320, 240, 3)
    with mez.publisher("cam", edge=edge) as camera, publishing(camera, turned):
        with mez.subscribe("cam", edge=edge, timeout=30) as frames:
            originals = [frames.next()]
        with mez.subscribe("cam", edge=edge, **terms("jpeg/w160/q70/420", size)) as frames:
            smaller = [next(frame for frame in frames if frame.width == 160)]
        for frame in originals + smaller:
            assert frame.published_size == size
            frame.reply([detect(frame.image)])
            assert overlap(there, drawn(camera, frame.id, size)) >= OVERLAP_MIN


def test_opaque_results_stay_as_they_are(edge: mez.Edge) -> None:
    """Mez does not know what is in them; `scale` converts what the application puts there."""
    image, there = scene(320, 240)
    asked = terms("jpeg/w160/q70/420", (320, 240))
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", **asked) as frames:
        deliver(camera, frames, image)
        with publishing(camera, image):
            frame = next(frame for frame in frames if frame.width == 160)
            assert frame.scale == (2.0, 2.0)
            seen = detect(frame.image)
            (across, down) = frame.scale
            frame.reply({"seen": seen, "there": [seen[0] * across, seen[1] * down]})
            said = camera.next_reply(timeout=30)
        assert said.detections is None
        assert said.json()["seen"] == list(seen)
        assert said.json()["there"] == pytest.approx(there[:2], abs=1.0)
