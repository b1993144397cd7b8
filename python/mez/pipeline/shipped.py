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
    """A list of the pipelines that come with Mez, for errors."""
    return f"there are {', '.join(names())}"


def place(word: str) -> Path:
    """The file that a word of the command line names: the user's own file, else a pipeline of Mez."""
    path = Path(word)
    return path if path.exists() else find(word) or path
