"""Batches of the records that commands write in one wake-up.

One batch for many commands is what makes small commits cheap: offset, checksum and checks of
the log are paid once. A command's records stay together in one batch, so that a crash keeps
all of them or none.
"""

from __future__ import annotations

from typing import Final

from ottla.records.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    seal,
)
from ottla.records.compression import compress
from ottla.wire.primitives import svarint

_SHORT: Final = tuple(svarint(number) for number in range(1024))
_NULL: Final = svarint(-1)
_NO_PRODUCER: Final = -1  # id, epoch and sequence of a batch without a producer


class BatchBuilder:
    """A batch that grows. All its records get the timestamp at which it is sealed."""

    __slots__ = ("_payload", "count", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = HEADER_SIZE
        """The size of the batch so far in bytes, uncompressed."""
        self._payload = bytearray()

    def add(self, key: bytes, value: bytes | None) -> None:
        """Add a record."""
        count, payload = self.count, self._payload
        delta = _SHORT[count] if count < 1024 else svarint(count)
        length = len(key)
        key_length = _SHORT[length] if length < 1024 else svarint(length)
        if value is None:
            body = b"".join((b"\0\0", delta, key_length, key, _NULL, b"\0"))
        else:
            length = len(value)
            value_length = _SHORT[length] if length < 1024 else svarint(length)
            body = b"".join((b"\0\0", delta, key_length, key, value_length, value, b"\0"))
        length = len(body)
        payload += _SHORT[length] if length < 1024 else svarint(length)
        payload += body
        self.count = count + 1
        self.size = HEADER_SIZE + len(payload)

    def restore(self, count: int, size: int) -> None:
        """Restore an earlier count and size."""
        self.count = count
        self.size = size
        del self._payload[size - HEADER_SIZE :]

    def seal(self, now_ms: int, codec: int, producer: tuple[int, int] | None = None) -> bytearray:
        """Return the finished batch. One with a producer's id and epoch is in its transaction."""
        producer_id, epoch = producer or (_NO_PRODUCER, _NO_PRODUCER)
        attributes = codec | (TRANSACTIONAL_MASK if producer else 0)
        batch = bytearray(HEADER_SIZE)
        batch += compress(codec, self._payload) if codec else self._payload
        HEADER.pack_into(
            batch, 0, 0, len(batch) - LOG_OVERHEAD, -1, MAGIC_V2, 0, attributes, self.count - 1,
            now_ms, now_ms, producer_id, epoch, _NO_PRODUCER, self.count,
        )  # fmt: skip
        seal(batch, 0, len(batch))
        return batch
