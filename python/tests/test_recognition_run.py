"""The pipelines `faces` and `objects` as people run them: an edge, a camera, workers, replies."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import pytest

import mez
from mez.apps.dlib_faces import Image
from mez.apps.enrol import enrol
from mez.demo.photographs import PERSON
from tests import faces
from tests.pipelines import until

# Six interpreters load networks, on a busy machine.
pytestmark = pytest.mark.timeout(300)

COMMAND = [sys.executable, "-P", "-m", "mez", "pipeline", "run"]


@contextlib.contextmanager
def run(file: Path | str, folder: Path, edge: mez.Edge) -> Iterator[None]:
    """Run a pipeline until Ctrl-C."""
    environment = os.environ | {"MEZ_EDGE": f"unix://{edge.socket}"}
    name = Path(file).stem
    with subprocess.Popen([*COMMAND, str(file)], cwd=folder, env=environment) as process:
        try:
            found = folder / "state" / "pipelines" / name / "status.json"
            until(
                lambda: found.exists() and json.loads(found.read_text())["state"],
                lambda state: state == "running",
                "it runs",
            )
            yield
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def answer(camera: mez.Publisher, image: Image) -> list[tuple[str, int]]:
    """Publish until there is a reply for this picture: names, and where their boxes begin from the left."""
    sent = set()
    for _ in range(60):
        frame = camera.send(image)
        assert frame is not None
        sent.add(frame)
        with contextlib.suppress(mez.WaitTimeoutError):
            while True:
                reply = camera.next_reply(timeout=1)
                if reply.frame in sent:
                    found = reply.detections
                    assert found is not None and found.size == image.shape[1::-1]
                    lefts = [round(left) for left, *_ in found.xyxy.tolist()]
                    return list(zip(found.class_names or [], lefts, strict=True))
    raise AssertionError("no reply")


def test_names_of_faces_come_back_to_the_camera(edge: mez.Edge, tmp_path: Path) -> None:
    """From the third stage, for each frame, in its pixels; frames without a face are answered too.

    The same results are a derived stream, which others join with the frames.
    """
    (tmp_path / "people" / PERSON).mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "people" / PERSON / "1.png"), faces.portrait())
    list(enrol(tmp_path / "people", tmp_path / "people.json"))
    file = tmp_path / "gate.toml"
    file.write_text(
        '[pipeline]\nname = "gate"\nbase = "faces"\n'
        f'[mez]\nedge = "unix://{edge.socket}"\n'
        "[stage.embed]\nworkers = 1\noptions.stale_s = 3600.0\n"
    )
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/cam1/classify", deliver="every") as stream,
        run(file, tmp_path, edge),
    ):
        camera.wait_connected(timeout=30)
        (named,) = answer(camera, faces.portrait())
        assert named[0] == PERSON and abs(named[1] - 179) <= 8
        assert answer(camera, faces.nobody()) == []
        both = answer(camera, faces.two())
        assert [name for name, _ in both] == [PERSON, PERSON]
        record = stream.next(timeout=60)
        assert record.of is not None and record.of.camera == "dock/cam1"
        assert record.content_type == "application/json"
        assert [face["name"] for face in record.data["faces"]] == [PERSON]


def test_kinds_of_things_come_back_to_the_camera(edge: mez.Edge, tmp_path: Path) -> None:
    """The pipeline that comes with Mez, as it is."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/cam1/objects", deliver="every") as stream,
        run("objects", tmp_path, edge),
    ):
        camera.wait_connected(timeout=30)
        assert [name for name, _ in answer(camera, faces.portrait())] == ["person"]
        assert stream.next(timeout=60).data["objects"][0]["name"] == "person"


def test_a_pipeline_that_knows_nobody_ends_and_says_what_to_do(edge: mez.Edge, tmp_path: Path) -> None:
    """At once: workers are not started again and again."""
    environment = os.environ | {"MEZ_EDGE": f"unix://{edge.socket}"}
    done = subprocess.run(
        [*COMMAND, "faces"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 1
    assert "classify-0 cannot run" in done.stderr
    assert (
        "people.json cannot be read (No such file or directory); make it with mez pipeline enrol"
        in done.stderr
    )
    assert "restarts in" not in done.stdout


def test_the_demo_of_faces_names_them_and_claims_nothing(tmp_path: Path) -> None:
    """A short demo: figures, pictures, a table."""
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    words = ["--pipeline", "faces", "--cameras", "1", "--fps", "2", "--seconds", "3"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mez", "demo", *words, "--out", str(out), "--json", str(figures)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"known: {PERSON}: 1 face" in done.stdout
    assert "It does not show how well it tells people apart" in done.stdout
    assert "WAIT MS" in done.stdout
    told = json.loads(figures.read_text())
    frames = told["frames"]
    assert frames["answered"] >= 1
    assert frames["named"] == frames["found"] >= 1
    assert list(told["stages"]) == ["detect", "embed", "classify"]
    assert told["stages"]["embed"]["ready"] == 2
    assert all(cv2.imread(picture) is not None for picture in told["pictures"])
    assert (out / "contact-sheet.png").exists()
