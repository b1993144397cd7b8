"""Checks the arguments of the public functions, and converts them for the native module."""

import datetime
import json
import math
import operator
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, SupportsIndex, TypeAlias

from mez.errors import ArgumentError, ArgumentTypeError

Time: TypeAlias = datetime.datetime | datetime.timedelta | str | SupportsIndex
"""A point in time.

An aware `datetime`; a `timedelta` from now; a text: `"now"`, `"-10m"` (units `ms`, `s`, `m`, `h`, `d`) or
`"2026-11-20T21:38:46Z"`; or whole nanoseconds since 1970-01-01 UTC.
"""

StrPath: TypeAlias = str | os.PathLike[str]

NS_MAX = 2**64 - 1

FRAME_BYTES_CEILING = 256 << 20
"""The largest `frame_bytes_max` that can be asked for. A raw 8K BGR frame takes 99.5 MB."""

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_FROM_NOW = re.compile(r"([+-])(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9}


def invalid(field: str, message: str) -> ArgumentError:
    """An `ArgumentError` that names its argument."""
    error = ArgumentError(message)
    error.field = field
    return error


def wrong_type(field: str, message: str) -> ArgumentTypeError:
    """An `ArgumentTypeError` that names its argument."""
    error = ArgumentTypeError(message)
    error.field = field
    return error


def _shown(value: object) -> str:
    """The `repr` of a value for an error message, at most 100 characters."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def whole(field: str, value: object, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise wrong_type(field, f"{field} is {_shown(value)}; give a whole number from {low} to {high}")
    number = operator.index(value)
    if not low <= number <= high:
        raise invalid(field, f"{field} is {number}; give a whole number from {low} to {high}")
    return number


def number(field: str, value: object) -> float:
    """A number. It may be infinite or NaN: callers check this."""
    if isinstance(value, str | bytes | bool):
        raise wrong_type(field, f"{field} is {_shown(value)}; give a number")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise wrong_type(field, f"{field} is {_shown(value)}; give a number") from None


def optional_number(field: str, value: object | None) -> float | None:
    """A number, or `None`."""
    return None if value is None else number(field, value)


def text(field: str, value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise wrong_type(field, f"{field} is {_shown(value)}; give a text")
    return value


def image_size(value: object) -> str:
    """The size of images: `sent` or `published`."""
    if value not in ("sent", "published"):
        raise invalid("size", f'size is {_shown(value)}; write "sent" or "published"')
    return str(value)


def edges(value: object | None) -> list[object]:
    """The edges given as `edge`: a list of at most eight. Empty for `None`."""
    if value is None:
        return []
    several = list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(several) <= EDGES_MAX:
        raise invalid("edge", f"give one to {EDGES_MAX} edges, not {len(several)}")
    return several


def optional_text(field: str, value: object | None) -> str | None:
    """A text, or `None`."""
    return None if value is None else text(field, value)


def texts(field: str, value: object) -> list[str]:
    """A list of texts. A single text is refused, although it is a sequence of texts."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise wrong_type(field, f"{field} is {value!r}; give a list of texts")
    return [text(field, item) for item in value]


def last_frames(field: str, value: Mapping[str, object] | None) -> list[tuple[str, int, int, int | None]]:
    """The last frame of each camera: a frame, or its epoch, sequence and optionally capture time."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise wrong_type(
            field, f"{field} is {_shown(value)}; give frames by camera, such as {{'dock/cam1': frame}}"
        )
    last: list[tuple[str, int, int, int | None]] = []
    for camera, given in value.items():
        name = text(field, camera)
        captured = getattr(given, "captured_ns", None)
        numbers = getattr(given, "id", given)
        if not isinstance(numbers, Sequence) or isinstance(numbers, str) or len(numbers) not in (2, 3):
            raise wrong_type(
                field,
                f"{field} has {_shown(given)} for {name}; give a frame, (epoch, sequence) or "
                "(epoch, sequence, captured_ns)",
            )
        epoch, sequence, *rest = (whole(field, number, 0, (1 << 64) - 1) for number in numbers)
        last.append((name, epoch, sequence, rest[0] if rest else captured))
    return last


def channels(value: Mapping[str, str | Iterable[str]] | None) -> list[tuple[str, list[str]]]:
    """Channels by their names, each with the patterns of its cameras."""
    example = 'such as {"hall": ["dock/*", "yard/cam1"]}'
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise wrong_type(
            "channels", f"channels is {_shown(value)}; give names with patterns of cameras, {example}"
        )
    declared = []
    for name, given in value.items():
        if not isinstance(name, str):
            raise wrong_type("channels", f"channels has the name {_shown(name)}; give a text, {example}")
        patterns = [given] if isinstance(given, str) else given
        several = list(patterns) if isinstance(patterns, Iterable) else [patterns]
        if not all(isinstance(pattern, str) for pattern in several):
            raise wrong_type(
                "channels",
                f"channels has {_shown(given)} for {_shown(name)}; give patterns of cameras, {example}",
            )
        declared.append((name, several))
    return declared


def rights(
    value: Mapping[str, Mapping[str, str | Iterable[str]]] | None,
) -> list[tuple[str, str, str]] | None:
    """Grants, each as (who, verb, pattern of cameras). `None` if no rights were given."""
    example = 'such as {"app/counter": {"watch": ["dock/*", "yard/cam1"]}}'
    if value is None:
        return None

    def wrong(what: str) -> Exception:
        return wrong_type(
            "rights", f"rights {what}; give verbs with patterns of cameras for each application, {example}"
        )

    if not isinstance(value, Mapping):
        raise wrong(f"is {_shown(value)}")
    grants = []
    for who, verbs in value.items():
        if not isinstance(who, str) or not isinstance(verbs, Mapping):
            raise wrong(f"has {_shown(verbs)} for {_shown(who)}")
        for verb, given in verbs.items():
            patterns = [given] if isinstance(given, str) else given
            several = list(patterns) if isinstance(patterns, Iterable) else [patterns]
            if not isinstance(verb, str) or not all(isinstance(pattern, str) for pattern in several):
                raise wrong(f"has {_shown(given)} for {_shown(who)} {_shown(verb)}")
            grants += [(who, verb, pattern) for pattern in several]
    return grants


def optional_path(field: str, value: object | None) -> str | None:
    """A path as text, or `None`."""
    if value is None:
        return None
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str):
            return str(Path(path).expanduser())
    raise wrong_type(field, f"{field} is {_shown(value)}; give a path")


def utc_ns(field: str, value: Time, now_ns: Callable[[], int] = time.time_ns) -> int:
    """Nanoseconds since 1970-01-01 UTC."""
    ns: int
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise invalid(
                field,
                f"{field} is {_shown(value)}, which has no time zone; give an aware datetime, "
                "such as datetime.now(timezone.utc), or value.astimezone() if it is local time",
            )
        ns = _duration_ns(value - _EPOCH)
    elif isinstance(value, datetime.timedelta):
        ns = now_ns() + _duration_ns(value)
    elif isinstance(value, str):
        ns = _text_ns(field, value, now_ns)
    elif isinstance(value, SupportsIndex) and not isinstance(value, bool):
        ns = operator.index(value)
    else:
        remedy = (
            'give an aware datetime, a timedelta, a text such as "-10m", or whole nanoseconds since 1970 UTC'
        )
        raise wrong_type(field, f"{field} is {_shown(value)}; {remedy}")
    if not 0 <= ns <= NS_MAX:
        raise invalid(field, f"{field} is {_shown(value)}; give a time between 1970 and 2554")
    return ns


def optional_utc_ns(field: str, value: Time | None) -> int | None:
    """Nanoseconds since 1970-01-01 UTC, or `None`."""
    return None if value is None else utc_ns(field, value)


def profile(value: StrPath | Mapping[str, object] | None) -> tuple[bytes | None, str | None]:
    """The content of a profile, or its name at the edge: at most one of the two."""
    if value is None:
        return None, None
    if isinstance(value, Mapping):
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode(), None
        except (TypeError, ValueError) as error:
            raise invalid(
                "profile", f"the profile cannot be written as JSON ({error}); give plain numbers and texts"
            ) from error
    if not isinstance(value, str | os.PathLike):
        raise wrong_type(
            "profile",
            f"profile is {_shown(value)}; give a path, a dict, or the name of a profile at the edge",
        )
    # The name of a profile at the edge has neither a folder nor an ending.
    if isinstance(value, str) and not value.endswith(".json") and os.sep not in value:
        return None, value
    path = Path(value).expanduser()
    try:
        return path.read_bytes(), None
    except OSError as error:
        raise invalid(
            "profile", f"cannot read the profile {path} ({error.strerror}); give the path of a profile"
        ) from error


def timeout(field: str, value: object | None) -> float | None:
    """Seconds to wait; `None`: for ever."""
    seconds = optional_number(field, value)
    if seconds is not None and (math.isnan(seconds) or seconds < 0):
        raise invalid(field, f"{field} is {_shown(value)}; give seconds, 0 or more, or None to wait for ever")
    return seconds


def _duration_ns(duration: datetime.timedelta) -> int:
    # timedelta.total_seconds() is a float, and loses microseconds of times far from zero.
    return (duration.days * 86_400 + duration.seconds) * 10**9 + duration.microseconds * 1000


def _text_ns(field: str, value: str, now_ns: Callable[[], int]) -> int:
    if value == "now":
        return now_ns()
    if match := _FROM_NOW.fullmatch(value):
        sign, count, unit = match.groups()
        distance = int(float(count) * _UNIT_NS[unit])
        return now_ns() + (distance if sign == "+" else -distance)
    try:
        when = datetime.datetime.fromisoformat(value)
    except ValueError:
        remedy = 'give "now", "-10m" (units ms, s, m, h, d), or a time such as "2026-11-20T21:38:46Z"'
        raise invalid(field, f"{field} is {_shown(value)}; {remedy}") from None
    if when.tzinfo is None:
        raise invalid(
            field,
            f"{field} is {_shown(value)}, which has no time zone; add Z for UTC, or +02:00",
        )
    return _duration_ns(when - _EPOCH)


EDGES_MAX: Final = 8
"""The most edges that a publisher or subscription may be given."""

STORE_BYTES: Final = 4 << 30
"""Default disk space for the frames of one camera, in bytes: 4 GiB."""

DURABILITIES: Final = ("async", "group", "sync")


def on_disk(
    store: StrPath | None,
    store_key: StrPath | None,
    store_bytes: int,
    store_age: float | None,
    durability: str,
    notes: bool = False,
) -> tuple[str, str | None, int, float | None, str, bool] | None:
    """The checked settings of a store. `None` without a folder."""
    folder = optional_path("store", store)
    key = optional_path("store_key", store_key)
    size = whole("store_bytes", store_bytes, 16 << 20, 1 << 50)
    age = optional_number("store_age", store_age)
    if age is not None and not 60 <= age < math.inf:
        raise invalid("store_age", f"store_age is {age:g}; give at least 60 seconds, or None")
    if text("durability", durability) not in DURABILITIES:
        raise invalid("durability", f'durability is {durability!r}; write "async", "group" or "sync"')
    if folder is None:
        if key is not None:
            raise invalid("store_key", "store_key has no effect without store; give both")
        return None
    return folder, key, size, age, durability, bool(notes)
