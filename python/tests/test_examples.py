"""The programs in `examples/` do what their page says, between real brokers, with a real video."""

import ast
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import mez
from mez._processes import free_port
from mez.apps import pedestrian_hog
from tests.network_camera import network_camera

CHECKOUT = Path(__file__).parents[2]
EXAMPLES = CHECKOUT / "examples"
VIDEO = CHECKOUT / ".cache/video/vtest.avi"
MEZ = Path(sys.executable).with_name("mez")

HANG_SECONDS = 90


@pytest.fixture(scope="module", autouse=True)
def video() -> None:
    """Fetch the video of people in the street."""
    fetched = subprocess.run([CHECKOUT / "tools/demo-video"], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"no video: {fetched.stderr.strip()}")


class Program:
    """A program in a process of its own, and what it has said so far."""

    def __init__(self, site: "Site", *words: str | Path) -> None:
        self._process = subprocess.Popen(
            words,
            cwd=site.folder,
            env=site.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.said.extend(self._process.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def waits_to_say(self, pattern: str, since: int = 0) -> re.Match[str]:
        """The first line since one of a number that the pattern matches."""
        deadline = time.monotonic() + HANG_SECONDS
        while time.monotonic() < deadline:
            over = self._process.poll() is not None
            if over:
                self._reader.join()
            for line in self.said[since:]:
                if found := re.search(pattern, line):
                    return found
            assert not over, f"it ended without {pattern!r}: {''.join(self.said)}"
            time.sleep(0.05)
        raise AssertionError(f"it never said {pattern!r}: {''.join(self.said)}")

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(HANG_SECONDS)

    def ends(self) -> str:
        """What it said in all, once it has ended by itself and well."""
        status = self._process.wait(HANG_SECONDS)
        self._reader.join()
        assert status == 0, f"it ended with {status}: {''.join(self.said)}"
        return "".join(self.said)


class Site:
    """A folder with the keys of a site, in which programs run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = f"unix://{folder}/e.sock"
        self.environment = {
            **os.environ,
            "PATH": f"{MEZ.parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "MEZ_LOG": "warn",
            "MEZ_KEYS": str(folder / "keys"),
            "MEZ_STATE": str(folder / "state"),
            "MEZ_EDGE_LISTEN": "127.0.0.1:0",
            "MEZ_EDGE_GRPC": "off",
            "MEZ_EDGE_ENROL": "off",
            "MEZ_EDGE_SOCKET": str(folder / "e.sock"),
        }
        self.run("keys", "init", "--site", "test")
        self.link = ""

    def run(self, *words: str) -> str:
        """A command to its end."""
        return subprocess.run(
            [MEZ, *words], cwd=self.folder, env=self.environment, check=True, capture_output=True, text=True
        ).stdout

    def example(self, name: str, *words: str | Path) -> Program:
        """An example in Python, at the edge of this site."""
        return Program(self, sys.executable, EXAMPLES / name, *words, "--edge", self.socket)

    def camera(self, name: str, *words: str | Path, video: Path = VIDEO) -> Program:
        """The example of a camera, which shows a video."""
        shown = ("--edge", self.link, "--source", video, *words)
        return Program(self, sys.executable, EXAMPLES / "camera.py", name, *shown)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site whose edge broker runs."""
    site = Site(tmp_path)
    with Program(site, MEZ, "edge") as edge:
        site.link = edge.waits_to_say(r"link=(\S+)")[1]
        yield site


def picture_of(file: Path) -> NDArray[np.uint8]:
    """A picture that an example saved."""
    image = cv2.imread(str(file))
    assert image is not None, f"{file} is no picture"
    return np.asarray(image, np.uint8)


def frame_of_the_video(number: int) -> NDArray[np.uint8]:
    """A frame of the video as the camera shows it."""
    shown = cv2.VideoCapture(str(VIDEO))
    for _ in range(number):
        assert shown.grab()
    held, image = shown.read()
    assert held
    return np.asarray(image, np.uint8)


def frames_of(file: Path) -> list[NDArray[np.uint8]]:
    """All frames of a video."""
    shown, frames = cv2.VideoCapture(str(file)), []
    while (read := shown.read())[0]:
        frames.append(np.asarray(read[1], np.uint8))
    return frames


def is_green(image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which pixels have the colour of the boxes, as far as a codec leaves it."""
    blue, green, red = (image[:, :, channel].astype(int) for channel in range(3))
    return np.asarray((green > 180) & (blue < 120) & (red < 120))


def test_the_boxes_of_two_cameras_are_drawn_at_each_of_them(site: Site) -> None:
    """In the picture in which they were found, where the detector finds people."""
    names = ("dock/cam1", "dock/cam2")
    with site.camera(names[0]) as first, site.camera(names[1]) as second:
        with site.example("detector.py", "dock/*", "--accuracy", "0.9") as detector:
            for camera in (first, second):
                # The first frames may be coarse.
                camera.waits_to_say(r"frame \d+/\d\d+ has [1-9]\d* boxes")
            detector.waits_to_say(r"dock/cam2: [1-9]\d* people, \S+, ")
        for camera, name in ((first, names[0]), (second, names[1])):
            # What was on its way has come.
            time.sleep(1)
            camera.interrupt()
            drawn = [re.search(r"frame \d+/(\d+) has [1-9]", line) for line in camera.said]
            number = [int(found[1]) for found in drawn if found][-1]
            saved = picture_of(site.folder / f"{name.replace('/', '-')}-boxes.jpg")
            original = frame_of_the_video(number)
            assert saved.shape == original.shape
            green = is_green(saved)
            near = np.zeros(green.shape, np.uint8)
            for box in pedestrian_hog.detect(original, pedestrian_hog.WEAK):
                left, top = round(box.x), round(box.y)
                corner = (round(box.x + box.width), round(box.y + box.height))
                cv2.rectangle(near, (left, top), corner, 1, 21)
            share = float((green & (near > 0)).sum() / green.sum())
            assert share > 0.7, f"{share:.2f} of what is drawn in frame {number} is near a person"


def test_a_camera_ends_with_its_video_or_when_its_time_is_over(site: Site) -> None:
    """By itself, and well."""
    short = site.folder / "short.avi"
    cut = ["ffmpeg", "-v", "error", "-nostdin", "-i", str(VIDEO), "-t", "0.5", "-c", "copy", str(short)]
    subprocess.run(cut, check=True)
    with site.camera("dock/cam1", video=short) as camera:
        camera.ends()
    with site.camera("dock/cam1", "--seconds", "0.5") as camera:
        camera.ends()


def test_two_subscriptions_of_one_program(site: Site) -> None:
    """People are counted, and pictures are saved meanwhile."""
    with site.camera("dock/cam1", "--seconds", "600"):
        with site.example("two_subscriptions.py", "dock/*", "--seconds", "600", "--every", "1") as program:
            program.waits_to_say(r"dock/cam1: [1-9]\d* people at ")
            deadline = time.monotonic() + HANG_SECONDS
            while len(saved := sorted(site.folder.glob("dock-cam1-*.jpg"))) < 3:
                assert time.monotonic() < deadline, program.said
                time.sleep(0.1)
            assert picture_of(saved[0]).shape[2] == 3
        with site.example("two_subscriptions.py", "dock/*", "--seconds", "1") as program:
            assert program.ends().endswith("the time is over\n")


def test_a_late_application_is_told_so_and_what_helps(site: Site) -> None:
    """The state is its own; with a bound that has room for its slowness the contract is kept."""
    with site.camera("dock/cam1", "--seconds", "600"), site.example("late.py", "dock/cam1") as program:
        said = program.ends()
    late = said.index("dock/cam1: application_late: ")
    advice = said.index("Use a faster detector")
    assert late < advice < said.rindex("dock/cam1: ok: "), said


def test_who_looks_on_changes_nothing_for_a_contract(site: Site, tmp_path: Path) -> None:
    """Both get the same frames, and none of them is an original."""
    known = json.loads((Path(mez.__file__).parent / "profiles" / "pedestrian-hog-vtest.json").read_text())
    # On an idle link the contract alone would have originals, where its profile has them.
    known["rungs"] = [rung for rung in known["rungs"] if rung["rung"] != "original"]
    known["frontier"] = [rung for rung in known["frontier"] if rung != "original"]
    profile = tmp_path / "without-originals.json"
    profile.write_text(json.dumps(known))
    contract = {"latency_ms": 1000, "accuracy": 0.9, "profile": profile}
    rungs: dict[str, str] = {}
    looked: list[str] = []
    with (
        site.camera("dock/cam1", "--seconds", "600"),
        mez.subscribe("dock/*", edge=site.socket, timeout=60, **contract) as frames,  # type: ignore[arg-type]
    ):
        next(frame for frame in frames if frame.rung != "original")
        with site.example("looker.py", "dock/*", "--frames", "30") as looker:
            for frame in frames:
                rungs[str(frame.id)] = frame.rung
                looked = [line for line in looker.said if line.startswith("dock/cam1")]
                if len(looked) == 30:
                    break
            looker.ends()
    seen = [re.search(r"frame (\S+), (\S+) of 768x576", line) for line in looked]
    both = [(found[2], rungs[found[1]]) for found in seen if found and found[1] in rungs]
    assert len(both) >= 10, looked
    assert all(one == other for one, other in both), both
    assert "original" not in rungs.values()
    assert picture_of(site.folder / "dock-cam1.jpg").shape[1] <= 768


def test_a_network_camera_is_recorded_and_exported_with_boxes(tmp_path: Path) -> None:
    """As a video, with what was found beside it."""
    site = Site(tmp_path)
    site.run("store", "key")
    port = free_port()
    site.environment |= {"MEZ_EDGE_LISTEN": f"127.0.0.1:{port}", "MEZ_EDGE": site.socket}
    with network_camera(tmp_path, VIDEO) as address:
        words = (address, "recording", "15", f"127.0.0.1:{port}")
        with Program(site, EXAMPLES / "record_rtsp.sh", *words) as program:
            said = program.ends()
    assert re.search(r"gate/cam1: [1-9]\d* people", said), said
    frames = frames_of(tmp_path / "recording" / "gate.mp4")
    assert len(frames) >= 20 and frames[0].shape == (576, 768, 3), said
    assert not any(is_green(frame).sum() > 1000 for frame in frames)

    lines = (tmp_path / "recording" / "gate.mp4.jsonl").read_text().splitlines()
    results = [line for line in map(json.loads, lines) if line.get("detections")]
    assert results, lines
    for result in results:
        assert (result["width"], result["height"]) == (768, 576), result
        assert all(len(found["xyxy"]) == 4 for found in result["detections"]), result
    drawn = frames_of(tmp_path / "recording" / "gate-boxes.mp4")
    assert len(drawn) == len(frames)
    assert any(is_green(frame).sum() > 1000 for frame in drawn)


def code_lines(file: Path) -> int:
    """Lines of a program, without blank ones, comments and documentation."""
    text = file.read_text()
    if file.suffix != ".py":
        lines = (line.strip() for line in text.splitlines())
        return sum(1 for line in lines if line and not line.startswith("#"))
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    empty |= {tokenize.ENDMARKER}
    counted = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in empty
        for line in range(token.start[0], token.end[0] + 1)
    }
    documented = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            said = node.body[0]
            assert said.end_lineno is not None
            counted -= set(range(said.lineno, said.end_lineno + 1))
    return len(counted)


def test_the_page_counts_the_lines_of_each_program() -> None:
    """And leaves none out."""
    page = (EXAMPLES / "README.md").read_text()
    told = {
        name: int(lines) for name, lines in re.findall(r"^\| \[`(\S+)`\].* (\d+) \|$", page, re.MULTILINE)
    }
    programs = [path for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")]
    assert told == {path.name: code_lines(path) for path in programs}
