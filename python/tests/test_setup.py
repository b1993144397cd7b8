"""`tools/setup` makes a checkout ready, from whatever shell it is called."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Tests have a home of their own, in which rustup would install everything anew.
HOME = os.environ["HOME"]


# It fetches packages, over a network that nobody knows.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that needs nothing but an environment."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "setup", tmp_path / "tools")
    shutil.copy(ROOT / "rust-toolchain.toml", tmp_path)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.txt").touch()
    (tmp_path / "requirements" / "faces.txt").touch()
    (tmp_path / "requirements" / "dds.txt").touch()
    return tmp_path


def set_up(checkout: Path, *words: str, **environment: str) -> str:
    """Runs setup there, and gives what it says."""
    done = subprocess.run(
        [checkout / "tools" / "setup", *words],
        env=os.environ | {"HOME": HOME} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_setup_takes_the_interpreter_from_outside_the_environment_that_is_active(checkout: Path) -> None:
    """With `.venv` active its own interpreter comes first, and is deleted before it makes a new one."""
    assert "making .venv" in set_up(checkout)
    venv = checkout / ".venv"
    active = {"VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    assert set_up(checkout, **active) == "", "nothing is missing"
    # A checkout that was moved needs a new environment.
    (venv / "mez-place").write_text("elsewhere")
    assert "making .venv" in set_up(checkout, **active)
    home = (venv / "pyvenv.cfg").read_text().split("home = ")[1].splitlines()[0]
    assert not Path(home).is_relative_to(checkout)
    assert set_up(checkout, **active) == ""


def test_what_only_faces_need_is_installed_where_it_is_asked_for(checkout: Path) -> None:
    """Once; the build does without."""
    assert "faces.txt" not in set_up(checkout)
    assert "installing requirements/faces.txt" in set_up(checkout, "--faces")
    assert set_up(checkout, "--faces") == ""
    (checkout / "requirements" / "faces.txt").write_text("# another version\n")
    assert set_up(checkout) == ""
    assert "installing requirements/faces.txt" in set_up(checkout, "--faces")
