"""What the documents say exists: the page of the interface, names in programs, options, and messages."""

import ast
import re
import subprocess
import sys
from functools import cache
from operator import attrgetter
from pathlib import Path

import pytest

import mez
import mez.engine

CHECKOUT = Path(__file__).parents[2]
PAGES = (
    "cookbook",
    "troubleshooting",
    "rights",
    "certificates",
    "audit",
    "doctor",
    "configuration",
    "offload",
)
DOCUMENTS = [CHECKOUT / "README.md", *(CHECKOUT / "docs" / f"{page}.md" for page in PAGES)]


def blocks(language: str) -> list[tuple[str, str]]:
    """The blocks of code in a language, with the document and line of each."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            found.append((f"{document.name}:{text.count(chr(10), 0, match.start()) + 1}", match[1]))
    assert found
    return found


def test_the_page_of_the_interface_is_what_the_docstrings_say() -> None:
    """After a change of a docstring: make docs."""
    words = [sys.executable, str(CHECKOUT / "tools" / "python_page.py"), "--check"]
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    page = (CHECKOUT / "docs" / "python.md").read_text()
    for name in mez.__all__:
        assert name == "__version__" or name in page, name


def test_programs_in_documents_use_what_there_is() -> None:
    """They parse; what they take out of `mez` is there, and so are the arguments that they give by name."""
    for place, program in blocks("python"):
        for node in ast.walk(ast.parse(program, place)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("mez."):
                called = attrgetter(ast.unparse(node.func).removeprefix("mez."))(mez)
                made = called.__init__ if isinstance(called, type) else called
                known = made.__code__.co_varnames
                for given in node.keywords:
                    assert given.arg in known, f"{place}: {ast.unparse(node.func)} has no {given.arg}"
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "frame":
                assert hasattr(mez.Frame, node.attr), f"{place}: a frame has no {node.attr}"


def test_commands_in_documents_have_the_options_that_are_given() -> None:
    """As `--help` lists them."""

    @cache
    def options(command: tuple[str, ...]) -> set[str]:
        words = [sys.executable, "-m", "mez", *command, "--help"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"--[a-z][a-z-]+", said))

    for place, text in blocks("console"):
        for line in re.findall(r"^\$ mez (.*?)(?:\s#.*)?$", text, re.MULTILINE):
            command = tuple(word for word in line.split()[:2] if word.isalpha())
            for option in re.findall(r"--[a-z][a-z-]+", line):
                assert option in options(command), f"{place}: mez {' '.join(command)} has no {option}"


@pytest.mark.parametrize(
    "told", ["mez.edge", "mez.publisher", "mez edge", "mez camera", "mez store ls", "docs"]
)
def test_everybody_says_where_the_key_of_the_store_is_looked_for(told: str) -> None:
    """With the names that the brokers look for, and in their order."""
    keys = (CHECKOUT / "crates/node/src/persist/keys.rs").read_text()
    constants = ("STORE_KEY_VARIABLE", "STORE_KEY_CREDENTIAL", "STORE_KEY_FILE")
    names = [re.findall(rf'const {name}: &str = "(.*)";', keys)[0] for name in constants]
    if told == "docs":
        said = (CHECKOUT / "docs" / "README.md").read_text()
    elif told.startswith("mez."):
        said = getattr(mez, told.removeprefix("mez.")).__doc__
    else:
        words = [sys.executable, "-m", *told.split(), "--help"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert re.search(".*".join(map(re.escape, names)), " ".join(said.split())), said


@cache
def sources() -> str:
    """All sources, with texts that go over several lines in one."""
    paths = [*CHECKOUT.glob("crates/*/src/**/*.rs"), *CHECKOUT.glob("python/mez/**/*.py")]
    text = "\n".join(path.read_text() for path in paths)
    return re.sub(r'\\\n\s*|"\n\s*f?"', "", text)


def messages() -> list[str]:
    """The messages of Mez that the document explains: sentences in the first column, in code."""
    rows = re.findall(r"^\| `([^`|]+)` \|", (CHECKOUT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    return [row for row in rows if " " in row and not row.startswith(("ModuleNotFound", "frame.skipped"))]


@pytest.mark.parametrize("message", messages())
def test_messages_are_explained_as_they_are_written(message: str) -> None:
    """Each part of it stands in a source."""
    parts = [part.strip() for part in message.split("…") if len(part.strip()) >= 8]
    assert parts, message
    for part in parts:
        assert part in sources(), f"no source says {part!r}"
