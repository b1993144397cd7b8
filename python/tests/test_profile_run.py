"""A profile from beginning to end, on a small video made here, with applications that need no model."""

import contextlib
import itertools
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest

import mez
from mez import _detections, _native
from mez.apps.boxes import Box
from mez.errors import ArgumentError
from mez.profile import app as apps
from mez.profile import coding, document, footage, main
from mez.profile.crew import Crew, Job
from mez.profile.errors import AppError, ProfileError, RungError, VideoError
from mez.profile.families import NAMES, family
from mez.profile.make import make
from mez.profile.measure import add_noise, measure
from mez.profile.record import record
from mez.profile.report.examples import examples
from mez.profile.score import UndefinedAccuracyError
from mez.profile.store import Store

Image = npt.NDArray[np.uint8]

WIDTH, HEIGHT, FRAMES = 160, 120, 40

APP = '''
import numpy as np

def bright(image):
    """The white square, by its columns and rows."""
    seen = image.min(axis=2) > 150
    if not seen.any():
        return []
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    share = seen[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1].mean()
    box = (columns[0], rows[0], columns[0] + len(columns), rows[0] + len(rows), share)
    return [box] if len(columns) > 1 and len(rows) > 1 else []

def nothing(image):
    return []

def raises(image):
    raise RuntimeError("no weights")

def nan(image):
    return [(0, 0, 5, 5, float("nan"))]

def outside(image):
    return [(10_000, 0, 10_005, 5, 0.9)]

def shapes(image):
    return [(1, 2, 3)]

def none(image):
    return None

def empty(image):
    return [(3, 3, 3, 8, 0.9)]

not_a_function = 3
'''


def picture(number: int) -> Image:
    """Return a frame: a white square that wanders over a scene with some texture."""
    texture = np.random.default_rng(7).integers(20, 90, size=(HEIGHT, WIDTH, 3), dtype=np.uint8)
    image = np.asarray(cv2.blur(texture, (5, 5)), dtype=np.uint8)
    left, top = 8 + number * 2, 30 + number % 7
    image[top : top + 30, left : left + 24] = 245
    return image


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures."""
    folder = tmp_path_factory.mktemp("video")
    for number in range(FRAMES):
        cv2.imwrite(str(folder / f"{number:03}.png"), picture(number))
    return folder


@pytest.fixture(scope="module")
def app_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Applications, good and bad."""
    path = tmp_path_factory.mktemp("apps") / "squares.py"
    path.write_text(APP)
    return path


class Quiet:
    """Hears everything and shows nothing."""

    def __init__(self) -> None:
        self.frames = 0

    def expect(self, frames: int) -> None:
        """Hear how many."""

    def done(self, frames: int, what: str) -> None:
        """Count."""
        self.frames += frames

    def say(self, text: str) -> None:
        """Hear."""


def test_the_code_that_runs_live_makes_the_frames(video: Path, tmp_path: Path) -> None:
    """Bytes that decode, of the size that the rung says, in every family; and the budget holds."""
    scene = footage.read(video)
    for rung, size in [
        ("original", (160, 120)),
        ("jpeg/w80/q60/gray", (80, 60)),
        ("tiles/q80/420", (160, 120)),
        ("h264/w106/q30", (106, 80)),
        ("knobs/s50/hsv/blur5/png", (80, 48)),
    ]:
        shown = list(coding.code(rung, scene, range(6)))
        images = [one.image for one in shown[:6]]
        assert all(image is not None and image.shape == (size[1], size[0], 3) for image in images), rung
        assert all(one.size_bytes for one in shown)
    small = sum(one.size_bytes or 0 for one in coding.code("h264/q40", scene, range(FRAMES)))
    large = sum(one.size_bytes or 0 for one in coding.code("jpeg/q95/444", scene, range(FRAMES)))
    assert small < large / 5, "the white square is all that moves"
    stream = _native.Stream("h264/q18")
    applied = set()
    for number in range(10):
        coded = stream.encode(picture(number), number * 100_000_000, 1500)
        assert coded.outcome == "does_not_fit" or coded.size_bytes <= 1500
        applied.add(coded.rung)
    assert coded.outcome == "frame"
    assert not coded.independent
    assert len(applied) > 1, "the budget took coarser ones now and then"


def test_frames_left_out_are_not_sent_and_the_last_one_stays(video: Path, app_file: Path) -> None:
    """Frame skip: a third of the frames, each shown three times."""
    scene, app = footage.read(video), apps.load(f"{app_file}:bright")
    every = measure("jpeg/q90/420", scene, app, range(12))
    third = measure("jpeg/q90/420/skip2", scene, app, range(12))
    assert len(third.size_bytes) == -(-FRAMES // 3)
    assert third.frames == FRAMES
    assert third.found[4] == third.found[3] == every.found[3] != every.found[4]
    still = measure("knobs/diff72/png", scene, app, range(12))
    assert len(still.size_bytes) == 1, "nothing changes by 72 %"


def test_what_another_encoder_of_h264_makes_is_measured_apart(
    video: Path, app_file: Path, tmp_path: Path
) -> None:
    """And one that this build has not is refused before anything is measured."""
    scene, app = footage.read(video), apps.load(f"{app_file}:bright")
    assert Store(tmp_path, scene, app, "x264").folder != Store(tmp_path, scene, app).folder
    with pytest.raises(ArgumentError, match="openh264 or x264"):
        Crew(Job((video,), f"{app_file}:bright", None, None, tmp_path, h264_encoder="x265"), 1)


def test_an_unknown_rung_and_an_unknown_family_are_named(video: Path) -> None:
    """Also a rung of a codec that does not exist here."""
    scene = footage.read(video)
    with pytest.raises(RungError, match=r"av1/q30.*names begin with"):
        list(coding.code("av1/q30", scene, [0]))
    with pytest.raises(RungError, match="--families takes h264"):
        family("mpeg2", 640)
    for name in NAMES:
        one = family(name, 768)
        rungs = [one.rung(point) for point in one.points()]
        assert len(set(rungs)) == len(one) == len(rungs)
        for rung in rungs[:: max(1, len(rungs) // 40)]:
            _native.rung_facts(rung, 768, 576)


def test_pictures_of_all_kinds_become_frames(tmp_path: Path) -> None:
    """Grey, with alpha, of 16 bits, of odd sides: as they look; and what cannot be used is named."""

    def folder(name: str, *images: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]) -> Path:
        path = tmp_path / name
        path.mkdir()
        for number, image in enumerate(images):
            cv2.imwrite(str(path / f"{number}.png"), image)
        return path

    colour = picture(3)[:101, :133]
    grey = np.asarray(cv2.cvtColor(colour, cv2.COLOR_BGR2GRAY), dtype=np.uint8)
    deep = colour.astype(np.uint16) * 257
    alpha = np.dstack([colour, np.full(colour.shape[:2], 9, dtype=np.uint8)])
    scene = footage.read(folder("kinds", colour, grey, deep, alpha))
    assert (scene.width, scene.height, len(scene.jpegs)) == (133, 101, 4)
    for place in (2, 3):
        difference = np.abs(scene.image(place).astype(int) - colour.astype(int)).mean()
        assert difference < 3, place
    for rung in ("h264/q30", "tiles/q80/420", "jpeg/w66/q50/gray"):
        assert len(list(coding.code(rung, scene, range(4)))) == 4
    with pytest.raises(VideoError, match=r"frame 1 of .* has 160x120"):
        footage.read(folder("sizes", colour, picture(0)))
    damaged = folder("damaged", colour)
    (damaged / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    with pytest.raises(VideoError, match=r"1\.png cannot be decoded"):
        footage.read(damaged)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.avi").write_text("no video")
    for name, reason in [
        ("empty", "no pictures"),
        ("text.avi", "opened as a video"),
        ("no", "there is no video"),
    ]:
        with pytest.raises(VideoError, match=reason) as caught:
            footage.read(tmp_path / name)
        assert caught.value.remedy


def test_long_videos_are_taken_in_pieces(tmp_path: Path) -> None:
    """Frames that follow each other, from all over; chains begin anew with each piece."""
    path = tmp_path / "long.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 5.0, (64, 48))
    for number in range(300):
        writer.write(np.full((48, 64, 3), number % 256, dtype=np.uint8))
    writer.release()
    scene = footage.read(path, tmp_path, frames_max=100)
    assert (len(scene.jpegs), scene.piece_frames, scene.frames_per_second) == (100, 50, 5.0)
    assert not scene.continuous
    assert scene.pieces([3, 99]) == [range(50), range(50, 100)]
    assert scene.pieces([99]) == [range(50, 100)]
    assert abs(int(scene.image(50).mean()) - 250) < 6, "the second piece is the end of the video"
    assert footage.read(path, tmp_path, frames_max=100) == scene, "from the cache"
    assert scene.sampled(4) == [12, 37, 62, 87]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", r"raised RuntimeError on frame 0 as published \(line \d+ of .*\): no weights"),
        ("nan", "without a score"),
        ("outside", r"a box at \(10000, 0\) .* outside the image of 160x120"),
        ("shapes", r"returned \[\(1, 2, 3\)\] on frame"),
        ("none", "returned None on frame"),
        ("empty", "a box of 0 x 5 pixels"),
    ],
)
def test_an_application_that_answers_nonsense_is_named(
    video: Path, app_file: Path, tmp_path: Path, name: str, reason: str
) -> None:
    """With what it returned, on which frame, and what is expected."""
    with (
        Crew(Job((video,), f"{app_file}:{name}", None, None, tmp_path), 1) as crew,
        pytest.raises(AppError, match=reason) as caught,
    ):
        make(crew, [], Quiet(), FRAMES)
    assert f"squares.py:{name}" in str(caught.value)
    assert caught.value.remedy


def test_applications_that_do_not_exist_are_named(app_file: Path, tmp_path: Path) -> None:
    """Modules, functions, files and models."""
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    for spec, reason in [
        ("yolo", "--app takes pedestrian-hog, faces"),
        ("no_such_module:detect", "cannot be imported"),
        (f"{tmp_path}/no.py:detect", "no file"),
        (f"{tmp_path}/broken.py:detect", "nothing_of_that_name"),
        (f"{app_file}:missing", "no function missing"),
        (f"{app_file}:not_a_function", "no function not_a_function"),
    ]:
        with pytest.raises(AppError, match=reason):
            apps.load(spec)
    with pytest.raises(AppError, match="at most --strong"):
        apps.load("faces", strong=0.2, weak=0.4)


def test_boxes_come_in_many_forms(app_file: Path) -> None:
    """Tuples, arrays, dictionaries, objects; weak ones are left out, and all are in pixels of the camera."""
    app = apps.load(f"{app_file}:bright", strong=0.5, weak=0.3)
    image = np.zeros((60, 80, 3), dtype=np.uint8)
    forms = [
        [(1, 2, 11, 22, 0.9), (0, 0, 9, 9, 0.1)],
        ((1, 2, 11, 22, score) for score in (0.9, 0.1)),
        np.array([[1, 2, 11, 22, 0.9], [0, 0, 9, 9, 0.1]]),
        [{"x": 1, "y": 2, "width": 10, "height": 20, "score": score} for score in (0.9, 0.1)],
        [Box(1, 2, 10, 20, score) for score in (0.9, 0.1)],
        mez.Detections([(1, 2, 11, 22), (0, 0, 9, 9)], scores=[0.9, 0.1]),
    ]
    for form in forms:
        answering = apps.App("it", "", app.thresholds, lambda image, form=form: form, False)
        assert answering.find(image, (160, 120), "a frame") == [Box(2, 4, 20, 40, 0.9)]
    for kind, label in [(np.float32(3.0), "3"), (3, "3"), ("gate", "gate")]:
        labelled = apps.App(
            "it", "", app.thresholds, lambda image, kind=kind: [(1, 2, 11, 22, 0.9, kind)], False
        )
        assert labelled.find(image, (80, 60), "a frame")[0].label == label


def test_one_function_serves_profiles_and_replies(app_file: Path) -> None:
    """What is a box to one is the same box to the other: rows are corners everywhere."""
    image = picture(3)
    app = apps.load(f"{app_file}:bright")
    (box,) = app.find(image, (WIDTH, HEIGHT), "a frame")
    replied = _detections.of(app.function(image))
    assert replied is not None
    assert replied.xyxy.tolist() == [[box.x, box.y, box.x + box.width, box.y + box.height]]


def test_without_anything_to_find_there_is_no_accuracy(video: Path, app_file: Path, tmp_path: Path) -> None:
    """It is undefined, not perfect and not zero."""
    with (
        Crew(Job((video,), f"{app_file}:nothing", None, None, tmp_path), 1) as crew,
        pytest.raises(UndefinedAccuracyError, match="undefined"),
    ):
        make(crew, [], Quiet(), FRAMES)


def test_too_few_frames_are_refused(video: Path, app_file: Path, tmp_path: Path) -> None:
    """Those asked for, and those there are."""
    with (
        Crew(Job((video,), f"{app_file}:bright", None, None, tmp_path), 1) as crew,
        pytest.raises(ProfileError, match=r"12 frames are too few .* raise --frames"),
    ):
        make(crew, [], Quiet(), 12)
    short = tmp_path / "short"
    short.mkdir()
    cv2.imwrite(str(short / "0.png"), picture(0))
    with (
        Crew(Job((short,), f"{app_file}:bright", None, None, tmp_path), 1) as crew,
        pytest.raises(ProfileError, match="short is too short"),
    ):
        make(crew, [], Quiet(), 120)


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
    with pytest.raises(VideoError, match=r"wide has 200x120 pixels, and first has 160x120; .* one size"):
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
        pytest.raises(UndefinedAccuracyError, match=r"frames that it searched of night, so accuracy"),
    ):
        make(crew, [], Quiet(), FRAMES, ["h264/q30"])


def test_every_profile_ends_with_finer_rungs_and_the_original(
    video: Path, tmp_path: Path, app_file: Path
) -> None:
    """A search stops where more bytes bring nothing. Another light asks for more than that."""
    with Crew(Job((video,), f"{app_file}:bright", None, None, tmp_path), 1) as crew:
        made = make(crew, [family("h264", WIDTH)], Quiet(), FRAMES)
    names = {rung.rung for rung in made.profile.rungs}
    assert {"h264/q18", "original"} <= names
    original = made.profile.get("original")
    assert original is not None
    assert original.accuracy_normalised.value == 1.0
    assert original.bytes.mean == max(rung.bytes.mean for rung in made.profile.rungs)


def test_the_report_of_a_profile_in_which_only_the_original_is_good_shows_it(
    video: Path, tmp_path: Path, app_file: Path
) -> None:
    """In the dark no rung keeps all that the original does, so the original is one of the best."""
    dim = tmp_path / "dim.py"
    dim.write_text(APP.replace("> 150", "> 244"))
    with Crew(Job((video,), f"{dim}:bright", None, None, tmp_path), 1) as crew:
        made = make(crew, [], Quiet(), FRAMES, ["h264/w32/q50"])
        shown = examples(made, crew.lead.footage, crew.lead.app.thresholds)
    assert [rung.rung for rung in made.profile.frontier] == ["h264/w32/q50", "original"]
    assert [example.title.partition(":")[0] for example in shown] == ["as published", "h264/w32/q50"]


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


def test_an_interrupted_profile_goes_on_where_it_was(
    video: Path, app_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle: what was measured is not measured again, and the result is that of one go."""

    def run(cache: Path, stop_after: int | None) -> tuple[bytes | None, int]:
        searched = 0

        def counting(self: apps.App, *arguments: object) -> list[Box]:
            nonlocal searched
            searched += 1
            if searched == stop_after:
                raise KeyboardInterrupt
            return find(self, *arguments)  # type: ignore[arg-type]

        find = apps.App.find
        with monkeypatch.context() as patch:
            patch.setattr(apps.App, "find", counting)
            with Crew(Job((video,), f"{app_file}:bright", None, None, cache), 1) as crew:
                try:
                    made = make(crew, [family("tiles", WIDTH)], Quiet(), FRAMES)
                except KeyboardInterrupt:
                    return None, searched
        comparable = re.sub(rb'_ms_[a-z0-9]+": [0-9.e-]+', b"", made.profile.to_bytes())
        return comparable, searched

    whole, all_searched = run(tmp_path / "a", None)
    nothing, before = run(tmp_path / "b", all_searched // 2)
    assert nothing is None
    resumed, after = run(tmp_path / "b", None)
    assert resumed == whole
    assert after < all_searched * 0.7
    assert before + after < all_searched * 1.2
    damaged = next((tmp_path / "b").glob("found-*/*.json"))
    damaged.write_text("{")
    again, searched = run(tmp_path / "b", None)
    assert again == whole
    assert 0 < searched <= 2 * FRAMES, "what is damaged is measured again"


def test_the_command_makes_shows_and_compares(
    video: Path, app_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A profile that can be read, a report that needs nothing else, and pictures."""
    out = tmp_path / "squares.json"
    words = ["run", "--app", f"{app_file}:bright", "--video", str(video), "--families", "h264,jpeg"]
    words += ["--frames", "32", "--workers", "2", "--out", str(out), "--cache", str(tmp_path / "cache")]
    assert main([*words, "--rungs", "h264/w80/q20"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "the detector's own ceiling" in shown
    assert "of the frames that measuring everything takes" in shown
    profile = document.load(out)
    assert profile.to_bytes() == out.read_bytes(), "reading and writing change nothing"
    assert profile.families == ["h264", "jpeg", "original"]
    assert profile.about.made_by.endswith("H.264 by openh264"), "the bytes of its rungs depend on it"
    assert profile.get("h264/w80/q20") is not None
    for rung in profile.rungs:
        assert (rung.camera_ms_mean is None) == (rung.rung == "original"), (
            "an original costs the camera nothing"
        )
        assert rung.frames_scored == 32
    best, cheapest = profile.frontier[-1], profile.cheapest(0.9)
    assert best.accuracy_normalised.value > 0.95
    assert cheapest is not None and cheapest.family == "h264"

    page = (tmp_path / "squares-report" / "index.html").read_text()
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert page.count("data:image/jpeg;base64,") >= 2
    data = json.loads(re.search(r"const data = (\{.*\});", page)[1])  # type: ignore[index]
    assert {rung["rung"] for rung in data["rungs"]} == {rung.rung for rung in profile.rungs}
    svg = (tmp_path / "squares-report" / "frontier.svg").read_text()
    assert "h264" in svg and "jpeg" in svg
    drawn = cv2.imread(str(tmp_path / "squares-report" / "frontier.png"))
    assert drawn is not None and drawn.std() > 5

    assert main(["show", str(out), "--report", str(tmp_path / "again")]) == 0
    assert profile.name in capsys.readouterr().out
    assert (tmp_path / "again" / "index.html").exists()
    copy = tmp_path / "copy.json"
    copy.write_bytes(out.read_bytes())
    picture_file = tmp_path / "both.svg"
    assert main(["compare", str(out), str(copy), "--picture", str(picture_file)]) == 0
    assert picture_file.exists()
    assert cheapest.rung in capsys.readouterr().out


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a line, with what to do, and without a traceback."""
    text = tmp_path / "text.json"
    text.write_text("{}")
    for words, reason in [
        (["run", "--app", "faces", "--video", str(tmp_path / "no.mp4")], "there is no video"),
        (["show", str(tmp_path / "no.json")], "cannot be read"),
        (["show", str(text)], "lacks 'format'"),
        (["compare", str(text), str(text)], "lacks 'format'"),
        (["import", str(tmp_path / "no.csv")], "cannot be read"),
    ]:
        assert main(words) == 1
        told = capsys.readouterr().err
        assert told.startswith("mez profile: ") and reason in told, told
        assert "Traceback" not in told
    finished = subprocess.run(
        [sys.executable, "-m", "mez", "profile", "--help"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0
    assert "mez profile run --app" in finished.stdout


def test_noise_is_one_grey_level() -> None:
    """And the same every time."""
    image = picture(0)
    noisy = add_noise(image, 3)
    difference = noisy.astype(int) - image.astype(int)
    assert set(np.unique(difference)) == {-1, 0, 1}
    assert (add_noise(image, 3) == noisy).all()
    assert (add_noise(image, 4) != noisy).any()


def test_without_families_the_rungs_asked_for_are_measured(
    video: Path, app_file: Path, tmp_path: Path
) -> None:
    """And no others but the original: the ceiling's rung says what a floor may be, not what to send."""
    rungs = ["h264/q30", "jpeg/w80/q60/gray"]
    with Crew(Job((video,), f"{app_file}:bright", None, None, tmp_path), 1) as crew:
        made = make(crew, [], Quiet(), FRAMES, rungs)
    assert sorted(rung.rung for rung in made.profile.rungs) == [*rungs, "original"]
    assert made.profile.about.ceiling_jpeg is not None


def test_frames_that_nobody_looks_at_change_nothing(video: Path) -> None:
    """What is seen of a chain is the same whether the edge makes stills of all of it or of one in five."""
    scene = footage.read(video)
    for rung in ("h264/q30", "tiles/q80/420"):
        whole = {one.place: one.image for one in coding.code(rung, scene, range(20))}
        some = {one.place: one.image for one in coding.code(rung, scene, range(4, 20, 5))}
        for place in range(4, 20, 5):
            assert np.array_equal(whole[place], some[place]), (rung, place)  # type: ignore[arg-type]
        assert some[5] is None
