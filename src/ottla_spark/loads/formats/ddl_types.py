"""Finds types in DDL that Spark does not have, without Spark.

Only Spark itself parses DDL. This reads the common part of it: names with types, also within
`array<...>`, `map<...>` and `struct<...>`. Whatever it does not understand is left to Spark.
"""

from __future__ import annotations

import re

_SIMPLE = re.compile(
    "boolean|byte|tinyint|short|smallint|int|integer|long|bigint|float|real|double|decimal|dec"
    "|numeric|date|time|timestamp|timestamp_ltz|timestamp_ntz|string|char|character|varchar|binary"
    "|void|interval|variant|geometry|geography"
)
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|`[^`]+`|\d+|[<>(),:]|'[^']*')")


class _NotUnderstood(Exception):
    """The text has something that is left to Spark."""


class _UnknownType(Exception):
    """The text has this word where a type should be."""


def unknown_type(text: str) -> str:
    """Return the first word in the place of a type that is none; empty if there is none."""
    try:
        _Reader(_tokens(text.strip().rstrip(";").rstrip())).fields("")
    except _UnknownType as error:
        return str(error)
    except _NotUnderstood:
        pass
    return ""


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _NotUnderstood
        found.append(token[1])
        at = token.end()
    return found


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def fields(self, end: str) -> None:
        """Read `name type, name type` up to `end`."""
        while True:
            self._next()  # the name
            if self._peek() == ":":
                self._next()
            self._type()
            self._skip_comment()
            token = self._next()
            if token == end:
                return
            if token != ",":
                raise _NotUnderstood

    def _type(self) -> None:
        word = self._next()
        kind = word.lower()
        if not word[:1].isalpha():
            raise _NotUnderstood
        if kind in {"array", "map", "struct"}:
            self._expect("<")
            if kind == "struct":
                return self.fields(">")
            self._type()
            if kind == "map":
                self._expect(",")
                self._type()
            return self._expect(">")
        if not _SIMPLE.fullmatch(kind):
            raise _UnknownType(word)
        if self._peek() == "(":
            while self._next() != ")":
                pass
        return None

    def _skip_comment(self) -> None:
        if self._peek().lower() == "not":
            self._next()
            self._next()
        if self._peek().lower() == "comment":
            self._next()
            self._next()

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _NotUnderstood

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        if self._at > len(self._tokens) + 1:
            raise _NotUnderstood
        return token
