"""Writes docs/python.md, the page of the Python interface, from the docstrings of the package.

It reads the sources and imports nothing, so it needs no build. `--check` writes nothing and ends with
status 1 if the page is not up to date.
"""

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "python.md"

SECTIONS: Final = {
    "Publishing": ["publisher", "Publisher", "knob", "Knob", "Knobs", "Reply", "Answers", "Answer"],
    "Offload": ["offload", "Offload", "Answered", "OffloadCounts", "Overlay"],
    "Subscribing": ["subscribe", "Subscription", "Event", "Source", "ReplyCounts", "AnswerCounts"],
    "Frames together with their records": ["join", "Join", "Pair", "Stray", "JoinCounts"],
    "Reading the past": ["read", "notes", "Note"],
    "Frames": ["Frame", "FrameId", "Contract", "NotHeld", "Trace"],
    "Edges and cameras": ["cameras", "CameraInfo", "ContractStanding", "forget_camera", "edge", "Edge"],
    "Names of rungs": ["rungs"],
}
"""Sections of the page, by users' interest. Public names in none of them follow in a section of their own."""

HEAD: Final = """\
<!-- Made from docstrings by tools/python_page.py. Change those, then run: make docs -->

# The Python interface

Everything is in the package `mez`. [README](../README.md) shows the first programs, [cookbook](cookbook.md)
has whole ones, and [troubleshooting](troubleshooting.md) says what messages mean. `mez.engine`, which makes
pictures of frames, has its own page: [offload](offload.md#engines).

"""

Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_HEADING = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example|Examples):$")
_ITEM = re.compile(r"^(\*{0,2}[\w.]+(?:, [\w.]+)*): (.*)$")
_WORDS = {"Args": "Arguments", "Attributes": "Attributes", "Raises": "Errors", "Returns": "Returns"}


def main(words: list[str]) -> int:
    """Write the page, or with `--check` tell whether it is up to date."""
    page = made()
    if "--check" in words:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print("docs/python.md differs from the docstrings; run: make docs", file=sys.stderr)
        return 1
    PAGE.write_text(page)
    return 0


def made() -> str:
    """Return the page."""
    definitions, public = _definitions(), _public()
    errors = [name for name in public if _module(definitions, name) == "errors"]
    listed = [name for names in SECTIONS.values() for name in names]
    known = {*listed, *errors}
    rest = [name for name in public if name in definitions and name not in known]
    sections = {**SECTIONS, **({"Other names": rest} if rest else {})}
    parts = [HEAD]
    for title, names in sections.items():
        links = ", ".join(f"[`{name}`](#{_anchor(definitions[name][1])})" for name in names)
        parts.append(f"- **{title}**: {links}\n")
    parts.append("- **[Errors](#errors)**\n\n")
    for title, names in sections.items():
        parts.append(f"## {title}\n\n")
        for name in names:
            parts += _described(definitions[name][1], "mez.")
    parts.append("## Errors\n\n")
    tree = ast.parse((ROOT / "python/mez/errors.py").read_text())
    parts.append((ast.get_docstring(tree) or "") + "\n\n")
    for name in errors:
        node = definitions[name][1]
        attributes = [lines for head, lines in _blocks(node) if head == "Attributes"]
        if attributes:
            parts.append(f"`{name}` has these attributes:\n\n" + "".join(_items(attributes[0], {})) + "\n")
    return "".join(parts).rstrip() + "\n"


def _definitions() -> dict[str, tuple[str, Definition]]:
    """Return the top-level classes and functions of the package's modules, with the module's name."""
    found: dict[str, tuple[str, Definition]] = {}
    for path in _modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                found.setdefault(node.name, (path.stem, node))
    return found


def _modules() -> list[Path]:
    """Return the modules that define public names."""
    package = ROOT / "python/mez"
    return sorted(package.glob("*.py")) + sorted((package / "offloading").glob("*.py"))


def _module(definitions: dict[str, tuple[str, Definition]], name: str) -> str:
    return definitions[name][0] if name in definitions else ""


@cache
def _constants() -> dict[str, str]:
    """Return the constants of these modules, as written in the source."""
    found = {}
    for path in _modules():
        for node in ast.parse(path.read_text()).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and isinstance(value, ast.expr):
                found[target.id] = ast.unparse(value)
    return found


def _public() -> list[str]:
    """Return the names of `mez.__all__`."""
    for node in ast.parse((ROOT / "python/mez/__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise SystemExit("python/mez/__init__.py has no __all__")


def _described(node: Definition, prefix: str) -> Iterator[str]:
    """Yield the description of a function, or of a class with its public members."""
    yield f"### {_title(node)}\n\n"
    if isinstance(node, ast.ClassDef):
        yield from _text(node, _fields(node))
        for member in [*node.body, *_inherited(node)]:
            if isinstance(member, ast.FunctionDef) and _is_shown(member):
                yield f"#### {_title(member, node.name + '.')}\n\n"
                if not _is(member, "property"):
                    yield _signature(member, node.name + ".")
                yield from _text(member, _parameters(member))
    elif isinstance(node, ast.FunctionDef):
        yield _signature(node, prefix)
        yield from _text(node, _parameters(node))


def _inherited(node: ast.ClassDef) -> Iterator[ast.stmt]:
    """Yield members that a class inherits from classes that are not on the page themselves."""
    definitions, public = _definitions(), _public()
    for base in node.bases:
        name = ast.unparse(base)
        if name in definitions and name not in public:
            yield from definitions[name][1].body


def _title(node: Definition, prefix: str = "") -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    return f"{prefix}{node.name}" + ("" if _is(node, "property") else "()")


def _anchor(node: Definition) -> str:
    return re.sub(r"[^\w -]", "", _title(node).lower()).replace(" ", "-")


def _is(node: Definition, decorator: str) -> bool:
    return any(ast.unparse(each) == decorator for each in node.decorator_list)


def _is_shown(node: Definition) -> bool:
    return not node.name.startswith("_") and not _is(node, "overload")


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> str:
    """Return the signature: names and defaults. Types are in the list of arguments."""
    taken = node.args
    given = [*taken.posonlyargs, *taken.args]
    defaults = [None] * (len(given) - len(taken.defaults)) + list(taken.defaults)
    words = [
        _default(one.arg, value) for one, value in zip(given, defaults, strict=True) if one.arg != "self"
    ]
    if taken.kwonlyargs:
        words.append("*")
        words += [
            _default(one.arg, value) for one, value in zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
        ]
    if taken.kwarg:
        words.append(f"**{taken.kwarg.arg}")
    returned = f" -> {_type(node.returns)}" if node.returns is not None else ""
    line = f"{prefix}{node.name}({', '.join(words)}){returned}"
    if len(line) > 100:
        inside = textwrap.fill(", ".join(words), 96, break_long_words=False, break_on_hyphens=False)
        line = f"{prefix}{node.name}(\n{textwrap.indent(inside, '    ')}\n){returned}"
    return f"```python\n{line}\n```\n\n"


def _default(name: str, value: ast.expr | None) -> str:
    if value is None:
        return name
    text = ast.unparse(value).replace("'", '"')
    constant = text.rpartition(".")[2]
    if constant.isupper():
        # A constant with an underscore only stands for an omitted argument.
        text = "…" if constant.startswith("_") else _constants()[constant]
    return f"{name}={text}"


def _type(annotation: ast.expr | None) -> str:
    """Return an annotation in a readable form."""
    if annotation is None:
        return ""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return re.sub(r"\barguments\.|\bmez\.", "", ast.unparse(annotation)).replace("'", '"')


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    taken = node.args
    return {one.arg: _type(one.annotation) for one in (*taken.args, *taken.kwonlyargs) if one.annotation}


def _fields(node: ast.ClassDef) -> dict[str, str]:
    return {
        each.target.id: _type(each.annotation)
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def _text(node: Definition, types: dict[str, str]) -> Iterator[str]:
    """Yield a docstring as Markdown."""
    for heading, lines in _blocks(node):
        if heading in ("Args", "Attributes", "Raises"):
            yield f"{_WORDS[heading]}:\n\n"
            yield from _items(lines, types)
            yield "\n"
        elif heading:
            yield f"{_WORDS.get(heading, heading)}:\n\n" + "\n".join(lines).strip() + "\n\n"
        elif text := "\n".join(lines).strip():
            yield text + "\n\n"


def _blocks(node: Definition) -> list[tuple[str, list[str]]]:
    """Return the parts of a docstring, each with its heading and its lines without indentation."""
    blocks: list[tuple[str, list[str]]] = [("", [])]
    for line in (ast.get_docstring(node) or "").splitlines():
        if match := _HEADING.match(line):
            blocks.append((match[1], []))
        elif blocks[-1][0] and line and not line.startswith(" "):
            blocks.append(("", [line]))
        else:
            blocks[-1][1].append(line)
    return [(heading, textwrap.dedent("\n".join(lines)).splitlines()) for heading, lines in blocks]


def _items(lines: list[str], types: dict[str, str]) -> Iterator[str]:
    """Yield entries `name: description`, which may have several lines, as a Markdown list."""
    items: list[list[str]] = []
    for line in lines:
        if match := _ITEM.match(line):
            kind = f" (`{types[match[1]]}`)" if types.get(match[1]) else ""
            items.append([f"- `{match[1]}`{kind}: {match[2]}"])
        elif items and line.strip():
            items[-1].append(f"  {line.strip()}")
    for item in items:
        yield "\n".join(item) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
