"""The frame that schema registries put before a value: a zero byte and a four-byte schema id.

Protobuf values then have the position of their message type in the schema: a count and that many
indexes as zigzag varints, or a single zero for the first message.
"""

from __future__ import annotations

from ottla_spark.loads.formats.binary_format import Misfit

HEADER_LENGTH = 5
MOST_INDEXES = 64


def unframe(value: bytes) -> tuple[int, int]:
    """Return the schema id, and where the value itself starts."""
    if len(value) < HEADER_LENGTH or value[0] != 0:
        raise Misfit(
            "not written with a schema registry: it does not start with a zero byte and an id"
        )
    return int.from_bytes(value[1:HEADER_LENGTH], "big"), HEADER_LENGTH


def message_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the position of the message type, and where the message starts."""
    count, start = _varint(value, start)
    if count == 0:
        return (0,), start
    if not 0 < count <= MOST_INDEXES:
        raise Misfit(f"the frame has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, start = _varint(value, start)
        indexes.append(index)
    return tuple(indexes), start


def _varint(value: bytes, start: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        if start + place >= len(value):
            raise Misfit("the frame ends inside its message indexes")
        byte = value[start + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), start + place + 1
    raise Misfit("the frame has a message index that is too long")
