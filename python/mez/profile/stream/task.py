"""Runs the user's functions: the application, and the one that scores its results."""

import hashlib
import importlib
import importlib.util
import math
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mez.profile.errors import AppError
from mez.profile.stream.records import Record, Stream, decoded

SPEC: Final = "FILE.py:NAME or MODULE:NAME"
"""The form in which users name a function or a value in a file."""


@dataclass(frozen=True)
class Task:
    """An application on the records of one or several streams, with its accuracy function.

    Attributes:
        name: For people.
        sha256: The digest of everything that determines its results.
        application: Takes a payload, and returns a result. With several streams, it takes a list: the payload
            of the same index from each stream.
        accuracy: Takes the result on the published records, and another result. Returns 0 to 1.
    """

    name: str
    sha256: str
    application: Callable[..., Any]
    accuracy: Callable[[Any, Any], float]

    def result(self, bodies: Sequence[bytes], records: Sequence[Record], rung: str) -> Any:  # noqa: ANN401
        """Return the application's result on records.

        Args:
            bodies: The bytes of a record at the rung, for each stream.
            records: These records, as they were published.
            rung: The rung, for errors.

        Raises:
            AppError: It failed.
            RecordError: A body does not fit its record's content type.
        """
        values = [decoded(body, record) for body, record in zip(bodies, records, strict=True)]
        try:
            return self.application(values if len(values) > 1 else values[0])
        except Exception as error:
            raise AppError(
                f"the application {self.name} raised {type(error).__name__} on {_named(records, rung)}"
                f"{_place(error)}: {error}"
            ) from error

    def score(self, reference: object, result: object, records: Sequence[Record], rung: str) -> float:
        """Return the accuracy of a result.

        Raises:
            AppError: The accuracy function failed, or did not return a number from 0 to 1.
        """
        where = _named(records, rung)
        try:
            value = self.accuracy(reference, result)
        except Exception as error:
            raise AppError(
                f"the accuracy function raised {type(error).__name__} on {where}{_place(error)}: {error}; "
                "it takes the result on the record as published, and the result on the degraded one"
            ) from error
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        # A sum of floats may be slightly above 1.
        if not -1e-9 <= number <= 1 + 1e-9:
            raise AppError(
                f"the accuracy function returned {_short(value)} on {where}; it must return a number from "
                "0 (useless) to 1 (as good as the reference)"
            )
        return min(max(number, 0.0), 1.0)


def load(application: str, accuracy: str, streams: Sequence[Stream]) -> Task:
    """Load the functions, and try them on the first records.

    Args:
        application: The application's function, in the form `SPEC`.
        accuracy: The accuracy function, in the form `SPEC`.
        streams: The streams.

    Raises:
        AppError: There are no such functions, or they cannot be used.
    """
    functions = [named(application, "--app"), named(accuracy, "--accuracy")]
    for function, spec in zip(functions, (application, accuracy), strict=True):
        if not callable(function):
            raise AppError(f"{spec} is not a function")
    name = application.rpartition("/")[2]
    task = Task(name, _digest(application, accuracy), functions[0], functions[1])
    first = [stream.records[0] for stream in streams]
    reference = task.result([record.payload for record in first], first, "original")
    if (same := task.score(reference, reference, first, "original")) < 1:
        raise AppError(
            f"the accuracy function returned {same:g} for a result against itself on "
            f"{_named(first, 'original')}; it must return 1"
        )
    return task


def named(spec: str, option: str) -> Any:  # noqa: ANN401, the user's
    """Return the object that a user named in a file or module.

    Raises:
        AppError: It does not exist.
    """
    module_name, colon, attribute = spec.rpartition(":")
    if not colon or not module_name or not attribute:
        raise AppError(f"{option} {spec!r} is not a name in a file or module; give {SPEC}")
    module = _module(module_name, option)
    if not hasattr(module, attribute):
        raise AppError(f"{module_name} has no {attribute}; {option} takes {SPEC}")
    return getattr(module, attribute)


def _module(name: str, option: str) -> ModuleType:
    try:
        if not name.endswith(".py"):
            if "" not in sys.path:
                sys.path.insert(0, "")  # the current folder, as with `python -m`
            return importlib.import_module(name)
        path = Path(name).resolve()
        if not path.is_file():
            raise AppError(f"there is no file {name}; {option} takes {SPEC}")
        # One file may contain the application, its accuracy and its knobs: it is imported once.
        known = sys.modules.get(path.stem)
        if known is not None and getattr(known, "__file__", None) == str(path):
            return known
        found = importlib.util.spec_from_file_location(path.stem, path)
        assert found is not None and found.loader is not None, "a file that ends in .py"
        module = importlib.util.module_from_spec(found)
        sys.modules[path.stem] = module
        try:
            found.loader.exec_module(module)
        except BaseException:
            del sys.modules[path.stem]
            raise
        return module
    except AppError:
        raise
    except Exception as error:
        raise AppError(f"{name} cannot be imported ({type(error).__name__}: {error})") from error


def _digest(*specs: str) -> str:
    digest = hashlib.sha256()
    for spec in specs:
        module_name, _, attribute = spec.rpartition(":")
        file = getattr(_module(module_name, "--app"), "__file__", None)
        digest.update(Path(file).read_bytes() if file else module_name.encode())
        digest.update(attribute.encode())
    return digest.hexdigest()


def _named(records: Sequence[Record], rung: str) -> str:
    return f"{', '.join(record.name for record in records)} at {rung}"


def _place(error: BaseException) -> str:
    """The line that raised an error, for people."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" (line {frames[-1].lineno} of {frames[-1].filename})" if len(frames) > 1 else ""


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 80 else f"{text[:77]}..."
