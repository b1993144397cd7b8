"""Converts a frame's pixels for other libraries, which Mez itself does not need."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mez._arguments import StrPath, invalid, optional_path
from mez.errors import MissingPackageError

if TYPE_CHECKING:
    import numpy as np
    import PIL.Image
    from numpy.typing import NDArray

_ENCODINGS: Final = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png"}


def rgb(image: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
    """A copy in the order red, green, blue."""
    import numpy as np

    return np.ascontiguousarray(image[:, :, ::-1])


def pil(image: "NDArray[np.uint8]") -> "PIL.Image.Image":
    """An image of Pillow."""
    package: Any = _package("PIL.Image", "pillow", "frame.pil()", "")
    made: PIL.Image.Image = package.fromarray(rgb(image))
    return made


def tensor(image: "NDArray[np.uint8]", library: str) -> Any:  # noqa: ANN401, torch may not be there
    """Numbers from 0 to 1, of shape (3, height, width), in the order red, green, blue."""
    import numpy as np

    if library not in ("torch", "numpy"):
        raise invalid("library", f'library is {library!r}; give "torch" or "numpy"')
    torch = None
    if library == "torch":
        torch = _package("torch", "torch", "frame.tensor()", ', or ask for frame.tensor("numpy")')
    planes = np.empty((3, *image.shape[:2]), np.float32)
    np.divide(image.transpose(2, 0, 1)[::-1], np.float32(255), out=planes)
    return planes if torch is None else torch.from_numpy(planes)


def file_and_encoding(path: StrPath) -> tuple[Path, str]:
    """A file, and the encoding that fits the ending of its name."""
    text = optional_path("path", path)
    assert text is not None
    file = Path(text)
    encoding = _ENCODINGS.get(file.suffix.lower())
    if encoding is None:
        raise invalid("path", f"path is {text!r}; give a name that ends in .jpg, .jpeg or .png")
    return file, encoding


def _package(module: str, package: str, caller: str, otherwise: str) -> Any:  # noqa: ANN401, a module
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"{caller} needs the package {package}, which cannot be imported here ({error}); "
            f"install it into this environment: pip install {package}{otherwise}"
        ) from error
