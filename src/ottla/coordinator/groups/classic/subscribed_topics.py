"""The topics in the metadata of a consumer: all that a classic group reads of its protocol.

Later versions of the subscription only add fields at the end, so it is parsed as version 0
whatever its version says.
"""

from __future__ import annotations

from struct import Struct, error

CONSUMER_PROTOCOL_TYPE = "consumer"

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_MIN_STRING_BYTES = 2


def topics_of(metadata: bytes) -> list[str] | None:
    """Return the topics a consumer subscribes to, or None if the metadata is not a subscription."""
    try:
        return _topics(metadata)
    except (error, UnicodeDecodeError, ValueError):
        return None


def _topics(metadata: bytes) -> list[str]:
    count = _INT32.unpack_from(metadata, _INT16.size)[0]
    position = _INT16.size + _INT32.size
    if not 0 <= count * _MIN_STRING_BYTES <= len(metadata) - position:
        raise ValueError("more topics than bytes")
    topics = []
    for _ in range(count):
        length = _INT16.unpack_from(metadata, position)[0]
        position += _INT16.size
        if not 0 <= length <= len(metadata) - position:
            raise ValueError("a topic reaches past the end")
        topics.append(metadata[position : position + length].decode())
        position += length
    return topics
