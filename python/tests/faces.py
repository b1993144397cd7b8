"""Photographs of a face for tests: the one that scikit-image ships, and what can be made of it."""

from functools import cache

import numpy as np

from mez.apps.dlib_faces import Image
from mez.demo.photographs import astronaut


@cache
def portrait() -> Image:
    """A face of 88 pixels at (179, 83): BGR, uint8, shape (512, 512, 3)."""
    return astronaut()


def mirrored() -> Image:
    """The same face, at (245, 83)."""
    return np.ascontiguousarray(portrait()[:, ::-1])


def nobody() -> Image:
    """The same photograph without its upper half: no face."""
    return np.ascontiguousarray(portrait()[256:])


def two() -> Image:
    """The face twice: shape (512, 1024, 3)."""
    return np.concatenate([portrait(), mirrored()], axis=1)
