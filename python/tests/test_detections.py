"""What an application may reply with as boxes, and what a publisher gets of it."""

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mez
from mez import _detections
from mez.apps.boxes import Box
from tests.support import deliver

BOXES = [[1.0, 2.0, 30.0, 40.0], [5.0, 6.0, 7.0, 8.0]]
"""Left, top, right, bottom."""

BLOB = np.zeros((48, 64), bool)
BLOB[10:20, 6:50] = True


def supervised() -> SimpleNamespace:
    """What `supervision.Detections` looks like from outside."""
    return SimpleNamespace(
        xyxy=np.array(BOXES),
        confidence=np.array([0.9, 0.8], np.float32),
        class_id=np.array([0, 2]),
        tracker_id=np.array([7, 8]),
        mask=np.stack([BLOB, ~BLOB]),
        data={"class_name": np.array(["person", "car"])},
    )


def test_boxes_are_known_in_every_usual_form() -> None:
    """The same boxes, from what detectors and trackers give."""
    wide = {"x": 1, "y": 2, "width": 29, "height": 38}
    forms: list[object] = [
        mez.Detections(BOXES),
        supervised(),
        np.array(BOXES),
        np.array(BOXES, np.float16),
        [tuple(box) for box in BOXES],
        [np.array(box) for box in BOXES],
        [{"xyxy": np.array(box)} for box in BOXES],
        [dict(zip(("x1", "y1", "x2", "y2"), box, strict=True)) for box in BOXES],
        [wide, {"x": 5, "y": 6, "width": 2, "height": 2}],
        [Box(x1, y1, x2 - x1, y2 - y1, 0.5) for x1, y1, x2, y2 in BOXES],
        np.column_stack([BOXES, [0.9, 0.8], [0, 2]]),
    ]
    for form in forms:
        found = _detections.of(form)
        assert found is not None, form
        assert found.xyxy.tolist() == BOXES
    for columns, known in ((5, ["scores"]), (6, ["scores", "class_ids"])):
        found = _detections.of([[*BOXES[0], 0.5, 2][:columns]])
        assert found is not None
        assert [name for name in ("scores", "class_ids") if getattr(found, name) is not None] == known


def test_a_tensor_is_fetched_from_where_it_is() -> None:
    """As PyTorch has them: one that is trained, on an accelerator, is not an array by itself."""

    class Tensor:
        shape = (2, 4)

        def __init__(self, fetched: tuple[str, ...] = ()) -> None:
            self.fetched = fetched

        def detach(self) -> "Tensor":
            return Tensor((*self.fetched, "detach"))

        def cpu(self) -> "Tensor":
            return Tensor((*self.fetched, "cpu"))

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            assert self.fetched == ("detach", "cpu")
            return np.array(BOXES)

    found = _detections.of(Tensor())
    assert found is not None
    assert found.xyxy.tolist() == BOXES


def test_the_class_may_be_a_name() -> None:
    """Behind the score, or behind the box. As an opaque value it would come back in the wrong pixels."""
    scored = _detections.of([(40, 20, 200, 100, 0.9, "cat"), (1, 2, 3, 4, 0.5, "dog")])
    assert scored is not None and scored.scores is not None
    assert (scored.class_names, scored.scores.tolist()) == (["cat", "dog"], pytest.approx([0.9, 0.5]))
    named = _detections.of([(40, 20, 200, 100, "cat")])
    assert named is not None
    assert (named.xyxy.tolist(), named.class_names, named.scores) == ([[40, 20, 200, 100]], ["cat"], None)


@pytest.mark.parametrize("nothing", [[], (), np.zeros((0, 4)), np.array([]), mez.Detections([])])
def test_nothing_found_is_a_result(nothing: object) -> None:
    """A camera clears its boxes then."""
    found = _detections.of(nothing)
    assert found is not None
    assert (len(found), found._parts()) == (0, [])


@pytest.mark.parametrize(
    "opaque",
    [
        b"\x00",
        "two people",
        2,
        None,
        {"people": 2},
        {"xyxy": [1, 2, 3, 4]},
        [1, 2, 3, 4],
        [[1, 2], [3, 4]],
        [[1, 2, 3, "4"]],
        [{"box": [1, 2, 3, 4]}],
        np.zeros((2, 2, 2)),
        np.zeros((3, 128), np.float32),
        np.float32(0.5),
    ],
)
def test_everything_else_is_opaque(opaque: object) -> None:
    """It is sent as it was before there were boxes."""
    assert _detections.of(opaque) is None


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ([[10, 10, 5, 5]], "box 0 is .* left <= right"),
        (np.array([[1, 2, 3, np.nan]]), "box 0 is"),
        ([{"x": 1, "y": 2, "width": 3, "height": 4, "speed": 5}], "'speed'"),
        ([{"x1": 1, "y1": 2}], "is incomplete"),
        (np.array([[1, 2, 3, 4, 0.5, 1.5]]), "class_ids has values that are not whole"),
        ([{"xyxy": [1, 2, 3, 4], "class_id": 1 << 40}], "class_ids has values beyond"),
        ([{"xyxy": [1, 2, 3, 4], "score": float("inf")}], "scores has infinite values"),
    ],
)
def test_boxes_that_cannot_be_are_refused(wrong: object, reason: str) -> None:
    """With what to do. As opaque values they would come back in the wrong pixels."""
    with pytest.raises(mez.ArgumentError, match=reason):
        _detections.of(wrong)


def test_columns_fit_their_boxes() -> None:
    """One entry for each box; the error names the argument."""
    one: dict[str, Any] = {"scores": [1.0], "class_ids": [1], "class_names": ["a"], "masks": [BLOB]}
    for field, given in one.items():
        with pytest.raises(mez.ArgumentError, match="one for each") as refused:
            mez.Detections(BOXES, **{field: given})
        assert refused.value.field == field
    with pytest.raises(mez.ArgumentError, match=r"shape \(2, 3\)"):
        mez.Detections([[1, 2, 3], [4, 5, 6]])


def test_all_that_is_known_reaches_the_publisher(edge: mez.Edge) -> None:
    """Masks are pixels of the published frame, whatever raster they came in; points scale with boxes."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        frame = deliver(camera, frames)
        frame.reply(supervised())
        reply = camera.next_reply(timeout=30)
        found = reply.detections
        assert found is not None
        assert reply.payload == b""
        assert found.size == frame.published_size == (64, 48)
        assert found.xyxy.tolist() == BOXES
        assert found.scores is not None
        assert found.scores.tolist() == pytest.approx([0.9, 0.8])
        assert found.class_ids is not None
        assert found.class_ids.tolist() == [0, 2]
        assert found.class_names == ["person", "car"]
        assert found.tracker_ids is not None
        assert found.tracker_ids.tolist() == [7, 8]
        assert found.masks is not None
        for mask, sent in zip(found.masks, (BLOB, ~BLOB), strict=True):
            assert mask is not None
            assert np.array_equal(mask, sent)
        assert reply.json()[1]["class_name"] == "car"

        # The application searched a picture of half the size, and knows only parts of it.
        partly = mez.Detections(
            BOXES,
            scores=[0.5, float("nan")],
            masks=[None, BLOB[::2, ::2]],
            key_points=[[(1, 2), (3, 4)], []],
            size=(32, 24),
        )
        for given in (partly, pickle.loads(pickle.dumps(partly))):
            frame.reply(given)
            found = camera.next_reply(timeout=30).detections
            assert found is not None
            assert found.xyxy.tolist() == [[2, 4, 60, 80], [10, 12, 14, 16]]
            assert found.scores is not None
            assert found.scores[0] == 0.5
            assert np.isnan(found.scores[1])
            assert found.masks is not None
            assert found.masks[0] is None
            blob = found.masks[1]
            assert blob is not None
            assert np.array_equal(blob, BLOB)
            assert found.key_points is not None
            assert [points[:, :2].tolist() for points in found.key_points] == [[[2, 4], [6, 8]], []]
            assert (found.class_ids, found.class_names, found.tracker_ids) == (None, None, None)
        assert repr(found) == "<Detections 2 in 64x48 with key_points, masks, scores>"


def test_the_limit_of_replies_holds_for_boxes(edge: mez.Edge) -> None:
    """At the call, with the size."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        frame = deliver(camera, frames)
        with pytest.raises(mez.ArgumentError, match="more than the limit of 4096"):
            frame.reply([[1, 2, 3, 4]] * 4097)
        with pytest.raises(mez.ReplyTooLargeError, match="more than the limit of 65536"):
            frame.reply(mez.Detections([[1, 2, 3, 4]] * 1000, class_names=["x" * 100] * 1000))
        frame.reply([])
        found = camera.next_reply(timeout=30).detections
        assert found is not None
        assert len(found) == 0
