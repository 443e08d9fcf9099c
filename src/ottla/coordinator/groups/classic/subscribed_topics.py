"""The topics in the metadata of a consumer: all the broker ever reads of a client's protocol.

Later versions of the subscription only add fields behind those of version 0, so version 0 is
what is parsed, whatever the version says.
"""

from __future__ import annotations

from struct import Struct, error

CONSUMER_PROTOCOL_TYPE = "consumer"

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_MIN_STRING_BYTES = 2


def topics_of(metadata: bytes) -> list[str] | None:
    """The topics a consumer subscribes to; None if that is not what the bytes are."""
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
