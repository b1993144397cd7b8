"""The command and the package agree about what they are."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import mez


def test_command_installed_beside_the_interpreter_prints_the_version() -> None:
    """`make build` leaves a working `mez` in the environment it builds."""
    command = Path(sys.executable).parent / "mez"
    finished = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert finished.stdout == f"mez {mez.__version__}\n"


def test_native_module_and_package_metadata_carry_one_version() -> None:
    """A stale extension module beside newer Python files would fail here."""
    assert importlib.metadata.version("mez") == mez.__version__
