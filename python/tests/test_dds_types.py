"""Encodings, types and names of the bridge to DDS: equal to rosbags, and proof against bad bytes."""

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cyclonedds import idl
from cyclonedds.idl import annotations
from cyclonedds.idl import types as idl_types

import mez
from mez.bridge.dds import cdr, convert, described, names, types
from mez.bridge.dds.errors import EncodingError, RefusedError
from mez.bridge.dds.names import Names
from tests.dds_peers import definition, ros_name, typestore

STORE = typestore()
TOPIC_TYPES = (types.COMPRESSED_IMAGE, types.IMAGE, types.DETECTION_2D_ARRAY, types.STRING, types.FRAME)
CAPTURED_NS = 1_790_000_000_123_456_789


def text(random: random.Random) -> str:
    """A text of any length, such that what follows it stands at any place."""
    return "".join(random.choice("abcdefgh/ß€") for _ in range(random.randrange(12)))


def any_value(kind: cdr.Kind, random: random.Random) -> Any:  # noqa: ANN401, by its kind
    """A value of any kind."""
    if isinstance(kind, cdr.Struct):
        return {name: any_value(of, random) for name, of in kind.fields}
    if isinstance(kind, cdr.Sequence):
        return [any_value(kind.of, random) for _ in range(random.randrange(4))]
    if isinstance(kind, cdr.Array):
        return [random.uniform(-1e9, 1e9) for _ in range(kind.count)]
    if kind == "text":
        return text(random)
    if kind == "blob":
        return random.randbytes(random.choice([0, 1, 7, 1024, 1025, 5000]))
    if kind == "f64":
        return random.uniform(-1e9, 1e9)
    bits = int(kind[1:])
    return random.randrange(1 << bits) - (1 << bits - 1 if kind[0] == "i" else 0)


def in_rosbags(kind: cdr.Kind, value: Any) -> Any:  # noqa: ANN401, by its kind
    """A value as rosbags has it."""
    if isinstance(kind, cdr.Struct):
        return STORE.types[ros_name(kind)](**{name: in_rosbags(of, value[name]) for name, of in kind.fields})
    if isinstance(kind, cdr.Sequence):
        return [in_rosbags(kind.of, item) for item in value]
    if isinstance(kind, cdr.Array):
        return np.array(value, np.float64)
    return np.frombuffer(value, np.uint8) if kind == "blob" else value


@pytest.mark.parametrize("kind", TOPIC_TYPES, ids=lambda kind: kind.name)
def test_samples_and_hashes_are_those_of_rosbags(kind: cdr.Struct) -> None:
    """A hundred values of each type, byte for byte but for the padding, which rosbags leaves out."""
    if kind is not types.FRAME:
        assert STORE.hash_rihs01(kind.name) == types.HASHES[kind.name]
    for seed in range(100):
        value = any_value(kind, random.Random(seed))
        sample = b"".join(cdr.encode(kind, value))
        reference = bytes(STORE.serialize_cdr(in_rosbags(kind, value), ros_name(kind)))
        assert len(sample) % 4 == 0, seed
        assert sample[3] == len(sample) - len(reference) < 4, seed
        assert sample[4 : len(reference)] == reference[4:], seed
        assert cdr.decode(kind, sample) == cdr.decode(kind, reference) == value, seed


def test_the_fields_are_those_that_ros_2_defines() -> None:
    """The hash says so for whole types; this names the field that differs."""
    known = {"sensor_msgs/msg/Image": types.IMAGE, "std_msgs/msg/Header": types.HEADER}
    for name, kind in known.items():
        assert [field for field, _ in STORE.fielddefs[name][1]] == [field for field, _ in kind.fields]
    assert (
        definition(types.DETECTION_2D_ARRAY) == "std_msgs/Header header\nvision_msgs/Detection2D[] detections"
    )


IDL = {
    "text": "string", "u64": "unsigned long long", "i64": "long long", "u32": "unsigned long",
    "blob": "sequence<octet>",
}  # fmt: skip
CYCLONE: dict[str, Any] = {
    "text": str, "u64": idl_types.uint64, "i64": idl_types.int64, "u32": idl_types.uint32,
    "blob": idl_types.sequence[idl_types.uint8],  # type: ignore[misc]
}  # fmt: skip


def test_a_frame_of_mez_is_what_its_idl_says() -> None:
    """The file for other programs has the same fields, in order, and the same key."""
    text = (Path(types.__file__).parent / "frame.idl").read_text()
    fields = re.findall(r"^    (@key )?([a-z <>]+) (\w+);$", text, re.MULTILINE)
    assert fields == [
        ("@key " if name == types.FRAME.key else "", IDL[str(of)], name) for name, of in types.FRAME.fields
    ]


def test_type_objects_of_a_frame_are_those_that_cyclone_dds_makes_of_its_fields() -> None:
    """They are constants here, because the bridge does not import its Python layer."""
    fields = {name: CYCLONE[str(of)] for name, of in types.FRAME.fields}
    key = {types.FRAME.key: {"key": True}}
    made: Any = idl.make_idl_struct("Frame", types.FRAME.name, fields, field_annotations=key)
    annotations.final(annotations.autoid("sequential")(made))
    made.__idl__.fill_type_data()
    assert made.__idl__._xt_bytedata == (described.FRAME_INFORMATION, described.FRAME_MAPPING)


@pytest.mark.parametrize("kind", TOPIC_TYPES, ids=lambda kind: kind.name)
def test_damaged_samples_are_refused_or_read_and_nothing_else(kind: cdr.Struct) -> None:
    """Every truncation is refused. Of flipped bytes nothing comes but a value or an EncodingError."""
    sample = b"".join(cdr.encode(kind, any_value(kind, random.Random(3))))
    value_bytes = len(sample) - sample[3]
    for length in range(value_bytes):
        with pytest.raises(EncodingError):
            cdr.decode(kind, sample[:3] + b"\0" + sample[4:length] if length > 3 else sample[:length])
    for seed in range(500):
        chance = random.Random(seed)
        damaged = bytearray(sample)
        for _ in range(chance.randrange(1, 5)):
            damaged[chance.randrange(len(damaged))] = chance.choice(
                [0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)]
            )
        try:
            cdr.decode(kind, damaged)
        except EncodingError:
            continue


@pytest.mark.parametrize(
    ("kind", "at", "field"),
    [
        (types.IMAGE, 12, "header.frame_id"),
        (types.IMAGE, 44, "data"),
        (types.DETECTION_2D_ARRAY, 20, "detections"),
    ],
)
def test_absurd_lengths_take_no_memory(kind: cdr.Struct, at: int, field: str) -> None:
    """Four gigabytes that are not there: refused before anything is read."""
    value = any_value(kind, random.Random(1)) | {"header": convert.header(CAPTURED_NS, "cam")}
    if kind is types.IMAGE:
        value |= {"encoding": "bgr8", "data": b"12345678"}
    sample = bytearray(b"".join(cdr.encode(kind, value)))
    sample[at : at + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(EncodingError, match=r"bytes|items") as caught:
        cdr.decode(kind, sample)
    assert caught.value.field == field


@pytest.mark.parametrize("head", [b"", b"\0\1\0", b"\0\0\0\0", b"\0\7\0\0", b"\0\1\0\3", b"\xff\xff\0\0"])
def test_other_encodings_and_no_encoding_are_refused(head: bytes) -> None:
    """Big-endian, version 2, half a header, and padding without a sample."""
    with pytest.raises(EncodingError):
        cdr.decode(types.TIME, head)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "a\0b"}, "format: contains a zero"),
        ({"format": 3}, "format: 3 does not fit"),
        ({"header": {"frame_id": ""}}, "header: stamp is missing"),
        ({"header": {"stamp": {"sec": 1 << 31, "nanosec": 0}, "frame_id": ""}}, "header.stamp.sec: "),
    ],
)
def test_what_does_not_fit_its_type_is_refused(change: dict[str, Any], says: str) -> None:
    """With the field's name."""
    value = {"header": convert.header(1, "c"), "format": "jpeg", "data": b""} | change
    with pytest.raises(EncodingError, match=says):
        cdr.encode(types.COMPRESSED_IMAGE, value)


@pytest.mark.parametrize(
    ("encoding", "channels", "order"),
    [
        ("bgr8", 3, [0, 1, 2]),
        ("rgb8", 3, [2, 1, 0]),
        ("bgra8", 4, [0, 1, 2]),
        ("rgba8", 4, [2, 1, 0]),
        ("mono8", 1, None),
    ],
)
def test_pixels_are_views_in_the_order_of_mez(encoding: str, channels: int, order: list[int] | None) -> None:
    """Rows may have gaps at their ends; nothing is copied."""
    rows = np.arange(3 * 32, dtype=np.uint8).reshape(3, 32)
    value = {"height": 3, "width": 5, "encoding": encoding, "step": 32, "data": rows.data.cast("B")}
    pixels = convert.picture(types.IMAGE, value)
    assert isinstance(pixels, np.ndarray)
    told = rows[:, : 5 * channels].reshape(3, 5, channels)
    expected = told[:, :, 0] if order is None else told[:, :, order]
    assert np.array_equal(pixels[..., :3] if order else pixels, expected)
    assert np.shares_memory(pixels, rows)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"encoding": "bayer_rggb8"}, "encoding"),
        ({"width": 0}, "size"),
        ({"height": 1 << 31}, "size"),
        ({"step": 14}, "size"),
        ({"step": 16}, "size"),
        ({"height": 4}, "size"),
    ],
)
def test_images_that_cannot_be_are_refused(change: dict[str, Any], reason: str) -> None:
    """Unknown encodings, and sizes that are not those of the data."""
    value = {"height": 3, "width": 5, "encoding": "bgr8", "step": 15, "data": memoryview(bytes(45))} | change
    with pytest.raises(RefusedError) as caught:
        convert.picture(types.IMAGE, value)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("sec", "nanosec", "says"),
    [
        (1_790_000_006, 0, "ahead of this host's clock; compare the clocks"),
        ((1 << 31) - 1, 999_999_999, "ahead of this host's clock"),
        (1_790_000_000, 1_000_000_000, "is not a time"),
        (-1, 0, "is not a time"),
    ],
)
def test_a_stamp_that_would_stop_a_camera_is_refused(sec: int, nanosec: int, says: str) -> None:
    """Far ahead of now, or no time at all. A clock that is a little ahead is taken as it is."""
    now_ns = 1_790_000_000 * 10**9

    def sample(sec: int, nanosec: int) -> cdr.Value:
        return {"header": {"stamp": {"sec": sec, "nanosec": nanosec}, "frame_id": "front"}}

    with pytest.raises(RefusedError, match=says) as caught:
        convert.captured_ns(sample(sec, nanosec), now_ns)
    assert caught.value.reason == "stamp"
    assert convert.captured_ns(sample(1_790_000_005, 0), now_ns) == now_ns + 5 * 10**9


def test_detections_are_boxes_around_centres() -> None:
    """In pixels of the published frame; a class by its name, else by its number."""
    found = mez.Detections(
        [[1, 2, 5, 10], [0, 0, 1, 1]], scores=[0.5, 0.25], class_ids=[7, 8], class_names=["person", ""]
    )
    value = convert.detections(convert.header(CAPTURED_NS, "dock/cam1"), found)
    sample = b"".join(cdr.encode(types.DETECTION_2D_ARRAY, value))
    message = STORE.deserialize_cdr(sample, types.DETECTION_2D_ARRAY.name)
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (1_790_000_000, 123_456_789)
    assert [each.results[0].hypothesis.class_id for each in message.detections] == ["person", "8"]
    box = message.detections[0].bbox
    assert (box.center.position.x, box.center.position.y, box.size_x, box.size_y) == (3, 6, 4, 8)


def test_names_of_cameras_become_names_of_ros_2() -> None:
    """Letters, digits and _ alone, no digit first; the second camera of a name is refused."""
    assert names.ros_name("dock-2/1st.left") == "/dock_2/_1st_left"
    assert names.dds_topic("/dock/cam1/compressed") == "rt/dock/cam1/compressed"
    taken = Names()
    assert taken.claim("dock/cam-1", "out.a") == taken.claim("dock/cam-1", "out.a") == "/dock/cam_1"
    for camera, stream, says in (
        ("dock/cam_1", "out.a", r"/dock/cam_1, is used by dock/cam-1 of out\.a"),
        ("dock/cam-1", "out.b", r"^dock/cam-1 is already in out\.a; give both types there"),
    ):
        with pytest.raises(RefusedError, match=says) as caught:
            taken.claim(camera, stream)
        assert caught.value.reason == "name_taken"
    for number in range(names.CAMERAS_MAX - 1):
        taken.claim(f"c{number}", "out.a")
    with pytest.raises(RefusedError, match="1000 cameras"):
        taken.claim("one/more", "out.a")


@pytest.mark.parametrize(
    "name", ["image", "/", "/a/", "/1a", "/a//b", "/a-b", "/a b", "/" + "a" * 247, "/a\n"]
)
def test_names_that_ros_2_does_not_have(name: str) -> None:
    """Relative ones, digits first, other letters, and too long ones."""
    assert not names.is_ros_name(name)
