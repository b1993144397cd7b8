"""Engines by name: functions that take a picture, and return a picture or detections."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mez import _modules
from mez._detections import Detections
from mez.engine.errors import EngineError

Image: TypeAlias = npt.NDArray[np.uint8]
"""Pixels of shape (rows, columns, 3), in Mez's order: blue, green, red, as in OpenCV and `Frame.image`."""

Engine: TypeAlias = Callable[[Image], Image | Detections]
"""What `load` returns. A user's function may return other types; `picture` checks its results."""

DEVICES: Final = ("cpu", "cuda")

BUILT_IN: Final = ("noop", "boxes", "style")
"""Engines that come with Mez."""

NAMES: Final = f"{', '.join(BUILT_IN)}, FILE.onnx, FILE.py:FUNCTION or MODULE:FUNCTION"


def check(name: str) -> None:
    """Check the name of an engine, without loading it.

    Raises:
        EngineError: There is no such engine.
    """
    if name not in BUILT_IN and ":" not in name and not name.endswith(".onnx"):
        raise EngineError(f"there is no engine {name}; give {NAMES}")


def load(name: str, device: str = "cpu") -> Engine:
    """Load an engine: a function that makes a picture of a picture.

    Args:
        name: `"noop"`: returns the picture unchanged. `"boxes"`: finds objects of 80 classes. `"style"`:
            repaints the picture in the style that comes with Mez. `"FILE.onnx"`: repaints it in a style from
            `mez style train`. `"FILE.py:NAME"` or `"MODULE:NAME"`: your own function or class. Of a class,
            one object is created and called for each picture. Files are relative to the current folder.
        device: The processor: `"cpu"` (one thread) or `"cuda"`. Your own class gets it if its constructor has
            a parameter `device`.

    Returns:
        A function. It takes pixels, uint8, shape (height, width, 3), in the order blue, green, red. It
        returns pixels of the same size, or `mez.Detections`. Your own function may return anything that
        `picture` accepts.

    Raises:
        EngineError: There is no such engine, it cannot be loaded, or the device does not exist.
    """
    if device not in DEVICES:
        raise EngineError(f'device is {device!r}; give "cpu" or "cuda"')
    check(name)
    if name == "noop":
        return _same
    if name == "boxes":
        return _boxes(device)
    if name == "style" or name.endswith(".onnx"):
        return _style(None if name == "style" else Path(name), device)
    return _own(name, device)


def _same(image: Image) -> Image:
    return image


def _boxes(device: str) -> Engine:
    try:
        from mez.apps.nanodet import Detector
        from mez.apps.onnx_network import OnnxError
    except ImportError as error:
        raise _missing("boxes", error) from error
    try:
        detector = Detector(device=device)
    except OnnxError as error:
        raise EngineError(f"boxes: {error}") from error

    def find(image: Image) -> Detections:
        found = detector.detect(image)
        return Detections(
            [(box.x, box.y, box.x + box.width, box.y + box.height) for box in found],
            scores=[box.score for box in found],
            class_names=[box.label for box in found],
        )

    return find


def _style(path: Path | None, device: str) -> Engine:
    try:
        from mez.engine.style.painter import SHIPPED, Painter
    except ImportError as error:
        raise _missing("style", error) from error
    return Painter(SHIPPED if path is None else path, device)


def _missing(name: str, error: ImportError) -> EngineError:
    return EngineError(f"{name} cannot be loaded ({error}); run: pip install 'mez[onnx]'")


def _own(name: str, device: str) -> Engine:
    try:
        named = _modules.named(name)
    except _modules.LoadError as error:
        raise EngineError(f"{name}: {error}; give FILE.py:NAME or MODULE:NAME") from error
    if not inspect.isclass(named):
        function: Engine = named
        return function
    try:
        takes_device = "device" in inspect.signature(named).parameters
    except (TypeError, ValueError):
        takes_device = False
    create: Any = named
    try:
        made: Any = create(device=device) if takes_device else create()
    except Exception as error:
        raise EngineError(f"the constructor of {name} failed: {type(error).__name__}: {error}") from error
    if not callable(made):
        raise EngineError(f"objects of {name} cannot be called; give the class a method __call__")
    engine: Engine = made
    return engine
