"""What an application sees of each encoding, and which it may ask for."""

import contextlib
import pickle
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import mez
from mez import _native
from tests.support import deliver, number_of, picture, profile_of, video


def decode(encoding: str, payload: bytes, width: int = 64, height: int = 48) -> NDArray[np.uint8]:
    """Decode as `Frame.image` does."""
    image = np.empty((height, width, 3), np.uint8)
    _native.decode_into(encoding, payload, image)
    return image


def png(image: NDArray[np.uint8] | NDArray[np.uint16]) -> bytes:
    """Encode as PNG."""
    return cv2.imencode(".png", image)[1].tobytes()


def test_every_still_is_decoded_to_colour() -> None:
    """Raw pixels and PNG to the last bit; grey in three channels, without alpha, 16 bits as 8."""
    colour = picture(20)
    grey = np.ascontiguousarray(colour[:, :, 1])
    three = np.dstack([grey] * 3)
    alpha = np.dstack([colour, np.full((48, 64), 9, np.uint8)])
    for encoding, payload, expected in [
        ("bgr8", colour.tobytes(), colour),
        ("gray8", grey.tobytes(), three),
        ("png", png(colour), colour),
        ("png", png(grey), three),
        ("png", png(alpha), colour),
        ("png", png(colour.astype(np.uint16) * 257), colour),
    ]:
        assert np.array_equal(decode(encoding, payload), expected), encoding
    assert np.abs(decode("jpeg", _native.encode_jpeg(colour, 95)).astype(int) - colour).max() <= 3
    odd = picture(7, 33, 17)
    assert np.array_equal(decode("png", png(odd), 33, 17), odd)


@pytest.mark.parametrize(
    ("encoding", "payload", "reason"),
    [
        ("jpeg", b"\xff\xd8", "cut off|damaged"),
        ("jpeg", _native.encode_jpeg(picture(1, 32, 32), 80), "32x32"),
        ("png", b"\x89PNG\r\n\x1a\n nothing", "PNG is damaged"),
        ("png", png(picture(1, 32, 32)), "32x32 pixels, not 64x48"),
        ("bgr8", bytes(10), "10 bytes"),
        ("gray8", bytes(64 * 48 + 1), "3073 bytes are more than the 3072"),
        ("h264", bytes(10), "need others"),
        ("tiles", bytes(10), "need others"),
    ],
)
def test_what_cannot_be_decoded_is_named(encoding: str, payload: bytes, reason: str) -> None:
    """With what is wrong, and never as a picture."""
    with pytest.raises(mez.ImageError, match=reason):
        decode(encoding, payload)


def test_an_application_says_which_encodings_it_takes(edge: mez.Edge) -> None:
    """Stills that it takes come; a list without one, or with something unknown, is refused at once."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", accept=["jpeg", "h264"]) as frames:
        assert deliver(camera, frames).encoding == "jpeg"
    with pytest.raises(mez.ArgumentError, match="accept jpeg as well") as caught:
        edge.subscribe("cam", accept=["h264", "tiles"])
    assert caught.value.field == "accept"
    with pytest.raises(mez.ArgumentError, match='"avif"') as caught:
        edge.subscribe("cam", accept=["avif"])
    assert caught.value.field == "accept"
    with pytest.raises(mez.ArgumentTypeError, match="list of texts"):
        edge.subscribe("cam", accept="jpeg")


def test_video_comes_as_video_and_is_decoded_here(edge: mez.Edge, tmp_path: Path) -> None:
    """For one program; beside it another wants stills, and gets the edge's of the same frames."""
    profile = profile_of(64, 48)
    profile["rungs"] = [
        {
            "rung": "h264/q24",
            "bytes": {"mean": 900, "p05": 400, "p50": 900, "p95": 3000},
            "accuracy_normalised": {"value": 0.95},
        }
    ]
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", accuracy=0.9, latency_ms=1000, profile=profile) as video,
        edge.subscribe("cam", accuracy=0.9, latency_ms=1000, profile=profile, accept=[]) as stills,
    ):
        camera.wait_connected(timeout=30)
        pictures: list[mez.Frame] = []
        came = 0
        last = None
        for _ in range(600):
            camera.send(picture(camera.published % 90))
            try:
                frame = video.next(timeout=0.1)
            except mez.WaitTimeoutError:
                continue
            assert abs(number_of(frame.image) - frame.sequence % 90) <= 1
            if last is not None:
                assert frame.sequence == last + 1 + frame.skipped_count
            last = frame.sequence
            came += 1
            # Until the camera has the profile, its frames are of the ladder that it has without.
            if frame.encoding == "h264" and (pictures or frame.rung == "h264/q24"):
                assert frame.rung == "h264/q24"
                assert frame.payload.nbytes == frame.link_bytes, "what crossed the link came here"
                pictures.append(frame)
                if len(pictures) == 20:
                    break
        assert len(pictures) == 20, f"{came} frames came, {len(pictures)} of them as video"
        copy = pickle.loads(pickle.dumps(frame))
        assert np.array_equal(copy.image, frame.image), (
            "another process has no decoder with the frames before"
        )
        frame.save(tmp_path / "frame.png")
        saved = cv2.imread(str(tmp_path / "frame.png"))
        assert saved is not None and np.array_equal(saved, frame.image)
        beside = stills.next(timeout=5)
        assert (beside.encoding, beside.rung) == ("jpeg", "h264/q24")
        assert abs(number_of(beside.image) - beside.sequence % 90) <= 1


class _Counted:
    """A picture of video that counts how often pixels are made of it."""

    def __init__(self, picture: _native.Picture) -> None:
        self._picture = picture
        self.conversions = 0

    def show_into(self, image: NDArray[np.uint8]) -> None:
        self.conversions += 1
        self._picture.show_into(image)


def test_pixels_are_made_of_what_is_looked_at(edge: mez.Edge) -> None:
    """A program that looks at every third frame has all of them decoded, and a third converted, each once."""
    contract = {"accuracy": 0.9, "latency_ms": 5000, "profile": profile_of(64, 48, rung="h264/q24")}
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", deliver="every", **contract) as frames,
    ):
        pictures: list[_Counted] = []
        for number, frame in zip(range(30), video(camera, frames), strict=False):
            assert frame._picture is not None
            counted = _Counted(frame._picture)
            pictures.append(counted)
            frame._picture = counted  # type: ignore[assignment]
            if number % 3 == 2:
                assert abs(number_of(frame.image) - frame.sequence % 90) <= 1
                assert frame.image is frame.image and frame.rgb.shape == (48, 64, 3)
                assert frame._picture is None, "its memory is given back"
    assert [counted.conversions for counted in pictures] == [0, 0, 1] * 10


def test_programs_of_a_host_share_pictures(edge: mez.Edge) -> None:
    """What one keeps stays as it was, and takes nothing from it or from the other."""
    contract = {"accuracy": 0.9, "latency_ms": 5000, "profile": profile_of(64, 48, rung="h264/q24")}
    kept: list[mez.Frame] = []
    shared = [0, 0]
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", **contract) as keeps,
        edge.subscribe("cam", **contract) as looks,
    ):
        for frame in video(camera, keeps):
            assert frame.payload.nbytes == frame.link_bytes, "what crossed the link came here"
            shared[0] += frame._picture is not None and frame._picture.shared
            kept.append(frame)
            with contextlib.suppress(mez.WaitTimeoutError):
                other = looks.next(timeout=1)
                shared[1] += other._picture is not None and other._picture.shared
                assert abs(number_of(other.image) - other.sequence % 90) <= 1
            if min(shared) == 12:
                break
    for frame in kept:
        assert abs(number_of(frame.image) - frame.sequence % 90) <= 1
    assert min(shared) == 12, shared
