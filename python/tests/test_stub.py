"""The stub of the native module says what is in it: every name, every signature, and nothing else."""

import ast
import inspect
from pathlib import Path
from types import ModuleType

import mez
from mez import _native

STUB = Path(mez.__file__).parent / "_native.pyi"

# Names that every class or module has.
_EVERYWHERE = set(dir(object)) | {"__module__", "__doc__"}


def _public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_") or name in ("__version__", "__len__")}


def _declared(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    names: dict[str, ast.stmt] = {}
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names[statement.name] = statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names[statement.target.id] = statement
    return names


def _parameters(function: ast.FunctionDef) -> list[str]:
    """As `inspect.signature` writes them, without annotations; defaults count."""
    arguments = function.args
    names = [argument.arg for argument in arguments.args]
    required = len(names) - len(arguments.defaults)
    words = [
        name if index < required else f"{name}={ast.unparse(arguments.defaults[index - required])}"
        for index, name in enumerate(names)
    ]
    if arguments.kwonlyargs:
        words.append("*")
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            words.append(argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}")
    return words


def _actual(callable_object: object) -> list[str]:
    assert callable(callable_object)
    words, keywords = [], False
    for parameter in inspect.signature(callable_object).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            words.append("*")
            keywords = True
        default = "" if parameter.default is inspect.Parameter.empty else f"={parameter.default!r}"
        words.append(parameter.name + default)
    return words


def _compare_class(stub: ast.ClassDef, native: type) -> None:
    declared = _declared(stub.body)
    names = {name for name in vars(native) if name not in _EVERYWHERE and not name.startswith("__")}
    assert {name for name in declared if not name.startswith("__")} == names, stub.name
    for name, statement in declared.items():
        if isinstance(statement, ast.FunctionDef):
            is_property = any(ast.unparse(decorator) == "property" for decorator in statement.decorator_list)
            if is_property:
                assert inspect.isdatadescriptor(vars(native)[name]), f"{stub.name}.{name}"
            elif name == "__new__":
                assert _parameters(statement)[1:] == _actual(native), stub.name
            else:
                assert _parameters(statement) == _actual(getattr(native, name)), f"{stub.name}.{name}"
        else:
            assert inspect.isdatadescriptor(vars(native)[name]), f"{stub.name}.{name}"


def test_the_stub_describes_the_native_module() -> None:
    """A stub that lags behind would make type checkers lie to users."""
    declared = _declared(ast.parse(STUB.read_text()).body)
    declared.pop("_Buffer")
    assert set(declared) == _public(dir(_native))
    for name, statement in declared.items():
        native = getattr(_native, name)
        if isinstance(statement, ast.ClassDef):
            _compare_class(statement, native)
        elif isinstance(statement, ast.FunctionDef):
            assert _parameters(statement) == _actual(native), name
            assert native.__doc__ or name.startswith("cli_"), name


def test_everything_public_is_documented_and_typed() -> None:
    """What users see has a docstring, and arguments that raise are described."""
    for name in mez.__all__:
        if name == "__version__":
            continue
        thing = getattr(mez, name)
        assert thing.__doc__, name
        assert not isinstance(thing, ModuleType), name
        members = vars(thing).items() if inspect.isclass(thing) else []
        for member, value in members:
            described = value.fget if isinstance(value, property) else value
            if not member.startswith("_") and callable(described) and not inspect.isclass(described):
                assert described.__doc__, f"{name}.{member}"
    assert (STUB.parent / "py.typed").exists()
