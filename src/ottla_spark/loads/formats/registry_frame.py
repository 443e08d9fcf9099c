"""The framing of schema registries: a zero byte, the id of the schema in four, then the value.

Protobuf values have the place of their message type in the schema between the two: a count and
that many indexes as zigzag varints, or a single zero for the first message.
"""

from __future__ import annotations

from ottla_spark.loads.formats.binary_format import Misfit

HEADER_LENGTH = 5
MOST_INDEXES = 64


def unframe(value: bytes) -> tuple[int, int]:
    """The id of the schema, and where the value itself begins."""
    if len(value) < HEADER_LENGTH or value[0] != 0:
        raise Misfit(
            "not framed for a schema registry: it does not begin with a zero byte and an id"
        )
    return int.from_bytes(value[1:HEADER_LENGTH], "big"), HEADER_LENGTH


def message_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The place of the message type, and where the message begins."""
    count, start = _varint(value, start)
    if count == 0:
        return (0,), start
    if not 0 < count <= MOST_INDEXES:
        raise Misfit(f"the framing tells of {count} message indexes")
    indexes = []
    for _ in range(count):
        index, start = _varint(value, start)
        indexes.append(index)
    return tuple(indexes), start


def _varint(value: bytes, start: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        if start + place >= len(value):
            raise Misfit("the framing ends in the middle of its message indexes")
        byte = value[start + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), start + place + 1
    raise Misfit("the framing has a message index that does not end")
