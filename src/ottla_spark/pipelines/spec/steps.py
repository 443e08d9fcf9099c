"""Reads one step: SQL, a Python function, or dedup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ottla_spark.pipelines.spec.fields import Fields
from ottla_spark.pipelines.spec.model import DedupStep, PythonStep, SqlStep, Step
from ottla_spark.pipelines.spec.shared_keys import read_inputs, read_watermark
from ottla_spark.pipelines.spec.sql_relations import first_word
from ottla_spark.pipelines.spec.yaml_tree import Mapping, Plain, plain

_FUNCTION: Final = re.compile(r"(?P<module>.+):(?P<function>[A-Za-z_]\w*)")
QUERY_WORDS: Final = frozenset({"select", "with", "from", "values", "table"})


def read_step(name: str, fields: Fields, names: Sequence[str]) -> Step | None:
    """Read a step; return None, with a problem, if it is incomplete.

    `names` are the sources and steps of the file.
    """
    kind = fields.one_of("sql", "python", "dedup")
    if kind == "sql":
        return _sql(name, fields)
    if kind == "python":
        return _python(name, fields, names)
    if kind == "dedup":
        return _dedup(name, fields, names)
    return None


def _sql(name: str, fields: Fields) -> Step | None:
    sql = fields.word("sql")
    watermark, unbounded = read_watermark(fields), fields.flag("unbounded")
    if fields.has("from"):
        fields.words("from")
        fields.complain("from", "is not needed: the SQL names what it reads")
    if sql is None:
        return None
    if first_word(sql.text) not in QUERY_WORDS:
        fields.complain("sql", "should be a query: SELECT ..., or WITH ... SELECT ...", sql.line)
        return None
    return SqlStep(name, fields.line, sql, watermark, unbounded)


def _python(name: str, fields: Fields, names: Sequence[str]) -> Step | None:
    function = fields.word("python")
    inputs = read_inputs(fields, names, "name the sources and steps that the function gets")
    watermark, unbounded = read_watermark(fields), fields.flag("unbounded")
    arguments = _arguments(fields)
    if function is None or not inputs:
        return None
    if not _FUNCTION.fullmatch(function.text):
        fields.complain(
            "python", f"{function.text!r} should be file.py:function or module:function"
        )
        return None
    return PythonStep(name, fields.line, function, inputs, arguments, watermark, unbounded)


def _arguments(fields: Fields) -> dict[str, Plain]:
    node = fields.node("with")
    if node is None:
        return {}
    if not isinstance(node, Mapping) or not all(key.isidentifier() for key in node.entries):
        fields.complain("with", "should have the function's arguments by name")
        return {}
    return {key: plain(value) for key, value in node.entries.items()}


def _dedup(name: str, fields: Fields, names: Sequence[str]) -> Step | None:
    columns = fields.words("dedup")
    inputs = read_inputs(fields, names, "name the source or step to read")
    unbounded = fields.flag("unbounded")
    if len(inputs) > 1:
        fields.complain("from", "dedup reads one source or step")
    if not columns or len(inputs) != 1:
        return None
    return DedupStep(name, fields.line, columns, inputs, unbounded)
