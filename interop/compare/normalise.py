"""Turns a response into plain data in which only what should be equal can differ.

Ids, ports, directories, sessions and times of day are different in each broker: they become words
such as <id of t> or <now>. Lists are sorted where Kafka's order comes from a hash map. Texts of
errors stay, because tools and users match them. Records are decoded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TypeAlias

from compare.case import Seen
from compare.client import Answer
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, uuid_to_text
from ottla.records.batch import CorruptBatch, parse_header
from ottla.records.record import records_of
from ottla.wire.message import Field, Message

Plain: TypeAlias = "dict[str, Plain] | list[Plain] | str | int | float | bool | None"

KEYS = (
    "name", "topic", "topic_name", "topic_id", "api_key", "partition_index", "partition", "index",
    "resource_name", "group_id", "group", "member_id", "node_id", "broker_id", "feature", "log_dir",
)  # fmt: skip
"""The first of these fields that a struct has identifies it in its list."""

_ORDERED = frozenset({"synonyms", "records", "batches"})
_DROPPED = frozenset({"throttle_time", "documentation"})
_ENVIRONMENT = {"port": "<port>", "total_bytes": "<bytes>", "usable_bytes": "<bytes>"}
_ALWAYS = {
    "session_id": "<session>",
    "producer_id": "<producer>",
    "finalized_features_epoch": "<epoch>",
}
"""Numbers from 0 on that each system chooses; below 0 they have a meaning."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SMALL_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
CHOSEN_MEMBER_IDS = frozenset({"A" * 22})
"""Member ids that requests choose: they are the same in both systems."""
_NOW_RANGE_MS = 2 * 3_600_000
_LONG_NUMBER = re.compile(r"-?\d{13,19}")
_MAX_LONG = 2**63 - 1


class Normaliser:
    """Normalises the answers of one system. `words` replaces texts that only this system has."""

    def __init__(self, seen: Seen, words: Mapping[str, str]) -> None:
        self._seen = seen
        self._words = words

    def plain(self, answer: Answer, version: int) -> Plain:
        """Return the answer as plain data."""
        return answer if isinstance(answer, str) else self._struct(answer, version)

    def _struct(self, message: Message, version: int) -> Plain:
        fields = (f for f in message.FIELDS if f.exists(version) and f.name not in _DROPPED)
        return {f.name: self._field(f, getattr(message, f.name), version) for f in fields}

    def _field(self, field: Field, value: object, version: int) -> Plain:
        name = field.name
        if isinstance(value, Message):
            return self._struct(value, version)
        if isinstance(value, list):
            items = [self._item(item, name, version) for item in value]
            return items if name in _ORDERED else sorted(items, key=_sort_key)
        return self._value(value, name)

    def _item(self, item: object, name: str, version: int) -> Plain:
        return self._struct(item, version) if isinstance(item, Message) else self._value(item, name)

    def _value(self, value: object, name: str) -> Plain:
        if isinstance(value, bytes | bytearray | memoryview):
            return self._bytes(bytes(value), name)
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, int) and not isinstance(value, bool):
            return _number(value, name)
        assert value is None or isinstance(value, bool | float)
        return value

    def _bytes(self, value: bytes, name: str) -> Plain:
        if name == "records":
            return _batches(value)
        if name.endswith("_id") and len(value) == len(ZERO_UUID):
            return self._id(value)
        return value.hex()

    def _id(self, value: bytes) -> str:
        if value == ZERO_UUID:
            return "<no id>"
        names = [topic for topic, known in self._seen.topic_ids.items() if known == value]
        return f"<id of {names[0]}>" if names else "<another id>"

    def _text(self, value: str, name: str) -> str:
        if name == "cluster_id":
            return "<cluster>"
        for topic, topic_id in self._seen.topic_ids.items():
            value = value.replace(uuid_to_text(topic_id), f"<id of {topic}>")
        for word, stands_for in self._words.items():
            value = value.replace(word, stands_for)
        if name == "member_id" and value not in CHOSEN_MEMBER_IDS and _SMALL_UUID.fullmatch(value):
            return "<uuid>"
        value = _LONG_NUMBER.sub(lambda found: _time_in_text(int(found[0])), value)
        return _UUID.sub("<uuid>", value)


def _time_in_text(value: int) -> str:
    """Return the number, or a word for a time close to now, with or without the largest age."""
    return "<now>" if _is_now(value) or _is_now(value + _MAX_LONG) else str(value)


def _is_now(value: int) -> bool:
    return abs(value - time.time() * 1000) < _NOW_RANGE_MS


def _number(value: int, name: str) -> Plain:
    if name == "error_code":
        return ErrorCode(value).name
    if name in _ENVIRONMENT:
        return _ENVIRONMENT[name]
    if name in _ALWAYS and value >= (1 if name == "session_id" else 0):
        return _ALWAYS[name]
    if _is_now(value):
        return "<now>"
    return value


def _batches(data: bytes) -> Plain:
    found: list[Plain] = []
    position = 0
    while position + 61 <= len(data):
        batch = parse_header(data, position)
        if batch.end > len(data):
            break
        found.append(
            {
                "base_offset": batch.base_offset,
                "attributes": batch.attributes,
                "records": _records(data[position : batch.end]),
                "base_sequence": batch.base_sequence,
                "leader_epoch": batch.partition_leader_epoch,
            }
        )
        position = batch.end
    return {"batches": found, "partial_bytes": len(data) - position}


def _records(batch: bytes) -> Plain:
    try:
        records = records_of(batch)
    except CorruptBatch as error:
        return f"<damaged: {error}>"
    return [
        f"{r.offset} {_number(r.timestamp, '')} {r.key!r} {r.value!r} {list(r.headers)!r}"
        for r in records
    ]


def identity(item: Plain) -> str | None:
    """Return what identifies a struct among those of its list."""
    if isinstance(item, dict):
        names = [str(item[key]) for key in KEYS if item.get(key) is not None]
        return names[0] if names else None
    return None


def _sort_key(item: Plain) -> tuple[str, str]:
    return identity(item) or "", str(item)
