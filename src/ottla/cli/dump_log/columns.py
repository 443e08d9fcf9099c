"""The columns of tables: which columns each kind of row has, and the text of their cells."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from ottla.cli.dump_log.findings import Fields
from ottla.cli.output import JsonValue

Cell: TypeAlias = Callable[[Fields], str]
ColumnView: TypeAlias = tuple[str, bool, Cell]
"""The title, True for numbers, and a function that returns the text of a cell."""

_MAX_TEXT: Final = 120
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def columns_of(kind: str, example: Fields) -> list[ColumnView]:
    """Return the columns for a kind of row. Kinds without special columns show every field."""
    if kind == "batch":
        return _BATCH
    if kind == "record":
        return _RECORD
    return [_plain(name, value) for name, value in example.items()]


def headline_of(fields: Fields) -> str:
    """Return a batch as one line, to print above its records."""
    cells = ((title, cell(fields)) for title, _, cell in _BATCH)
    return "batch: " + ", ".join(f"{title} {text}" for title, text in cells if text)


def summary_text(fields: Fields) -> str:
    """Return the totals of a file as one line."""
    return ", ".join(
        f"{_words(name)} {value:,}" if isinstance(value, int) else f"{_words(name)} {value}"
        for name, value in fields.items()
        if value is not None
    )


def timestamp_text(value: JsonValue) -> str:
    """Return a timestamp in UTC, "" for none, or the number if the calendar does not have it."""
    if not isinstance(value, int) or value == -1:
        return ""
    try:
        moment = _EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        return str(value)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"


def value_text(value: JsonValue) -> str:
    """Return printable text unchanged and other bytes in hexadecimal. Long values are cut."""
    if value is None:
        return "null"
    if isinstance(value, dict) and value.keys() == {"hex"}:
        return _cut(f"0x{value['hex']}", "hexadecimal digits")
    if not isinstance(value, str):
        return _cut(json.dumps(value, ensure_ascii=False), "characters")
    if not value.isprintable():
        value = repr(value.encode("utf-8", "surrogateescape"))[1:]
    return _cut(value, "characters")


def _cut(text: str, unit: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}… ({len(text):,} {unit})"


def _words(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def _plain(name: str, value: JsonValue) -> ColumnView:
    if name.lower().endswith("timestamp"):
        return name, False, lambda fields: timestamp_text(fields.get(name))
    is_number = isinstance(value, int)
    return name, is_number, lambda fields: _optional(fields.get(name))


def _optional(value: JsonValue) -> str:
    return "" if value is None else value_text(value)


def _number(name: str) -> Cell:
    return lambda fields: _known(fields.get(name))


def _known(value: JsonValue) -> str:
    return str(value) if isinstance(value, int) and value >= 0 else ""


def _range(first: str, last: str) -> Cell:
    def cell(fields: Fields) -> str:
        begin, end = _known(fields.get(first)), _known(fields.get(last))
        return begin if begin == end else f"{begin}-{end}"

    return cell


def _producer(fields: Fields) -> str:
    producer_id = _known(fields.get("producerId"))
    return f"{producer_id}/{fields.get('producerEpoch')}" if producer_id else ""


def _flags(fields: Fields) -> str:
    flags = []
    if fields.get("isTransactional"):
        flags.append("transactional")
    if fields.get("isControl"):
        flags.append("control")
    if fields.get("deleteHorizonMs") is not None:
        flags.append(f"delete horizon {timestamp_text(fields['deleteHorizonMs'])}")
    return " ".join(flags)


def _largest_timestamp(fields: Fields) -> str:
    text = timestamp_text(fields.get("maxTimestamp"))
    return f"{text} (append)" if text and fields.get("timestampType") == "LogAppendTime" else text


def _crc(fields: Fields) -> str:
    crc = fields.get("crc")
    assert isinstance(crc, int)
    return f"{crc:08x} {'ok' if fields.get('isvalid') else 'WRONG'}"


def _codec(fields: Fields) -> str:
    codec = str(fields.get("compresscodec"))
    return codec if fields.get("magic") == 2 else f"{codec} (magic {fields.get('magic')})"


def _what(fields: Fields) -> str:
    """Return a control or metadata record as text, or "" for a record with key and value."""
    kind = fields.get("controlType") or fields.get("type")
    if kind is None:
        return ""
    if "coordinatorEpoch" in fields:
        return f"{kind} coordinator epoch {fields['coordinatorEpoch']}"
    return (
        f"{kind} {json.dumps(fields['data'], ensure_ascii=False)}"
        if "data" in fields
        else str(kind)
    )


def _field(name: str) -> Cell:
    return lambda fields: value_text(fields[name]) if name in fields else ""


def _value(fields: Fields) -> str:
    value = fields.get("value")
    if isinstance(value, dict) and "transactionStatus" in value:
        return _transaction(value)
    return value_text(value) if "value" in fields else ""


def _transaction(value: Fields) -> str:
    """Return a transaction of `__transaction_state`, with its partitions last: they may be cut."""
    parts = [
        f"{value['transactionStatus']} producer {value['producerId']}/{value['producerEpoch']}",
        f"timeout {value['transactionTimeoutMs']} ms",
    ]
    started = timestamp_text(value["transactionStartTimestampMs"])
    if started:
        parts.append(f"started {started}")
    partitions = _partitions(value["transactionPartitions"])
    if partitions:
        parts.append(" ".join(partitions))
    return _cut(", ".join(parts), "characters")


def _partitions(topics: JsonValue) -> list[str]:
    found = []
    for topic in topics if isinstance(topics, list) else ():
        if isinstance(topic, dict) and isinstance(topic["partitionIds"], list):
            found += [f"{topic['topic']}-{index}" for index in topic["partitionIds"]]
    return found


def _headers(fields: Fields) -> str:
    headers = fields.get("headers")
    if not isinstance(headers, list):
        return ""
    return " ".join(f"{value_text(key)}={value_text(value)}" for key, value in headers)


_BATCH: Final[list[ColumnView]] = [
    ("offsets", False, _range("baseOffset", "lastOffset")),
    ("count", True, _number("count")),
    ("position", True, _number("position")),
    ("size", True, _number("size")),
    ("codec", False, _codec),
    ("largest timestamp", False, _largest_timestamp),
    ("epoch", True, _number("partitionLeaderEpoch")),
    ("producer", False, _producer),
    ("sequences", False, _range("baseSequence", "lastSequence")),
    ("flags", False, _flags),
    ("crc", False, _crc),
]

_RECORD: Final[list[ColumnView]] = [
    ("offset", True, _number("offset")),
    ("timestamp", False, lambda fields: timestamp_text(fields.get("timestamp"))),
    ("key", False, _field("key")),
    ("value", False, _value),
    ("record", False, _what),
    ("headers", False, _headers),
]
