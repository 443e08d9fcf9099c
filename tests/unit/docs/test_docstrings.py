"""Docstrings of functions begin with a verb: `Return ...`, `Write ...`, `Check ...`.

Properties are left out: they are read like attributes, and described with a noun. So are tests,
which tell a story, and the generated messages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ["src", "tests", "bench", "interop", "tools", "examples"]
GENERATED = ROOT / "src/ottla/wire/messages"
PROPERTIES = {"property", "cached_property", "setter"}
A_VERB = re.compile(r"[A-Z][a-z]+\b(?<![^s]s)")
"""A word that may be one: capitalised, and not like `Returns`."""
NO_VERBS = re.compile(
    r"(A|About|After|All|Also|An|And|Another|Any|At|Both|Called|Each|Enough|Every|Everybody|"
    r"Everything|For|From|How|If|In|It|More|No|None|Not|Nothing|Of|On|Once|One|Only|Otherwise|So|"
    r"Some|Sometimes|Such|That|The|Their|There|They|Those|True|Two|Up|What|When|Where|Whether|"
    r"Which|Who|Whose|Why|With|Within|Without)\b"
)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def modules(folder: str) -> list[Path]:
    """Return the modules of a folder that people wrote."""
    found = sorted((ROOT / folder).rglob("*.py"))
    return [path for path in found if GENERATED not in path.parents]


def functions(path: Path) -> Iterator[Function]:
    """Yield the functions of a module that are neither properties nor tests."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function) and not node.name.startswith("test_"):
            names = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
            if not names & PROPERTIES:
                yield node


def begins_with_a_verb(docstring: str) -> bool:
    return A_VERB.match(docstring) is not None and NO_VERBS.match(docstring) is None


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_functions_docstring_begins_with_a_verb(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}: {docstring.splitlines()[0]}"
        for path in modules(folder)
        for node in functions(path)
        if (docstring := ast.get_docstring(node)) and not begins_with_a_verb(docstring)
    ]
    assert wrong == []


def test_every_module_has_a_docstring() -> None:
    paths = [path for path in modules("src") if path.name != "__init__.py"]
    assert [
        str(path.relative_to(ROOT))
        for path in paths
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ] == []


@pytest.mark.parametrize(
    "docstring",
    [
        "The log.",
        "Returns the log.",
        "`log` is open.",
        "True if open.",
        "5 logs.",
        "SIGKILL: ends.",
    ],
)
def test_what_is_no_verb_is_found(docstring: str) -> None:
    assert not begins_with_a_verb(docstring)
    assert begins_with_a_verb("Return the log.")
    assert begins_with_a_verb("Compress it.")
    assert begins_with_a_verb("See Log.read.")
