"""Parses sasl.jaas.config: a login module, a flag and options as name="value", then a semicolon."""

from __future__ import annotations

import re

_FLAGS = ("required", "requisite", "sufficient", "optional")
_START = re.compile(r"\s*[\w.$]+\s+(\w+)\s*")
_OPTION = re.compile(
    r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)\s*""", re.DOTALL
)
_END = re.compile(r";\s*\Z")
_FORM = 'expected `LoginModule required username="..." password="...";`'


def parse_jaas(text: str) -> dict[str, str]:
    """Return the options of a JAAS line. Raise ValueError with a message that has no secrets."""
    start = _START.match(text)
    if start is None or start[1].lower() not in _FLAGS:
        raise ValueError(f"it has no login module and flag: {_FORM}")
    options: dict[str, str] = {}
    position = start.end()
    while option := _OPTION.match(text, position):
        options[option[1]] = _unquote(option[2])
        position = option.end()
    if not _END.match(text, position):
        reason = "it has no closing semicolon" if position == len(text) else "it is malformed"
        last = f" after {list(options)[-1]}" if options else ""
        raise ValueError(f"{reason}{last}: {_FORM}")
    return options


def _unquote(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
