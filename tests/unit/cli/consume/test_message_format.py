from __future__ import annotations

import json

import pytest

from ottla.cli.consume.message_format import format_writer, json_writer, value_writer
from ottla.cli.errors import UsageError
from ottla.records.record import Record

PLAIN = Record(7, 1234, b"key", "wert ü".encode(), (("h", b"1"), ("n", None)))
EMPTY = Record(8, -1, None, None, ())
BINARY = Record(9, 0, b"\xff", b"\x00\xfe", (("bad\udcff", b"\xff"),))


def test_values_are_written_as_they_are() -> None:
    assert value_writer(0, PLAIN) == "wert ü\n".encode()
    assert value_writer(0, BINARY) == b"\x00\xfe\n"
    assert value_writer(0, EMPTY) == b"null\n"


@pytest.mark.parametrize(
    ("text", "record", "expected"),
    [
        ("{topic}-{partition}@{offset}", PLAIN, b"t-3@7\n"),
        ("{timestamp} {key}={value}", PLAIN, "1234 key=wert ü\n".encode()),
        ("{key}\\t{value}\\\\", EMPTY, b"null\tnull\\\n"),
        ("{headers}", PLAIN, b"h=1,n=null\n"),
        ("{headers}", BINARY, b"bad\xff=\xff\n"),
        ("no fields { }", PLAIN, b"no fields { }\n"),
    ],
)
def test_formats(text: str, record: Record, expected: bytes) -> None:
    assert format_writer(text, "t")(3, record) == expected


def test_a_field_in_a_value_stays_as_it_is() -> None:
    record = PLAIN._replace(value=b"{key}")
    assert format_writer("{value}", "t")(0, record) == b"{key}\n"


def test_only_names_are_fields() -> None:
    assert format_writer("{value.__class__}", "t")(0, PLAIN) == b"{value.__class__}\n"


@pytest.mark.parametrize("text", ["{size}", "{}"])
def test_unknown_fields(text: str) -> None:
    with pytest.raises(UsageError, match="the fields are topic, partition, offset"):
        format_writer(text, "t")


def test_json() -> None:
    line = json_writer("t")(3, PLAIN)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 1234,
        "key": "key",
        "value": "wert ü",
        "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
    }


def test_json_of_bytes_that_are_no_text() -> None:
    message = json.loads(json_writer("t")(3, BINARY))
    assert message["key"] == {"base64": "/w=="}
    assert message["headers"] == [{"key": "bad\ufffd", "value": {"base64": "/w=="}}]
