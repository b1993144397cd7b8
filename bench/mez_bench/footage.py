"""Provides real video for experiments that need pixels, and profiles of rungs for it."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mez_bench.children import mez
from mez_bench.errors import ExperimentError
from mez_bench.run import CACHE, ROOT, Run

VIDEO: Final = ROOT / ".cache" / "video" / "vtest.avi"

SIZE: Final = (1280, 720)
FPS: Final = 15

# Plays the video of 10 frames per second at `FPS`, so that every frame differs from the one before.
_SPEED: Final = f"setpts=PTS*10/{FPS}"
_FILTER: Final = (
    f"{_SPEED},scale={SIZE[0]}:{SIZE[1]}:force_original_aspect_ratio=increase,crop={SIZE[0]}:{SIZE[1]}"
)

X264: Final = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-preset", "veryfast", "-bf", "0")

OPENH264: Final = "openh264"

H264_BITS_PER_SECOND: Final = 1_500_000
"""The rate of H.264 sources in 720p."""

QUANTISERS: Final = range(24, 52)
"""Quantisers for the source of openh264, the finest first."""

BRANDS: Final[Mapping[str, Sequence[str]]] = {
    "x264": ("-g", f"{2 * FPS}"),
    "slices": ("-g", f"{2 * FPS}", "-x264-params", "slices=4:ref=3"),
    "long": ("-g", f"{20 * FPS}", "-sc_threshold", "0"),
    OPENH264: ("--key-frame-interval", f"{2 * FPS}", "--layers", "2"),
}
"""Encoder settings of H.264 sources: x264 with a key frame every 2 s; the same with four slices per picture;
x264 with a key frame every 20 s; openh264 with two temporal layers, the upper of which no frame refers to."""

LADDERS: Final = {
    "jpeg": (
        ("jpeg/w640/q50/420", 22_000, 0.91),
        ("jpeg/w960/q60/420", 55_000, 0.94),
        ("jpeg/w1280/q75/420", 130_000, 0.98),
    ),
    "h264": (
        ("h264/w640/q34", 4_000, 0.91),
        ("h264/w960/q32", 9_000, 0.94),
        ("h264/w1280/q30", 18_000, 0.98),
    ),
}
"""Rungs for frames of `SIZE`: name, bytes, accuracy. The accuracies are not measured: they affect only which
rung is chosen, not what a frame costs. Brokers learn the real sizes."""


def demo_video() -> Path:
    """Return the demo's video; fetched once."""
    if not VIDEO.exists():
        fetched = subprocess.run([ROOT / "tools" / "demo-video"], capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            raise ExperimentError(f"cannot fetch the demo's video: {fetched.stderr.strip()}")
    return VIDEO


def motion_jpeg(run: Run) -> str:
    """Return the demo's video as Motion JPEG in 720p at 15 frames per second; made once."""
    return _made(run, "vtest-720p.mkv", _FILTER, "-c:v", "mjpeg", "-q:v", "3", "-pix_fmt", "yuvj420p")


def h264(run: Run) -> str:
    """Return the demo's video as 720p H.264 of 1.5 Mbit/s: a key frame every 2 s, no B-frames; made once."""
    most, buffer = f"{H264_BITS_PER_SECOND}", f"{H264_BITS_PER_SECOND // 2}"
    rate = ("-b:v", most, "-maxrate", most, "-bufsize", buffer)
    return _made(run, "vtest-720p-h264.mp4", _FILTER, *X264, *rate, "-g", f"{2 * FPS}")


def h264_of(run: Run, brand: str) -> str:
    """Return the demo's video in its own size, as H.264 with the settings of a brand (`BRANDS`); made once.

    Raises:
        ExperimentError: The video could not be made.
    """
    if brand != OPENH264:
        return _made(run, f"vtest-{brand}.mp4", _SPEED, *X264, *BRANDS[brand])
    made = CACHE / f"vtest-{brand}.h264"
    if not made.exists():
        shutil.move(_openh264(run, _pictures(), *BRANDS[brand]), made)
    return str(made)


def h264_of_openh264(run: Run) -> str:
    """Return the demo's video as 720p H.264 of openh264, at the rate of `h264` at most; made once.

    It has one quantiser, the finest with this rate. Like the encoders of network cameras, and unlike x264's
    usual settings, openh264 weights no predictions.

    Raises:
        ExperimentError: The video could not be made.
    """
    made = CACHE / "vtest-720p-openh264.h264"
    if not made.exists():
        pictures = _pictures("-vf", _FILTER)
        count = pictures.count(b"FRAME\n")
        for quantiser in QUANTISERS:
            coded = _openh264(
                run, pictures, "--quantiser", f"{quantiser}", "--key-frame-interval", f"{2 * FPS}"
            )
            if coded.stat().st_size * 8 * FPS <= H264_BITS_PER_SECOND * count:
                break
        shutil.move(coded, made)
    return str(made)


def _pictures(*filters: str) -> bytes:
    """Return the demo's video as YUV4MPEG2."""
    form = ("-f", "yuv4mpegpipe", "-pix_fmt", "yuvj420p", "-strict", "-1", "pipe:1")
    return _ffmpeg("-i", str(demo_video()), *filters, *form)


def _openh264(run: Run, pictures: bytes, *options: str) -> Path:
    """Encode pictures in YUV4MPEG2 with openh264, to a file of the run's folder."""
    out = run.folder / "openh264.h264"
    coded = subprocess.run(
        mez("measure", "openh264", "--out", str(out), *options),
        input=pictures,
        capture_output=True,
        check=False,
    )
    if coded.returncode != 0:
        raise ExperimentError(f"openh264 could not encode the video: {coded.stderr.decode().strip()}")
    return out


def _made(run: Run, name: str, filters: str, *codec: str) -> str:
    made = CACHE / name
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        unfinished = run.folder / name
        _ffmpeg("-i", str(demo_video()), "-vf", filters, "-r", f"{FPS}", *codec, "-an", str(unfinished))
        shutil.move(unfinished, made)
    return str(made)


def _ffmpeg(*words: str) -> bytes:
    if shutil.which("ffmpeg") is None:
        raise ExperimentError("ffmpeg is not installed; it is needed to make the camera's video")
    finished = subprocess.run(["ffmpeg", "-v", "error", *words], capture_output=True, check=False)
    if finished.returncode != 0:
        said = finished.stderr.decode(errors="replace").strip()
        raise ExperimentError(f"ffmpeg could not make the camera's video: {said}")
    return finished.stdout


def profile(ladder: str) -> dict[str, object]:
    """Return a profile with the rungs of a ladder, for `mez.subscribe`."""
    width, height = SIZE
    return {
        "format": "mez-profile",
        "version": 1,
        "app": f"bench-{ladder}",
        "width": width,
        "height": height,
        "rungs": [
            {
                "rung": name,
                "bytes": {"mean": size, "p05": size * 0.8, "p50": size, "p95": size * 1.3},
                "accuracy_normalised": {"value": accuracy},
            }
            for name, size, accuracy in LADDERS[ladder]
        ],
    }
