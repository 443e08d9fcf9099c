"""Records of coordinators: Message classes for keys and values, and their bytes.

Declared like the messages of the wire and encoded by the same codec. The key begins with two
bytes that say what kind of record it is, the value with two bytes for its version. A record
without a value is a tombstone: it deletes what the key stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import ClassVar, Final, TypeAlias, TypeVar

from ottla.ports import Buffer
from ottla.wire.codec import DecodeError, decoder, encoder
from ottla.wire.message import Message

M = TypeVar("M", bound=Message)
_PREFIX: Final = Struct(">h")
_MAX_STRING_BYTES: Final = 0x7FFF


class RecordKey(Message):
    """The key of a record. API_KEY is the kind of record."""

    __slots__ = ()
    MAX_VERSION = 0


class RecordValue(Message):
    """The value of a record. All versions are read, WRITTEN_VERSION is written."""

    __slots__ = ()
    WRITTEN_VERSION: ClassVar[int] = 0

    @property
    def written_version(self) -> int:
        """The version in which this value is written."""
        return self.WRITTEN_VERSION


CoordinatorRecord: TypeAlias = tuple[RecordKey, RecordValue | None]
"""A key and its value. None deletes what the key stands for."""

RecordKinds: TypeAlias = Mapping[int, tuple[type[RecordKey], type[RecordValue]]]
"""The key and value classes of each kind of record."""


class RecordError(ValueError):
    """A record is damaged, or a newer broker wrote it in a version that is unknown here."""


def is_too_long(text: str) -> bool:
    """Return True if a text does not fit into a string of a record."""
    return len(text.encode()) > _MAX_STRING_BYTES


def encode_key(key: RecordKey) -> bytes:
    """Return the bytes of a key: its kind, then its fields."""
    return _PREFIX.pack(key.API_KEY) + encoder(type(key), 0)(key)


def encode_value(value: RecordValue) -> bytes:
    """Return the bytes of a value: the version it is written in, then its fields."""
    version = value.written_version
    return _PREFIX.pack(version) + encoder(type(value), version)(value)


def decode_record(
    kinds: RecordKinds, key: Buffer | None, value: Buffer | None
) -> CoordinatorRecord | None:
    """Return the record that a log record holds, or None if its kind is not in `kinds`.

    Raise RecordError if the key or the value cannot be decoded.
    """
    if key is None or len(key) < _PREFIX.size:
        raise RecordError("the record has no key")
    classes = kinds.get(_PREFIX.unpack_from(key)[0])
    if classes is None:
        return None
    key_class, value_class = classes
    decoded_key = _decode(key_class, 0, key)
    if value is None:
        return decoded_key, None
    if len(value) < _PREFIX.size:
        raise RecordError(f"the value of a {key_class.__name__} is empty")
    version = _PREFIX.unpack_from(value)[0]
    if not 0 <= version <= value_class.MAX_VERSION:
        raise RecordError(
            f"{value_class.__name__} has no version {version}: a newer broker wrote it"
        )
    return decoded_key, _decode(value_class, version, value)


def _decode(message: type[M], version: int, data: Buffer) -> M:
    try:
        decoded, end = decoder(message, version)(data, _PREFIX.size, len(data))
    except DecodeError as error:
        raise RecordError(f"damaged {message.__name__}: {error}") from error
    if end != len(data):
        raise RecordError(f"{len(data) - end} bytes follow a {message.__name__}")
    return decoded
