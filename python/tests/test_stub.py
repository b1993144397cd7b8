"""The stub of the native module says what is in it, and what users see is documented."""

import inspect
import subprocess
import sys
import typing
from pathlib import Path

import mez


def test_the_stub_describes_the_native_module() -> None:
    """Every name and every signature, and nothing else: a stub that lags behind makes type checkers lie."""
    words = [sys.executable, "-m", "mypy.stubtest", "mez._native"]
    finished = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_everything_public_is_documented_and_typed() -> None:
    """A class, its methods and its properties; and the package says that it is typed."""
    undocumented = []
    for name in mez.__all__:
        thing = getattr(mez, name)
        if name == "__version__" or typing.get_origin(thing) is typing.Literal:
            continue
        members = vars(thing) if inspect.isclass(thing) else {}
        for path, value in [
            (name, thing),
            *((f"{name}.{member}", value) for member, value in members.items()),
        ]:
            described = value.fget if isinstance(value, property) else value
            if not path.rpartition(".")[2].startswith("_") and callable(described) and not described.__doc__:
                undocumented.append(path)
    assert undocumented == []
    assert (Path(mez.__file__).parent / "py.typed").exists()
