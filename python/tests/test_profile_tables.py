"""Published knob tables as profiles."""

import os
from pathlib import Path

import pytest

from mez import _native
from mez.errors import ArgumentError
from mez.profile import document, main, tables
from mez.profile.errors import FormatError

ROWS = """\
500,600000,0.48,0.4,0.6,99,0.1
501,590000,0.50,0.4,0.6,66,0.1
1600,120000,0.36,0.3,0.5,99,0.1
1000,300000,0.47,0.4,0.6,99,0.1
"""
KNOBS = """\
comb500=['R2', 'C1', 'K1', 'D1', 'F1']
comb501=['R2', 'C1', 'K1', 'D1', 'F3']
comb1600=['R4', 'C2', 'K2', 'D1', 'F1']
comb1000=['R3', 'C1', 'K1', 'D1', 'F1']
"""


def table(folder: Path, rows: str = ROWS, knobs: str = KNOBS) -> Path:
    """Write the two files of a table."""
    (folder / "it-knobs.txt").write_text(knobs)
    path = folder / "it.csv"
    path.write_text(rows)
    return path


def test_a_table_becomes_a_profile_that_relates_to_its_base_row(tmp_path: Path) -> None:
    """The base is the row of highest resolution with all else off; nothing counts as better than it."""
    profile = tables.load(table(tmp_path))
    values = {rung.rung: rung.accuracy_normalised.value for rung in profile.rungs}
    assert values == pytest.approx(
        {
            "published/r2/c1/k1/d1/f1": 1.0,
            "published/r2/c1/k1/d1/f3": 1.0,
            "published/r4/c2/k2/d1/f1": 0.75,
            "published/r3/c1/k1/d1/f1": 0.47 / 0.48,
        }
    )
    left_out = profile.get("published/r2/c1/k1/d1/f3")
    assert left_out is not None
    assert left_out.bytes_per_published_frame == pytest.approx(590_000 * 2 / 3)
    assert document.parse(profile.to_bytes()).to_bytes() == profile.to_bytes()
    assert "MIT" in profile.about.source
    with pytest.raises(ArgumentError):
        _native.Stream(profile.rungs[0].rung)


def test_the_command_imports_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And a report can be made of it, which says where the figures are from."""
    out = tmp_path / "it.json"
    assert main(["import", str(table(tmp_path)), "--out", str(out)]) == 0
    assert main(["show", str(out), "--report", str(tmp_path / "report")]) == 0
    assert "A. Ravindran" in (tmp_path / "report" / "index.html").read_text()
    assert main(["compare", str(out), "--floors", "0.7,0.99"]) == 0
    shown = capsys.readouterr().out
    assert "120,000" in shown


@pytest.mark.parametrize(
    ("rows", "knobs", "reason"),
    [
        ("", KNOBS, "has no rows"),
        ("500,600000,0.48\n", KNOBS, "has 3 columns"),
        ("x,600000,0.48,0.4,0.6,99\n", KNOBS, "not a knob table"),
        ("500,-1,0.48,0.4,0.6,99\n", KNOBS, "has invalid"),
        (ROWS, "", "combination 500 is not in it-knobs.txt"),
        ("1600,120000,0.36,0.3,0.5,99\n", KNOBS, "no row with all knobs off"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, rows: str, knobs: str, reason: str) -> None:
    """With the reason."""
    with pytest.raises(FormatError, match=reason):
        tables.load(table(tmp_path, rows, knobs))
    (tmp_path / "it-knobs.txt").unlink()
    with pytest.raises(FormatError, match="beside the table"):
        tables.load(tmp_path / "it.csv")


def test_the_published_tables_say_what_the_paper_says() -> None:
    """Base sizes, and the fewest bytes that keep 0.96 of the base row's F1, in kB."""
    named = os.environ.get("MEZ_BENCH_DATA")
    if named is None or not (Path(named) / "mez-tables").is_dir():
        pytest.skip("SKIPPED: no published tables on this machine; name their folder with MEZ_BENCH_DATA")
    for name, base, least in [
        ("jaad-simple", 607, 125),
        ("jaad-medium", 752, 174),
        ("jaad-complex", 966, 232),
        ("duke-simple", 1383, 80),
        ("duke-medium", 1740, 172),
        ("duke-complex", 1729, 617),
    ]:
        profile = tables.load(Path(named) / "mez-tables" / f"{name}.csv")
        plain = profile.get("published/r2/c1/k1/d1/f1") or profile.get("published/r1/c1/k1/d1/f1")
        assert plain is not None
        assert plain.bytes.mean / 1000 == pytest.approx(base, abs=1)
        # As it is rounded there.
        kept = [rung for rung in profile.rungs if round(rung.accuracy_normalised.value, 3) >= 0.96]
        cheapest = min(rung.bytes.mean for rung in kept)
        assert cheapest / 1000 == pytest.approx(least, abs=1)
