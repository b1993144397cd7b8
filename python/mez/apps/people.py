"""Known people: the file that `mez pipeline enrol` writes, and the comparison with it.

A JSON object: `mez_people`, the version; `network`, the network that computed the vectors; `people`, a list
of vectors of 128 numbers for each name. It has no pictures. It identifies people, so only its owner can read
it (mode 0600).
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mez.apps.dlib_faces import NETWORK, NUMBERS
from mez.errors import Error

VERSION: Final = 1

UNKNOWN: Final = "unknown"
"""The name of a face that is not near a known one."""

NAME_BYTES_MAX: Final = 128
"""The most bytes of a name, as of each label of `mez.Detections`."""

Numbers = npt.NDArray[np.float32]


class PeopleError(Error):
    """Pictures of people, or a file of known people, cannot be used."""


@dataclass(frozen=True, slots=True)
class Match:
    """The nearest known person of a face.

    Attributes:
        name: The nearest known person, or `unknown`.
        distance: The distance of the nearest face in the file; `None`: the file has none.
    """

    name: str
    distance: float | None


class People:
    """Known people.

    Args:
        faces: The faces of each, by name.
    """

    def __init__(self, faces: Mapping[str, Sequence[Numbers]]) -> None:
        self.names = list(faces)
        self._faces = {name: list(given) for name, given in faces.items()}
        self._owner = [name for name, given in faces.items() for _ in given]
        rows = [face for given in faces.values() for face in given]
        self._rows = np.asarray(rows, np.float32).reshape(-1, NUMBERS)

    def nearest(self, face: Numbers, distance_max: float) -> Match:
        """Find the nearest known person.

        Args:
            face: 128 numbers.
            distance_max: If the nearest face is farther, the result is `unknown`.
        """
        if not self._owner:
            return Match(UNKNOWN, None)
        distances = np.linalg.norm(self._rows - face, axis=1)
        place = int(distances.argmin())
        distance = float(distances[place])
        return Match(self._owner[place] if distance <= distance_max else UNKNOWN, distance)

    def write(self, path: Path) -> None:
        """Write the file atomically: readers get the old or the new content.

        Raises:
            PeopleError: It cannot be written.
        """
        people = {
            name: [np.round(face.astype(float), 6).tolist() for face in of]
            for name, of in self._faces.items()
        }
        told = json.dumps({"mez_people": VERSION, "network": NETWORK, "people": people})
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(told + "\n")
            unfinished.replace(path)
        except OSError as error:
            raise PeopleError(f"{path} cannot be written ({error.strerror}); give another --out") from error


def read(path: Path) -> People:
    """Read a file of known people.

    Raises:
        PeopleError: It does not exist, is another kind of file, or has another version or network.
    """
    again = "make it again with mez pipeline enrol DIR"
    try:
        told: Any = json.loads(path.read_text())
    except OSError as error:
        raise PeopleError(
            f"{path} cannot be read ({error.strerror}); make it with mez pipeline enrol DIR, or give "
            "another in options.known of the stage"
        ) from error
    except ValueError as error:
        raise PeopleError(f"{path} is not a file of known people ({error}); {again}") from error
    if not isinstance(told, dict) or "mez_people" not in told:
        raise PeopleError(f"{path} is not a file of known people; {again}")
    if told["mez_people"] != VERSION:
        raise PeopleError(f"{path} has version {told['mez_people']!r}, this Mez reads {VERSION}; {again}")
    if told.get("network") != NETWORK:
        raise PeopleError(f"{path} was made by the network {told.get('network')!r}, not {NETWORK}; {again}")
    try:
        people = {
            str(name): [_checked(face) for face in faces] for name, faces in dict(told["people"]).items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise PeopleError(f"{path} is damaged ({error}); {again}") from error
    return People(people)


def _checked(face: object) -> Numbers:
    row = np.asarray(face, np.float32)
    if row.shape != (NUMBERS,) or not np.isfinite(row).all():
        raise ValueError(f"a face has the shape {row.shape}, but must be {NUMBERS} finite numbers")
    return row
