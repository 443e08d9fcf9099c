"""Records of `__consumer_offsets`: committed offsets, and groups of both protocols.

The subscriptions and assignments of classic consumers are bytes that clients encode. They are
decoded if possible.
"""

from __future__ import annotations

from ottla.cli.dump_log.findings import Fields, bytes_as_json
from ottla.cli.dump_log.records import message_as_json
from ottla.cli.output import JsonValue
from ottla.client.groups.members import assigned, subscribed
from ottla.coordinator.groups.record_serde import decode
from ottla.coordinator.groups.records import GroupMetadataValue
from ottla.coordinator.runtime.record import RecordError, RecordValue
from ottla.records.batch import CorruptBatch
from ottla.records.record import Record

_CONSUMERS = "consumer"


def offsets_record(record: Record) -> Fields:
    """Return the fields of a record of the offsets topic. An unknown kind is shown as bytes."""
    try:
        decoded = decode(record.key, record.value)
    except RecordError as error:
        raise CorruptBatch(0, f"the record at offset {record.offset}: {error}") from None
    if decoded is None:
        return _unknown(record)
    key, value = decoded
    return {
        "type": type(key).__name__.removesuffix("Key"),
        "version": None if record.value is None else _number(record.value),
        "key": message_as_json(key),
        "value": None if value is None else _value(value),
    }


def _unknown(record: Record) -> Fields:
    assert record.key is not None
    return {
        "type": f"kind {_number(record.key)}",
        "version": None if record.value is None else _number(record.value),
        "key": {"hex": record.key.hex()},
        "value": None if record.value is None else {"hex": record.value.hex()},
    }


def _value(value: RecordValue) -> JsonValue:
    shown = message_as_json(value)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == _CONSUMERS:
        shown["members"] = [
            message_as_json(member)
            | {
                "subscription": _topics(member.subscription),
                "assignment": _partitions(member.assignment),
            }
            for member in value.members
        ]
    return shown


def _topics(subscription: bytes) -> JsonValue:
    return subscribed(subscription) or bytes_as_json(subscription)


def _partitions(assignment: bytes) -> JsonValue:
    found = [str(partition) for partition in assigned(assignment)]
    return found or bytes_as_json(assignment)


def _number(data: bytes) -> int:
    """Return the kind of a key, or the version of a value: their first two bytes."""
    return int.from_bytes(data[:2], "big", signed=True)
