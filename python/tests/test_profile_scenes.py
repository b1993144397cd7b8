"""Profiles of several scenes, and of a live camera."""

import contextlib
import itertools
import subprocess
import sys
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest

import mez
from mez import _native
from mez.profile import document, footage
from mez.profile.crew import Crew, Job
from mez.profile.errors import VideoError
from mez.profile.make import make
from mez.profile.record import record
from mez.profile.score import UndefinedAccuracyError
from tests.profiles import FRAMES, HEIGHT, WIDTH, Quiet, picture


def scene(folder: Path, light: float = 1.0, width: int = WIDTH, far: bool = False) -> Path:
    """A scene of its own: the same square in another light, or a small one."""
    folder.mkdir(parents=True)
    for number in range(FRAMES):
        image = np.asarray(cv2.resize(picture(number), (width, HEIGHT)) * light, dtype=np.uint8)
        if far:
            image = np.asarray(cv2.blur(image, (41, 41)) // 2, dtype=np.uint8)
            image[40 + number % 7 :, 10 + number * 2 :][:6, :6] = 210
        cv2.imwrite(str(folder / f"{number:03}.png"), image)
    return folder


def test_of_several_scenes_the_one_that_keeps_least_counts(tmp_path: Path, app_file: Path) -> None:
    """A coarse rung keeps a near square, and loses one that is far away."""
    near, far = scene(tmp_path / "near"), scene(tmp_path / "far", far=True)
    rungs = ["h264/w80/q51", "h264/q18"]
    with Crew(Job((near, far), f"{app_file}:bright", None, None, tmp_path / "cache"), 1) as crew:
        made = make(crew, [], Quiet(), FRAMES, rungs)
    assert [one.video for one in made.profile.about.scenes] == ["near", "far"]
    assert made.profile.about.frames_scored == 2 * FRAMES
    for name in rungs:
        rung = made.profile.get(name)
        assert rung is not None
        of_near, of_far = rung.accuracy_by_scene
        assert rung.accuracy_normalised == min(of_near, of_far, key=lambda score: score.value)
    coarse, fine = (made.profile.get(name) for name in rungs)
    assert coarse is not None
    assert fine is not None
    assert coarse.accuracy_by_scene[0].value > coarse.accuracy_by_scene[1].value + 0.1, coarse
    assert fine.accuracy_normalised.value > 0.9, fine
    again = document.parse(made.profile.to_bytes())
    assert again.to_bytes() == made.profile.to_bytes()


def test_a_chain_never_goes_from_one_scene_to_the_next(tmp_path: Path) -> None:
    """And each scene has its own part of the frames that are scored."""
    both = footage.read_all([scene(tmp_path / "a"), scene(tmp_path / "b", 0.8)])
    assert [len(places) for places in both.by_scene(both.sampled(10))] == [10, 10]
    assert all(piece.stop <= FRAMES or piece.start >= FRAMES for piece in both.pieces(range(2 * FRAMES))), (
        both.pieces(range(2 * FRAMES))
    )


def test_scenes_are_of_one_camera(tmp_path: Path) -> None:
    """Otherwise the error names both."""
    first = scene(tmp_path / "first")
    with pytest.raises(VideoError, match=r"wide has 200x120 pixels, but first has 160x120; .* one size"):
        footage.read_all([first, scene(tmp_path / "wide", 1.0, 200)])
    with pytest.raises(VideoError, match="first is given twice; name each video once"):
        footage.read_all([first, first])
    twin = footage.read_all([first, scene(tmp_path / "other" / "first", 0.9)])
    assert twin.scenes[1].name == "other/first", "two files of one name can be told apart"


def test_a_scene_without_anything_to_find_is_named(tmp_path: Path, app_file: Path) -> None:
    """By day there is a square; at night it is too dark."""
    day, night = scene(tmp_path / "day"), scene(tmp_path / "night", 0.3)
    with (
        Crew(Job((day, night), f"{app_file}:bright", None, None, tmp_path / "cache"), 1) as crew,
        pytest.raises(UndefinedAccuracyError, match=r"frames that it searched of night, so its accuracy"),
    ):
        make(crew, [], Quiet(), FRAMES, ["h264/q30"])


def test_a_live_camera_is_recorded_as_it_publishes(edge: mez.Edge, tmp_path: Path, app_file: Path) -> None:
    """Its frames are those that it published, byte for byte, at its own frame rate."""
    stop = threading.Event()
    sent = []

    def publish(camera: mez.Publisher) -> None:
        for number in itertools.cycle(range(FRAMES)):
            if stop.wait(0.05):
                return
            sent.append(_native.encode_jpeg(picture(number), 90))
            camera.send(sent[-1])

    with mez.publisher("dock/cam1", edge=edge) as camera:
        camera.wait_connected(timeout=30)
        thread = threading.Thread(target=publish, args=(camera,))
        thread.start()
        try:
            folder = record("dock/cam1", tmp_path, 4.0, edge, Quiet())
        finally:
            stop.set()
            thread.join()
    kept = [path.read_bytes() for path in sorted(folder.iterdir())]
    assert len(kept) >= 32
    first = sent.index(kept[0])
    assert kept == sent[first : first + len(kept)], "all of them, in order"
    recorded = footage.read(folder)
    assert list(recorded.jpegs) == kept
    assert folder.name.startswith("dock-cam1-")
    with Crew(Job((folder,), f"{app_file}:bright", None, None, tmp_path / "cache"), 1) as crew:
        made = make(crew, [], Quiet(), 32, ["h264/q30"])
    assert made.profile.about.video == folder.name


def test_the_command_profiles_a_live_camera(edge: mez.Edge, tmp_path: Path, app_file: Path) -> None:
    """As people call it, with a detector of their own; and the camera takes the profile."""
    stop = threading.Event()

    def publish(camera: mez.Publisher) -> None:
        for number in itertools.cycle(range(FRAMES)):
            if stop.wait(0.04):
                return
            camera.send(picture(number))

    out = tmp_path / "live.json"
    command = [str(Path(sys.executable).parent / "mez"), "profile", "run", "--app", f"{app_file}:bright"]
    command += ["--camera", "dock/cam1", "--edge", f"unix://{edge.socket}", "--seconds", "4"]
    command += ["--frames", "32", "--families", "jpeg", "--rungs", "h264/q30", "--workers", "1"]
    command += ["--out", str(out), "--cache", str(tmp_path / "cache")]
    with mez.publisher("dock/cam1", edge=edge) as camera:
        camera.wait_connected(timeout=30)
        thread = threading.Thread(target=publish, args=(camera,))
        thread.start()
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            stop.set()
            thread.join()
        assert ran.returncode == 0, ran.stdout + ran.stderr
        profile = document.load(out)
        (recording,) = tmp_path.glob("dock-cam1-*Z")
        assert profile.about.video == recording.name
        assert (profile.about.width, profile.about.height) == (WIDTH, HEIGHT)
        assert profile.about.frames_scored >= 32
        assert {rung.family for rung in profile.rungs} >= {"h264", "jpeg", "original"}
        best = profile.get("h264/q30")
        assert best is not None and best.accuracy_normalised.value > 0.9
        with edge.subscribe("dock/cam1", latency_ms=5000, accuracy=0.5, profile=out, timeout=30) as frames:
            for _ in range(600):
                camera.send(picture(0))
                with contextlib.suppress(mez.WaitTimeoutError):
                    if profile.get(frames.next(timeout=0.1).rung) is not None:
                        break
            else:
                raise AssertionError("no frame of the profile came")


def test_a_camera_that_publishes_nothing_is_named(edge: mez.Edge, tmp_path: Path) -> None:
    """Instead of a profile of nothing."""
    with mez.publisher("dock/idle", edge=edge) as camera:
        camera.wait_connected(timeout=30)
        with pytest.raises(VideoError, match="dock/idle published no frame in 1 s; is its source running"):
            record("dock/idle", tmp_path, 1.0, edge, Quiet())
