"""Makes the cameras' pictures, pictures of an exact size in bytes, and a profile of rungs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from mez import _native
from mez_bench.errors import ExperimentError
from mez_bench.footage import demo_video
from mez_bench.payload import write_jpeg

PICTURES: Final = 24
"""Number of pictures of the video, one in `STRIDE`, that the cameras publish in a loop."""
STRIDE: Final = 5

PROFILED: Final = 4
"""How many of the pictures are compared with what a rung makes of them."""

PUBLISHED_QUALITY: Final = 95
"""JPEG quality of the pictures that the cameras publish."""

FRAME_NS: Final = 33_333_333

QUALITIES: Final = (30, 50, 70, 90)
QUANTISERS: Final = (24, 30, 36, 42)
SHARES: Final = (0.5, 0.75, 1.0)
"""Rungs: these JPEG qualities and quantisers of H.264, of pictures of these shares of the width."""

SSIM_C1: Final = (0.01 * 255) ** 2
SSIM_C2: Final = (0.03 * 255) ** 2
SSIM_SIGMA: Final = 1.5
"""Constants of Wang et al., "Image quality assessment" (2004)."""


def film(folder: Path, size: tuple[int, int], *, dim: bool = False) -> Path:
    """Write pictures of the demo's video.

    Args:
        folder: Where they are written.
        size: Width and height.
        dim: Halve the brightness, so that a light stands out.

    Returns:
        A `.npy` of shape (pictures, height, width, 3), in the order blue, green, red.
    """
    width, height = size
    path = folder / f"{width}x{height}{'-dim' if dim else ''}.npy"
    if path.exists():
        return path
    video = cv2.VideoCapture(str(demo_video()))
    pictures: list[Any] = []
    while len(pictures) < PICTURES:
        for _ in range(STRIDE):
            is_there, picture = video.read()
        if not is_there:
            raise ExperimentError(f"the demo's video has fewer than {PICTURES * STRIDE} pictures")
        scaled = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
        pictures.append(scaled // 2 if dim else scaled)
    video.release()
    np.save(path, np.stack(pictures).astype(np.uint8))
    return path


def jpeg(folder: Path, size: tuple[int, int], size_bytes: int) -> Path:
    """Write a JPEG of exactly `size_bytes` (`payload.write_jpeg`)."""
    place = folder / f"{size[0]}x{size[1]}"
    place.mkdir(exist_ok=True)
    path = place / f"{size_bytes}.jpg"
    return path if path.exists() else write_jpeg(place, size_bytes, size)


def coded(folder: Path, film_path: Path, quality: int) -> Path:
    """Write the first picture of a film as a JPEG, encoded by Mez's own encoder."""
    path = folder / f"{film_path.stem}-q{quality}.jpg"
    path.write_bytes(_native.encode_jpeg(np.load(film_path)[0], quality))
    return path


def profile(folder: Path, film_path: Path) -> Path:
    """Write a profile of the rungs of a film. The accuracy of a rung is its SSIM with the original.

    The film plays once at each rung. H.264 begins with a keyframe, which counts with the others.
    """
    path = folder / f"{film_path.stem}-profile.json"
    if path.exists():
        return path
    pictures = np.load(film_path)
    height, width = pictures.shape[1:3]
    published = [_native.encode_jpeg(picture, PUBLISHED_QUALITY) for picture in pictures]
    rungs = []
    # The codec needs even widths.
    for rung_width in [round(width * share / 2) * 2 for share in SHARES]:
        names = [f"jpeg/w{rung_width}/q{quality}/420" for quality in QUALITIES]
        names += [f"h264/w{rung_width}/q{quantiser}" for quantiser in QUANTISERS]
        for name in names:
            stream = _native.Stream(name)
            sizes, likeness = [], []
            for number, picture in enumerate(pictures):
                made = stream.encode(published[number], number * FRAME_NS)
                sizes.append(made.size_bytes)
                if number % (PICTURES // PROFILED):
                    stream.pass_over(made)
                    continue
                shown = np.empty((made.height, made.width, 3), np.uint8)
                stream.decode_into(made, shown)
                likeness.append(ssim(picture, cv2.resize(shown, (width, height))))
            p05, p50, p95 = np.percentile(sizes, [5, 50, 95])
            rungs.append(
                {
                    "rung": name,
                    "bytes": {"mean": float(np.mean(sizes)), "p05": p05, "p50": p50, "p95": p95},
                    "accuracy_normalised": {"value": float(np.mean(likeness))},
                }
            )
    document = {
        "format": "mez-profile",
        "version": 1,
        "app": "bench-offload",
        "width": width,
        "height": height,
        "rungs": rungs,
    }
    path.write_text(json.dumps(document))
    return path


def ssim(one: Any, other: Any) -> float:  # noqa: ANN401, arrays
    """Return the structural similarity of the brightness of two pictures of one size, 0 to 1."""
    a, b = (cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY).astype(np.float64) for picture in (one, other))

    def smooth(values: Any) -> Any:  # noqa: ANN401, arrays
        return cv2.GaussianBlur(values, (0, 0), SSIM_SIGMA)

    mean_a, mean_b = smooth(a), smooth(b)
    variance_a, variance_b = smooth(a * a) - mean_a**2, smooth(b * b) - mean_b**2
    covariance = smooth(a * b) - mean_a * mean_b
    above = (2 * mean_a * mean_b + SSIM_C1) * (2 * covariance + SSIM_C2)
    below = (mean_a**2 + mean_b**2 + SSIM_C1) * (variance_a + variance_b + SSIM_C2)
    return float(np.clip(np.mean(above / below), 0.0, 1.0))
