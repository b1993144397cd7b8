"""What tests of the bridges' files share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mez.pipeline.errors import FileError


def written(tmp_path: Path, text: str) -> Path:
    """A bridge's file."""
    path = tmp_path / "hall7.toml"
    path.write_text(text)
    return path


def faults(read: Callable[[Path], object], tmp_path: Path, text: str) -> dict[str, str]:
    """What is wrong with a file, by field."""
    with pytest.raises(FileError) as caught:
        read(written(tmp_path, text))
    return dict(caught.value.faults)
