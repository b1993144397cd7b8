"""Runs x264 at a fixed quantiser, through ffmpeg: the baseline that most systems would use. Not part of Mez.

Rungs are called `x264[/wWIDTH]/qQUANTISER`. The preset is ultrafast without look-ahead, as on a live link.
Key frames are as frequent as in Mez.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from mez.profile.coding import Shown
from mez.profile.errors import RungError
from mez.profile.families import Axis, Family, family
from mez.profile.footage import Footage, Image

CODER: Final = "mez_bench.x264:code"
"""How the profiler finds `code`."""

QUANTISERS: Final = (*range(18, 52, 2), 51)
SECONDS_MAX: Final = 300.0


def available() -> str | None:
    """Return why there is no x264 on this machine; `None` if there is one."""
    if shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None:
        return "ffmpeg and ffprobe are not installed"
    listed = subprocess.run(
        ["ffmpeg", "-hide_banner", "-encoders"], capture_output=True, text=True, check=False
    )
    return None if "libx264" in listed.stdout else "this ffmpeg is built without libx264"


def grid(width: int) -> Family:
    """Return the settings: the same widths and quantisers as Mez's own H.264."""
    widths = family("h264", width).axes[0]
    return Family("x264", "x264", (widths, Axis(tuple(f"q{q}" for q in QUANTISERS))), "x264 ultrafast")


def code(rung: str, footage: Footage, wanted: Sequence[int]) -> Iterator[Shown]:
    """Make frames at a rung (see `mez.profile.coding.code`).

    Raises:
        RungError: There is no such rung, or ffmpeg failed.
    """
    width, height, quantiser = _parse(rung, footage)
    with tempfile.TemporaryDirectory(prefix="mez-x264-") as folder:
        for piece in footage.pieces(wanted):
            stream = Path(folder) / "piece.h264"
            sizes = _encode(footage, piece, (width, height), quantiser, stream)
            seen = [place for place in piece if place in set(wanted)]
            images = _decode(stream, [place - piece.start for place in seen], (width, height))
            shown = dict(zip(seen, images, strict=True))
            for place, size in zip(piece, sizes, strict=True):
                yield Shown(place, size, 0.0, shown.get(place))


def _parse(rung: str, footage: Footage) -> tuple[int, int, int]:
    parts = rung.split("/")
    try:
        quantiser = int(parts[-1].removeprefix("q"))
        width = int(parts[1].removeprefix("w")) if len(parts) == 3 else footage.width
    except (ValueError, IndexError) as error:
        raise RungError(f"there is no rung {rung}; the form is x264[/wWIDTH]/qQUANTISER") from error
    height = round(footage.height * width / footage.width)
    return width // 2 * 2, height // 2 * 2, quantiser


def _encode(footage: Footage, piece: range, size: tuple[int, int], quantiser: int, into: Path) -> list[int]:
    """Encode a piece; return the bytes of its frames."""
    given = b"".join(footage.jpegs[place] for place in piece)
    words = f"-f mjpeg -framerate {footage.frames_per_second:g} -i - -fps_mode passthrough"
    words += f" -vf scale={size[0]}:{size[1]}:flags=area,format=yuv420p -c:v libx264 -preset ultrafast"
    words += f" -tune zerolatency -qp {quantiser} -g {footage.piece_frames} -threads 1"
    # Remove the message about itself that x264 puts into the first frame: its bytes must not count.
    words += " -bsf:v filter_units=remove_types=6 -f h264 -y"
    _ffmpeg([*words.split(), str(into)], given)
    probe = ["ffprobe", "-v", "error", "-show_entries", "packet=size", "-of", "csv=p=0", str(into)]
    listed = subprocess.run(probe, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
    sizes = [int(line.strip(",")) for line in listed.stdout.split()]
    if len(sizes) != len(piece):
        raise RungError(f"x264 made {len(sizes)} frames of {len(piece)}; is this version of ffmpeg too new?")
    return sizes


def _decode(stream: Path, numbers: Sequence[int], size: tuple[int, int]) -> list[Image]:
    """Decode these frames of a piece."""
    if not numbers:
        return []
    chosen = "+".join(f"eq(n\\,{number})" for number in numbers)
    words = f"-vf select={chosen} -fps_mode passthrough -pix_fmt bgr24 -f rawvideo -".split()
    pixels = np.frombuffer(_ffmpeg(["-i", str(stream), *words]), dtype=np.uint8)
    return list(pixels.reshape(len(numbers), size[1], size[0], 3).copy())


def _ffmpeg(words: list[str], given: bytes = b"") -> bytes:
    command = ["ffmpeg", "-v", "error", *words]
    finished = subprocess.run(command, input=given, capture_output=True, check=False, timeout=SECONDS_MAX)
    if finished.returncode != 0:
        told = finished.stderr.decode(errors="replace")[-300:]
        raise RungError(f"ffmpeg failed: {told}; does it have libx264?")
    return finished.stdout
