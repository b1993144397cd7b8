"""Built-in applications: models of the YOLO family, made here, and faces."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from mez.apps import faces
from mez.apps.boxes import Box, iou
from mez.profile import app as apps
from mez.profile.errors import AppError

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install 'mez[onnx]'")

SIDE = 64
ANCHORS = 8 * 8 + 4 * 4 + 2 * 2
"""Cells of 8, 16 and 32 pixels in an image of 64."""

Table = npt.NDArray[np.float32]


def model(path: Path, table: Table, **shape: Any) -> Path:  # noqa: ANN401 (sides are numbers or names)
    """Write a model that always finds the same, with scores that fall to nothing on black frames."""
    helper, numbers = onnx.helper, onnx.numpy_helper
    side = shape.get("side", SIDE)
    score = np.zeros(table.shape, dtype=np.float32)
    score[shape["scores"]] = table[shape["scores"]]
    rest = table - score
    nodes = [
        helper.make_node("ReduceMax", ["image"], ["brightest"], keepdims=0),
        helper.make_node("Min", ["brightest", "one"], ["seen"]),
        helper.make_node("Mul", ["score", "seen"], ["scored"]),
        helper.make_node("Add", ["scored", "rest"], ["found"]),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, side, side])],
        [helper.make_tensor_value_info("found", onnx.TensorProto.FLOAT, list(table.shape))],
        [
            numbers.from_array(score, "score"),
            numbers.from_array(rest, "rest"),
            numbers.from_array(np.float32(1), "one"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, str(path))
    return path


def end_to_end() -> tuple[Table, Any]:
    """Corners, score, class; and a row that is too weak."""
    table = np.zeros((1, 5, 6), dtype=np.float32)
    table[0, 0] = (8, 16, 24, 48, 0.9, 2)
    table[0, 1] = (8, 16, 24, 48, 0.2, 2)
    return table, np.s_[:, :, 4]


def version_8() -> tuple[Table, Any]:
    """Centre and size, scores by class, turned; twice the same thing."""
    table = np.zeros((1, 4 + 3, ANCHORS), dtype=np.float32)
    table[0, :, 5] = (16, 32, 16, 32, 0.1, 0.2, 0.9)
    table[0, :, 6] = (17, 32, 16, 32, 0.1, 0.2, 0.8)
    return table, np.s_[:, 4:, :]


def version_5() -> tuple[Table, Any]:
    """Centre and size, objectness, scores by class."""
    table = np.zeros((1, 3 * ANCHORS, 5 + 3), dtype=np.float32)
    table[0, 7] = (16, 32, 16, 32, 0.9, 0, 0, 1)
    return table, np.s_[:, :, 4]


def yolox() -> tuple[Table, Any]:
    """Offsets in the cell at (2, 4) of the finest grid, logarithms of sizes in cells."""
    table = np.zeros((1, ANCHORS, 5 + 3), dtype=np.float32)
    table[0, 4 * 8 + 2] = (0, 0, np.log(2), np.log(4), 0.9, 0, 0, 1)
    return table, np.s_[:, :, 4]


@pytest.mark.parametrize("kind", [end_to_end, version_8, version_5, yolox])
def test_models_of_the_yolo_family_find_what_they_say(tmp_path: Path, kind: Any) -> None:  # noqa: ANN401
    """One box of class 2, in pixels of the camera, whatever the form of the answer."""
    table, scores = kind()
    app = apps.load(f"onnx:{model(tmp_path / 'it.onnx', table, scores=scores)}")
    assert app.name == "onnx:it.onnx"
    bright = np.full((128, 128, 3), 255, dtype=np.uint8)
    (found,) = app.find(bright, (256, 256), "a frame")
    assert iou(found, Box(32, 64, 64, 128, 0.9)) > 0.99, found
    assert (found.label, round(found.score, 2)) == ("2", 0.9)
    # Twice as wide as high: scaled to fit, and the answer is scaled back.
    (wide,) = app.find(np.full((64, 128, 3), 255, dtype=np.uint8), (128, 64), "a frame")
    assert iou(wide, Box(16, 32, 32, 32, 0.9)) > 0.99, "the lower half lies outside and is cut off"


def test_another_model_is_another_application(tmp_path: Path) -> None:
    """By its bytes, not its name."""
    table, scores = end_to_end()
    first = apps.load(f"onnx:{model(tmp_path / 'it.onnx', table, scores=scores)}")
    again = apps.load(f"onnx:{tmp_path / 'it.onnx'}")
    table[0, 0, 4] = 0.8
    other = apps.load(f"onnx:{model(tmp_path / 'it.onnx', table, scores=scores)}")
    assert first.sha256 == again.sha256 != other.sha256


def test_models_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """Missing, damaged, of another shape."""
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(AppError, match=r"no model .*no\.onnx"):
        apps.load(f"onnx:{tmp_path / 'no.onnx'}")
    with pytest.raises(AppError, match=r"text\.onnx cannot be loaded by ONNX Runtime"):
        apps.load(f"onnx:{tmp_path / 'text.onnx'}")
    odd = model(tmp_path / "odd.onnx", np.zeros((1, 5), dtype=np.float32), scores=np.s_[:, 4:])
    app = apps.load(f"onnx:{odd}")
    with pytest.raises(AppError, match=r"returns an array of the shape \(1, 5\)"):
        app.find(np.zeros((64, 64, 3), dtype=np.uint8), (64, 64), "a frame")


def test_detections_by_their_corners_are_taken_as_other_libraries_have_them(tmp_path: Path) -> None:
    """As supervision has them: corners, and scores and classes if there are any."""
    mine = tmp_path / "corners.py"
    mine.write_text(
        "import types\nimport numpy as np\n"
        "corners = np.array([[8, 16, 24, 48], [0, 0, 8, 8]], np.float32)\n"
        "def scored(image):\n"
        "    return types.SimpleNamespace(xyxy=corners, confidence=np.array([0.9, 0.1]), class_id=[2, 2])\n"
        "def named(image):\n"
        "    named = {'class_name': np.array(['gate', 'dock'])}\n"
        "    return types.SimpleNamespace(xyxy=corners, confidence=None, class_id=None, data=named)\n"
        "def bare(image):\n    return types.SimpleNamespace(xyxy=corners, confidence=None, class_id=None)\n"
        "def torn(image):\n    return types.SimpleNamespace(xyxy=corners, confidence=[0.9], class_id=None)\n"
    )
    image = np.zeros((64, 64, 3), dtype=np.uint8)
    assert apps.load(f"{mine}:scored").find(image, (128, 128), "a frame") == [Box(16, 32, 32, 64, 0.9, "2")]
    assert [box.score for box in apps.load(f"{mine}:bare").strong(image, "a frame")] == [1.0, 1.0]
    named = apps.load(f"{mine}:named").strong(image, "a frame")
    assert [box.label for box in named] == ["gate", "dock"]
    with pytest.raises(AppError, match=r"corners\.py:torn"):
        apps.load(f"{mine}:torn").find(image, (64, 64), "a frame")


def test_faces_are_not_seen_where_there_are_none() -> None:
    """Nor in an image smaller than a face. The cascade comes with OpenCV."""
    assert faces.detect(np.zeros((20, 20, 3), dtype=np.uint8)) == []
    texture = np.random.default_rng(1).integers(0, 255, (120, 160, 3), dtype=np.uint8)
    assert faces.detect(texture) == []
    app = apps.load("faces")
    assert app.thresholds.strong == faces.STRONG


def test_a_drawn_face_is_found() -> None:
    """Two dark eyes, a bright nose between them, a dark mouth, on a bright oval."""
    image = np.full((240, 240, 3), 90, dtype=np.uint8)
    cv2.ellipse(image, (120, 120), (62, 82), 0, 0, 360, (200, 205, 210), -1)
    for x in (95, 145):
        cv2.ellipse(image, (x, 100), (15, 8), 0, 0, 360, (60, 60, 60), -1)
        cv2.ellipse(image, (x, 86), (18, 4), 0, 0, 360, (90, 90, 90), -1)
    cv2.ellipse(image, (120, 125), (8, 18), 0, 0, 360, (225, 225, 228), -1)
    cv2.ellipse(image, (120, 165), (24, 7), 0, 0, 360, (90, 80, 110), -1)
    image = np.asarray(cv2.GaussianBlur(image, (7, 7), 0), dtype=np.uint8)
    found = faces.detect(image)
    assert found, "nothing found"
    assert found[0].label == "face"
    assert iou(found[0], Box(60, 60, 120, 120, 1)) > 0.4, found
