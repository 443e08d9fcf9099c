"""Metadata records as bytes: frame version, record type and version, then the fields (KIP-631)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.metadata.records import RECORD_TYPES
from ottla.ports import Buffer
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.message import Message
from ottla.wire.primitives import read_uvarint, uvarint

FRAME_VERSION = 1
# Newer versions that only add tagged fields, which are skipped: read like the one before.
_READ_AS = {(0, 4): 3, (17, 3): 2}
_decoders: dict[tuple[int, int], Callable[[Buffer, int, int], tuple[Message, int]]] = {}


class MetadataError(ValueError):
    """The metadata is damaged, contradicts itself, or was written by a newer version."""


def encode_record(record: Message, version: int | None = None) -> bytes:
    """Return the metadata record as the value of a log record; without a version in the newest."""
    if version is None:
        version = record.MAX_VERSION
    head = uvarint(FRAME_VERSION) + uvarint(record.API_KEY) + uvarint(version)
    return head + encoder(type(record), version)(record)


def decode_record(value: Buffer) -> Message:
    """Return the metadata record in the value of a log record. Raise MetadataError without one."""
    try:
        key, version, position = _read_head(value)
        decode = _decoders.get((key, version))
        if decode is None:
            known = _READ_AS.get((key, version), version)
            decode = _decoders[key, version] = decoder(_record_type(key, known), known)
        record, end = decode(value, position, len(value))
    except DecodeError as error:
        raise MetadataError(f"damaged metadata record: {error}") from error
    if end != len(value):
        raise MetadataError(f"{len(value) - end} bytes follow a {type(record).__name__}")
    return record


def _read_head(value: Buffer) -> tuple[int, int, int]:
    """Return the type, the version, and where the fields begin."""
    if len(value) > 3 and value[0] == FRAME_VERSION and (value[1] | value[2]) < 0x80:
        return value[1], value[2], 3  # all of Kafka's records, and a start reads many
    frame, position = read_uvarint(value, 0, len(value))
    if frame != FRAME_VERSION:
        raise MetadataError(f"metadata record with frame version {frame}, not {FRAME_VERSION}")
    key, position = read_uvarint(value, position, len(value))
    version, position = read_uvarint(value, position, len(value))
    return key, version, position


def _record_type(key: int, version: int) -> type[Message]:
    record_type = RECORD_TYPES.get(key)
    if record_type is None:
        from ottla.metadata.security_records import SECURITY_RECORDS

        record_type = SECURITY_RECORDS.get(key)
    if record_type is None or not version <= record_type.MAX_VERSION:
        raise MetadataError(
            f"unknown metadata record (type {key}, version {version}):"
            " the data directory was written by another or a newer version"
        )
    return record_type
