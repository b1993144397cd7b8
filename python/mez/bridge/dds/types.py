"""The types of ROS 2 that the bridge knows, `mez::Frame`, and their descriptions for DDS.

Names, fields and hashes are those of `sensor_msgs` and `vision_msgs` 4, from ROS 2 Humble on.
`python/tests/test_dds_types.py` compares all of them with `rosbags`.
"""

from dataclasses import dataclass
from typing import Final

from mez.bridge.dds.cdr import NUMBERS, Array, Kind, Sequence, Struct

DETECTIONS_MAX: Final = 10_000
"""The most detections of a frame."""

HYPOTHESES_MAX: Final = 100
"""The most classes of a detection."""

TIME: Final = Struct("builtin_interfaces/msg/Time", (("sec", "i32"), ("nanosec", "u32")))
HEADER: Final = Struct("std_msgs/msg/Header", (("stamp", TIME), ("frame_id", "text")))
COMPRESSED_IMAGE: Final = Struct(
    "sensor_msgs/msg/CompressedImage", (("header", HEADER), ("format", "text"), ("data", "blob"))
)
IMAGE: Final = Struct(
    "sensor_msgs/msg/Image",
    (
        ("header", HEADER),
        ("height", "u32"),
        ("width", "u32"),
        ("encoding", "text"),
        ("is_bigendian", "u8"),
        ("step", "u32"),
        ("data", "blob"),
    ),
)
FRAME: Final = Struct(
    "mez::Frame",
    (
        ("camera", "text"),
        ("epoch", "u64"),
        ("sequence", "u64"),
        ("captured_ns", "i64"),
        ("encoding", "text"),
        ("width", "u32"),
        ("height", "u32"),
        ("rung", "text"),
        ("state", "text"),
        ("reason", "text"),
        ("data", "blob"),
    ),
    key="camera",
)
"""A frame with its metadata in Mez. `frame.idl` has the same type for other programs."""

STRING: Final = Struct("std_msgs/msg/String", (("data", "text"),))
POINT: Final = Struct("geometry_msgs/msg/Point", (("x", "f64"), ("y", "f64"), ("z", "f64")))
QUATERNION: Final = Struct(
    "geometry_msgs/msg/Quaternion", (("x", "f64"), ("y", "f64"), ("z", "f64"), ("w", "f64"))
)
POSE: Final = Struct("geometry_msgs/msg/Pose", (("position", POINT), ("orientation", QUATERNION)))
POSE_WITH_COVARIANCE: Final = Struct(
    "geometry_msgs/msg/PoseWithCovariance", (("pose", POSE), ("covariance", Array("f64", 36)))
)
POINT_2D: Final = Struct("vision_msgs/msg/Point2D", (("x", "f64"), ("y", "f64")))
POSE_2D: Final = Struct("vision_msgs/msg/Pose2D", (("position", POINT_2D), ("theta", "f64")))
BOUNDING_BOX_2D: Final = Struct(
    "vision_msgs/msg/BoundingBox2D", (("center", POSE_2D), ("size_x", "f64"), ("size_y", "f64"))
)
HYPOTHESIS: Final = Struct("vision_msgs/msg/ObjectHypothesis", (("class_id", "text"), ("score", "f64")))
HYPOTHESIS_WITH_POSE: Final = Struct(
    "vision_msgs/msg/ObjectHypothesisWithPose", (("hypothesis", HYPOTHESIS), ("pose", POSE_WITH_COVARIANCE))
)
DETECTION_2D: Final = Struct(
    "vision_msgs/msg/Detection2D",
    (
        ("header", HEADER),
        ("results", Sequence(HYPOTHESIS_WITH_POSE, HYPOTHESES_MAX)),
        ("bbox", BOUNDING_BOX_2D),
        ("id", "text"),
    ),
)
DETECTION_2D_ARRAY: Final = Struct(
    "vision_msgs/msg/Detection2DArray",
    (("header", HEADER), ("detections", Sequence(DETECTION_2D, DETECTIONS_MAX))),
)

OF_PICTURES: Final = {"compressed": COMPRESSED_IMAGE, "image": IMAGE, "frame": FRAME}
"""The types for pictures, by their names in a bridge's file."""

HASHES: Final = {
    COMPRESSED_IMAGE.name: "RIHS01_15640771531571185e2efc8a100baf923961a4d15d5569652e6cb6691e8e371a",
    IMAGE.name: "RIHS01_d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47",
    STRING.name: "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18",
    DETECTION_2D_ARRAY.name: "RIHS01_214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968",
}
"""The hash of each type of a topic. From Iron on, ROS 2 checks with it that both sides have equal fields."""


def dds_name(kind: Struct) -> str:
    """The type's name in DDS: `sensor_msgs::msg::dds_::Image_`, `mez::Frame`."""
    if "::" in kind.name:
        return kind.name
    package, folder, name = kind.name.split("/")
    return f"{package}::{folder}::dds_::{name}_"


def user_data(kind: Struct) -> bytes:
    """The field USER_DATA of writers and readers: the type's hash for types of ROS 2, else empty."""
    known = HASHES.get(kind.name)
    return b"" if known is None else f"typehash={known};".encode()


# Words of the small programs with which Cyclone DDS checks samples: see its `dds_opcodes.h`.
_RETURN: Final = 0x00 << 24
_FIELD: Final = 0x01 << 24
_KEY_AT: Final = 0x07 << 24
_IS_KEY: Final = 1 << 0
_FLOAT: Final = 1 << 1
_SIGNED: Final = 1 << 2
_TEXT: Final = 0x05
_SEQUENCE: Final = 0x07
_ARRAY: Final = 0x08
_STRUCT: Final = 0x0A
_OF_NUMBERS: Final = {
    "u8": (0x01, 0),
    "i32": (0x03, _SIGNED),
    "u32": (0x03, 0),
    "i64": (0x04, _SIGNED),
    "u64": (0x04, 0),
    "f64": (0x04, _FLOAT),
}

_POINTER_BYTES: Final = 8
# A sequence in memory has two lengths, a pointer, and whether to free it.
_SEQUENCE_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Program:
    """The program with which Cyclone DDS checks samples of a type.

    Attributes:
        words: The instructions.
        count: The number of instructions.
        size: Bytes of the structure in memory. The bridge never creates one.
        align: The alignment of its address, in bytes.
        key_at: The index of the word with the place of the key. `None`: there is no key.
    """

    words: tuple[int, ...]
    count: int
    size: int
    align: int
    key_at: int | None = None


def program(kind: Struct) -> Program:
    """The program of a type. Inner structures are flattened."""
    words, count, calls = _fields(kind)
    for at, called in calls:
        # The call contains the distance to the program of the items, and its own length of four words.
        words[at + 3] = (4 << 16) + len(words) - at
        more = program(called)
        words += more.words
        count += more.count
    size, align = _memory(kind)
    if not kind.key:
        return Program(tuple(words), count, size, align)
    # Only a key that is the first field, and a text, is supported.
    assert kind.fields[0] == (kind.key, "text"), "of other keys nothing is written here"
    words[0] |= _IS_KEY
    return Program((*words, _KEY_AT | 1, 0), count, size, align, len(words))


def _fields(kind: Struct) -> tuple[list[int], int, list[tuple[int, Struct]]]:
    """Instructions for the fields, and the places of calls for items of sequences, with their types."""
    words: list[int] = []
    calls: list[tuple[int, Struct]] = []
    flat = _flat(kind, 0)
    for offset, of in flat:
        if isinstance(of, Sequence):
            calls.append((len(words), of.of))
            words += [_FIELD | _SEQUENCE << 16 | _STRUCT << 8, offset, _memory(of.of)[0], 0]
        elif isinstance(of, Array):
            number, flags = _OF_NUMBERS[of.of]
            words += [_FIELD | _ARRAY << 16 | number << 8 | flags, offset, of.count]
        elif of == "text":
            words += [_FIELD | _TEXT << 16, offset]
        elif of == "blob":
            words += [_FIELD | _SEQUENCE << 16 | _OF_NUMBERS["u8"][0] << 8, offset]
        else:
            assert not isinstance(of, Struct), "it is flat"
            number, flags = _OF_NUMBERS[of]
            words += [_FIELD | number << 16 | flags, offset]
    return [*words, _RETURN], len(flat) + 1, calls


def _flat(kind: Struct, offset: int) -> list[tuple[int, Kind]]:
    """All fields with their offsets in memory, including those of inner structures."""
    found: list[tuple[int, Kind]] = []
    at = 0
    for _, of in kind.fields:
        size, align = _memory(of)
        at += -at % align
        found += _flat(of, offset + at) if isinstance(of, Struct) else [(offset + at, of)]
        at += size
    return found


def _memory(kind: Kind) -> tuple[int, int]:
    """Size and alignment in memory, in bytes."""
    if isinstance(kind, Struct):
        at, widest = 0, 1
        for _, of in kind.fields:
            size, align = _memory(of)
            at += -at % align + size
            widest = max(widest, align)
        return at + -at % widest, widest
    if isinstance(kind, Array):
        size = NUMBERS[kind.of][1]
        return kind.count * size, size
    if isinstance(kind, Sequence) or kind == "blob":
        return _SEQUENCE_BYTES, _POINTER_BYTES
    if kind == "text":
        return _POINTER_BYTES, _POINTER_BYTES
    size = NUMBERS[kind][1]
    return size, size
