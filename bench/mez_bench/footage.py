"""Provides real video for experiments that need pixels, and profiles of rungs for it."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from mez_bench.errors import ExperimentError
from mez_bench.run import CACHE, ROOT, Run

VIDEO: Final = ROOT / ".cache" / "video" / "vtest.avi"

SIZE: Final = (1280, 720)
FPS: Final = 15

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
"""Rungs for frames of `SIZE`: name, bytes, accuracy. What they keep is not measured: nothing but the choice
of a rung depends on it, and what a frame costs is the same whatever is said of it. Brokers learn sizes."""


def demo_video() -> Path:
    """Return the demo's video, which is fetched once."""
    if not VIDEO.exists():
        fetched = subprocess.run([ROOT / "tools" / "demo-video"], capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            raise ExperimentError(f"no video: {fetched.stderr.strip()}")
    return VIDEO


def motion_jpeg(run: Run) -> str:
    """Return the same in 720p at 15 frames per second as Motion JPEG, as a camera gives it; made once."""
    made = CACHE / "vtest-720p.mkv"
    if not made.exists():
        if shutil.which("ffmpeg") is None:
            raise ExperimentError("ffmpeg is not installed; it makes the camera's video")
        made.parent.mkdir(parents=True, exist_ok=True)
        unfinished = run.folder / made.name
        width, height = SIZE
        # The clock runs faster, so that every frame differs from the one before.
        scale = f"scale={width}:{height}:force_original_aspect_ratio=increase,crop={width}:{height}"
        filters = f"setpts=PTS*10/{FPS},{scale}"
        words = ["ffmpeg", "-v", "error", "-i", str(demo_video()), "-vf", filters, "-r", f"{FPS}"]
        words += ["-c:v", "mjpeg", "-q:v", "3", "-pix_fmt", "yuvj420p", str(unfinished)]
        finished = subprocess.run(words, capture_output=True, text=True, check=False)
        if finished.returncode != 0:
            raise ExperimentError(f"ffmpeg could not make the camera's video: {finished.stderr.strip()}")
        shutil.move(unfinished, made)
    return str(made)


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
