"""Stages of the pipelines `faces` and `objects` (docs/pipelines.md#recognition).

| stage | takes | makes | replies |
| --- | --- | --- | --- |
| `DetectFaces` | a frame | thumbnails of its faces, one below the other | empty detections, if none |
| `Embed` | these | float32 of shape (faces, 128) | |
| `Classify` | these | JSON: `faces`, each with `name`, `distance`, `score`, `xyxy` | boxes with names |
| `DetectObjects` | a frame | JSON: `objects`, each with `name`, `score`, `xyxy` | boxes with kinds |

The marks `decoded`, and `ai.found` or `ai.embedded`, are set before and after the network runs, so that
`mez pipeline report` shows its time separately.

Boxes are in pixels of the frame as it was published. The faces of a frame stay together in one record, so
that the camera gets one reply for each frame, and `mez.join` has one record to wait for.
"""

import contextlib
import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mez._detections import Detections
from mez.apps import dlib_faces, nanodet, people
from mez.apps.dlib_faces import NUMBERS, THUMBNAIL
from mez.apps.onnx_network import OnnxError
from mez.apps.people import PeopleError
from mez.errors import MissingPackageError
from mez.pipeline.errors import StageError
from mez.pipeline.record import Record

FACES_MAX: Final = 128
"""The most faces of a frame. Their boxes are sent in a header."""

FACES: Final = "faces"
"""The header of records between the stages: left, top, right, bottom and score of each face, as JSON."""

Corners = tuple[float, float, float, float]
"""Left, top, right and bottom."""

_log = logging.getLogger("mez")


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn errors of the setup into `StageError`, which ends the pipeline: a restart would not help."""
    try:
        yield
    except (MissingPackageError, OnnxError, PeopleError, ValueError) as error:
        raise StageError(str(error)) from error


class DetectFaces:
    """Finds the faces of a frame.

    Args:
        score_min: How sure the detector has to be. A clear face has about 1.5.
        enlarge: How often the picture is doubled first, 0 to 3: 0 finds faces from about 80 pixels on, 1 from
            40, in four times the time.
        faces_max: The most faces of a frame, 1 to 128; the surest are kept.

    Raises:
        StageError: An option is out of its range, or dlib or its models are not installed.
    """

    def __init__(
        self, score_min: float = dlib_faces.SCORE_MIN, enlarge: int = 0, faces_max: int = 32
    ) -> None:
        if not 0 <= enlarge <= 3:
            raise StageError(f"options.enlarge is {enlarge}; give 0 to 3")
        if not 1 <= faces_max <= FACES_MAX:
            raise StageError(f"options.faces_max is {faces_max}; give 1 to {FACES_MAX}")
        with _told():
            self._finder = dlib_faces.Finder(score_min, enlarge)
        self._faces_max = faces_max

    def __call__(self, record: Record) -> Record | None:
        """Find faces, and cut them out. Without a face, there is no record."""
        image = record.image
        record.mark("decoded")
        faces = self._finder.find(image)[: self._faces_max]
        record.mark("ai.found")
        if not faces:
            record.reply(Detections([]))
            return None
        rows = _rows(record, image, ((face.xyxy, face.score) for face in faces))
        thumbnails = np.concatenate([face.thumbnail for face in faces])
        return record.picture(thumbnails, headers={FACES: json.dumps(rows, separators=(",", ":"))})


class Embed:
    """Computes a vector of 128 numbers for each face.

    Args:
        stale_s: Frames that are older, in seconds by the wall clocks of the camera and this host, are left
            out.
        network: The file of dlib's network. Default: that of `face-recognition-models`.

    Raises:
        StageError: As for `DetectFaces`; or the file is not a network.
    """

    def __init__(self, stale_s: float = 2.0, network: str | None = None) -> None:
        if not stale_s > 0:
            raise StageError(f"options.stale_s is {stale_s}; give more than 0 seconds")
        with _told():
            self._embedder = dlib_faces.Embedder(None if network is None else Path(network))
        self._stale_ns = stale_s * 1e9

    def __call__(self, record: Record) -> Record | None:
        """Compute the vectors."""
        if time.time_ns() - record.captured_ns > self._stale_ns:
            return None
        image = record.image
        rows = [image[top : top + THUMBNAIL] for top in range(0, len(image), THUMBNAIL)]
        record.mark("decoded")
        vectors = [self._embedder.embed(thumbnail) for thumbnail in rows]
        record.mark("ai.embedded")
        return record.derive(np.stack(vectors))


class Classify:
    """Finds the names of faces.

    Args:
        known: The file that `mez pipeline enrol` wrote.
        distance_max: The largest distance of a face from the nearest known one. The network was trained for
            0.6.

    Raises:
        StageError: The file cannot be used.
    """

    def __init__(self, known: str = "people.json", distance_max: float = 0.6) -> None:
        with _told():
            self._people = people.read(Path(known))
        self._distance_max = distance_max
        _log.info("%s: %d people are known", known, len(self._people.names))

    def __call__(self, record: Record) -> Record:
        """Find the names, and reply them to the camera."""
        vectors: npt.NDArray[np.float32] = record.data
        rows: list[list[float]] = json.loads(record.headers[FACES])
        if vectors.shape != (len(rows), NUMBERS):
            raise ValueError(
                f"{len(rows)} faces have vectors of the shape {vectors.shape}; connect this stage to Embed"
            )
        matches = [self._people.nearest(vector, self._distance_max) for vector in vectors]
        record.mark("named")
        names = [match.name for match in matches]
        record.reply(_detections(record, rows, names))
        faces = [
            {"name": match.name, "distance": _rounded(match.distance), "score": row[4], "xyxy": row[:4]}
            for match, row in zip(matches, rows, strict=True)
        ]
        return record.derive({"faces": faces})


class DetectObjects:
    """Finds objects of 80 classes.

    Args:
        score_min: The score from which an object counts as found, 0 to 1.
        kinds: Only these, such as `["person", "car"]`. Default: all.
        network: The `.onnx` file of a NanoDet of 416 pixels. Default: the one that comes with Mez.

    Raises:
        StageError: A kind or the file cannot be used, or ONNX Runtime is not installed.
    """

    def __init__(
        self,
        score_min: float = nanodet.SCORE_MIN,
        kinds: Sequence[str] | None = None,
        network: str | None = None,
    ) -> None:
        wrong = sorted(set(kinds or ()) - set(nanodet.LABELS))
        if wrong:
            raise StageError(
                f"options.kinds has {', '.join(wrong)}; give kinds of COCO, such as person or car"
            )
        path = nanodet.NETWORK if network is None else Path(network)
        with _told():
            self._detector = nanodet.Detector(path, score_min)
        self._kinds = set(kinds or nanodet.LABELS)

    def __call__(self, record: Record) -> Record:
        """Find objects, and reply the boxes to the camera."""
        image = record.image
        record.mark("decoded")
        found = [box for box in self._detector.detect(image) if box.label in self._kinds]
        record.mark("ai.found")
        corners = [(box.x, box.y, box.x + box.width, box.y + box.height) for box in found]
        rows = _rows(record, image, zip(corners, (box.score for box in found), strict=True))
        names = [box.label for box in found]
        record.reply(_detections(record, rows, names))
        objects = [
            {"name": name, "score": row[4], "xyxy": row[:4]} for name, row in zip(names, rows, strict=True)
        ]
        return record.derive({"objects": objects})


def _rows(
    record: Record, image: npt.NDArray[Any], boxes: Iterable[tuple[Corners, float]]
) -> list[list[float]]:
    """Left, top, right, bottom and score of each box, in pixels of the frame as it was published."""
    height, width = image.shape[:2]
    across, down = record.published_size or (width, height)
    factors = np.array([across / width, down / height] * 2)
    return [[*np.round(corners * factors, 1).tolist(), round(score, 3)] for corners, score in boxes]


def _detections(record: Record, rows: Sequence[Sequence[float]], names: Sequence[str]) -> Detections:
    """The boxes with their labels, in pixels of the frame as it was published."""
    return Detections(
        [row[:4] for row in rows],
        scores=[row[4] for row in rows],
        class_names=list(names),
        size=record.published_size,
    )


def _rounded(distance: float | None) -> float | None:
    return None if distance is None else round(distance, 4)
