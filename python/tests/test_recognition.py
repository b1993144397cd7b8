"""Stages of the pipelines `faces` and `objects`, on real pictures, and what they say of bad input."""

import importlib.util
import json
import stat
import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest

import mez
from mez.apps import people
from mez.apps.dlib_faces import Embedder, Finder, Image
from mez.apps.enrol import enrol
from mez.apps.people import People
from mez.apps.recognition import Classify, DetectFaces, DetectObjects, Embed
from mez.demo import photographs
from mez.pipeline import file, function, main, shipped
from mez.pipeline import record as records
from mez.pipeline.errors import StageError
from mez.pipeline.record import Record
from tests import faces


def record_of(image: Image, published: tuple[int, int] | None = None) -> Record:
    """A camera's frame as the first stage has it."""
    height, width = image.shape[:2]
    coded = cv2.imencode(".png", image)[1].tobytes()
    record = records.start(
        mez.Origin("dock/cam1", mez.FrameId(1, 1), 2**62), memoryview(coded), "image/png", 1
    )
    record.published_size = published or (width, height)
    return record


def replied(record: Record) -> list[tuple[list[float], str]]:
    """The boxes and labels that were replied, rounded."""
    (reply,) = records.replies(record)
    return [([round(number) for number in box], name) for box, _, _, name, *_ in reply.parts]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of known people: one, who was seen once."""
    folder = tmp_path_factory.mktemp("known")
    (folder / "people" / "Eileen").mkdir(parents=True)
    cv2.imwrite(str(folder / "people" / "Eileen" / "1.png"), faces.portrait())
    assert list(enrol(folder / "people", folder / "people.json")) == [
        "Eileen: 1 face",
        f"{folder / 'people.json'}: 1 known; use it with mez pipeline run faces",
    ]
    return folder / "people.json"


def test_faces_are_found_described_and_named(known: Path) -> None:
    """Two faces of one frame stay together. The frame was published at twice the size at which it came."""
    start = record_of(faces.two(), (2048, 1024))
    found = DetectFaces()(start)
    assert found is not None and found.image.shape == (320, 160, 3)
    assert found.content_type == "image/jpeg"
    vectors = Embed(stale_s=1e12)(found)
    assert vectors is not None
    assert vectors.data.shape == (2, 128) and vectors.data.dtype == np.float32
    named = Classify(str(known))(vectors)
    told = named.data["faces"]
    assert [face["name"] for face in told] == ["Eileen", "Eileen"]
    # Mirrored, the same person is a little different.
    assert told[0]["distance"] < 0.1 < told[1]["distance"] < 0.3
    labels = replied(start)
    assert [name for _, name in labels] == ["Eileen", "Eileen"]
    # The detector's steps are 8 pixels of the frame as it came.
    boxes = np.array([box for box, _ in labels])
    assert np.abs(boxes - [[358, 166, 534, 342], [1516, 166, 1692, 342]]).max() <= 16
    assert np.abs(boxes - [face["xyxy"] for face in told]).max() <= 1


def test_a_face_that_is_near_nobody_is_unknown(known: Path) -> None:
    """The bound says how near; a file of nobody knows nobody."""
    found = DetectFaces()(record_of(faces.mirrored()))
    assert found is not None
    vectors = Embed(stale_s=1e12)(found)
    assert vectors is not None
    assert Classify(str(known), distance_max=0.05)(vectors).data["faces"][0]["name"] == "unknown"
    nobody = People({}).nearest(vectors.data[0], 0.6)
    assert (nobody.name, nobody.distance) == ("unknown", None)


def test_a_frame_without_a_face_is_answered_by_the_first_stage() -> None:
    """So the camera knows that nothing is there."""
    start = record_of(faces.nobody())
    assert DetectFaces()(start) is None
    assert replied(start) == []


def test_small_faces_are_found_in_an_enlarged_picture() -> None:
    """From 40 pixels on; the surest ones, if there are too many."""
    half = np.asarray(cv2.resize(faces.two(), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.uint8)
    assert DetectFaces()(record_of(half)) is None
    found = DetectFaces(enlarge=1, faces_max=1)(record_of(half))
    assert found is not None and found.image.shape == (160, 160, 3)
    for wrong in ({"enlarge": 4}, {"faces_max": 0}):
        with pytest.raises(StageError, match=f"options.{next(iter(wrong))} is"):
            DetectFaces(**wrong)


def test_stale_frames_are_let_go(known: Path) -> None:
    """A pipeline that is too slow works on what is current."""
    start = record_of(faces.portrait())
    start.captured_ns = 0
    found = DetectFaces()(start)
    assert found is not None
    assert Embed()(found) is None


def test_objects_are_found_and_replied() -> None:
    """A person, a cat that nobody asked for."""
    start = record_of(faces.portrait(), (1024, 1024))
    (told,) = DetectObjects()(start).data["objects"]
    assert told["name"] == "person" and told["score"] > 0.6
    ((box, name),) = replied(start)
    assert name == "person"
    left, top, right, bottom = box
    assert left < 100 and top < 100 and 650 < right < 800 and bottom > 950
    assert DetectObjects(kinds=["cat"])(record_of(faces.portrait())).data == {"objects": []}
    with pytest.raises(StageError, match=r"options.kinds has unicorn"):
        DetectObjects(kinds=["unicorn"])


def test_files_that_are_no_networks_are_refused(tmp_path: Path) -> None:
    """With their names, and what to do."""
    wrong = tmp_path / "network"
    wrong.write_bytes(b"no network at all")
    with pytest.raises(StageError, match="network cannot be loaded by dlib"):
        Embed(network=str(wrong))
    with pytest.raises(StageError, match="cannot be loaded by ONNX Runtime"):
        DetectObjects(network=str(wrong))
    with pytest.raises(StageError, match="there is no model"):
        DetectObjects(network=str(tmp_path / "none"))
    picture = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    same = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])], "same", [picture], [same]
    )
    opset = onnx.helper.make_opsetid("", 18)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9), wrong)
    with pytest.raises(StageError, match="leave the path out to use the network that comes with Mez"):
        DetectObjects(network=str(wrong))


def test_people_are_enrolled_all_or_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every fault is told, and nothing is written. Hidden files and files beside folders do not count."""
    folder, out = tmp_path / "people", tmp_path / "known.json"
    command = ["enrol", str(folder), "--out", str(out)]

    def said(status: int) -> str:
        assert main(command) == status
        captured = capsys.readouterr()
        return captured.err if status else captured.out

    assert "people cannot be read (No such file or directory); give a folder of people" in said(1)
    folder.mkdir()
    (folder / "notes.txt").touch()
    assert f"put the pictures of each person into {folder}/NAME" in said(1)
    (folder / "Ann").mkdir()
    assert "Ann is empty; put pictures of Ann there" in said(1)
    (folder / "Ann" / ".hidden").touch()
    assert "Ann is empty" in said(1)
    for name, image in (("a", faces.portrait()), ("b", faces.nobody()), ("c", faces.two())):
        cv2.imwrite(str(folder / "Ann" / f"{name}.png"), image)
    (folder / "Ann" / "d.jpg").write_text("not a picture")
    (folder / "Ann" / "e.jpg").touch()
    error = said(1)
    assert f"no face found in {folder / 'Ann' / 'b.png'}" in error
    assert f"2 faces in {folder / 'Ann' / 'c.png'}" in error
    assert f"{folder / 'Ann' / 'd.jpg'} is not a picture" in error
    assert f"{folder / 'Ann' / 'e.jpg'} is not a picture" in error
    assert "a.png" not in error and not out.exists()
    for name in ("c.png", "d.jpg", "e.jpg"):
        (folder / "Ann" / name).unlink()
    cv2.imwrite(str(folder / "Ann" / "b.png"), faces.mirrored())
    assert "Ann: 2 faces, at most 0.18 apart" in said(0)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.glob(".known*")] == []
    assert people.read(out).names == ["Ann"]
    (folder / "unknown").mkdir()
    assert "unknown is not a valid name" in said(1)
    command[-1] = str(tmp_path / "none" / "known.json")
    (folder / "unknown").rmdir()
    assert "cannot be written (No such file or directory)" in said(1)


def test_a_file_of_known_people_that_cannot_be_used_says_why(known: Path, tmp_path: Path) -> None:
    """Another version, another network, damaged, something else, none."""
    told = json.loads(known.read_text())
    path = tmp_path / "people.json"
    short = {"Eileen": [[0.5] * 127]}
    infinite = {"Eileen": [[float("inf")] * 128]}
    for wrong, says in (
        (told | {"mez_people": 2}, "has version 2, this Mez reads 1; make it again with mez pipeline enrol"),
        (told | {"network": "facenet"}, "was made by the network 'facenet'"),
        (told | {"people": short}, r"is damaged \(a face has the shape \(127,\)"),
        (told | {"people": infinite}, "is damaged"),
        (told | {"people": 3}, "is damaged"),
        ([], "is not a file of known people"),
    ):
        path.write_text(json.dumps(wrong))
        with pytest.raises(StageError, match=says):
            Classify(str(path))
    path.write_text("{")
    with pytest.raises(StageError, match="is not a file of known people"):
        Classify(str(path))
    with pytest.raises(StageError, match="make it with mez pipeline enrol DIR"):
        Classify(str(tmp_path / "none"))


def test_thumbnails_hold_what_the_network_takes() -> None:
    """The inner 150 pixels are at the scale for which the network was made: enlarging changes little."""
    finder, embedder = Finder(), Embedder()
    (face,) = finder.find(faces.portrait())
    larger = np.asarray(cv2.resize(faces.portrait(), None, fx=1.5, fy=1.5), np.uint8)
    (again,) = finder.find(larger)
    assert face.thumbnail.shape == again.thumbnail.shape == (160, 160, 3)
    assert np.linalg.norm(embedder.embed(face.thumbnail) - embedder.embed(again.thumbnail)) < 0.1


@pytest.mark.parametrize("name", shipped.names())
def test_pipelines_that_come_with_mez_are_right(name: str) -> None:
    """Their files, their functions and the options of these."""
    pipeline = file.read(shipped.place(name))
    assert pipeline.name == name
    for stage in pipeline.stages.values():
        assert stage.run is not None
        function.check(stage.run, pipeline.path.parent, stage.options)


def test_a_file_on_the_base_of_a_shipped_one_changes_what_it_names(tmp_path: Path) -> None:
    """Tables are merged, key by key; paths are relative to the user's file."""
    mine = tmp_path / "faces"
    mine.write_text(
        '[pipeline]\nname = "gate"\nbase = "faces"\nevents = "events"\n'
        '[stage.detect]\ncameras = "gate/*"\n[stage.detect.options]\nenlarge = 1\n'
        "[stage.embed]\nworkers = 4\n"
    )
    pipeline = file.read(mine)
    assert (pipeline.name, pipeline.events) == ("gate", tmp_path / "events")
    detect, embed, classify = pipeline.stages.values()
    assert detect.source.pattern == classify.source.pattern == "gate/*"
    assert detect.options == {"score_min": 0.3, "enlarge": 1, "faces_max": 32}
    assert (embed.workers, embed.run) == (4, "mez.apps.recognition:Embed")
    mine.write_text('[pipeline]\nname = "gate"\nbase = "cats"\n')
    with pytest.raises(
        mez.Error, match=r"pipeline.base: there is no pipeline 'cats' in Mez; there are faces"
    ):
        file.read(mine)


def test_a_word_names_a_file_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a pipeline that comes with Mez."""
    monkeypatch.chdir(tmp_path)
    assert shipped.place("faces").name == "faces.toml"
    assert shipped.place("nothing") == Path("nothing")
    (tmp_path / "faces").touch()
    assert shipped.place("faces") == Path("faces")


def test_packages_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with the networks, the library, the photograph."""
    there = importlib.util.find_spec

    def without(name: str) -> None:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda asked: None if asked == name else there(asked)
        )

    without("face_recognition_models")
    with pytest.raises(StageError, match=r"package face-recognition-models; run: pip install 'mez\[faces\]'"):
        DetectFaces()
    without("skimage")
    with pytest.raises(mez.MissingPackageError, match="run: pip install scikit-image"):
        photographs.astronaut()
    monkeypatch.setitem(sys.modules, "dlib", None)
    with pytest.raises(StageError, match=r"faces need dlib .*; run: pip install 'mez\[faces\]'"):
        Embed()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(StageError, match="pip install onnxruntime"):
        DetectObjects()
