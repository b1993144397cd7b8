"""Reads the frames that rungs are measured on, from a video or a folder of pictures.

Frames are encoded as JPEG first, as `mez camera` and `Publisher.send` do. The reference is what the
application finds on those. Of a long video, pieces spread over its length are taken. They are pieces, and not
single frames, because codecs predict frames from earlier ones.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from mez import _native
from mez.profile.errors import VideoError

Image = npt.NDArray[np.uint8]

PUBLISHED_QUALITY: Final = 95
"""JPEG quality at which frames are published, as everywhere in Mez."""

PIECE_S: Final = 10.0
"""Length of a piece of a long video: the longest chain of frames on a live link."""

FRAMES_MAX: Final = 1200
"""The most frames that are encoded. They are kept in memory, as JPEG."""

SIDE_MAX: Final = 16_384
"""The most pixels along a side."""

FRAMES_PER_SECOND_DEFAULT: Final = 10.0
"""The frame rate of folders of pictures, and of videos that state none."""

_PICTURES: Final = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True)
class Footage:
    """Published frames.

    Attributes:
        name: File or folder, without the path.
        sha256: Of the file, or of all pictures in their order.
        width: Pixels in a row.
        height: Rows.
        frames_per_second: As the video says.
        jpegs: The frames.
        piece_frames: Frames of a piece: as many as depend on each other on a live link.
        continuous: Whether pieces follow each other; those of a long video do not.
    """

    name: str
    sha256: str
    width: int
    height: int
    frames_per_second: float
    jpegs: tuple[bytes, ...]
    piece_frames: int
    continuous: bool

    def sampled(self, frames: int) -> list[int]:
        """Return the places of so many frames (or of all, if there are not as many), spread evenly."""
        total = len(self.jpegs)
        count = min(frames, total)
        return [int((index + 0.5) * total / count) for index in range(count)]

    def image(self, place: int) -> Image:
        """Decode a frame, as an application without any rung would get it."""
        image = np.empty((self.height, self.width, 3), dtype=np.uint8)
        _native.decode_into("jpeg", self.jpegs[place], image)
        return image

    def pieces(self, places: Iterable[int]) -> list[range]:
        """Return the pieces that hold these frames, in order."""
        numbers = sorted({place // self.piece_frames for place in places})
        total = len(self.jpegs)
        return [
            range(number * self.piece_frames, min((number + 1) * self.piece_frames, total))
            for number in numbers
        ]

    @cached_property
    def key(self) -> str:
        """A name for exactly these frames, for caches."""
        digest = hashlib.sha256()
        digest.update(f"{self.sha256} {self.piece_frames} {self.continuous}".encode())
        for jpeg in self.jpegs:
            digest.update(hashlib.sha256(jpeg).digest())
        return digest.hexdigest()


def read(source: Path, cache: Path | None = None, frames_max: int = FRAMES_MAX) -> Footage:
    """Read a video, or a folder of pictures in the order of their names.

    Args:
        source: The file or folder.
        cache: Where frames are kept for the next time, and for worker processes.
        frames_max: Most frames that are taken.

    Raises:
        VideoError: It cannot be used.
    """
    if not source.exists():
        raise VideoError(f"there is no video {source}; give a file or a folder of pictures with --video")
    digest = _digest(source)
    kept = None if cache is None else cache / f"frames-{digest[:24]}-{frames_max}.bin"
    if kept is not None and kept.exists():
        return _load(kept)
    reader = _Pictures(source) if source.is_dir() else _Video(source)
    fps = reader.frames_per_second
    piece = max(1, round(PIECE_S * fps))
    starts = _pieces(reader.frames, piece, frames_max)
    jpegs: list[bytes] = []
    size: tuple[int, int] | None = None
    for number, image in reader.images(starts, piece):
        image = _bgr(image, f"frame {number} of {source}")
        if size is None:
            size = image.shape[1], image.shape[0]
        elif size != (image.shape[1], image.shape[0]):
            raise VideoError(
                f"frame {number} of {source} has {image.shape[1]}x{image.shape[0]} pixels, and "
                "those before it have "
                f"{size[0]}x{size[1]}; a profile is of one camera, so give frames of one size"
            )
        jpegs.append(_native.encode_jpeg(image, PUBLISHED_QUALITY))
        if len(jpegs) >= frames_max:
            break
    if size is None:
        raise VideoError(
            f"{source} has no frame that can be decoded; is it a video, and does `ffmpeg -i` read it?"
        )
    footage = Footage(source.name, digest, *size, fps, tuple(jpegs), piece, len(starts) == 1)
    if kept is not None:
        _store(footage, kept)
    return footage


def _pieces(frames: int | None, piece: int, frames_max: int) -> list[int]:
    """Return where pieces begin; one that takes all where the video is short or its length unknown."""
    if frames is None or frames <= frames_max:
        return [0]
    count = max(1, frames_max // piece)
    return [int(index * (frames - piece) / max(1, count - 1)) for index in range(count)] if count > 1 else [0]


class _Video:
    """Frames of a file that OpenCV reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        capture = self._open()
        fps = capture.get(cv2.CAP_PROP_FPS)
        frames = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
        capture.release()
        self.frames_per_second = fps if 0.1 <= fps <= 1000 else FRAMES_PER_SECOND_DEFAULT
        self.frames = frames if frames > 0 else None

    def images(self, starts: list[int], piece: int) -> Iterator[tuple[int, npt.NDArray[np.generic]]]:
        capture = self._open()
        try:
            number = 0
            wanted = _Wanted(starts, piece)
            while not wanted.over(number) and capture.grab():
                if wanted.holds(number):
                    held, image = capture.retrieve()
                    if not held:
                        raise VideoError(
                            f"frame {number} of {self._path} cannot be decoded; repair it: ffmpeg "
                            "-i IN -c:v ffv1 OUT.mkv"
                        )
                    yield number, np.asarray(image)
                number += 1
        finally:
            capture.release()

    def _open(self) -> cv2.VideoCapture:
        capture = cv2.VideoCapture(str(self._path))
        if not capture.isOpened():
            raise VideoError(
                f"{self._path} cannot be opened as a video; is it one, and does `ffmpeg -i` read it?"
            )
        return capture


class _Pictures:
    """Pictures of a folder."""

    frames_per_second = FRAMES_PER_SECOND_DEFAULT

    def __init__(self, folder: Path) -> None:
        self._paths = _pictures(folder)
        if not self._paths:
            raise VideoError(
                f"the folder {folder} has no pictures ({', '.join(sorted(_PICTURES))}); give another one"
            )
        self.frames: int | None = len(self._paths)

    def images(self, starts: list[int], piece: int) -> Iterator[tuple[int, npt.NDArray[np.generic]]]:
        wanted = _Wanted(starts, piece)
        for number, path in enumerate(self._paths):
            if wanted.holds(number):
                image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
                if image is None:
                    raise VideoError(
                        f"{path} cannot be decoded; it is damaged or no picture: remove it from the folder"
                    )
                yield number, np.asarray(image)


class _Wanted:
    """Which frames are in a piece."""

    def __init__(self, starts: list[int], piece: int) -> None:
        self._starts = starts
        self._piece = piece

    def holds(self, number: int) -> bool:
        return len(self._starts) == 1 or any(start <= number < start + self._piece for start in self._starts)

    def over(self, number: int) -> bool:
        return len(self._starts) > 1 and number >= self._starts[-1] + self._piece


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in _PICTURES)


def _bgr(image: npt.NDArray[np.generic], what: str) -> Image:
    """Bring pixels to 8-bit blue, green, red: what cameras publish."""
    if image.size == 0:
        raise VideoError(f"{what} has no pixels; remove it")
    if (
        image.shape[0] > SIDE_MAX
        or image.shape[1] > SIDE_MAX
        or image.shape[0] * image.shape[1] > _native.PIXELS_MAX
    ):
        raise VideoError(
            f"{what} has {image.shape[1]}x{image.shape[0]} pixels, more than can be sent; make it smaller"
        )
    if image.dtype == np.uint16:
        # As OpenCV's own readers do: the upper half of each sample.
        image = (image.astype(np.uint16) >> 8).astype(np.uint8)
    if image.dtype != np.uint8:
        raise VideoError(f"{what} has samples of type {image.dtype}; convert it to 8 bits a sample")
    pixels = np.asarray(image, dtype=np.uint8)
    if pixels.ndim == 2 or pixels.shape[2] == 1:
        return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR), dtype=np.uint8)
    return np.ascontiguousarray(pixels[:, :, :3])


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for path in _pictures(source) if source.is_dir() else [source]:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _store(footage: Footage, path: Path) -> None:
    """Write a line of JSON and then the frames, so that the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {
        "name": footage.name,
        "sha256": footage.sha256,
        "width": footage.width,
        "height": footage.height,
        "frames_per_second": footage.frames_per_second,
        "piece_frames": footage.piece_frames,
        "continuous": footage.continuous,
        "sizes_bytes": [len(jpeg) for jpeg in footage.jpegs],
    }
    unfinished = path.with_suffix(f".{os.getpid()}")
    with unfinished.open("wb") as file:
        file.write(json.dumps(head).encode() + b"\n")
        for jpeg in footage.jpegs:
            file.write(jpeg)
    unfinished.replace(path)


def _load(path: Path) -> Footage:
    with path.open("rb") as file:
        head = json.loads(file.readline())
        jpegs = tuple(file.read(size) for size in head.pop("sizes_bytes"))
    return Footage(jpegs=jpegs, **head)
