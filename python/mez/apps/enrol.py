"""Learns faces: makes a file of known people from a folder that has a folder of pictures for each person."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from mez.apps.dlib_faces import Embedder, Finder, Image
from mez.apps.people import NAME_BYTES_MAX, UNKNOWN, Numbers, People, PeopleError

SIDE_MAX: Final = 1600
"""The longer side, in pixels, to which larger pictures are scaled first."""


def enrol(folder: Path, out: Path, seen: Callable[[int, int], object] | None = None) -> Iterator[str]:
    """Learn the people of a folder. If there are errors, all are reported together, and nothing is written.

    Args:
        folder: Has a folder for each person, with the person's name, and pictures of one face each.
        out: The file of known people to write.
        seen: Called after each picture with the number done so far, and the number of all.

    Yields:
        A line for each person, and one for the file.

    Raises:
        PeopleError: There are no people or no pictures; or a file is not a picture, or has no face or
            several. The message has a line for each.
        MissingPackageError: dlib or its models are not installed.
    """
    pictures = _pictures(folder)
    finder, embedder = Finder(), Embedder()
    faults: list[str] = []
    known: dict[str, list[Numbers]] = {person: [] for person in pictures}
    every = [(person, path) for person, files in pictures.items() for path in files]
    for number, (person, path) in enumerate(every, 1):
        try:
            known[person].append(embedder.embed(_thumbnail(finder, path)))
        except PeopleError as error:
            faults.append(str(error))
        if seen is not None:
            seen(number, len(every))
    if faults:
        raise PeopleError("\n".join([*faults, "nothing was written; remove or replace these files"]))
    People(known).write(out)
    for person, faces in known.items():
        yield f"{person}: {len(faces)} face{'s' if len(faces) > 1 else ''}{_spread(faces)}"
    yield f"{out}: {len(known)} known; use it with mez pipeline run faces"


def _pictures(folder: Path) -> dict[str, list[Path]]:
    """The pictures of each person, by name. Hidden files are left out."""
    try:
        people = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    except OSError as error:
        raise PeopleError(f"{folder} cannot be read ({error.strerror}); give a folder of people") from error
    if not people:
        raise PeopleError(f"{folder} has no folders; put the pictures of each person into {folder}/NAME")
    pictures = {}
    for person in people:
        if person.name == UNKNOWN or len(person.name.encode()) > NAME_BYTES_MAX:
            raise PeopleError(
                f"{person} is not a valid name; give one of at most {NAME_BYTES_MAX} bytes, and not {UNKNOWN}"
            )
        files = sorted(path for path in person.iterdir() if path.is_file() and path.name[0] != ".")
        if not files:
            raise PeopleError(f"{person} is empty; put pictures of {person.name} there, or remove it")
        pictures[person.name] = files
    return pictures


def _thumbnail(finder: Finder, path: Path) -> Image:
    """The one face of a picture."""
    try:
        image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
    except (OSError, cv2.error):
        image = None
    if image is None:
        raise PeopleError(f"{path} is not a picture; give JPEG, PNG or another that OpenCV reads")
    longer = max(image.shape[:2])
    if longer > SIDE_MAX:
        factor = SIDE_MAX / longer
        image = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    faces = finder.find(np.asarray(image, np.uint8))
    if not faces:
        raise PeopleError(
            f"no face found in {path}; give an upright face that looks at the camera, at least 80 pixels wide"
        )
    if len(faces) > 1:
        raise PeopleError(f"{len(faces)} faces in {path}; crop it to one face")
    return faces[0].thumbnail


def _spread(faces: list[Numbers]) -> str:
    """The largest distance between the faces of a person, if there are several."""
    if len(faces) < 2:
        return ""
    rows = np.stack(faces)
    apart = float(np.linalg.norm(rows[:, np.newaxis] - rows, axis=2).max())
    hint = "; check that all are of one person" if apart > 0.6 else ""
    return f", at most {apart:.2f} apart{hint}"
