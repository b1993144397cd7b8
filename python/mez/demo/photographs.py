"""Photographs that packages ship, for `mez demo --pipeline faces`."""

import importlib.util
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from mez.errors import MissingPackageError

NAME = "Eileen Collins"
"""Whom `astronaut` shows."""


def astronaut() -> npt.NDArray[np.uint8]:
    """The one photograph of a face that scikit-image ships: by NASA, in the public domain.

    The package is not imported: its file is enough, without the packages that it needs.

    Returns:
        BGR pixels, uint8, of shape (512, 512, 3). The face is 87 pixels wide.

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
        raise MissingPackageError(
            "this scikit-image has no data/astronaut.png; run: pip install scikit-image"
        )
    return np.asarray(image, np.uint8)
