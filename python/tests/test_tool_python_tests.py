"""`tools/python_tests.py` with tests that fail as they are told: what runs again, and what is said."""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "python_tests.py"

ONCE = """
from pathlib import Path

def test_it():
    seen = Path(__file__).with_name("seen")
    is_first = not seen.exists()
    seen.touch()
    assert not is_first
"""


def ran(folder: Path, files: dict[str, str]) -> tuple[int, str]:
    """The status of the tool in a checkout with these tests, and what it printed."""
    (folder / "tools").mkdir(parents=True)
    tool = folder / "tools" / TOOL.name
    tool.write_text(TOOL.read_text())
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    done = subprocess.run([sys.executable, str(tool)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_few_tests_that_failed_run_again_alone(tmp_path: Path) -> None:
    """One that passes then is named; one that fails again has failed, and so has one of many."""
    good, bad = "def test_it(): pass\n", "def test_it(): assert False\n"
    for name, files, status, unsteady in (
        ("good", {"a": good}, 0, 0),
        ("once", {"a": good, "b": ONCE}, 0, 1),
        ("always", {"a": good, "b": bad}, 1, 0),
        ("many", {"e": ONCE} | dict.fromkeys("abcd", bad), 1, 0),
    ):
        got, said = ran(tmp_path / name, files)
        assert (got, said.count("UNSTEADY")) == (status, unsteady), said
        assert ("once more" in said) == (name in ("once", "always"))
    got, said = ran(tmp_path / "broken", {"a": "import nothing_of_this_name\n"})
    assert got != 0, said
    assert "UNSTEADY" not in said
