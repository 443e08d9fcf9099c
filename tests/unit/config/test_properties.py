from __future__ import annotations

import pytest

from ottla.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\nc:3\nd 4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# no\n! no\n   # no\n\n  a=1", {"a": "1"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n   2,\\\n   3", {"a": "1,2,3"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=1\na=2", {"a": "2"}),
        ("key\\ with\\=odd\\:chars=v", {"key with=odd:chars": "v"}),
        ("a=\\u00e9\\t\\n", {"a": "é\t\n"}),
        ("a=listener://x:1 # not a comment", {"a": "listener://x:1 # not a comment"}),
        ("only", {"only": ""}),
        ("a=\nb=", {"a": "", "b": ""}),
        ("a = b = c", {"a": "b = c"}),
        ("a=\\q", {"a": "q"}),
        ("a=end\\", {"a": "end"}),
        ("a=1\\\n# still the value", {"a": "1# still the value"}),
        ("", {}),
    ],
)
def test_texts_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_broken_escape_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a Unicode escape"):
        parse_properties("a=\\u12G4")
