"""Finds the relations that a SQL query reads, without Spark's parser, which needs a JVM.

Steps may have any order in a file. Their real order follows from what they read: the names after
FROM and JOIN. The scanner knows strings, comments and quoted names. It knows that `extract(YEAR
FROM ts)` and `IS DISTINCT FROM` name no relations, and that names of a WITH hide outer ones. If it
misses a relation, Spark later reports an unknown table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""
    (?P<skip>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<string>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
  | `(?P<quoted>(?:[^`]|``)*)`
  | (?P<word>[^\W\d]\w*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_AFTER_RELATIONS: Final = frozenset(
    {"where", "group", "having", "order", "sort", "distribute", "cluster", "limit", "offset"}
    | {"union", "intersect", "except", "minus", "window", "select", "lateral", "pivot", "unpivot"}
    | {"qualify"}
)
_BEFORE_RELATION: Final = frozenset({"from", "join"})
_QUERY_STARTS: Final = frozenset({"select", "from", "with", "values", "table"})


class _Token(NamedTuple):
    text: str
    is_name: bool
    is_quoted: bool = False

    @property
    def keyword(self) -> str:
        return "" if self.is_quoted or not self.is_name else self.text.lower()


@dataclass
class _Level:
    """The state inside one pair of parentheses."""

    is_query: bool = False
    in_relations: bool = False
    expects_relation: bool = False
    starts: bool = True


def relations_of(sql: str) -> list[str]:
    """Return the plain names that a query reads, in order, each once, without dotted names."""
    tokens = list(_tokens(sql))
    defined = _defined_names(tokens)
    found = dict.fromkeys(name for name in _relations(tokens) if name.lower() not in defined)
    return list(found)


def first_word(sql: str) -> str:
    """Return the first keyword of a statement in lower case; empty if it has none."""
    return next((token.text.lower() for token in _tokens(sql) if token.is_name), "")


def _tokens(sql: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup
        if kind == "quoted":
            yield _Token(match["quoted"].replace("``", "`"), is_name=True, is_quoted=True)
        elif kind == "word":
            yield _Token(match["word"], is_name=True)
        elif kind in ("other", "string"):
            yield _Token(match[0], is_name=False)


def _defined_names(tokens: list[_Token]) -> set[str]:
    """Return the names before `AS (` in a query with WITH. Too many names do no harm."""
    if not any(token.keyword == "with" for token in tokens):
        return set()
    names = set()
    for before, token, middle, after in zip(
        tokens, tokens[1:], tokens[2:], tokens[3:], strict=False
    ):
        starts = before.keyword in ("with", "recursive") or before.text == ","
        if starts and token.is_name and middle.keyword == "as" and after.text == "(":
            names.add(token.text.lower())
    return names


def _relations(tokens: list[_Token]) -> Iterator[str]:
    levels = [_Level(is_query=True)]
    for index, token in enumerate(tokens):
        level = levels[-1]
        if token.text == "(" and not token.is_name:
            levels.append(_Level(expects_relation=level.expects_relation))
            level.in_relations |= level.expects_relation
            level.expects_relation = level.starts = False
        elif token.text == ")" and not token.is_name:
            if len(levels) > 1:
                levels.pop()
        elif level.expects_relation and token.is_name and token.keyword not in _QUERY_STARTS:
            level.expects_relation, level.in_relations = token.keyword == "lateral", True
            if not level.expects_relation and _stands_alone(tokens, index):
                yield token.text
        else:
            _step(level, token, tokens[index - 1] if index else token)


def _step(level: _Level, token: _Token, before: _Token) -> None:
    """Update the state for a token that is not the name of a relation."""
    word = token.keyword
    if word == "select":
        level.is_query, level.in_relations, level.expects_relation = True, False, False
    elif word == "table" and level.starts:
        level.expects_relation = True
    elif word in _BEFORE_RELATION:
        is_clause = level.is_query or level.starts or word == "join"
        level.expects_relation = is_clause and before.keyword != "distinct"
        level.is_query |= level.expects_relation
    elif word in _AFTER_RELATIONS:
        level.in_relations = False
    elif token.text == "," and level.in_relations:
        level.expects_relation = True
    level.starts = level.starts and word == "with"


def _stands_alone(tokens: list[_Token], index: int) -> bool:
    """Return whether a name is neither part of a dotted name nor a table function."""
    after = tokens[index + 1].text if index + 1 < len(tokens) else ""
    return after not in (".", "(")
