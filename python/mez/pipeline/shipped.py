"""Pipelines that come with Mez, by name: `mez pipeline run faces`."""

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parents[1] / "pipelines"


def names() -> list[str]:
    """Their names."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def find(name: str) -> Path | None:
    """The file of one; `None`: there is none of that name."""
    return _FOLDER / f"{name}.toml" if name in names() else None


def known() -> str:
    """Which there are, for errors."""
    return f"there are {', '.join(names())}"


def place(word: str) -> Path:
    """The file that a word of the command line names: one of the user's own comes first."""
    path = Path(word)
    return path if path.exists() else find(word) or path
