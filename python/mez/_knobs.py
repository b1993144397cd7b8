"""Knobs for data records: how a publisher says by what its records may be degraded."""

import atexit
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, SupportsFloat

from mez import _arguments as arguments
from mez import _data, _native
from mez.errors import DataError

SKIP: Final = "skip"
"""The knob that leaves records out. It does nothing to a record."""

_STOP_TIME_MAX: Final = 1.0
"""How long the program's end waits for a function that runs, in seconds."""

_log = logging.getLogger("mez")

Degrade = Callable[[Any, dict[str, int | float]], object]
"""`(payload, knobs) -> payload`."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A knob of a stream's data records. Made by `mez.knob`.

    Attributes:
        name: Its name in rungs.
        values: Its values.
        operator: The built-in operator that does what the value says; `None`: the stream's function does.
        key: Of a `threshold`: which value of a row counts.
    """

    name: str
    values: tuple[int | float, ...]
    operator: str | None = None
    key: str | int | None = None


def knob(
    name: str,
    values: Iterable[SupportsFloat],
    *,
    operator: str | None = None,
    key: str | int | None = None,
) -> Knob:
    """Declare a knob: a name, and the values that it can have.

    Operators work on rows: the items of a JSON list, or an array along its first axis.

    | operator | value | what is kept |
    | --- | --- | --- |
    | `"head"` | whole, 0 or more | the first so many rows |
    | `"downsample"` | whole, 1 or more | every so many-th row, the first among them |
    | `"threshold"` | any | rows whose value is at least so large |
    | `"precision"` | 0 to 15; 16, 32, 64 | JSON: so many decimals. Arrays: so many bits |

    The name `skip` is the knob that leaves records out: its values are how many, after each that is sent.

    Args:
        name: A small letter, then up to 15 small letters, digits and `_`.
        values: 1 to 32 different numbers below 1e9, with six decimals at most. Their order says nothing: a
            profile says what each costs and keeps.
        operator: The built-in operator that does what the value says. Default: the function of `mez.Knobs`.
        key: For `threshold`: the name of a member of the row, if rows are objects; or a column, from 0, if
            rows are lists or a row of an array. Default: the row itself is the number.

    Raises:
        ArgumentError: An argument has a bad value; `field` names it.
    """
    arguments.text("name", name)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise arguments.wrong_type("values", f"values is {values!r}; give a list of numbers")
    numbers = tuple(_plain(arguments.number("values", value)) for value in values)
    if operator is not None:
        arguments.text("operator", operator)
    if isinstance(key, bool) or not isinstance(key, str | int | None):
        raise arguments.wrong_type("key", f"key is {key!r}; give the name of a member, or a column")
    if isinstance(key, int):
        arguments.whole("key", key, 0, 1 << 20)
    if name == SKIP:
        if operator is not None or key is not None:
            raise arguments.invalid("operator", "skip leaves records out, and has no operator and no key")
        for number in numbers:
            if number not in range(256):
                raise arguments.invalid(
                    "values", f"skip has the value {number}; give whole numbers, 0 to 255"
                )
    made = Knob(name, numbers, operator, key)
    # What cannot be declared by itself cannot be declared with others either.
    _declare([made], "function" if operator is None and name != SKIP else None)
    return made


class Knobs:
    """What a publisher declares: by which knobs the data records of its stream may be degraded, and how.

    Give it to `mez.publisher(knobs=...)`. An application whose contract has an accuracy and a profile of
    these knobs then gets each record at the rung that is on time: `frame.rung` is, for example,
    `data/top=30/least=0.1`. Without such a contract, records go as they are published.

    Example:
        ```python
        spec = mez.Knobs(
            [mez.knob("top", [10, 30, 100]), mez.knob("least", [0, 0.1], operator="threshold", key=1)],
            degrade=lambda rows, knobs: sorted(rows, key=lambda row: -row[1])[: knobs["top"]],
        )
        with mez.publisher("web/log1", knobs=spec) as log:
            log.send_data([["/index", 0.8], ["/about", 0.05]])
        ```
    """

    def __init__(self, knobs: Sequence[Knob], degrade: Degrade | None = None) -> None:
        """Declare the knobs of a stream.

        Args:
            knobs: The knobs, in the order in which they are applied and in which rungs name them: at most
                eight besides `skip`, with at most 4096 combinations of values.
            degrade: Does what the knobs without an operator say. It gets the payload as a reader sees it in
                `frame.data`, or bytes if the content type is not known, and the values of all knobs by name.
                It returns the degraded payload, of the same kind. It is called before the operators, on a
                thread of its own, and has 0.1 to 0.2 s for a record. If it raises, takes longer, or returns
                more bytes than it got, the record goes as it was published if that is in time, and is
                skipped as `not_made` otherwise.

        Raises:
            ArgumentError: The knobs make no sense together, or nothing does what one of them says.
        """
        given = list(knobs)
        for each in given:
            if not isinstance(each, Knob):
                raise arguments.wrong_type("knobs", f"knobs has {each!r}; give what mez.knob returns")
        if not given:
            raise arguments.invalid("knobs", "knobs is empty; give at least one mez.knob(...)")
        if degrade is not None and not callable(degrade):
            raise arguments.wrong_type("degrade", f"degrade is {degrade!r}; give a function")
        self._function = degrade
        self._native = _declare(given, None if degrade is None else _name(degrade))
        self._lock = threading.Lock()
        self._users = 0
        self._threads: list[threading.Thread] = []
        _all.add(self)

    def rungs(self) -> list[str]:
        """All rungs of the stream, `original` first. The order says nothing of what each costs and keeps."""
        return self._native.rungs()

    def values(self, rung: str) -> dict[str, int | float]:
        """The values of all knobs at a rung, with `skip`. At `original`, only `skip`.

        Raises:
            ArgumentError: It is no rung of this stream.
        """
        named, skip = self._native.values(arguments.text("rung", rung))
        return {**{name: _plain(value) for name, value in named}, SKIP: skip}

    def apply(self, rung: str, payload: object, content_type: str | None = None) -> bytes:
        """What a reader gets of a payload at a rung, without any broker or deadline: for profiles and tests.

        Leaving records out is up to you: `values(rung)["skip"]` says how many.

        Args:
            rung: A rung of this stream.
            payload: As for `Publisher.send_data`.
            content_type: As for `Publisher.send_data`.

        Returns:
            The bytes of the payload, of the same content type.

        Raises:
            ArgumentError: It is no rung of this stream, or the payload is none.
            DataError: The record cannot be had at this rung: the function raised, an operator does not take
                such a payload, or the result is empty or larger than the payload.
        """
        body, kind = _data.pack(payload, content_type)
        named, _ = self._native.values(arguments.text("rung", rung))
        if not named:
            return body
        made = body
        if self._function is not None:
            try:
                made = _degraded(self._function, body, kind, named)
            except Exception as error:
                name = _name(self._function)
                raise DataError(f"the function {name} failed: {type(error).__name__}: {error}") from error
            _fits(made, body)
        made = self._native.operate(rung, made, kind)
        _fits(made, body)
        return made

    def _open(self) -> None:
        """A publisher begins to use it."""
        with self._lock:
            self._users += 1
            if self._users == 1 and self._function is not None:
                self._native.open()
                self._start(_supervise, self._native, self._function)

    def _close(self) -> None:
        """A publisher no longer uses it."""
        with self._lock:
            self._users = max(self._users - 1, 0)
            if self._users == 0:
                self._native.close()

    def _start(self, work: Callable[..., None], *given: object) -> None:
        # A daemon: a function that hangs must not keep the program from ending.
        thread = threading.Thread(target=work, args=given, name="mez degrade", daemon=True)
        self._threads = [thread]
        thread.start()

    def _stop(self, deadline: float) -> None:
        self._native.close()
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))


_all: "weakref.WeakSet[Knobs]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Ends the threads while the interpreter is still there: afterwards they could not return to Python."""
    deadline = time.monotonic() + _STOP_TIME_MAX
    for knobs in list(_all):
        knobs._stop(deadline)


def _declare(knobs: Sequence[Knob], function: str | None) -> _native.Knobs:
    skips = [int(value) for each in knobs if each.name == SKIP for value in each.values]
    if sum(each.name == SKIP for each in knobs) > 1:
        raise arguments.invalid("knobs", "skip is declared twice; declare it once, with all its values")
    declared = [
        (
            each.name,
            [float(value) for value in each.values],
            each.operator,
            each.key if isinstance(each.key, str) else None,
            each.key if isinstance(each.key, int) else None,
        )
        for each in knobs
        if each.name != SKIP
    ]
    return _native.Knobs(declared, skips, function)


def _supervise(native: _native.Knobs, function: Degrade) -> None:
    """Starts a thread for the function whenever all others are busy: one of them may hang."""
    threads = []
    while native.wants_thread():
        thread = threading.Thread(target=_serve, args=(native, function), name="mez degrade", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.error("no thread for the function %s that degrades records: %s", _name(function), error)
            native.close()
            return
        threads.append(thread)
    for thread in threads:
        thread.join(_STOP_TIME_MAX)


def _serve(native: _native.Knobs, function: Degrade) -> None:
    while (call := native.next_call()) is not None:
        number, body, content_type, named = call
        made, why = None, None
        try:
            made = _degraded(function, body, content_type, named)
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"
        native.done(number, made, why)


def _degraded(function: Degrade, body: bytes, content_type: str, named: list[tuple[str, float]]) -> bytes:
    value = _data.unpack(memoryview(body), content_type)
    made = function(value, {name: _plain(number) for name, number in named})
    if made is None:
        raise TypeError("it returned None; return the degraded payload")
    return _data.pack(made, content_type)[0]


def _fits(made: bytes, body: bytes) -> None:
    if not made:
        raise DataError("nothing came of it; a record needs one byte at least")
    if len(made) > len(body):
        raise DataError(
            f"{len(made)} bytes came of {len(body)}; what degrades a record must not make it larger"
        )


def _plain(number: float) -> int | float:
    """A whole number as `int`."""
    return int(number) if math.isfinite(number) and number == int(number) else number


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
