"""Loads functions and classes that users name: `FILE.py:NAME` or `MODULE:NAME`."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from mez.errors import Error


class LoadError(Exception):
    """A file or module cannot be loaded. The message gives the reason, but no remedy."""


class NoFileError(LoadError):
    """There is no such file."""


def module(name: str, folder: Path | None = None) -> ModuleType:
    """Import a file that ends in `.py`, or a module by its name.

    Args:
        name: The file or the module.
        folder: Where files, and modules beside them, are looked for. Default: the current folder.

    Raises:
        LoadError: It does not exist, or it raised an error when it was imported.
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


def named(what: str, folder: Path | None = None) -> Callable[..., Any]:
    """Load a function or a class: `FILE.py:NAME` or `MODULE:NAME`.

    Args:
        what: Its name.
        folder: As for `module`.

    Raises:
        LoadError: The file or module cannot be imported, or has no callable of this name.
    """
    place, _, name = what.rpartition(":")
    found = getattr(module(place, folder), name, None)
    if not callable(found):
        raise LoadError(f"{place} has no function or class {name}")
    called: Callable[..., Any] = found
    return called


def told(error: BaseException) -> str:
    """An error of a user's function, for people: its type, its text, and where it was raised.

    For an error of Mez, only the text: it says what to do.
    """
    if isinstance(error, Error):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
