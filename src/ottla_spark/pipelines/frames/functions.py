"""Imports the Python functions of steps: `fns.py:clean`, or `package.module:clean`.

Executors do not have the file, so Spark pickles its code by value. A module must be installed on
the executors.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from ottla_spark.pipelines.spec.model import PythonStep
from ottla_spark.pipelines.spec.problems import closest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function: TypeAlias = Callable[..., "DataFrame"]


class FunctionError(Exception):
    """The function cannot be imported or called; the message says why."""


def load_function(step: PythonStep, file: Path) -> Function:
    """Return the function of a step; raise FunctionError if it does not take its arguments."""
    place, _, name = step.function.text.rpartition(":")
    module = _from_file(file.parent / place) if place.endswith(".py") else _module(place)
    function = getattr(module, name, None)
    if function is None:
        known = [found for found, _ in inspect.getmembers(module, inspect.isfunction)]
        raise FunctionError(f"{place} has no function {name!r}{closest(name, known)}")
    if not callable(function):
        raise FunctionError(f"{name} in {place} is not a function")
    _check_arguments(function, step)
    return function  # type: ignore[no-any-return]


def _check_arguments(function: Function, step: PythonStep) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # built-in code has no signature; Python checks the call
    try:
        signature.bind(*step.inputs, **step.arguments)
    except TypeError as error:
        given = f"{len(step.inputs)} DataFrame" + ("s" if len(step.inputs) != 1 else "")
        raise FunctionError(
            f"{step.function.text}{signature} cannot be called with {given}"
            f"{' and ' + ', '.join(step.arguments) if step.arguments else ''}: {error}"
        ) from None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FunctionError(f"the file {path} does not exist")
    name = f"ottla_pipeline_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FunctionError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _unusable(path.name, error) from error
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise _unusable(name, error) from error


def _unusable(subject: str, error: BaseException) -> FunctionError:
    """Return the error for code that failed during import, with its line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f" ({Path(frame.filename).name}, line {frame.lineno})"
    is_own = frame.filename.startswith("<frozen") or frame.filename == __file__
    return FunctionError(
        f"{subject} cannot be imported: {type(error).__name__}: {error}{'' if is_own else place}"
    )
