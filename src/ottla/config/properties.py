"""Parses Java's .properties format, the format of Kafka's configuration files.

As in Java, the last value of a repeated key wins. Keys keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACE = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a .properties text. Raise ValueError for a bad \\u escape."""
    return dict(_key_and_value(line) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_SPACE)
        if not pending and (not line or line[0] in "#!"):
            continue
        if _continues(line):
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _continues(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _key_and_value(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _SPACE:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_SPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_SPACE)
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append(char)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            out.append(_code_point(text[position : position + 4]))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)


def _code_point(digits: str) -> str:
    if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        raise ValueError(f"\\u{digits} is not a Unicode escape: four hexadecimal digits follow \\u")
    return chr(int(digits, 16))
