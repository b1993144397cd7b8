"""Reads tables of TOML by a list of their keys. The JSON schema is made from the same list."""

import difflib
import math
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from mez.pipeline.errors import BusError, FileError

Kind = Literal["text", "texts", "whole", "number", "switch", "table"]

_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "text": (str,),
    "texts": (str, list),
    "whole": (int,),
    "number": (int, float),
    "switch": (bool,),
    "table": (dict,),
}
_WORDS: Final = {
    "text": "a text",
    "texts": "a text, or a list of texts",
    "whole": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "table": "a table",
}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a table.

    Attributes:
        name: Its name.
        kind: The type of its value.
        says: Its meaning, for people: a sentence without its default.
        default: The value if the key is missing.
        needed: Whether it is required.
        low: The smallest number.
        high: The largest number.
        choices: The texts that are allowed. Empty: all.
    """

    name: str
    kind: Kind
    says: str
    default: Any = None
    needed: bool = False
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()

    def fault(self, value: object) -> str | None:
        """What is wrong with a value, and what to do. `None` if it is valid."""
        right = isinstance(value, _KINDS[self.kind]) and (
            self.kind == "switch" or not isinstance(value, bool)
        )
        if right and isinstance(value, list):
            right = bool(value) and all(isinstance(item, str) for item in value)
        if not right:
            return f"is {value!r}; give {_WORDS[self.kind]}{self._range()}"
        if isinstance(value, int | float) and not self.low <= value <= self.high:
            return f"is {value}; give {_WORDS[self.kind]}{self._range()}"
        if self.choices and value not in self.choices:
            return f"is {value!r}; give {' or '.join(map(repr, self.choices))}"
        return None

    def _range(self) -> str:
        if math.isinf(self.low) and math.isinf(self.high):
            return ""
        return f" from {self.low:g} to {self.high:g}"

    def schema(self) -> dict[str, Any]:
        """As a JSON schema."""
        text: dict[str, Any] = {"type": "string"}
        kinds: dict[str, dict[str, Any]] = {
            "text": text,
            "texts": {"type": ["array", "string"], "items": {"type": "string"}},
            "whole": {"type": "integer"},
            "number": {"type": "number"},
            "switch": {"type": "boolean"},
            "table": {"type": "object"},
        }
        told = dict(kinds[self.kind])
        told["description"] = self.says + (
            "" if self.default is None else f". Default: {_shown(self.default)}"
        )
        if self.choices:
            told["enum"] = list(self.choices)
        for word, bound in (("minimum", self.low), ("maximum", self.high)):
            if not math.isinf(bound):
                told[word] = bound
        return told


MEZ: Final = (
    Key("edge", "texts", "The edge, or up to eight in order of preference, as in mez.subscribe"),
    Key("keys", "text", "The folder of keys, for an edge on another host"),
)
"""The table `mez`: where the edge is."""


def table(path: Path, page: str) -> dict[str, Any]:
    """The tables of a file.

    Args:
        path: The file.
        page: The page of the documentation with an example.

    Raises:
        FileError: It cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise FileError(
            path, [("", f"cannot be read ({error.strerror}); give the path of a file")]
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(path, [("", f"is not valid TOML: {error}; see {page} for an example")]) from error


def several(value: str | list[str] | None) -> tuple[str, ...]:
    """The texts of a key of kind `texts`: a list, or one text with commas."""
    if value is None:
        return ()
    return tuple(value.split(",")) if isinstance(value, str) else tuple(value)


def path(folder: Path, name: str | None) -> Path | None:
    """The file or folder that a file in `folder` names."""
    return None if name is None else folder / Path(name).expanduser()


def owned(path: Path, field: str, give: str) -> str:
    """The text of a file with secrets, which only its owner may read.

    Args:
        path: The file.
        field: The field that names it.
        give: What to do if it cannot be read.

    Raises:
        BusError: It cannot be read, or others can.
    """
    try:
        mode, text = stat.S_IMODE(path.stat().st_mode), path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BusError(f"{field}: {path} cannot be read ({error}); {give}") from error
    if mode & 0o077:
        raise BusError(f"{field}: others can read {path}; run: chmod 600 {path}")
    return text


def read(table: object, keys: Sequence[Key], place: str, faults: list[tuple[str, str]]) -> dict[str, Any]:
    """The values of a table, with defaults for keys that are missing or wrong.

    Args:
        table: The table of the file.
        keys: The known keys.
        place: The table's name, for errors.
        faults: Faults are appended: the field, and a sentence.
    """
    values = {key.name: key.default for key in keys}
    if not isinstance(table, Mapping):
        faults.append((place, f"is {table!r}; give a table: [{place}]"))
        return values
    known = {key.name: key for key in keys}
    for name, value in table.items():
        key = known.get(name)
        field = f"{place}.{name}"
        if key is None:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
            faults.append((field, f"unknown key; {meant}"))
            continue
        fault = key.fault(value)
        if fault is None:
            values[name] = value
        else:
            faults.append((field, fault))
    for key in keys:
        if key.needed and key.name not in table:
            faults.append((f"{place}.{key.name}", f"is missing; give {_WORDS[key.kind]}: {key.says}"))
    return values


def schema(keys: Sequence[Key]) -> dict[str, Any]:
    """A table as a JSON schema."""
    told: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: key.schema() for key in keys},
    }
    needed = [key.name for key in keys if key.needed]
    if needed:
        told["required"] = needed
    return told


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
