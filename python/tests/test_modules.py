"""The modules of the package import each other in one direction only."""

import ast
from pathlib import Path

import mez
from mez import _modules

FOLDER = Path(mez.__file__).parent


def module_of(path: Path) -> str:
    """A file's module."""
    parts = ("mez", *path.relative_to(FOLDER).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(text: str, modules: set[str]) -> set[str]:
    """Those of `modules` that a text imports: at its top, inside a function, or for types only."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from mez import _frame` means the module.
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found & modules


def circle(graph: dict[str, set[str]]) -> list[str] | None:
    """Modules of which each imports the next, and the last one the first."""
    done: set[str] = set()

    def walk(module: str, way: list[str]) -> list[str] | None:
        if module in way:
            return way[way.index(module) :]
        if module not in done:
            for used in sorted(graph[module]):
                if found := walk(used, [*way, module]):
                    return found
            done.add(module)
        return None

    return next((found for module in sorted(graph) if (found := walk(module, []))), None)


def test_no_modules_import_each_other() -> None:
    """Also an import inside a function, or for types only, makes a circle."""
    texts = {module_of(path): path.read_text() for path in FOLDER.rglob("*.py")}
    # To import a module is to import its packages first: that is no circle of ours.
    packages = {module for module in texts if any(other.startswith(f"{module}.") for other in texts)}
    modules = set(texts) - packages
    assert {"mez._edge", "mez._subscribe", "mez._in_process"} <= modules
    assert circle({module: imported(texts[module], modules) for module in modules}) is None


def test_an_import_is_found_wherever_it_stands() -> None:
    """The rule sees each of them."""
    modules = {"mez._one", "mez._two", "mez._three", "mez._four"}
    text = """
from typing import TYPE_CHECKING
from mez import _one, errors
if TYPE_CHECKING:
    from mez._two import Two
def late() -> None:
    import mez._three
"""
    assert imported(text, modules) == {"mez._one", "mez._two", "mez._three"}


def test_a_circle_is_found() -> None:
    """By its shortest way round; two ways to one module are none."""
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_an_error_of_mez_is_told_by_its_text_alone() -> None:
    """It says what to do; of others the place is told."""
    assert _modules.told(mez.Error("it is so; do that")) == "it is so; do that"
    try:
        raise ValueError("no paint left")
    except ValueError as error:
        assert _modules.told(error).startswith("ValueError: no paint left (test_modules.py:")
