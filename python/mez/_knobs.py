"""Knobs for data records: a publisher declares how its records may be degraded."""

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
"""The knob that skips records. It does not change a record."""

_STOP_TIME_MAX: Final = 1.0
"""How long the end of the program waits for a running function, in seconds."""

_log = logging.getLogger("mez")

Degrade = Callable[[Any, dict[str, int | float]], object]
"""`(payload, knobs) -> payload`."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A knob of a stream's data records. `mez.knob` creates it.

    Attributes:
        name: The name, as in rungs.
        values: The possible values.
        operator: The built-in operator that applies the value. `None`: the function of the stream applies it.
        key: For `threshold`: which value of a row is compared.
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
    """Declare a knob: a parameter by which data records can be made smaller, and its possible values.

    A built-in operator works on rows: the items of a JSON list, or an array along its first axis.

    | operator | value | what is kept |
    | --- | --- | --- |
    | `"head"` | integer, 0 or more | the first rows, this many |
    | `"downsample"` | integer k, 1 or more | rows 0, k, 2k, … |
    | `"threshold"` | any | rows whose value is at least this |
    | `"precision"` | 0 to 15, or 16, 32, 64 | all rows. JSON: this many decimals. Arrays: this many bits |

    The name `skip` is special: its value is the number of records that are skipped after each record that is
    sent. It has no operator.

    Args:
        name: A lower-case letter, then up to 15 lower-case letters, digits and `_`.
        values: 1 to 32 different numbers below 1e9, with at most six decimals. Their order has no meaning:
            the profile says how many bytes and which accuracy each rung has.
        operator: The built-in operator that applies the value. Default: the function of `mez.Knobs` applies
            it.
        key: For `threshold`: which value of a row is compared. If rows are objects: the name of a member. If
            rows are lists, or rows of an array: the number of a column, from 0. Default: the row itself is
            the number.

    Raises:
        ArgumentError: An argument has an invalid value; `field` names the argument.
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
            raise arguments.invalid("operator", "skip has neither an operator nor a key; leave both out")
        for number in numbers:
            if number not in range(256):
                raise arguments.invalid(
                    "values", f"skip has the value {number}; give whole numbers, 0 to 255"
                )
    made = Knob(name, numbers, operator, key)
    # A knob that is invalid by itself is also invalid with others, so this call raises the error.
    _declare([made], "function" if operator is None and name != SKIP else None)
    return made


class Knobs:
    """The knobs of a stream: how Mez may make its data records smaller.

    Give it to `mez.publisher(knobs=...)`. If an application has a contract with an accuracy and a profile of
    these knobs, Mez chooses for each record a rung that arrives on time. `frame.rung` is then, for example,
    `data/top=30/least=0.1`. Without such a contract, records are sent as they were published.

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
            knobs: The knobs: at most eight, besides `skip`, with at most 4096 combinations of values. They
                are applied in this order, and rungs name them in this order.
            degrade: A function `(payload, knobs) -> payload` that applies the knobs without an operator. It
                gets the payload as in `frame.data`, or bytes if the content type is unknown, and a dict with
                the values of all knobs. It returns the smaller payload, of the same kind. It runs before the
                operators, on its own thread, and has 0.1 to 0.2 s for a live record. If it raises, takes
                longer, or returns more bytes than it got, Mez sends the record as it was published if that is
                in time. Otherwise the record is skipped as `not_made`.

        Raises:
            ArgumentError: The knobs do not fit together, or a knob has neither an operator nor a function.
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
        """All rungs of the stream, `original` first. The order of the others has no meaning."""
        return self._native.rungs()

    def values(self, rung: str) -> dict[str, int | float]:
        """The values of all knobs at a rung, with `skip`. For `original`: only `skip`.

        Raises:
            ArgumentError: The stream has no such rung.
        """
        named, skip = self._native.values(arguments.text("rung", rung))
        return {**{name: _plain(value) for name, value in named}, SKIP: skip}

    def apply(self, rung: str, payload: object, content_type: str | None = None) -> bytes:
        """Return a payload as a reader gets it at a rung. No broker or time limit is involved.

        Use it in profiles and tests. It does not skip records: `values(rung)["skip"]` is the number to skip.

        Args:
            rung: A rung of this stream.
            payload: As for `Publisher.send_data`.
            content_type: As for `Publisher.send_data`.

        Returns:
            The bytes of the payload. The content type is the same.

        Raises:
            ArgumentError: The stream has no such rung, or the payload is not valid.
            DataError: The record cannot be made at this rung: the function raised, an operator cannot handle
                the payload, or the result is empty or larger than the payload.
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
    """Start another thread for the function whenever all others are busy, because a call may hang."""
    threads = []
    while native.wants_thread():
        thread = threading.Thread(target=_serve, args=(native, function), name="mez degrade", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.error("cannot start a thread for the degrade function %s: %s", _name(function), error)
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
        raise DataError("the result is empty; a record needs at least one byte")
    if len(made) > len(body):
        raise DataError(
            f"the result has {len(made)} bytes, and the record {len(body)}; a knob must not make it larger"
        )


def _plain(number: float) -> int | float:
    """A whole number as `int`."""
    return int(number) if math.isfinite(number) and number == int(number) else number


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
