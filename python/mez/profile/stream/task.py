"""Runs the user's functions: the application, and the one that says how good its results are."""

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
"""How a function or a value in a file of the user's is named."""


@dataclass(frozen=True)
class Task:
    """What is done with the records of one or several streams.

    Attributes:
        name: For people.
        sha256: Of what decides its results.
        application: Takes a payload, and gives a result. Of several streams it takes a list: of each stream
            the payload of the same place.
        accuracy: Takes the result on the records as published, and another result; gives 0 to 1.
    """

    name: str
    sha256: str
    application: Callable[..., Any]
    accuracy: Callable[[Any, Any], float]

    def result(self, bodies: Sequence[bytes], records: Sequence[Record], rung: str) -> Any:  # noqa: ANN401
        """Return what the application makes of records.

        Args:
            bodies: Of each stream a record's bytes at the rung.
            records: These records, as they were published.
            rung: The rung, for errors.

        Raises:
            AppError: It failed.
            RecordError: A body is not what its record's content type says.
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
        """Return how good a result is.

        Raises:
            AppError: The accuracy function failed, or gave something else than a number from 0 to 1.
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
        # A sum of floats may be a hair above 1.
        if not -1e-9 <= number <= 1 + 1e-9:
            raise AppError(
                f"the accuracy function returned {_short(value)} on {where}; it has to return a number from "
                "0 (useless) to 1 (as good as the reference)"
            )
        return min(max(number, 0.0), 1.0)


def load(application: str, accuracy: str, streams: Sequence[Stream]) -> Task:
    """Load the functions, and try that they do what they should on the first records.

    Args:
        application: Where the application's function is.
        accuracy: Where the accuracy function is.
        streams: What they are run on.

    Raises:
        AppError: There are no such functions, or they do not fit.
    """
    functions = [named(application, "--app"), named(accuracy, "--accuracy")]
    for function, spec in zip(functions, (application, accuracy), strict=True):
        if not callable(function):
            raise AppError(f"{spec} is no function")
    name = application.rpartition("/")[2]
    task = Task(name, _digest(application, accuracy), functions[0], functions[1])
    first = [stream.records[0] for stream in streams]
    reference = task.result([record.payload for record in first], first, "original")
    if (same := task.score(reference, reference, first, "original")) < 1:
        raise AppError(
            f"the accuracy function says {same:g} of a result against itself on "
            f"{_named(first, 'original')}; it has to be 1"
        )
    return task


def named(spec: str, option: str) -> Any:  # noqa: ANN401, the user's
    """Return what a user named in a file or module.

    Raises:
        AppError: There is no such thing.
    """
    module_name, colon, attribute = spec.rpartition(":")
    if not colon or not module_name or not attribute:
        raise AppError(f"{option} {spec!r} names nothing; it takes {SPEC}")
    module = _module(module_name, option)
    if not hasattr(module, attribute):
        raise AppError(f"{module_name} has no {attribute}; {option} takes {SPEC}")
    return getattr(module, attribute)


def _module(name: str, option: str) -> ModuleType:
    try:
        if not name.endswith(".py"):
            if "" not in sys.path:
                sys.path.insert(0, "")  # where the user stands, as `python -m` does
            return importlib.import_module(name)
        path = Path(name).resolve()
        if not path.is_file():
            raise AppError(f"there is no file {name}; {option} takes {SPEC}")
        # One file may hold the application, its accuracy and its knobs: it is run once.
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
    """Where it was raised, for people who look into their file."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" (line {frames[-1].lineno} of {frames[-1].filename})" if len(frames) > 1 else ""


def _short(item: object) -> str:
    text = repr(item)
    return text if len(text) <= 80 else f"{text[:77]}..."
