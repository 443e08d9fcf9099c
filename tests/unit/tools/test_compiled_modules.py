"""The sources of the modules that mypyc compiles: they must do the same compiled as not.

mypyc differs from Python in a few things that no type checker reports. These tests need no
compiler. `make test-compiled` runs the compiled modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src"
COMPILED = [
    line
    for line in (ROOT / "tools/compiled_modules.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
PURE = {"len", "max", "min"}


def module_name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def parse(path: str) -> ast.Module:
    return ast.parse((SOURCES / path).read_text(encoding="utf-8"))


def functions(module: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef))


def inherited(path: str) -> Iterator[tuple[str, str]]:
    """Yield (module, class) of the bases that a module's classes import from other modules."""
    module = parse(path)
    imported = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                name = ast.unparse(base).split("[", maxsplit=1)[0]
                if name in imported:
                    yield imported[name]


def test_classes_that_inherit_from_compiled_ones_are_compiled() -> None:
    """Python cannot make a class whose base is compiled, with the error "interpreted classes"."""
    compiled = set(map(module_name, COMPILED))
    plain = {str(path.relative_to(SOURCES)) for path in (SOURCES / "ottla").rglob("*.py")} - set(
        COMPILED
    )
    found = [
        (path, base) for path in sorted(plain) for base in inherited(path) if base[0] in compiled
    ]
    assert found == []


@pytest.mark.parametrize("path", COMPILED)
def test_bounds_of_slices_call_nothing(path: str) -> None:
    """mypyc may evaluate the bounds of a slice twice."""
    calls = {
        ast.unparse(node)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Slice)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func) not in PURE
    }
    assert calls == set()


@pytest.mark.parametrize("path", COMPILED)
def test_a_name_for_an_exception_is_used_for_one_type(path: str) -> None:
    """A variable of a compiled function has one type, and its exceptions are checked for it."""
    for function in functions(parse(path)):
        types: dict[str, set[str]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                types.setdefault(node.name, set()).add(ast.unparse(node.type))
        assert [name for name, kinds in types.items() if len(kinds) > 1] == [], function.name


@pytest.mark.parametrize("path", COMPILED)
def test_what_is_set_to_none_is_not_read_later(path: str) -> None:
    """After `self.x = None` a type checker takes `self.x` for None, whatever is called then.

    A compiled function raises a TypeError if it is not.
    """
    for function in functions(parse(path)):
        if function.name == "__init__":
            continue
        nodes = list(ast.walk(function))
        cleared = {
            ast.unparse(target): node.lineno
            for node in nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and node.value.value is None
            for target in node.targets
            if isinstance(target, ast.Attribute)
        }
        read = [
            ast.unparse(node)
            for node in nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and node.lineno > cleared.get(ast.unparse(node), node.lineno)
        ]
        assert read == [], function.name


@pytest.mark.parametrize("path", COMPILED)
def test_constants_of_classes_belong_to_the_class(path: str) -> None:
    """Other attributes of a compiled class cannot be read through the class."""
    plain = [
        ast.unparse(statement)
        for node in parse(path).body
        if isinstance(node, ast.ClassDef)
        and not any("Enum" in ast.unparse(base) for base in node.bases)
        for statement in node.body
        if isinstance(statement, ast.Assign)
        and any(isinstance(name, ast.Name) and name.id.isupper() for name in statement.targets)
    ]
    assert plain == []
