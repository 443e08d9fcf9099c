"""Formats of consumed messages: the value only, a format string, or JSON.

Each writer turns a record into the bytes of one line. Values are written unchanged. In JSON,
bytes that are not UTF-8 become {"base64": ...}.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import TypeAlias

from ottla.cli.errors import UsageError
from ottla.cli.output import JsonValue
from ottla.records.record import Record

Writer: TypeAlias = Callable[[int, Record], bytes]
NULL = b"null"
_FIELD = re.compile(r"\{(\w*)\}")
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\\\": "\\"}


def value_writer(_partition: int, record: Record) -> bytes:
    """Return the value and a newline; `null` if the message has no value."""
    return (NULL if record.value is None else record.value) + b"\n"


def json_writer(topic: str) -> Writer:
    """Return a writer of one JSON object per line."""

    def write(partition: int, record: Record) -> bytes:
        headers: JsonValue = [
            {"key": _printable(name), "value": _json_bytes(value)} for name, value in record.headers
        ]
        message = {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _json_bytes(record.key),
            "value": _json_bytes(record.value),
            "headers": headers,
        }
        return json.dumps(message, ensure_ascii=False).encode() + b"\n"

    return write


def format_writer(text: str, topic: str) -> Writer:
    """Return a writer that fills in the {fields} of `text`. Raise UsageError for an unknown one."""
    fields: dict[str, Writer] = {
        "topic": lambda _partition, _record: topic.encode(),
        "partition": lambda partition, _record: b"%d" % partition,
        "offset": lambda _partition, record: b"%d" % record.offset,
        "timestamp": lambda _partition, record: b"%d" % record.timestamp,
        "key": lambda _partition, record: NULL if record.key is None else record.key,
        "value": lambda _partition, record: NULL if record.value is None else record.value,
        "headers": lambda _partition, record: _headers(record),
    }
    pieces = _FIELD.split(text)
    for name in pieces[1::2]:
        if name not in fields:
            raise UsageError(
                f"--format has an unknown field {{{name}}}; the fields are {', '.join(fields)}"
            )
    parts = [_constant(piece) for piece in pieces]
    parts[1::2] = [fields[name] for name in pieces[1::2]]
    return lambda partition, record: b"".join(part(partition, record) for part in parts) + b"\n"


def _constant(text: str) -> Writer:
    for escape, meaning in _ESCAPES.items():
        text = text.replace(escape, meaning)
    data = text.encode("utf-8", "surrogateescape")
    return lambda _partition, _record: data


def _headers(record: Record) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (NULL if value is None else value)
        for name, value in record.headers
    )


def _json_bytes(data: bytes | None) -> JsonValue:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _printable(name: str) -> str:
    # A header name should be UTF-8. A client may have sent other bytes, which are replaced here.
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
