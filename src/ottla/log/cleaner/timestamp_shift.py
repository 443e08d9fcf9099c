"""Records with other timestamp deltas: for a batch whose base timestamp becomes a delete horizon.

A clean stores in a batch with tombstones when they may be removed, in place of the base timestamp
(KIP-534). The timestamps of the records stay, so their deltas change, and with them their lengths.
"""

from __future__ import annotations

from ottla.records.batch import CorruptBatch
from ottla.records.varint import read_int, read_long


def shifted(data: bytes, count: int, shift_ms: int) -> bytes:
    """Return records with `shift_ms` added to each timestamp delta."""
    out = bytearray()
    position, end = 0, len(data)
    for _ in range(count):
        length, body = read_int(data, position)
        position = body + length
        if length < 1 or position > end:
            raise CorruptBatch(0, f"record length {length} with {end - body} bytes left")
        delta, rest = read_long(data, body + 1)
        encoded = _varint(delta + shift_ms)
        out += _varint(1 + len(encoded) + position - rest)
        out += data[body : body + 1]
        out += encoded
        out += data[rest:position]
    return bytes(out)


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
