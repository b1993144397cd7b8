"""Measures one rung: the bytes and times of its frames, and the application's results on them."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mez import _native
from mez.apps.boxes import Box
from mez.profile.app import App
from mez.profile.coding import H264_ENCODER, coder
from mez.profile.errors import FormatError
from mez.profile.footage import Footage, Image

NOISE: Final = "ceiling/noise"
"""Not a rung: published frames with one grey level of noise. They bound the accuracy of any rung."""

NOISE_SEED: Final = 1

WAY: Final = "decoded at the edge, JPEG of quality 95"
"""How chained frames reach applications. Cached measurements become invalid if this changes."""


@dataclass
class Measurement:
    """The measurements of a rung.

    Attributes:
        rung: Its name.
        size_bytes: Bytes of every frame that was sent.
        frames: Number of published frames that were sent or skipped.
        camera_ms: Processor time to encode each frame.
        detector_ms: Processor time of the application for each searched frame.
        found: The boxes for each frame, by its index, in pixels of published frames.
    """

    rung: str
    size_bytes: list[int] = field(default_factory=list)
    frames: int = 0
    camera_ms: list[float] = field(default_factory=list)
    detector_ms: list[float] = field(default_factory=list)
    found: dict[int, list[Box]] = field(default_factory=dict)

    @property
    def bytes_per_published_frame(self) -> float:
        """Mean bytes over all published frames. Skipped frames count as 0."""
        return sum(self.size_bytes) / self.frames

    def to_json(self) -> str:
        """Return it as text, for the cache."""
        boxes = {
            str(place): [[round(value, 4) for value in _numbers(box)] + [box.label] for box in boxes]
            for place, boxes in self.found.items()
        }
        data = {
            "rung": self.rung,
            "size_bytes": self.size_bytes,
            "frames": self.frames,
            "camera_ms": [round(ms, 4) for ms in self.camera_ms],
            "detector_ms": [round(ms, 4) for ms in self.detector_ms],
            "found": boxes,
        }
        return json.dumps(data)

    @staticmethod
    def from_json(text: str) -> "Measurement":
        """Read what `to_json` wrote.

        Raises:
            FormatError: It is damaged.
        """
        try:
            data = json.loads(text)
            found = {int(place): [Box(*box) for box in boxes] for place, boxes in data.pop("found").items()}
            return Measurement(**data, found=found)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(
                f"a cached measurement is damaged ({error}); remove the cache folder"
            ) from error


def measure(
    rung: str,
    footage: Footage,
    app: App,
    wanted: Sequence[int],
    known: Measurement | None = None,
    coder_spec: str | None = None,
    h264_encoder: str = H264_ENCODER,
) -> Measurement:
    """Measure a rung.

    Args:
        rung: Its name.
        footage: The published frames.
        app: The application.
        wanted: Indices of the frames to search, ascending.
        known: The result of an earlier call. Only missing frames are searched.
        coder_spec: A coder to use instead of Mez's own.
        h264_encoder: The H.264 encoder of Mez's own coder.
    """
    before = known.found if known is not None else {}
    # All results are rounded like those from the cache, so that a resumed run gives the same result.
    result = Measurement(rung, found=dict(before), detector_ms=list(known.detector_ms) if known else [])
    due = set(wanted)
    screen: Image | None = None
    searched: list[Box] | None = None
    for shown in coder(coder_spec, h264_encoder)(rung, footage, wanted):
        result.frames += 1
        if shown.size_bytes is not None:
            result.size_bytes.append(shown.size_bytes)
        if shown.camera_ms > 0:
            result.camera_ms.append(shown.camera_ms)
        if shown.image is not None:
            screen, searched = shown.image, None
        if shown.place in due and shown.place not in result.found:
            if screen is None:
                result.found[shown.place] = []  # nothing was ever shown
                continue
            if searched is None:
                searched, ms = _search(app, screen, footage, f"frame {shown.place} at {rung}")
                result.detector_ms.append(ms)
            result.found[shown.place] = searched
    return Measurement.from_json(result.to_json())


def reference(
    footage: Footage, app: App, wanted: Sequence[int], known: Measurement | None = None
) -> Measurement:
    """Search the frames as they were published."""
    return _plain("original", footage, app, wanted, known, noise=False)


def noisy(footage: Footage, app: App, wanted: Sequence[int], known: Measurement | None = None) -> Measurement:
    """Search the frames as they were published, with one grey level of noise (see `add_noise`)."""
    return _plain(NOISE, footage, app, wanted, known, noise=True)


def _plain(
    name: str, footage: Footage, app: App, wanted: Sequence[int], known: Measurement | None, noise: bool
) -> Measurement:
    result = Measurement(name, detector_ms=list(known.detector_ms) if known else [])
    result.found = dict(known.found) if known else {}
    result.size_bytes = [len(jpeg) for jpeg in footage.jpegs]
    result.frames = len(footage.jpegs)
    for place in wanted:
        if place in result.found:
            continue
        image = footage.image(place)
        if noise:
            image = add_noise(image, place)
        result.found[place], ms = _search(app, image, footage, f"frame {place} as published")
        result.detector_ms.append(ms)
    return Measurement.from_json(result.to_json())


def add_noise(image: Image, seed: int) -> Image:
    """Add -1, 0 or 1 to every sample."""
    random = np.random.default_rng((NOISE_SEED, seed))
    noise = random.integers(-1, 2, size=image.shape, dtype=np.int8)
    return np.asarray(np.clip(image.astype(np.int16) + noise, 0, 255), dtype=np.uint8)


def _search(app: App, image: Image, footage: Footage, what: str) -> tuple[list[Box], float]:
    # A copy, because applications may draw on the image.
    given = image.copy()
    began = time.process_time()
    boxes = app.find(given, (footage.width, footage.height), what)
    return boxes, (time.process_time() - began) * 1000


def _numbers(box: Box) -> tuple[float, float, float, float, float]:
    return box.x, box.y, box.width, box.height, box.score


def version() -> dict[str, Any]:
    """Return what determines a measurement besides video and application."""
    return {"mez": _native.__version__, "noise_seed": NOISE_SEED, "way": WAY}
