"""Encodes published frames at a rung and decodes them, exactly as on a live link.

It runs the same compiled code: the camera's encoder, the edge's decoder (which turns chained frames into
JPEG), and the application's decoder. Every frame is assumed to arrive. If a rung leaves a frame out (frame
differencing, frame skip), the application still has the frame before.
"""

import importlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from mez import _native
from mez.errors import ArgumentError
from mez.profile.errors import RungError
from mez.profile.footage import Footage, Image

_REMEMBERS: Final = re.compile(r"/(moving|contours|diff\d+|skip\d+)(/|$)")
"""Parts of a rung's name whose effect depends on earlier frames."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The result for a published frame.

    Attributes:
        place: The index of the frame.
        size_bytes: Bytes that crossed the network. `None` if the frame was skipped.
        camera_ms: Processor time of encoding. 0 if it was skipped without encoding.
        image: The image that the application sees from then on, in the delivered size. `None` if it is not
            wanted, or has not changed.
    """

    place: int
    size_bytes: int | None
    camera_ms: float
    image: Image | None


Coder = Callable[[str, Footage, Sequence[int]], Iterator[Shown]]
"""Encodes frames at a rung. Arguments: the rung's name, the footage, and the frames that are wanted."""


H264_ENCODER: Final = "openh264"
"""The default H.264 encoder."""


def require_encoder(h264_encoder: str) -> None:
    """Check that this H.264 encoder is available.

    Raises:
        ArgumentError: This build does not contain it. The message says how to get it.
    """
    _native.Stream("h264/q30", h264_encoder)


def code(
    rung: str, footage: Footage, wanted: Sequence[int], h264_encoder: str = H264_ENCODER
) -> Iterator[Shown]:
    """Encode frames at a rung of Mez.

    Args:
        rung: Its canonical name.
        footage: The published frames.
        wanted: Indices of the wanted frames, ascending. If frames of the rung are independent, only these are
            encoded.
        h264_encoder: The H.264 encoder.

    Raises:
        RungError: There is no such rung.
        ArgumentError: There is no such encoder in this build.
    """
    try:
        _, chained, skip = _native.rung_facts(rung, footage.width, footage.height)
    except ArgumentError as error:
        raise RungError(str(error)) from error
    remembers = chained or _REMEMBERS.search(rung) is not None
    if not remembers:
        runs: list[Sequence[int]] = [wanted]
    elif chained:
        # A chain ends after ten seconds anyway, so pieces without a wanted frame need not be encoded.
        runs = list(footage.pieces(wanted))
    elif footage.continuous:
        runs = [range(len(footage.jpegs))]
    else:
        runs = list(footage.pieces(range(len(footage.jpegs))))
    seen = set(wanted)
    frame_ns = 1e9 / footage.frames_per_second
    for run in runs:
        stream = _native.Stream(rung, h264_encoder)
        for number, place in enumerate(run):
            if number % (skip + 1):
                yield Shown(place, None, 0.0, None)
                continue
            began = time.thread_time()
            coded = stream.encode(footage.jpegs[place], int(place * frame_ns))
            camera_ms = (time.thread_time() - began) * 1000
            if coded.outcome != "frame":
                yield Shown(place, None, camera_ms, None)
                continue
            image: Image | None = None
            # If the next frames are skipped, the application still uses this image for them.
            if place in seen or skip or (not chained and remembers):
                image = np.empty((coded.height, coded.width, 3), dtype=np.uint8)
                stream.decode_into(coded, image)
            elif chained:
                stream.pass_over(coded)
            yield Shown(place, coded.size_bytes, camera_ms, image)


def coder(spec: str | None, h264_encoder: str = H264_ENCODER) -> Coder:
    """Return the coder of Mez, or another one (`MODULE:FUNCTION`) for a comparison."""
    if spec is None:
        return partial(code, h264_encoder=h264_encoder)
    module, _, name = spec.partition(":")
    found: Coder = getattr(importlib.import_module(module), name)
    return found
