"""Finds faces and tells them apart with dlib's detector and networks (`pip install 'mez[faces]'`).

- Detection: histograms of gradients, part of dlib (BSL-1.0). It finds upright faces from 80 pixels on.
- Five points of a face, used to rotate it upright: `shape_predictor_5_face_landmarks.dat` (CC0).
- A vector of 128 numbers from a ResNet, with small distances between faces of one person:
  `dlib_face_recognition_resnet_model_v1.dat` (CC0).

`face-recognition-models` also has a file of 68 points. Its licence excludes commercial use, so Mez does not
use it.
"""

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mez.errors import MissingPackageError

Image = npt.NDArray[np.uint8]

THUMBNAIL: Final = 160
"""Pixels of each side of a thumbnail."""

NUMBERS: Final = 128
"""Length of the vector that describes a face."""

SCORE_MIN: Final = 0.3
"""The score from which something counts as a face. A clear one has about 1.5."""

NETWORK: Final = "dlib_face_recognition_resnet_model_v1"
"""The network's name. Vectors of different networks cannot be compared."""

# The network takes 150 pixels with a quarter of the face around it. Thumbnails have 5 pixels more on each
# side, at the same scale: 150 / (1 + 2 * 0.25) = 160 / (1 + 2 * 0.3).
_INNER: Final = 150
_PADDING: Final = 0.3
_BORDER: Final = (THUMBNAIL - _INNER) // 2


@dataclass(frozen=True, slots=True, eq=False)
class Face:
    """A face in a picture.

    Attributes:
        xyxy: Left, top, right and bottom, in pixels of the picture. It may extend beyond the picture.
        score: How sure the detector is.
        thumbnail: The face, upright and centred: BGR, uint8, shape (160, 160, 3).
    """

    xyxy: tuple[float, float, float, float]
    score: float
    thumbnail: Image


class Finder:
    """Finds faces and cuts them out.

    Args:
        score_min: The score from which something counts as a face.
        enlarge: How often the picture is doubled first: 0 finds faces from about 80 pixels on, 1 from 40.

    Raises:
        MissingPackageError: dlib or its models are not installed.
        ValueError: A file of the models cannot be loaded.
    """

    def __init__(self, score_min: float = SCORE_MIN, enlarge: int = 0) -> None:
        self._dlib = _dlib()
        self._detector = self._dlib.get_frontal_face_detector()
        self._points = _loaded(self._dlib.shape_predictor, _model("shape_predictor_5_face_landmarks"))
        self._score_min = score_min
        self._enlarge = enlarge

    def find(self, image: Image) -> list[Face]:
        """Find faces.

        Args:
            image: BGR pixels of shape (height, width, 3), uint8.

        Returns:
            The faces, surest first.
        """
        pixels = np.ascontiguousarray(image[:, :, ::-1])
        boxes, scores, _ = self._detector.run(pixels, self._enlarge, self._score_min)
        found = sorted(zip(scores, range(len(boxes)), strict=True), key=lambda pair: -pair[0])
        return [self._face(pixels, boxes[place], score) for score, place in found]

    def _face(self, pixels: Image, box: Any, score: float) -> Face:  # noqa: ANN401, dlib has no types
        chip = self._dlib.get_face_chip(pixels, self._points(pixels, box), THUMBNAIL, _PADDING)
        # dlib's right and bottom are the last pixels inside the box.
        corners = float(box.left()), float(box.top()), float(box.right() + 1), float(box.bottom() + 1)
        return Face(corners, float(score), np.ascontiguousarray(chip[:, :, ::-1]))


class Embedder:
    """Computes the vectors of faces.

    Args:
        network: The network's file. Default: that of `face-recognition-models`.

    Raises:
        MissingPackageError: dlib or its models are not installed.
        ValueError: The file is not such a network.
    """

    def __init__(self, network: Path | None = None) -> None:
        dlib = _dlib()
        path = _model(NETWORK) if network is None else network
        self._network = _loaded(dlib.face_recognition_model_v1, path)

    def embed(self, thumbnail: Image) -> npt.NDArray[np.float32]:
        """Compute the vector of a face.

        Args:
            thumbnail: `Face.thumbnail`.

        Returns:
            128 numbers, float32. The Euclidean distance of two pictures of one person is mostly below 0.6.
        """
        inner = thumbnail[_BORDER : _BORDER + _INNER, _BORDER : _BORDER + _INNER, ::-1]
        return np.asarray(self._network.compute_face_descriptor(np.ascontiguousarray(inner)), np.float32)


def _dlib() -> Any:  # noqa: ANN401, dlib has no types
    try:
        return importlib.import_module("dlib")
    except ImportError as error:
        raise MissingPackageError(f"faces need dlib ({error}); run: pip install 'mez[faces]'") from error


def _model(name: str) -> Path:
    """A file of the package. The package is not imported, because that would need an old setuptools."""
    package = importlib.util.find_spec("face_recognition_models")
    if package is None or package.origin is None:
        raise MissingPackageError(
            "faces need the package face-recognition-models; run: pip install 'mez[faces]'"
        )
    return Path(package.origin).with_name("models") / f"{name}.dat"


def _loaded(load: Any, path: Path) -> Any:  # noqa: ANN401, dlib has no types
    try:
        return load(str(path))
    except RuntimeError as error:
        raise ValueError(
            f"{path} cannot be loaded by dlib ({error}); leave the file out to use that of "
            "face-recognition-models"
        ) from error
