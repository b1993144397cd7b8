"""Styles: the network as a file, and how much a painter flickers. Training is not tested here."""

from pathlib import Path

import numpy as np
import pytest

from mez.engine.style import flicker, network
from mez.engine.style.errors import StyleError
from mez.engine.style.painter import Painter
from tests.support import picture


def test_the_papers_size_has_the_papers_operations() -> None:
    """Sixteen convolutions, 23.7 billion operations for 320x240 pixels (Johnson et al., OpenRTiST)."""
    paper = network.SHAPES["paper"]
    assert len(paper.layers()) == 16
    assert paper.operations(320, 240) == pytest.approx(23.7e9, rel=0.01)


def test_a_network_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """And paints. One of another size, and what is none, are refused."""
    small = network.SHAPES["small"]
    weights = network.fresh(small, 1)
    file = tmp_path / "fresh.onnx"
    network.write(file, small, weights, {"mez_style": "1"})
    again = network.read(file, small)
    assert again.keys() == weights.keys()
    assert all((again[name] == weights[name]).all() for name in weights)
    assert Painter(file)(picture(1)).shape == picture(1).shape
    with pytest.raises(StyleError, match="give the --size"):
        network.read(file, network.SHAPES["paper"])
    (tmp_path / "none.onnx").write_bytes(b"no network")
    with pytest.raises(StyleError, match="cannot be read"):
        network.read(tmp_path / "none.onnx", small)


def test_flicker_is_what_changes_where_nothing_moves() -> None:
    """A painter that changes nothing flickers as the noise does; one that doubles contrast, twice as much."""
    grey = np.full((48, 64, 3), 120, np.uint8)
    same = flicker.of_noise(lambda image: image, [grey])
    assert same.after == same.before
    # The mean absolute difference of two normal numbers.
    assert same.before == pytest.approx(2 / np.sqrt(np.pi) * flicker.NOISE, rel=0.1)
    doubled = flicker.of_noise(lambda image: np.asarray(2 * image.astype(int) - 120, np.uint8), [grey])
    assert doubled.after == pytest.approx(2 * same.before, rel=0.01)
    # What moves is left out: here the right half.
    moved = grey.copy()
    moved[:, 32:] = 200
    found = flicker.of_video(lambda image: image, [grey, moved])
    assert (found.before, found.after) == (0.0, 0.0)
    assert 0.35 < found.still < 0.5
