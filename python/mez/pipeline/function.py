"""Loads the function or class of a stage, and calls it."""

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
"""The most records that a stage may make of one record. More indicate a bug in the stage."""


class Function:
    """A stage's function, or an object of its class.

    Args:
        run: `FILE.py:NAME` or `MODULE:NAME`.
        folder: Where files are looked for: that of the pipeline file.
        options: Keyword arguments: of a class, for its constructor; of a function, for each call.

    Raises:
        StageError: It cannot be loaded, or does not accept the options. Or the constructor raised this error,
            because a restart would not help.
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
                raise PipelineError(f"the constructor of {run} failed: {_modules.told(error)}") from error
            self._called = made
        else:
            self._options = options

    def __call__(self, record: Record, stage: str, worker: str) -> list[Record]:
        """Work on a record.

        Returns:
            The records made of it, with identities and hops.

        Raises:
            Exception: The function's own error, or `TypeError` if it returns something other than records.
        """
        made: Sequence[Record] = records.checked_outputs(self._called(record, **self._options), stage)
        if len(made) > MADE_MAX:
            raise ValueError(f"stage {stage} made {len(made)} records of one record; the limit is {MADE_MAX}")
        return [records.finish(record, one, stage, place, worker) for place, one in enumerate(made)]

    def close(self) -> None:
        """Call `close` of the object, if it has this method. Errors are ignored."""
        close = getattr(self._called, "close", None)
        if callable(close):
            with contextlib.suppress(Exception):
                close()


def check(run: str, folder: Path, options: Mapping[str, Any]) -> None:
    """Check that a function or class exists and accepts its options, without creating an object.

    Raises:
        StageError: It does not exist, or does not accept the options.
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
    """Check that the options fit the signature, if there is a signature."""
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
            f"{run} does not accept its options ({given}): {error}; change options, or {run}"
        ) from error
