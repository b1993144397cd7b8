"""What a profile measures on: frames of videos and pictures, made as the live code makes them."""

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from mez import _native
from mez.errors import ArgumentError
from mez.profile import app as apps
from mez.profile import coding, footage
from mez.profile.crew import Crew, Job
from mez.profile.errors import RungError, VideoError
from mez.profile.families import NAMES, family
from mez.profile.measure import add_noise, measure
from mez.profile.store import Store
from tests.profiles import FRAMES, picture


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
    with pytest.raises(VideoError, match=r"1\.png is damaged or not a picture"):
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


def test_noise_is_one_grey_level() -> None:
    """And the same every time."""
    image = picture(0)
    noisy = add_noise(image, 3)
    difference = noisy.astype(int) - image.astype(int)
    assert set(np.unique(difference)) == {-1, 0, 1}
    assert (add_noise(image, 3) == noisy).all()
    assert (add_noise(image, 4) != noisy).any()


def test_frames_that_nobody_looks_at_change_nothing(video: Path) -> None:
    """What is seen of a chain is the same whether the edge makes stills of all of it or of one in five."""
    scene = footage.read(video)
    for rung in ("h264/q30", "tiles/q80/420"):
        whole = {one.place: one.image for one in coding.code(rung, scene, range(20))}
        some = {one.place: one.image for one in coding.code(rung, scene, range(4, 20, 5))}
        for place in range(4, 20, 5):
            assert np.array_equal(whole[place], some[place]), (rung, place)  # type: ignore[arg-type]
        assert some[5] is None
