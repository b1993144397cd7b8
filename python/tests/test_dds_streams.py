"""Streams of the bridge to DDS, without an edge or a domain: what is written, and what is counted."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mez
from mez._commands import Teller
from mez.bridge.dds import cdr, file, types
from mez.bridge.dds.board import StreamBoard
from mez.bridge.dds.errors import RefusedError
from mez.bridge.dds.inward import InReader
from mez.bridge.dds.names import Names
from mez.bridge.dds.outward import OutReader
from mez.errors import InfeasibleError
from tests.bridge_files import written

JPEG = b"\xff\xd8\xff a JPEG"

FILE = """
[bridge]
name = "hall7"
[dds]
[out.dock]
cameras = "dock/*"
types = ["compressed", "image"]
offers = "slow"
[contract.slow]
latency_ms = 1000
[in.front]
topic = "/robot1/front"
camera = "robots/front"
stamps = "sender"
"""


class Participant:
    """Keeps what is written to topics whose names do not end in `refused`."""

    def __init__(self, refused: str = "none") -> None:
        self.refused = refused
        self.written: list[str] = []
        self.rejected = (0, False)

    def writer(self, topic: str, *_: object) -> Any:  # noqa: ANN401, stands for a writer
        """A writer."""

        def write(_: Sequence[object]) -> None:
            if topic.endswith(self.refused):
                raise RefusedError("slow_reader", "nobody confirms")
            self.written.append(topic)

        return SimpleNamespace(write=write, readers=1, misfits=0)

    def reader(self, *_: object) -> Any:  # noqa: ANN401, stands for a reader
        """A reader."""
        return SimpleNamespace(writers=1, misfits=0, lost=0, rejected=lambda: self.rejected)


def out_reader(tmp_path: Path, participant: Any) -> OutReader:  # noqa: ANN401, stands for a participant
    """The reader of `out.dock`."""
    bridge = file.read(written(tmp_path, FILE))
    board = StreamBoard("out.dock", Teller(is_json=False))
    return OutReader(bridge, bridge.outs["dock"], participant, Names(), board)


def frame(**told: Any) -> Any:  # noqa: ANN401, stands for a frame
    """A frame of four by two pixels."""
    known = {"camera": "dock/cam1", "captured_ns": 1, "content_type": None, "encoding": "jpeg"}
    pictures = {"payload": JPEG, "image": np.zeros((2, 4, 3), np.uint8)}
    return SimpleNamespace(**known | pictures | told)


@pytest.mark.parametrize("refused", ["compressed", "image"])
def test_a_type_that_cannot_be_written_leaves_the_other_one(tmp_path: Path, refused: str) -> None:
    """The frame is copied, and the other topic is counted with its reason."""
    participant = Participant(refused)
    reader = out_reader(tmp_path, participant)
    for _ in range(2):
        assert reader.take(frame())
    other = {"compressed": "image", "image": "compressed"}[refused]
    assert participant.written == [f"rt/dock/cam1/{other}"] * 2
    told = reader.status()
    assert (told.frames, told.refused) == (2, {"slow_reader": 2})
    assert told.bytes > 0


def test_a_record_that_is_no_picture_is_counted_once(tmp_path: Path) -> None:
    """And not as a frame, whatever the number of types."""
    reader = out_reader(tmp_path, Participant())
    reader.take(frame(content_type="application/json"))
    told = reader.status()
    assert (told.frames, told.bytes, told.refused) == (0, 0, {"not_a_picture": 1})


def test_a_stamp_of_the_far_future_does_not_reach_the_camera(tmp_path: Path) -> None:
    """The samples after it do."""
    bridge = file.read(written(tmp_path, FILE))
    board = StreamBoard("in.front", Teller(is_json=False))
    participant: Any = Participant()
    reader = InReader(bridge, bridge.ins["front"], participant, board)
    sent: list[int] = []
    camera: Any = SimpleNamespace(send=lambda _, captured: sent.append(captured))
    now_s = int(time.time())
    for sec in ((1 << 31) - 1, now_s):
        head = {"stamp": {"sec": sec, "nanosec": 5}, "frame_id": "front"}
        value = {"header": head, "format": "jpeg", "data": JPEG}
        reader._publish(camera, memoryview(b"".join(cdr.encode(types.COMPRESSED_IMAGE, value))))
    assert sent == [now_s * 10**9 + 5]
    assert reader.status().refused == {"stamp": 1}


def test_a_contract_that_the_edge_refuses_does_not_stop_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted, and the stream is read with its usual contract."""
    said: list[str] = []
    monkeypatch.setattr(Teller, "tell", lambda _, sentence: said.append(sentence))
    tried: list[object] = []

    def subscribe(*_: object, **told: Any) -> Any:  # noqa: ANN401, stands for `mez.subscribe`
        tried.append(told.get("latency_ms"))
        if "latency_ms" in told:
            raise InfeasibleError("the contract cannot be kept")
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(mez, "subscribe", subscribe)
    reader = out_reader(tmp_path, Participant())
    reader.open()
    assert reader.ask("slow")
    reader.leave()
    reader.open()
    assert tried == [None, 1000, None]
    told = reader.status()
    assert (told.contract, told.refused) == ("usual", {"contract": 1})
    assert any("the edge refuses the contract slow" in sentence for sentence in said)
    assert not any("the contract is slow now" in sentence for sentence in said)


def test_samples_of_too_many_keys_are_counted_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them; people are told once."""
    said: list[str] = []
    monkeypatch.setattr(Teller, "tell", lambda _, sentence: said.append(sentence))
    bridge = file.read(written(tmp_path, FILE))
    participant: Any = Participant()
    reader = InReader(
        bridge, bridge.ins["front"], participant, StreamBoard("in.front", Teller(is_json=False))
    )
    for rejected in ((3, True), (0, True), (2, True), (4, False)):
        participant.rejected = rejected
        reader._note_rejected()
    assert reader.status().refused == {"too_many_keys": 5, "no_room": 4}
    assert len(said) == 2
    assert "the topic has more than 64 cameras; use a partition" in said[0]
