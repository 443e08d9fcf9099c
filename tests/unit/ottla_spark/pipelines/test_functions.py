"""Python functions of steps."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs ottla[spark]")

from ottla_spark.pipelines.frames.functions import FunctionError, load_function
from ottla_spark.pipelines.spec.model import PythonStep
from ottla_spark.pipelines.spec.yaml_tree import Plain, Scalar


def step(function: str, inputs: int = 1, **arguments: Plain) -> PythonStep:
    names = tuple(Scalar(1, f"in{number}") for number in range(inputs))
    return PythonStep("s", 1, Scalar(1, function), names, arguments, None, False)


def test_a_function_of_a_file_beside_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "fns.py").write_text("def double(rows, by=2):\n    return rows * by\n")
    function = load_function(step("fns.py:double", by=3), tmp_path / "p.yaml")
    assert function(2, by=3) == 6


def test_a_function_of_a_module(tmp_path: Path) -> None:
    assert load_function(step("operator:neg"), tmp_path / "p.yaml")(3) == -3


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("nothere.py:f", "nothere.py does not exist"),
        ("fns.py:clena", "did you mean 'clean'?"),
        ("fns.py:NUMBER", "is not a function"),
        ("fns.py:two", "cannot be called with 1 DataFrame"),
        ("no_such_module_at_all:f", "cannot be imported: ModuleNotFoundError"),
        ("broken.py:f", "ZeroDivisionError: division by zero (broken.py, line 2)"),
        ("leaves.py:f", "SystemExit"),
        ("syntax.py:f", "SyntaxError"),
    ],
)
def test_functions_that_cannot_be_used(tmp_path: Path, function: str, words: str) -> None:
    (tmp_path / "fns.py").write_text(
        "NUMBER = 1\ndef clean(rows): return rows\ndef two(a, b): return a\n"
    )
    (tmp_path / "broken.py").write_text("x = 0\ny = 1 / x\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    with pytest.raises(FunctionError) as error:
        load_function(step(function), tmp_path / "p.yaml")
    assert words in str(error.value)


def test_an_argument_the_function_does_not_take(tmp_path: Path) -> None:
    (tmp_path / "fns.py").write_text("def clean(rows): return rows\n")
    with pytest.raises(FunctionError, match="factor"):
        load_function(step("fns.py:clean", factor=2), tmp_path / "p.yaml")
