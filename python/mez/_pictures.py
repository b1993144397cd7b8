"""Pictures of figures (Matplotlib), in one style."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mez.errors import Error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH: Final = 150


@contextlib.contextmanager
def drawing(size: tuple[float, float], font: float, error: type[Error]) -> Iterator["Figure"]:
    """An empty picture, and the style for everything that is drawn while the block runs.

    Args:
        size: Width and height in inches.
        font: The size of letters, in points.
        error: The error to raise if Matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as missing:
        raise error("pictures need matplotlib; install it with: pip install matplotlib") from missing
    from matplotlib.figure import Figure

    with mpl.rc_context(
        {
            "svg.fonttype": "none",  # text as text: smaller files, and searchable
            "svg.hashsalt": "mez",
            "font.size": font,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    ):
        yield Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")


def save(picture: "Figure", path: Path) -> None:
    """Write a picture in the format that the suffix says. The same figures give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})
