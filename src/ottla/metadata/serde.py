"""Metadata records as bytes: frame version, record type and version, then the fields (KIP-631)."""

from __future__ import annotations

from ottla.metadata.records import RECORD_TYPES
from ottla.ports import Buffer
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.message import Message
from ottla.wire.primitives import read_uvarint, uvarint

FRAME_VERSION = 1


class MetadataError(ValueError):
    """The metadata log holds something that does not make sense: damage, or a newer version."""


def encode_record(record: Message) -> bytes:
    """The value of the log record that carries this metadata record, in its newest version."""
    version = record.MAX_VERSION
    head = uvarint(FRAME_VERSION) + uvarint(record.API_KEY) + uvarint(version)
    return head + encoder(type(record), version)(record)


def decode_record(value: Buffer) -> Message:
    """The metadata record in the value of a log record; MetadataError when it is none."""
    try:
        frame, position = read_uvarint(value, 0, len(value))
        if frame != FRAME_VERSION:
            raise MetadataError(f"metadata record with frame version {frame}, not {FRAME_VERSION}")
        key, position = read_uvarint(value, position, len(value))
        version, position = read_uvarint(value, position, len(value))
        record_type = _record_type(key, version)
        record, end = decoder(record_type, version)(value, position, len(value))
    except DecodeError as error:
        raise MetadataError(f"damaged metadata record: {error}") from error
    if end != len(value):
        raise MetadataError(f"{len(value) - end} bytes follow a {record_type.__name__}")
    return record


def _record_type(key: int, version: int) -> type[Message]:
    record_type = RECORD_TYPES.get(key)
    if record_type is None or not version <= record_type.MAX_VERSION:
        raise MetadataError(
            f"unknown metadata record (type {key}, version {version}):"
            " the data directory was written by another or a newer version"
        )
    return record_type
