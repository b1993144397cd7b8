"""Loads functions and classes that users name: `FILE.py:NAME` or `MODULE:NAME`."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


class LoadError(Exception):
    """It cannot be imported, because of its cause. The message says what, without what to do."""


class NoFileError(LoadError):
    """There is no such file."""


def module(name: str, folder: Path | None = None) -> ModuleType:
    """Import a file that ends in `.py`, or a module by its name.

    Args:
        name: The file or the module.
        folder: Where files, and modules beside them, are looked for. Default: the current folder.

    Raises:
        LoadError: There is none, or it raised when it was imported.
    """
    place = "" if folder is None else str(folder)
    if place not in sys.path:
        sys.path.insert(0, place)
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        path = (folder / name if folder is not None else Path(name)).resolve()
        found = importlib.util.spec_from_file_location(path.stem, path)
        if found is None or found.loader is None or not path.is_file():
            raise NoFileError(f"there is no file {path}")
        loaded = importlib.util.module_from_spec(found)
        sys.modules[path.stem] = loaded
        found.loader.exec_module(loaded)
        return loaded
    except LoadError:
        raise
    except Exception as error:
        raise LoadError(f"{name} cannot be imported ({type(error).__name__}: {error})") from error
