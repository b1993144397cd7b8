"""Video for `mez demo --pipeline`: made from a photograph in a package, or from the demo's own video."""

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from mez.apps.boxes import Box
from mez.errors import MissingPackageError

Image = npt.NDArray[np.uint8]

PERSON: Final = "Eileen Collins"
"""The person on the photograph `astronaut`."""

SIZE: Final = (640, 480)
"""Width and height of the video of `faces`."""

# The part of the photograph with head and shoulders, and the face in this part, as dlib finds it.
_LEFT, _TOP, _RIGHT, _BOTTOM = 110, 30, 350, 270
_FACE: Final = Box(179 - _LEFT, 83 - _TOP, 88, 88, 1.0, PERSON)

_ABSENT: Final = 8
"""One in this many frames shows no person."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A frame, with the people on it.

    Attributes:
        image: BGR pixels, uint8.
        truth: The faces on it, with names; `None`: unknown.
    """

    image: Image
    truth: tuple[Box, ...] | None


def astronaut() -> Image:
    """The one photograph of a face that scikit-image ships: by NASA, in the public domain.

    The package is not imported: its file is enough, without the packages that it needs.

    Returns:
        BGR pixels, uint8, of shape (512, 512, 3). The face is 88 pixels wide.

    Raises:
        MissingPackageError: scikit-image is not installed.
    """
    package = importlib.util.find_spec("skimage")
    if package is None or package.origin is None:
        raise MissingPackageError(
            "the photograph is in the package scikit-image; run: pip install scikit-image"
        )
    image = cv2.imread(str(Path(package.origin).with_name("data") / "astronaut.png"))
    if image is None:
        raise MissingPackageError("this scikit-image has no data/astronaut.png; install another: 0.26")
    return np.asarray(image, np.uint8)


def faces(camera: int) -> Iterator[Shown]:
    """Endless video of a face whose place, size and light change, mirrored at times, and absent at times.

    Args:
        camera: Which camera, from 0. Each shows something else.
    """
    portrait = astronaut()[_TOP:_BOTTOM, _LEFT:_RIGHT]
    wide, high = SIZE
    down, across = np.mgrid[0:high, 0:wide]
    wall = np.stack([60 + 50 * down / high, 70 + 40 * across / wide, 80 + 40 * down / high], axis=2)
    number = 0
    while True:
        turn = number / 9 + 2.1 * camera
        gain = 0.85 + 0.3 * math.cos(turn / 1.7)
        image = np.clip(wall * gain, 0, 255).astype(np.uint8)
        truth: tuple[Box, ...] = ()
        if (number + 3 * camera) % _ABSENT != _ABSENT - 1:
            scale = 1.4 + 0.35 * math.sin(turn)
            is_mirrored = (number // 5 + camera) % 2 == 1
            person = cv2.resize(portrait, None, fx=scale, fy=scale, interpolation=cv2.INTER_LINEAR)
            tall, broad = person.shape[:2]
            left = round((wide - broad) * (0.5 + 0.5 * math.sin(turn * 0.8)))
            top = high - tall - round((high - tall) * (0.5 + 0.5 * math.cos(turn * 0.6)))
            lit = np.clip(person * gain, 0, 255).astype(np.uint8)
            image[top : top + tall, left : left + broad] = lit[:, ::-1] if is_mirrored else lit
            face = _FACE.scaled(scale, scale)
            x = broad - face.x - face.width if is_mirrored else face.x
            truth = (Box(left + x, top + face.y, face.width, face.height, 1.0, PERSON),)
        yield Shown(image, truth)
        number += 1


def film(path: Path, camera: int) -> Iterator[Shown]:
    """A video, endlessly. Cameras begin at different places.

    Args:
        path: The video.
        camera: Which camera, from 0.

    Raises:
        MissingPackageError: OpenCV cannot read it.
    """
    capture = cv2.VideoCapture(str(path))
    capture.set(cv2.CAP_PROP_POS_FRAMES, 100 * camera)
    while True:
        read, image = capture.read()
        if not read:
            capture.release()
            capture = cv2.VideoCapture(str(path))
            read, image = capture.read()
            if not read:
                raise MissingPackageError(f"{path} cannot be read by OpenCV; give another --video")
        yield Shown(np.asarray(image, np.uint8), None)
