"""Reads the frames that rungs are measured on, from a video or a folder of pictures.

Frames are first encoded as JPEG, as by `mez camera` and `Publisher.send`. The reference is what the
application finds in these JPEGs. From a long video, pieces are taken that are spread over its length: pieces
and not single frames, because codecs predict frames from earlier ones.

Several videos of one camera are several scenes: the same view by day and at night. A chain of frames never
goes from one scene to the next.
"""

import hashlib
import json
import os
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
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

FRAME_RATES_RATIO_MAX: Final = 1.25
"""How much the frame rates of two scenes may differ. Bytes of a frame depend on the frame rate."""

_PICTURES: Final = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_RECORDED: Final = re.compile(r"(\d{19})\.jpg")
"""Names of frames as a camera published them: the capture time, in nanoseconds since 1970."""


@dataclass(frozen=True)
class Scene:
    """One of the videos that a profile is measured on.

    Attributes:
        name: File or folder, without the path.
        sha256: Digest of the file, or of all pictures in order.
        frames: Number of frames taken from it.
    """

    name: str
    sha256: str
    frames: int


@dataclass(frozen=True)
class Footage:
    """Published frames of one scene, or of several scenes of one camera.

    Attributes:
        scenes: The scenes of the frames, in order.
        width: Width of the frames, in pixels.
        height: Height of the frames, in pixels.
        frames_per_second: Frame rate of the video; the mean rate of several videos.
        jpegs: The frames.
        piece_frames: Frames of a piece: as many as depend on each other on a live link.
        continuous: Whether pieces are consecutive. Those of a long video and of several scenes are not.
    """

    scenes: tuple[Scene, ...]
    width: int
    height: int
    frames_per_second: float
    jpegs: tuple[bytes, ...]
    piece_frames: int
    continuous: bool

    @property
    def name(self) -> str:
        """The names of all scenes, for people."""
        return " + ".join(scene.name for scene in self.scenes)

    @property
    def sha256(self) -> str:
        """The digest of the video. For several videos: the digest of their digests."""
        if len(self.scenes) == 1:
            return self.scenes[0].sha256
        return hashlib.sha256(" ".join(scene.sha256 for scene in self.scenes).encode()).hexdigest()

    @cached_property
    def ranges(self) -> tuple[range, ...]:
        """The indices of each scene's frames."""
        ends = accumulate((scene.frames for scene in self.scenes), initial=0)
        return tuple(range(first, end) for first, end in pairwise(ends))

    def by_scene(self, places: Iterable[int]) -> list[list[int]]:
        """Group indices by scene. A scene without any has an empty list."""
        chosen = list(places)
        return [[place for place in chosen if place in places_of] for places_of in self.ranges]

    def sampled(self, frames: int) -> list[int]:
        """Return the indices of `frames` evenly spread frames of each scene, or of all if it has fewer."""
        chosen = []
        for places in self.ranges:
            count = min(frames, len(places))
            chosen += [places[int((index + 0.5) * len(places) / count)] for index in range(count)]
        return chosen

    def image(self, place: int) -> Image:
        """Decode a frame, as an application gets an original."""
        image = np.empty((self.height, self.width, 3), dtype=np.uint8)
        _native.decode_into("jpeg", self.jpegs[place], image)
        return image

    def pieces(self, places: Iterable[int]) -> list[range]:
        """Return the pieces that hold these frames, in order."""
        found = []
        for frames, chosen in zip(self.ranges, self.by_scene(places), strict=True):
            numbers = sorted({(place - frames.start) // self.piece_frames for place in chosen})
            found += [frames[number * self.piece_frames :][: self.piece_frames] for number in numbers]
        return found

    @cached_property
    def key(self) -> str:
        """A name for these frames in caches."""
        digest = hashlib.sha256()
        digest.update(f"{self.sha256} {self.piece_frames} {self.continuous}".encode())
        if len(self.scenes) > 1:
            digest.update(" ".join(str(scene.frames) for scene in self.scenes).encode())
        for jpeg in self.jpegs:
            digest.update(hashlib.sha256(jpeg).digest())
        return digest.hexdigest()


def read_all(sources: Sequence[Path], cache: Path | None = None, frames_max: int = FRAMES_MAX) -> Footage:
    """Read several videos of one camera. Each is one scene.

    Args:
        sources: The files or folders.
        cache: As for `read`.
        frames_max: The most frames that are taken from all videos together.

    Raises:
        VideoError: A video cannot be used, or they are not of one camera.
    """
    scenes = [read(source, cache, frames_max // len(sources)) for source in sources]
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        # Files of the same name in different folders get the folder's name too.
        scenes = [
            replace(footage, scenes=(replace(footage.scenes[0], name=f"{source.parent.name}/{source.name}"),))
            for source, footage in zip(sources, scenes, strict=True)
        ]
    return _joined(scenes)


def _joined(scenes: Sequence[Footage]) -> Footage:
    first = scenes[0]
    if len(scenes) == 1:
        return first
    for scene in scenes[1:]:
        if (scene.width, scene.height) != (first.width, first.height):
            raise VideoError(
                f"{scene.name} has {scene.width}x{scene.height} pixels, but {first.name} has "
                f"{first.width}x{first.height}; a profile is for one camera, so give videos of one size"
            )
        rates = sorted((scene.frames_per_second, first.frames_per_second))
        if rates[1] > FRAME_RATES_RATIO_MAX * rates[0]:
            raise VideoError(
                f"{scene.name} has {scene.frames_per_second:g} frames per second, but {first.name} has "
                f"{first.frames_per_second:g}; a profile is for one camera, so give videos of one frame rate"
            )
        if scene.scenes[0].sha256 in {one.scenes[0].sha256 for one in scenes if one is not scene}:
            raise VideoError(f"{scene.name} is given twice; name each video once")
    return replace(
        first,
        scenes=tuple(scene for footage in scenes for scene in footage.scenes),
        frames_per_second=statistics.fmean(scene.frames_per_second for scene in scenes),
        jpegs=tuple(jpeg for scene in scenes for jpeg in scene.jpegs),
        piece_frames=min(scene.piece_frames for scene in scenes),
        continuous=False,
    )


def read(source: Path, cache: Path | None = None, frames_max: int = FRAMES_MAX) -> Footage:
    """Read a video, or a folder of pictures in the order of their names.

    Pictures that `mez profile run --camera` recorded are used unchanged, as the camera published them. Others
    are encoded as a camera publishes them.

    Args:
        source: The file or folder.
        cache: The folder that keeps frames for the next run and for worker processes.
        frames_max: The most frames that are taken.

    Raises:
        VideoError: It cannot be used.
    """
    if not source.exists():
        raise VideoError(f"there is no video {source}; give a file or a folder of pictures with --video")
    digest = _digest(source)
    kept = None if cache is None else cache / f"scene-{digest[:24]}-{frames_max}.bin"
    if kept is not None and kept.exists():
        return _load(kept)
    reader = _reader(source)
    fps = reader.frames_per_second
    piece = max(1, round(PIECE_S * fps))
    starts = _pieces(reader.frames, piece, frames_max)
    jpegs: list[bytes] = []
    size: tuple[int, int] | None = None
    for number, image, published in reader.images(starts, piece):
        image = _bgr(image, f"frame {number} of {source}")
        if size is None:
            size = image.shape[1], image.shape[0]
        elif size != (image.shape[1], image.shape[0]):
            raise VideoError(
                f"frame {number} of {source} has {image.shape[1]}x{image.shape[0]} pixels, but "
                "the frames before it have "
                f"{size[0]}x{size[1]}; a profile is for one camera, so give frames of one size"
            )
        jpegs.append(published or _native.encode_jpeg(image, PUBLISHED_QUALITY))
        if len(jpegs) >= frames_max:
            break
    if size is None:
        raise VideoError(
            f"{source} has no frame that can be decoded; check with `ffmpeg -i` whether it is a video"
        )
    scenes = (Scene(source.name, digest, len(jpegs)),)
    footage = Footage(scenes, *size, fps, tuple(jpegs), piece, len(starts) == 1)
    if kept is not None:
        _store(footage, kept)
    return footage


def _pieces(frames: int | None, piece: int, frames_max: int) -> list[int]:
    """Return where pieces begin: one piece, if the video is short or its length is unknown."""
    if frames is None or frames <= frames_max:
        return [0]
    count = max(1, frames_max // piece)
    return [int(index * (frames - piece) / max(1, count - 1)) for index in range(count)] if count > 1 else [0]


_Read = tuple[int, npt.NDArray[np.generic], bytes | None]
"""A frame: its number, its pixels, and its JPEG if a camera published it."""


def _reader(source: Path) -> "_Video | _Pictures | _Recording":
    if not source.is_dir():
        return _Video(source)
    pictures = _pictures(source)
    recorded = bool(pictures) and all(_RECORDED.fullmatch(path.name) for path in pictures)
    return _Recording(pictures) if recorded else _Pictures(source, pictures)


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

    def images(self, starts: list[int], piece: int) -> Iterator[_Read]:
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
                    yield number, np.asarray(image), None
                number += 1
        finally:
            capture.release()

    def _open(self) -> cv2.VideoCapture:
        capture = cv2.VideoCapture(str(self._path))
        if not capture.isOpened():
            raise VideoError(
                f"{self._path} cannot be opened as a video; check with `ffmpeg -i` whether it is a video"
            )
        return capture


class _Pictures:
    """Pictures of a folder."""

    frames_per_second = FRAMES_PER_SECOND_DEFAULT

    def __init__(self, folder: Path, pictures: list[Path]) -> None:
        self._paths = pictures
        if not self._paths:
            raise VideoError(
                f"the folder {folder} has no pictures ({', '.join(sorted(_PICTURES))}); give another one"
            )
        self.frames: int | None = len(self._paths)

    def images(self, starts: list[int], piece: int) -> Iterator[_Read]:
        wanted = _Wanted(starts, piece)
        for number, path in enumerate(self._paths):
            if wanted.holds(number):
                image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
                if image is None:
                    raise VideoError(f"{path} is damaged or not a picture; remove it from the folder")
                yield number, np.asarray(image), None


class _Recording:
    """Frames as a camera published them, in a folder that `mez profile run --camera` wrote."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self.frames: int | None = len(paths)
        times_ns = [int(path.stem) for path in paths]
        steps_ns = [later - earlier for earlier, later in pairwise(times_ns)]
        # The median, because a camera may pause.
        self.frames_per_second = 1e9 / statistics.median(steps_ns) if steps_ns else FRAMES_PER_SECOND_DEFAULT

    def images(self, starts: list[int], piece: int) -> Iterator[_Read]:
        wanted = _Wanted(starts, piece)
        for number, path in enumerate(self._paths):
            if wanted.holds(number):
                jpeg = path.read_bytes()
                image = cv2.imdecode(
                    np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
                )
                if image is None:
                    raise VideoError(f"{path} is damaged; remove it from the folder")
                yield number, np.asarray(image), jpeg


class _Wanted:
    """Selects the frames of the pieces."""

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
    """Convert pixels to 8-bit blue, green, red, as cameras publish them."""
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
        raise VideoError(f"{what} has samples of type {image.dtype}; convert it to 8 bits per sample")
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
    """Write a line of JSON and then the frames, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {
        "scenes": [asdict(scene) for scene in footage.scenes],
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
        scenes = tuple(Scene(**scene) for scene in head.pop("scenes"))
    return Footage(scenes=scenes, jpegs=jpegs, **head)
