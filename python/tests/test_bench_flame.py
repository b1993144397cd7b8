"""Flame graphs: what is drawn is what was sampled."""

import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from mez_bench import flame

SVG = "{http://www.w3.org/2000/svg}"


def boxes(file: Path) -> dict[str, tuple[float, float]]:
    """Return the left edge and the width of every box, by its title."""
    found = {}
    for group in ElementTree.parse(file).getroot().iter(f"{SVG}g"):
        title, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert title.text is not None
        assert box is not None
        found[title.text] = float(box.attrib["x"]), float(box.attrib["width"])
    return found


def test_widths_are_shares_and_callees_lie_above_their_callers(tmp_path: Path) -> None:
    """A function's box is as wide as the samples in it and in what it called."""
    counted: Counter[flame.Stack] = Counter(
        {("edge", "main", "read"): 60, ("edge", "main"): 20, ("camera", "main", "a<b>&c"): 20}
    )
    flame.draw(counted, "a title with <letters>", tmp_path / "flame.svg")
    drawn = boxes(tmp_path / "flame.svg")
    assert set(drawn) == {
        "edge: 80.0%",
        "camera: 20.0%",
        "main: 80.0%",
        "main: 20.0%",
        "read: 60.0%",
        "a<b>&c: 20.0%",
    }
    for title, (left, width) in drawn.items():
        share = float(title.rpartition(": ")[2].rstrip("%")) / 100
        assert abs(width - share * flame.WIDTH) < 1
        # In the order of the alphabet: the camera, and what it called, stands to the left of the edge.
        assert left == (0.0 if "20.0%" in title else 0.2 * flame.WIDTH)


def test_what_nobody_could_see_is_left_out(tmp_path: Path) -> None:
    """But it counts in the width of what called it."""
    counted: Counter[flame.Stack] = Counter({("edge", f"rare{n}"): 1 for n in range(2000)})
    flame.draw(counted, "", tmp_path / "flame.svg")
    assert list(boxes(tmp_path / "flame.svg")) == ["edge: 100.0%"]
