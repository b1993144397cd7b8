"""Converts frames and detections to messages of ROS 2, and images of ROS 2 to pictures of a camera. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from mez._detections import Detections
from mez._frame import Frame
from mez.bridge.dds import types
from mez.bridge.dds.cdr import Part, Struct, Value
from mez.bridge.dds.errors import RefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Picture: TypeAlias = "memoryview | NDArray[np.uint8]"
"""A picture to publish: a whole JPEG, or pixels of shape (height, width, 3 or 4) or (height, width)."""

AHEAD_NS_MAX: Final = 5_000_000_000
"""How far a sender's stamp may be ahead of this host's clock, in nanoseconds."""

REASON_MAX: Final = 1000
"""The most characters of the reason in a `mez::Frame`."""

SIDE_MAX: Final = 1 << 15
"""The most pixels of a side of a picture."""

_JPEG: Final = b"\xff\xd8\xff"
_NO_POSE: Final = {
    "pose": {
        "position": {"x": 0.0, "y": 0.0, "z": 0.0},
        "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0},
    },
    "covariance": [0.0] * 36,
}

# For each accepted encoding of `sensor_msgs/Image`: octets per pixel, and which of them are blue, green and
# red. `None` for grey.
_CHANNELS: Final[Mapping[str, tuple[int, slice | None]]] = {
    "mono8": (1, None),
    "8UC1": (1, None),
    "bgr8": (3, slice(None)),
    "8UC3": (3, slice(None)),
    "bgra8": (4, slice(None)),
    "rgb8": (3, slice(2, None, -1)),
    "rgba8": (4, slice(2, None, -1)),
}


def header(captured_ns: int, camera: str) -> Value:
    """A header with the capture time and the camera of a frame.

    Args:
        captured_ns: In nanoseconds since 1970-01-01 UTC.
        camera: The camera's name, which becomes the `frame_id`.
    """
    seconds, nanoseconds = divmod(captured_ns, 1_000_000_000)
    return {"stamp": {"sec": seconds, "nanosec": nanoseconds}, "frame_id": camera}


def compressed(head: Value, coding: str, payload: Part) -> Value:
    """A `sensor_msgs/CompressedImage`.

    Args:
        head: Its header.
        coding: `jpeg` or `png`.
        payload: The coded image. It is not copied.
    """
    return {"header": head, "format": coding, "data": payload}


def image(head: Value, pixels: "NDArray[np.uint8]") -> Value:
    """A `sensor_msgs/Image` with the encoding `bgr8`.

    Args:
        head: Its header.
        pixels: Blue, green and red, of shape (height, width, 3). They are copied only if they have gaps.
    """
    height, width = pixels.shape[:2]
    return {
        "header": head,
        "height": height,
        "width": width,
        "encoding": "bgr8",
        "is_bigendian": 0,
        "step": 3 * width,
        "data": np.ascontiguousarray(pixels).data.cast("B"),
    }


def detections(head: Value, found: Detections) -> Value:
    """A `vision_msgs/Detection2DArray`: boxes in pixels of the frame as it was published, upright.

    Args:
        head: Its header.
        found: The detections. A box without a class gets an empty class; without a score, the score 0.
    """
    return {"header": head, "detections": [_detection(head, each) for each in found._plain()]}


def _detection(head: Value, found: Mapping[str, Any]) -> Value:
    left, top, right, bottom = found["xyxy"]
    class_id = found.get("class_name") or str(found.get("class_id", ""))
    hypothesis = {"class_id": class_id, "score": found.get("score", 0.0)}
    return {
        "header": head,
        "results": [{"hypothesis": hypothesis, "pose": _NO_POSE}],
        "bbox": {
            "center": {"position": {"x": (left + right) / 2, "y": (top + bottom) / 2}, "theta": 0.0},
            "size_x": right - left,
            "size_y": bottom - top,
        },
        "id": str(found.get("tracker_id", "")),
    }


def frame(of: Frame, coding: str, payload: Part) -> Value:
    """A `mez::Frame`.

    Args:
        of: The frame.
        coding: The encoding of the payload.
        payload: The coded image. It is not copied.
    """
    return {
        "camera": of.camera,
        "epoch": of.epoch,
        "sequence": of.sequence,
        "captured_ns": of.captured_ns,
        "encoding": coding,
        "width": of.width,
        "height": of.height,
        "rung": of.rung,
        "state": of.contract.state,
        # Reasons are shorter; this only bounds the text.
        "reason": of.contract.reason[:REASON_MAX],
        "data": payload,
    }


def stamp_ns(value: Value) -> int:
    """The capture time in a message's header, in nanoseconds since 1970-01-01 UTC."""
    stamp = value["header"]["stamp"]
    return int(stamp["sec"]) * 1_000_000_000 + int(stamp["nanosec"])


def captured_ns(value: Value, now_ns: int) -> int:
    """The capture time in a message, if it is plausible.

    A camera's log refuses frames older than its newest one. So a single stamp in the far future would stop
    the camera.

    Args:
        value: The decoded message.
        now_ns: Now, in nanoseconds since 1970-01-01 UTC.

    Raises:
        RefusedError: The stamp is not a valid time, or more than `AHEAD_NS_MAX` ahead of now.
    """
    if "captured_ns" in value:
        told_ns: int = value["captured_ns"]
        if told_ns < 0:
            raise RefusedError(
                "stamp",
                f"a stamp has {told_ns} ns, which is not a time since 1970; correct the sender, or use "
                'stamps = "arrival"',
            )
        return _not_ahead(told_ns, now_ns)
    stamp = value["header"]["stamp"]
    if not 0 <= stamp["nanosec"] < 1_000_000_000 or stamp["sec"] < 0:
        raise RefusedError(
            "stamp",
            f"a stamp has {stamp['sec']} s and {stamp['nanosec']} ns, which is not a time since 1970; "
            'correct the sender, or use stamps = "arrival"',
        )
    return _not_ahead(stamp_ns(value), now_ns)


def _not_ahead(told_ns: int, now_ns: int) -> int:
    if told_ns > now_ns + AHEAD_NS_MAX:
        raise RefusedError(
            "stamp",
            f"a stamp is {(told_ns - now_ns) / 1e9:.4g} s ahead of this host's clock; compare the clocks "
            '(chrony), or use stamps = "arrival"',
        )
    return told_ns


def picture(kind: Struct, value: Value) -> Picture:
    """The picture in a message: a view of its data, without a copy.

    Args:
        kind: `types.IMAGE`, `types.COMPRESSED_IMAGE` or `types.FRAME`.
        value: The decoded message.

    Raises:
        RefusedError: It is not a picture that Mez can publish.
    """
    if kind is not types.IMAGE:
        data: memoryview = value["data"]
        if bytes(data[: len(_JPEG)]) != _JPEG:
            told = value["encoding" if kind is types.FRAME else "format"]
            raise RefusedError("format", f"an image has the format {told[:40]!r}, but only JPEG is accepted")
        return data
    return _pixels(value)


def _pixels(value: Value) -> "NDArray[np.uint8]":
    height, width, step, data = value["height"], value["width"], value["step"], value["data"]
    known = _CHANNELS.get(value["encoding"])
    if known is None:
        raise RefusedError(
            "encoding",
            f"an image has the encoding {value['encoding'][:40]!r}; accepted are {', '.join(_CHANNELS)}",
        )
    channels, order = known
    if not (1 <= height <= SIDE_MAX and 1 <= width <= SIDE_MAX):
        raise RefusedError("size", f"an image has {width}x{height} pixels; a side may have 1 to {SIDE_MAX}")
    if step < width * channels or len(data) != step * height:
        raise RefusedError(
            "size", f"an image of {width}x{height} pixels has rows of {step} bytes, but {len(data)} in total"
        )
    shape = (height, width) if order is None else (height, width, channels)
    strides = (step, 1) if order is None else (step, channels, 1)
    pixels: NDArray[np.uint8] = np.ndarray(shape, np.uint8, data, strides=strides)
    return pixels if order is None else pixels[:, :, order]
