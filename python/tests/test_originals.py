"""Originals beside a contract, as a program sees them."""

import itertools
import time

import pytest

import mez
from tests.support import picture, profile_of


def test_originals_come_beside_a_contract(edge: mez.Edge) -> None:
    """The contract's frames stay small; whoever says so gets frames as they were published, counted."""
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", latency_ms=1000, accuracy=0.92, profile=profile_of(64, 48)) as people,
        edge.subscribe("cam", quality="original") as originals,
    ):
        camera.wait_connected(timeout=30)
        small: list[mez.Frame] = []
        got: list[mez.Frame] = []
        for number in range(400):
            camera.send(picture(number % 100))
            time.sleep(0.03)
            for frames, into in ((people, small), (originals, got)):
                try:
                    into.append(frames.next(timeout=0.02))
                except mez.WaitTimeoutError:
                    continue
            if len(got) >= 12 and any(frame.rung == "jpeg/w32/q44/420" for frame in small[-3:]):
                break
        assert {frame.rung for frame in got} == {"original"}
        assert {(frame.width, frame.expected_accuracy) for frame in got} == {(64, 1.0)}
        for before, after in itertools.pairwise(got):
            between = after.id.sequence - before.id.sequence - 1
            assert sum(after.skipped.values()) == between, after
        assert got[-1].contract.state == "ok", got[-1].contract
        assert small[-1].rung == "jpeg/w32/q44/420"


def test_originals_have_no_floor_and_are_the_newest(edge: mez.Edge) -> None:
    """What makes no sense with them is refused by name."""
    with pytest.raises(mez.ArgumentError, match="originals have accuracy 1") as refused:
        edge.subscribe("cam", quality="original", accuracy=0.9)
    assert refused.value.field == "accuracy"
    with pytest.raises(mez.ArgumentError, match="or as originals") as refused:
        edge.subscribe("cam", quality="jpeg/w640/q70/420")
    assert refused.value.field == "quality"
    with pytest.raises(mez.ArgumentError, match="or as originals"):
        edge.subscribe("cam", quality="original", deliver="every")
    with edge.subscribe("cam", quality="original") as frames, pytest.raises(mez.ArgumentError, match="floor"):
        frames.update(accuracy=0.9)
