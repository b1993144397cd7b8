"""Loads what a stage runs, and calls it."""

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mez import _modules
from mez.pipeline import record as records
from mez.pipeline.errors import PipelineError, StageError
from mez.pipeline.record import Record

MADE_MAX: Final = 10_000
"""The most records that a stage may make of one. More are a mistake in the stage."""


class Function:
    """A stage's function, or an object of its class.

    Args:
        run: `FILE.py:NAME` or `MODULE:NAME`.
        folder: Where files are looked for: that of the pipeline file.
        options: Keyword arguments: of a class, for its constructor; of a function, for each call.

    Raises:
        StageError: It cannot be loaded, or does not take the options; or the constructor raised this error,
            because starting it again would not help.
        PipelineError: The constructor of the class raised another error.
    """

    def __init__(self, run: str, folder: Path, options: Mapping[str, Any]) -> None:
        named = _named(run, folder)
        _check(named, options, run)
        self._options: Mapping[str, Any] = {}
        self._called: Callable[..., Any] = named
        if inspect.isclass(named):
            try:
                made: Any = named(**options)
            except StageError:
                raise
            except Exception as error:
                raise PipelineError(f"{run} cannot be made: {_modules.told(error)}") from error
            self._called = made
        else:
            self._options = options

    def __call__(self, record: Record, stage: str, worker: str) -> list[Record]:
        """Work on a record.

        Returns:
            What was made of it, with identities and hops.

        Raises:
            Exception: Whatever the function raises, and `TypeError` if it returns no records.
        """
        made: Sequence[Record] = records.checked_outputs(self._called(record, **self._options), stage)
        if len(made) > MADE_MAX:
            raise ValueError(f"stage {stage} made {len(made)} records of one; at most {MADE_MAX} are allowed")
        return [records.finish(record, one, stage, place, worker) for place, one in enumerate(made)]

    def close(self) -> None:
        """Call `close` of an object that has it. What it raises is not worth a record."""
        close = getattr(self._called, "close", None)
        if callable(close):
            with contextlib.suppress(Exception):
                close()


def check(run: str, folder: Path, options: Mapping[str, Any]) -> None:
    """See that a function or class is there and takes its options, without making an object.

    Raises:
        StageError: It is not, or does not.
    """
    _check(_named(run, folder), options, run)


def _named(run: str, folder: Path) -> Callable[..., Any]:
    try:
        return _modules.named(run, folder)
    except _modules.LoadError as error:
        raise StageError(
            f"{run}: {error}; give FILE.py:NAME beside the pipeline file, or MODULE:NAME"
        ) from error


def _check(named: Callable[..., Any], options: Mapping[str, Any], run: str) -> None:
    """See that the options fit the signature, where there is one to look at."""
    try:
        signature = inspect.signature(named)
    except (TypeError, ValueError):
        return
    try:
        if inspect.isclass(named):
            signature.bind(**options)
        else:
            signature.bind(None, **options)
    except TypeError as error:
        given = ", ".join(options) or "none"
        raise StageError(
            f"{run} does not take its options ({given}): {error}; change options, or {run}"
        ) from error
