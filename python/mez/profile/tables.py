"""Imports the knob tables that the authors of Mez published, as profiles for comparison.

A table has two files: `NAME.csv` without a header (combination, mean bytes, F1, precision, recall, frames
sent) and `NAME-knobs.txt` with the knobs of each combination: `comb1623=['R4', 'C2', 'K2', 'D1', 'F4']`. The
accuracy there is F1 against labels. As in the paper, it is divided by that of the frames with only the
resolution changed. The thresholds of `F2` to `F5` were not published, so the rungs have special names, which
cameras refuse.
"""

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mez.profile.document import About, Profile, RungProfile, Score, Sizes
from mez.profile.errors import FormatError

FAMILY: Final = "published"
"""The family of all imported rungs."""

SOURCE: Final = (
    "knob tables of A. George, A. Ravindran, M. Mendieta and H. Tabkhi, Mez (2020), MIT; "
    "accuracy is F1 divided by that of "
    "the row with no knob turned but resolution, at most 1"
)

WIDTH: Final = 1920
HEIGHT: Final = 1080
"""Height of their frames, in pixels."""

_COLUMNS: Final = 6
_KNOBS: Final = re.compile(r"comb(\d+)=\['(R\d)', '(C\d)', '(K\d)', '(D\d)', '(F\d)'\]")


def load(path: Path) -> Profile:
    """Read a table.

    Args:
        path: The `.csv`. Its `-knobs.txt` must be beside it.

    Raises:
        FormatError: They are not such a table.
    """
    knobs = _knobs(path.with_name(f"{path.stem}-knobs.txt"))
    rows = _rows(path)
    unknown = [number for number in rows if number not in knobs]
    if unknown:
        raise FormatError(
            f"{path}: combination {unknown[0]} is not in {path.stem}-knobs.txt; take both files "
            "from the same place"
        )
    # The base is the combination of highest resolution with all other knobs off.
    plain = [number for number in rows if knobs[number][1:] == ("C1", "K1", "D1", "F1")]
    if not plain:
        raise FormatError(
            f"{path} has no row with all knobs off but resolution, the reference of F1; use the whole table"
        )
    base = min(plain, key=lambda number: knobs[number][0])
    sent_most = max(row[2] for row in rows.values())
    rungs = []
    for number, (mean, score, sent) in rows.items():
        sizes = Sizes(mean, mean, mean, mean)
        rungs.append(
            RungProfile(
                rung="/".join([FAMILY, *knobs[number]]).lower(),
                family=FAMILY,
                bytes=sizes,
                sent_share=sent / sent_most,
                accuracy_normalised=Score(min(score / rows[base][1], 1.0)),
                accuracy_normalised_strict=None,
                camera_ms_mean=None,
                camera_ms_p95=None,
                detector_ms_mean=None,
                frames_scored=sent,
            )
        )
    rungs.sort(key=lambda rung: (rung.bytes_per_published_frame, rung.rung))
    about = About(
        app="OpenPose",
        app_sha256="",
        strong=None,
        weak=None,
        video=path.stem,
        video_sha256="",
        width=WIDTH,
        height=HEIGHT,
        frames_per_second=5.0,
        frames_scored=sent_most,
        reference_boxes=None,
        ceiling_noise=None,
        ceiling_noise_strict=None,
        ceiling_jpeg=None,
        ceiling_jpeg_strict=None,
        made_by="mez profile import",
        source=SOURCE,
    )
    return Profile(about, tuple(rungs))


def _rows(path: Path) -> dict[int, tuple[float, float, int]]:
    """Return mean bytes, F1 and frames sent, by combination."""
    rows: dict[int, tuple[float, float, int]] = {}
    try:
        with path.open(newline="") as file:
            for line, cells in enumerate(csv.reader(file), 1):
                if not cells:
                    continue
                if len(cells) < _COLUMNS:
                    raise FormatError(
                        f"{path}:{line} has {len(cells)} columns, but a knob table has at least {_COLUMNS}"
                    )
                number, mean, score, sent = int(cells[0]), float(cells[1]), float(cells[2]), int(cells[5])
                if not (0 < mean < 1e9 and 0 < score <= 1 and sent > 0):
                    raise FormatError(f"{path}:{line} has invalid bytes, F1 or frames; is this a knob table?")
                rows[number] = (mean, score, sent)
    except OSError as error:
        raise FormatError(
            f"{path} cannot be read ({error.strerror}); give the .csv of a knob table"
        ) from error
    except ValueError as error:
        raise FormatError(
            f"{path} is not a knob table ({error}); give one of the .csv files of the authors of Mez"
        ) from error
    if not rows:
        raise FormatError(f"{path} has no rows; give one of the .csv files of the authors of Mez")
    return rows


def _knobs(path: Path) -> Mapping[int, tuple[str, ...]]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{path} cannot be read; put this file, which describes the rows of the table, beside the table"
        ) from error
    return {int(found[1]): found.groups()[1:] for found in _KNOBS.finditer(text)}
