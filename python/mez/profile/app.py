"""Loads the application that is profiled, and runs it: image in, boxes with scores out."""

import hashlib
import inspect
import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import cv2
import numpy as np

from mez import ArgumentError, ArgumentTypeError, _detections, _modules
from mez._detections import Detections
from mez.apps.boxes import Box
from mez.profile.errors import AppError
from mez.profile.footage import Image
from mez.profile.score import Thresholds

BOXES_MAX: Final = 10_000
"""The most boxes that are accepted for one frame. More indicate a bug in the application."""

SPECS: Final = "pedestrian-hog, faces, onnx:FILE, FILE.py:FUNCTION or MODULE:FUNCTION"
"""The values of `--app` of `mez profile` and `mez demo`."""

_RETURNS: Final = (
    "boxes as Frame.reply accepts them, in pixels of the given image: rows (left, top, right, bottom, score) "
    "with an optional class, mappings with x, y, width, height and score, or mez.Detections"
)

_STRONG_DEFAULT: Final = 0.5
_WEAK_OF_STRONG: Final = 0.6
"""The default of `--weak` for an unknown application, as a share of `--strong`: 0.3 if `--strong` is 0.5."""


@dataclass(frozen=True)
class App:
    """An application.

    Attributes:
        name: Its name as given, without the path of a file.
        sha256: The digest of everything that determines its results: its source file or model, and the
            version of OpenCV.
        thresholds: The scores from which on its boxes count.
        function: Takes an image, and the keyword `camera_size` if `takes_size` is true.
        takes_size: Whether it takes the size of published frames.
    """

    name: str
    sha256: str
    thresholds: Thresholds
    function: Callable[..., Any]
    takes_size: bool

    def find(self, image: Image, camera_size: tuple[int, int], what: str) -> list[Box]:
        """Run the application on a delivered frame.

        Args:
            image: The frame, at the size at which it was delivered.
            camera_size: Width and height of frames as published.
            what: The frame, for errors.

        Returns:
            The boxes, in pixels of the published frame. Boxes below the weak threshold are left out.

        Raises:
            AppError: It failed, or did not return boxes.
        """
        extra = {"camera_size": camera_size} if self.takes_size else {}
        try:
            answer = self.function(image, **extra)
        except Exception as error:
            raise AppError(
                f"the application {self.name} raised {type(error).__name__} on {what}{_place(error)}: "
                f"{error}; it must accept every image of shape (height, width, 3), and return {_RETURNS}"
            ) from error
        height, width = image.shape[:2]
        across, down = camera_size[0] / width, camera_size[1] / height
        return [
            box.clipped(width, height).scaled(across, down)
            for box in self._boxes(answer, (width, height), what)
            if box.score >= self.thresholds.weak
        ]

    def strong(self, image: Image, what: str, camera_size: tuple[int, int] | None = None) -> list[Box]:
        """Run the application on a frame. Returns the detections in pixels of `image`, highest score first.

        Args:
            image: The frame, at the size at which it was delivered.
            what: The frame, for errors.
            camera_size: Width and height of frames as published. Default: those of `image`.

        Raises:
            AppError: As `find`.
        """
        height, width = image.shape[:2]
        camera = camera_size or (width, height)
        found = [box for box in self.find(image, camera, what) if box.score >= self.thresholds.strong]
        across, down = width / camera[0], height / camera[1]
        return sorted((box.scaled(across, down) for box in found), key=lambda box: -box.score)

    def _boxes(self, answer: object, size: tuple[int, int], what: str) -> list[Box]:
        if isinstance(answer, Iterator):
            answer = list(answer)
        try:
            found = _detections.of(answer)
        except (ArgumentError, ArgumentTypeError) as error:
            raise self._wrong(f"returned invalid boxes on {what}: {error}") from None
        if found is None:
            raise self._wrong(f"returned {_short(answer)} on {what}")
        if len(found) > BOXES_MAX:
            raise self._wrong(f"returned {len(found)} boxes on {what}, more than {BOXES_MAX}")
        boxes = []
        for box in _plain(found):
            if not math.isfinite(box.score):
                raise self._wrong(f"returned a box on {what} without a finite score")
            if box.width <= 0 or box.height <= 0:
                raise self._wrong(f"returned a box of {box.width:g} x {box.height:g} pixels on {what}")
            if box.clipped(*size).area <= 0:
                raise self._wrong(
                    f"returned a box at ({box.x:g}, {box.y:g}) on {what}, outside the image of "
                    f"{size[0]}x{size[1]}"
                )
            boxes.append(box)
        return boxes

    def _wrong(self, what: str) -> AppError:
        return AppError(f"the application {self.name} {what}; it must return {_RETURNS}")


def load(spec: str, strong: float | None = None, weak: float | None = None) -> App:
    """Load an application.

    Args:
        spec: One of the forms in `SPECS`.
        strong: A box with at least this score is a detection. Default: the value of the built-in application,
            else 0.5.
        weak: A box with at least this score still counts as found. Default: the value of the built-in
            application, else 0.6 of `strong`.

    Raises:
        AppError: There is no such application, or it cannot be loaded.
    """
    function, digest, own = _resolve(spec)
    strong = strong if strong is not None else own.strong
    weak = weak if weak is not None else min(own.weak, strong)
    if not (math.isfinite(strong) and math.isfinite(weak) and weak <= strong):
        raise AppError(f"--weak is {weak:g}, and --strong {strong:g}; give a --weak of at most --strong")
    digest.update(f"opencv {cv2.__version__}".encode())
    name = f"onnx:{Path(spec[5:]).name}" if spec.startswith("onnx:") else spec
    if ":" in name and "/" in name:
        name = name.rpartition("/")[2]
    takes_size = "camera_size" in _parameters(function)
    return App(name, digest.hexdigest(), Thresholds(strong, weak), function, takes_size)


def _resolve(spec: str) -> tuple[Callable[..., Any], Any, Thresholds]:
    if spec == "pedestrian-hog":
        if not hasattr(cv2, "HOGDescriptor"):
            raise AppError(
                f"OpenCV {cv2.__version__} has no people detector; run: "
                "pip install 'opencv-python-headless<5'"
            )
        from mez.apps import pedestrian_hog

        return _built_in(pedestrian_hog.detect, pedestrian_hog.STRONG, pedestrian_hog.WEAK)
    if spec == "faces":
        from mez.apps import faces

        return _built_in(faces.detect, faces.STRONG, faces.WEAK)
    if spec.startswith("onnx:"):
        from mez.apps import onnx_yolo

        path = Path(spec[5:])
        try:
            detector = onnx_yolo.Detector(path)
        except onnx_yolo.OnnxError as error:
            raise AppError(str(error)) from error
        function, digest, own = _built_in(detector.detect, onnx_yolo.STRONG, onnx_yolo.WEAK)
        digest.update(path.read_bytes())
        return function, digest, own
    module_name, colon, attribute = spec.rpartition(":")
    if not colon or not module_name or not attribute:
        raise AppError(f"there is no application {spec!r}; --app takes {SPECS}")
    module = _module(module_name, spec)
    named: object = getattr(module, attribute, None)
    if not callable(named):
        raise AppError(f"{module_name} has no function {attribute}; --app takes {SPECS}")
    source = Path(module.__file__) if module.__file__ else None
    digest = hashlib.sha256(source.read_bytes() if source else spec.encode())
    digest.update(attribute.encode())
    return named, digest, Thresholds(_STRONG_DEFAULT, _STRONG_DEFAULT * _WEAK_OF_STRONG)


def _built_in(
    function: Callable[..., Any], strong: float, weak: float
) -> tuple[Callable[..., Any], Any, Thresholds]:
    source = inspect.getsourcefile(function)
    assert source is not None, "the package's own modules have files"
    boxes = Path(source).with_name("boxes.py").read_bytes()
    return function, hashlib.sha256(Path(source).read_bytes() + boxes), Thresholds(strong, weak)


def _module(name: str, spec: str) -> ModuleType:
    try:
        return _modules.module(name)
    except _modules.NoFileError as error:
        raise AppError(f"there is no file {name}; --app takes {SPECS}") from error
    except _modules.LoadError as error:
        cause = error.__cause__
        raise AppError(
            f"the application {spec} cannot be imported ({type(cause).__name__}: {cause}); try: "
            f"python -c 'import {name}'"
        ) from error


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _plain(found: Detections) -> list[Box]:
    """As boxes with labels: the class name, else its number. Without scores, each box has the score 1."""
    count = len(found)
    scores = np.ones(count, np.float32) if found.scores is None else found.scores
    labels = [""] * count if found.class_names is None else [str(name) for name in found.class_names]
    if found.class_ids is not None:
        labels = [
            label or (str(int(number)) if number >= 0 else "")
            for label, number in zip(labels, found.class_ids, strict=True)
        ]
    corners = found.xyxy.astype(np.float64).tolist()
    return [
        # Rounded to the digits of float32, so that thresholds compare with the detector's own number.
        Box(left, top, right - left, bottom - top, float(str(score)), label)
        for (left, top, right, bottom), score, label in zip(corners, scores, labels, strict=True)
    ]


def _place(error: BaseException) -> str:
    """The line that raised an error, for people."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" (line {frames[-1].lineno} of {frames[-1].filename})" if len(frames) > 1 else ""


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 80 else f"{text[:77]}..."
