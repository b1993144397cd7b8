"""Records the frames that a camera publishes, unchanged, for profiling."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mez import _data, _native
from mez._frame import Frame
from mez._in_process import InProcessEdge
from mez._subscribe import read
from mez.profile.errors import VideoError
from mez.profile.footage import FRAMES_MAX, PUBLISHED_QUALITY
from mez.profile.make import Progress
from mez.profile.stream.records import CONTENT_TYPES

SECONDS_DEFAULT: Final = 60.0
"""Default length of a recording, in seconds."""

READ_EVERY_S: Final = 2.0
"""How often new frames are read. Often enough that a camera's log still holds them."""


def record(
    camera: str,
    folder: Path,
    seconds: float,
    edge: str | InProcessEdge | None,
    progress: Progress,
    data: bool = False,
) -> Path:
    """Record a camera's frames as it published them, or the data records of a stream.

    Frames are read as frames of the past, with lower priority than live ones: applications that use the
    camera lose no frames.

    Args:
        camera: Its name.
        folder: The folder in which the folder of the recording is created.
        seconds: How long to record, in seconds.
        edge: The edge broker, as in `mez.subscribe`.
        progress: Shows progress.
        data: Record data records, and leave out pictures.

    Returns:
        The folder of the recording. For frames: one JPEG each, named after its capture time, for `--video`.
        For data records: one file each, for `--stream`.

    Raises:
        VideoError: No frames came, or they are not JPEG.
        NotFoundError: The edge knows no such camera.
        ConnectError: The edge did not answer.
    """
    began_ns = time.time_ns()
    named = re.sub(r"[^\w.-]+", "-", camera)
    recording = folder / f"{named}-{datetime.fromtimestamp(began_ns / 1e9, UTC):%Y%m%dT%H%M%SZ}"
    progress.say(f"recording {camera} for {seconds:g} s into {recording}")
    began, since_ns, kept, lost = time.monotonic(), began_ns, 0, 0
    while (elapsed := time.monotonic() - began) < seconds and kept < FRAMES_MAX:
        time.sleep(min(READ_EVERY_S, seconds - elapsed))
        before = kept
        with read(camera, since=since_ns, quality="original", edge=edge) as frames:
            for frame in frames:
                if (frame.encoding == "data") != data:
                    continue
                recording.mkdir(parents=True, exist_ok=True)
                suffix, content = _record(frame) if data else (".jpg", _jpeg(frame))
                (recording / f"{frame.captured_ns:019}{suffix}").write_bytes(content)
                kept += 1
                lost += sum(frame.skipped.values())
                since_ns = frame.captured_ns + 1
        progress.done(kept - before, f"recording {camera}")
        elapsed = time.monotonic() - began
        progress.expect(round(kept / elapsed * max(seconds - elapsed, 0)))
    if kept == 0:
        raise VideoError(
            f"{camera} published no {'data record' if data else 'frame'} in {seconds:g} s; is its source "
            "running? (mez cameras)"
        )
    if lost:
        progress.say(f"{lost} frames are missing in the recording: they were no longer held")
    return recording


def _jpeg(frame: Frame) -> bytes:
    """Return a frame for the profiler: JPEG as published, other encodings as JPEG of quality 95."""
    if frame.encoding == "jpeg":
        return bytes(frame.payload)
    return _native.encode_jpeg(frame.image, PUBLISHED_QUALITY)


def _record(frame: Frame) -> tuple[str, bytes]:
    """Return the suffix and the content of a data record's file."""
    essence = _data.essence(frame.content_type)
    suffix = next((suffix for suffix, of in CONTENT_TYPES.items() if of == essence), ".bin")
    return suffix, bytes(frame.payload)
