"""`mez demo --offload`: the client, an edge and an engine's processes, as people run it."""

import json
import subprocess
import sys
from pathlib import Path

import cv2

from tests.offloads import write_video


def test_the_demo_of_offload_writes_pairs_of_frames_and_answers(tmp_path: Path) -> None:
    """With the no-op engine, so that it needs no network."""
    video, figures = write_video(tmp_path / "street.avi"), tmp_path / "figures.json"
    words = [sys.executable, "-m", "mez", "demo", "--offload", "--engine", "noop", "--video", str(video)]
    words += ["--seconds", "2", "--answer-ms", "20000", "--out", str(tmp_path), "--json", str(figures)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(figures.read_text())
    assert told["given"]["edge"] > 0
    assert told["age_ms_p50"] > 0
    sheet = cv2.imread(told["sheet"])
    assert sheet is not None
    # A frame beside its answer, in tiles of 640 pixels.
    assert sheet.shape[1] in (640, 1280, 1920)


def test_an_engine_that_dies_ends_the_demo_with_an_error(tmp_path: Path) -> None:
    """Answers came before; the rest of the time is no success."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import os, signal\n"
        "def paint(image):\n"
        "    global seen\n"
        "    seen += 1\n"
        "    if seen == 30:\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n"
        "    return image\n"
        "seen = 0\n"
    )
    video = write_video(tmp_path / "street.avi")
    words = [sys.executable, "-m", "mez", "demo", "--offload", "--engine", f"{mine}:paint"]
    words += ["--video", str(video), "--seconds", "80", "--answer-ms", "20000", "--out", str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "the engine killed by SIGKILL" in ended.stdout


def test_an_engine_that_is_none_ends_the_demo_with_a_sentence(tmp_path: Path) -> None:
    """Before anything is started."""
    video = write_video(tmp_path / "street.avi", frames=2)
    words = [sys.executable, "-m", "mez", "demo", "--offload", "--engine", "styl", "--video", str(video)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 1
    assert "there is no engine styl; give noop" in ended.stdout
