"""The types of ROS 2 that the bridge knows, `mez::Frame`, and how DDS describes them.

Names, fields and hashes are those of `sensor_msgs` and `vision_msgs` 4 from ROS 2 Humble on.
`python/tests/test_dds_types.py` compares all of it with `rosbags`.
"""

from dataclasses import dataclass
from typing import Final

from mez.bridge.dds.cdr import NUMBERS, Array, Kind, Sequence, Struct

DETECTIONS_MAX: Final = 10_000
"""The most detections of a frame."""

HYPOTHESES_MAX: Final = 100
"""The most classes that a detection may be of."""

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
"""A frame with what Mez knows of it. `frame.idl` says the same for other programs."""

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
"""What a bridge's file calls the types that pictures may have."""

HASHES: Final = {
    COMPRESSED_IMAGE.name: "RIHS01_15640771531571185e2efc8a100baf923961a4d15d5569652e6cb6691e8e371a",
    IMAGE.name: "RIHS01_d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47",
    STRING.name: "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18",
    DETECTION_2D_ARRAY.name: "RIHS01_214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968",
}
"""Of each type of a topic its hash. By it ROS 2 from Iron on tells whether two sides mean the same fields."""


def dds_name(kind: Struct) -> str:
    """What the type is called in DDS: `sensor_msgs::msg::dds_::Image_`, `mez::Frame`."""
    if "::" in kind.name:
        return kind.name
    package, folder, name = kind.name.split("/")
    return f"{package}::{folder}::dds_::{name}_"


def user_data(kind: Struct) -> bytes:
    """What writers and readers of ROS 2 say of themselves in the field USER_DATA; of other types nothing."""
    known = HASHES.get(kind.name)
    return b"" if known is None else f"typehash={known};".encode()


# What follows are words of the small programs by which Cyclone DDS checks samples: its `dds_opcodes.h`.
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
# Of a sequence in memory: two lengths, a pointer, and whether to free it.
_SEQUENCE_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Program:
    """How Cyclone DDS checks samples of a type.

    Attributes:
        words: The instructions.
        count: How many instructions these are.
        size: Bytes of the structure in memory. The bridge never makes one.
        align: What its address is a multiple of.
        key_at: Which word says where the key is; `None`: there is no key.
    """

    words: tuple[int, ...]
    count: int
    size: int
    align: int
    key_at: int | None = None


def program(kind: Struct) -> Program:
    """The program of a type, with structures within structures written out."""
    words, count, calls = _fields(kind)
    for at, called in calls:
        # The call says how far away its items' program is, and that it goes on four words behind itself.
        words[at + 3] = (4 << 16) + len(words) - at
        more = program(called)
        words += more.words
        count += more.count
    size, align = _memory(kind)
    if not kind.key:
        return Program(tuple(words), count, size, align)
    # A key is the first field, and a text.
    assert kind.fields[0] == (kind.key, "text"), "of other keys nothing is written here"
    words[0] |= _IS_KEY
    return Program((*words, _KEY_AT | 1, 0), count, size, align, len(words))


def _fields(kind: Struct) -> tuple[list[int], int, list[tuple[int, Struct]]]:
    """Instructions for the fields; and where items of sequences are called for, with their types."""
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
    """All fields with their places in memory, those of inner structures too."""
    found: list[tuple[int, Kind]] = []
    at = 0
    for _, of in kind.fields:
        size, align = _memory(of)
        at += -at % align
        found += _flat(of, offset + at) if isinstance(of, Struct) else [(offset + at, of)]
        at += size
    return found


def _memory(kind: Kind) -> tuple[int, int]:
    """Bytes in memory, and what the address is a multiple of."""
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
