"""The records of a batch as rows: keys and values, control records, metadata records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from ottla.cli.dump_log.findings import Fields, Row, bytes_as_json
from ottla.cli.output import JsonValue
from ottla.model.ids import uuid_to_text
from ottla.records.batch import Batch, CorruptBatch
from ottla.records.control import ControlType, control_type, coordinator_epoch
from ottla.records.legacy import Message, records_of_message
from ottla.records.record import Record, records_of
from ottla.wire.codec import DecodeError, decoder
from ottla.wire.message import Field
from ottla.wire.message import Message as WireMessage
from ottla.wire.messages.k_raft_version_record import KRaftVersionRecord
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.messages.voters_record import VotersRecord
from ottla.wire.primitives import read_uvarint

Decoder: TypeAlias = Callable[[Record], Fields]
"""Returns the fields to show for a record's key and value. May raise CorruptBatch."""

_CONTROL_VALUES: Final[dict[ControlType, type[WireMessage]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


def record_rows(data: bytes, entry: Batch | Message, decode: Decoder) -> Iterator[Row]:
    """Yield the records of the batch or message in `data`. Raise CorruptBatch for damaged ones."""
    if isinstance(entry, Message):
        for record in records_of_message(data, entry._replace(position=0)):
            yield Row("record", _metadata(record) | decode(record))
        return
    for record in records_of(data):
        fields = _metadata(record)
        fields["sequence"] = _sequence(entry, record)
        fields |= _control(record) if entry.is_control else decode(record)
        fields["headers"] = [[key, bytes_as_json(value)] for key, value in record.headers]
        yield Row("record", fields)


def key_and_value(record: Record) -> Fields:
    """Return the key and the value without decoding them."""
    return {"key": bytes_as_json(record.key), "value": bytes_as_json(record.value)}


def metadata_record(record: Record) -> Fields:
    """Return the decoded metadata record of a record of the cluster metadata log (KIP-631)."""
    from ottla.metadata.serde import MetadataError, decode_record

    if record.value is None:
        raise CorruptBatch(0, f"the record at offset {record.offset} has no value")
    try:
        message = decode_record(record.value)
    except MetadataError as error:
        newer = _newer_metadata_record(record.value)
        if newer is None:
            raise CorruptBatch(0, f"the record at offset {record.offset}: {error}") from None
        return newer
    return {"type": type(message).__name__, "data": message_as_json(message)}


def message_as_json(message: WireMessage) -> dict[str, JsonValue]:
    """Return the fields of a message, with their names in Kafka's schemas."""
    return {
        _camel_case(field.name): _value_as_json(field, getattr(message, field.name))
        for field in message.FIELDS
    }


def _newer_metadata_record(value: bytes) -> Fields | None:
    """Return a record of an unknown type or version as bytes, or None if the type is known."""
    from ottla.metadata.records import RECORD_TYPES

    try:
        _, position = read_uvarint(value, 0, len(value))
        key, position = read_uvarint(value, position, len(value))
        version, _ = read_uvarint(value, position, len(value))
    except DecodeError:
        return None
    known = RECORD_TYPES.get(key)
    if known is not None and version <= known.MAX_VERSION:
        return None
    return {"type": f"type {key} version {version}", "data": {"hex": value.hex()}}


def _metadata(record: Record) -> Fields:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }


def _sequence(batch: Batch, record: Record) -> int:
    if batch.base_sequence < 0:
        return -1
    return (batch.base_sequence + record.offset - batch.base_offset) & 0x7FFFFFFF


def _control(record: Record) -> Fields:
    kind = control_type(record.key)
    fields: Fields = {"controlType": kind.name}
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        fields["coordinatorEpoch"] = coordinator_epoch(record.value)
    elif kind in _CONTROL_VALUES:
        fields["data"] = message_as_json(_control_value(_CONTROL_VALUES[kind], record.value))
    else:
        fields |= key_and_value(record)
    return fields


def _control_value(kind: type[WireMessage], value: bytes | None) -> WireMessage:
    if value is None or len(value) < 2:
        raise CorruptBatch(0, f"a {kind.__name__} without a value")
    # The value begins with its version, which is also the version of its schema.
    version = min(max(int.from_bytes(value[:2], "big", signed=True), 0), kind.MAX_VERSION)
    try:
        message, _ = decoder(kind, version)(value, 0, len(value))
    except DecodeError as error:
        raise CorruptBatch(0, f"{kind.__name__}: {error}") from None
    return message


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _value_as_json(field: Field, value: object) -> JsonValue:
    if isinstance(value, list):
        return [_item_as_json(item, field.of == "uuid") for item in value]
    return _item_as_json(value, field.type == "uuid")


def _item_as_json(value: object, is_uuid: bool) -> JsonValue:
    if isinstance(value, WireMessage):
        return message_as_json(value)
    if isinstance(value, bytes):
        return uuid_to_text(value) if is_uuid else bytes_as_json(value)
    assert value is None or isinstance(value, bool | int | float | str)
    return value
