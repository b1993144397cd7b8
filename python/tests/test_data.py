"""Records that are no pictures: what a program publishes arrives as what it was."""

import importlib
import importlib.util
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mez
from mez import _data
from tests.support import camera_broker, deliver, picture
from tests.test_store import store_key


def _next(frames: mez.Subscription) -> mez.Frame:
    """The next record that is no picture."""
    while True:
        record = frames.next(timeout=30)
        if record.encoding == "data":
            return record


def test_values_text_bytes_and_arrays_arrive_as_they_were_sent(edge: mez.Edge) -> None:
    """Each with the content type that fits it."""
    boxes = np.arange(12, dtype=np.float32).reshape(3, 4)
    sent: list[tuple[object, str]] = [
        ({"people": [3, 4.5, None], "place": "Tür"}, "application/json"),
        ("plain text: Tür", "text/plain; charset=utf-8"),
        (b"\x00\x01", "application/octet-stream"),
        (boxes, "application/x-npy"),
        (np.asfortranarray(boxes), "application/x-npy"),
    ]
    with mez.publisher("dock/cam1", edge=edge) as camera, edge.subscribe("dock/*", deliver="every") as frames:
        deliver(camera, frames)
        for payload, content_type in sent:
            identity = camera.send_data(payload)
            record = _next(frames)
            assert record.id == identity
            assert (record.content_type, record.of) == (content_type, None)
            assert (record.width, record.height, record.published_size) == (0, 0, (0, 0))
            assert (record.rung, record.contract.state) == ("original", "ok")
            if isinstance(payload, np.ndarray):
                np.testing.assert_array_equal(record.data, payload)
                assert record.data.dtype == payload.dtype
                assert not record.data.flags.writeable
            else:
                assert record.data == payload
            assert content_type in repr(record)
            assert pickle.loads(pickle.dumps(record)).content_type == content_type


def test_a_record_names_the_frame_that_it_was_made_of(edge: mez.Edge) -> None:
    """So that whoever has both can bring them together. The record's own time is when it was published."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        mez.publisher("dock/cam1/faces", edge=edge) as faces,
        edge.subscribe("dock/cam1") as frames,
        edge.subscribe("dock/cam1/faces") as found,
    ):
        deliver(camera, frames)
        deliver(faces, found)
        camera.send(picture(1))
        frame = frames.next(timeout=30)
        faces.send_data([[1, 2, 3, 4]], of=frame)
        record = _next(found)
        assert record.of == mez.Origin("dock/cam1", frame.id, frame.captured_ns) == frame.origin
        assert record.captured_ns > frame.captured_ns


def test_a_record_is_no_picture_and_a_picture_no_record(edge: mez.Edge) -> None:
    """Looking at pixels of a record is an error that says what to read; a picture's data is its bytes."""
    with mez.publisher("dock/cam1", edge=edge) as camera, edge.subscribe("dock/*", deliver="every") as frames:
        deliver(camera, frames)
        camera.send_data({"a": 1})
        record = _next(frames)
        for look in (lambda: record.image, lambda: record.scale, lambda: record.rgb):
            with pytest.raises(mez.ImageError, match="data record"):
                look()
        camera.send(picture(1))
        frame = frames.next(timeout=30)
        assert frame.content_type is None
        assert frame.data == bytes(frame.payload)
        assert frame.data.startswith(b"\xff\xd8")


def test_records_outlive_their_publisher(edge: mez.Edge, tmp_path: Path) -> None:
    """A log on disk gives them back as it gives frames back, at any quality that is asked for."""
    folder, key = tmp_path / "log", store_key(tmp_path)
    with mez.publisher("dock/cam1", edge=edge, store=folder, store_key=key) as camera:
        for number in range(5):
            camera.send_data({"number": number})
    with mez.publisher("dock/cam1", edge=edge, store=folder, store_key=key) as camera:
        camera.wait_connected(timeout=30)
        for quality in (None, "jpeg/w160/q50/420"):
            with mez.read("dock/cam1", edge=edge, since="-10m", quality=quality) as past:
                kept = [record.data for record in past]
            assert kept == [{"number": number} for number in range(5)]


def test_records_through_a_broker_of_its_own(edge: mez.Edge, tmp_path: Path) -> None:
    """Over the broker's socket the content type travels beside the bytes."""
    socket = tmp_path / "camera.sock"
    with (
        camera_broker("dock/cam1", edge, socket),
        mez.publisher("dock/cam1", broker=f"unix://{socket}") as camera,
        edge.subscribe("dock/*") as frames,
    ):
        deliver(camera, frames)
        assert camera.send_data([1, 2], of=mez.Origin("dock/cam2", mez.FrameId(3, 4), 5)) is not None
        record = _next(frames)
        assert (record.data, record.content_type) == ([1, 2], "application/json")
        assert record.of == mez.Origin("dock/cam2", mez.FrameId(3, 4), 5)
        with pytest.raises(mez.ArgumentError, match="empty"):
            camera.send_data(b"")


@pytest.mark.parametrize(
    ("payload", "arguments", "message"),
    [
        (b"", {}, "empty"),
        (b"x", {"content_type": "json"}, "application/json"),
        (b"x", {"content_type": "text/" + "x" * 200}, "too long"),
        (b"x", {"content_type": "text/plain\n"}, "content type"),
        ({"a": 1}, {"content_type": "image/jpeg"}, "give bytes"),
        ("T\u00fcr", {"content_type": "text/plain; charset=latin-1"}, "UTF-8"),
        (float("nan"), {}, "JSON"),
        (object(), {}, "JSON"),
        (np.array([object()]), {}, "objects"),
        (b"x", {"of": "dock/cam1"}, "origin"),
        (b"x", {"of": mez.Origin("not a name", mez.FrameId(1, 1), 1)}, "not a name"),
        (b"x" * 2000, {}, "2000 bytes"),
    ],
)
def test_what_is_no_record_is_refused(
    edge: mez.Edge, payload: object, arguments: dict[str, object], message: str
) -> None:
    """With an error that says what to give instead; the next record goes."""
    with mez.publisher("dock/cam1", edge=edge, frame_bytes_max=1000) as camera:
        with pytest.raises((mez.ArgumentError, mez.ArgumentTypeError, mez.FrameTooLargeError), match=message):
            camera.send_data(payload, **arguments)  # type: ignore[arg-type]
        assert camera.send_data(b"fine") is not None


def _npy(header: str, rest: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + rest


@pytest.mark.parametrize(
    ("content_type", "payload"),
    [
        ("application/json", b"{"),
        ("application/json", b"\xff"),
        ("application/json", b"[" * 100_000),
        ("text/plain", b"\xff\xfe"),
        ("text/plain; charset=nobody-knows", b"text"),
        ("application/x-npy", _npy("{'descr': '<f8',")),
        ("application/x-npy", _npy("{[]: 1}")),
        ("application/x-npy", b"\x93NUMPY"),
        ("application/x-npy", b"no array at all"),
        ("application/x-npy", _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }")),
        (
            "application/x-npy",
            _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", b"12345678"),
        ),
        (
            "application/x-npy",
            _npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", pickle.dumps(1)),
        ),
        ("application/x-npy", _npy("{'descr': '<f8', 'fortran_order': False, 'shape': __import__('os'), }")),
    ],
)
def test_content_types_that_lie_are_told(content_type: str, payload: bytes) -> None:
    """No memory is taken before a size is believed, nothing is unpickled, and the bytes are still there."""
    with pytest.raises(mez.DataError, match=r"frame\.payload has its bytes"):
        _data.unpack(memoryview(payload), content_type)


def test_a_table_needs_pyarrow_and_says_so() -> None:
    """Mez itself does not install it."""
    if importlib.util.find_spec("pyarrow") is None:
        with pytest.raises(mez.MissingPackageError, match="pip install pyarrow"):
            _data.unpack(memoryview(b"x"), _data.TABLE)
        return
    arrow: Any = importlib.import_module("pyarrow")
    table = arrow.table({"x": [1, 2]})
    packed, kind = _data.pack(table, None)
    assert _data.unpack(memoryview(packed), kind).equals(table)


def test_json_of_other_types_is_read_as_json() -> None:
    """`+json`, and with parameters."""
    for content_type in ("application/geo+json", "application/json; charset=utf-8"):
        assert _data.unpack(memoryview(json.dumps([1]).encode()), content_type) == [1]
