"""Where a partition is led now, in the tagged fields of Produce and Fetch responses (KIP-951)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TypeAlias

from ottla.wire.primitives import uvarint

Leader: TypeAlias = tuple[int, int]
"""The id of the leader, -1 for none, and its epoch."""

BrokerEndpoint: TypeAlias = tuple[int, str, int, str | None]
"""Id, host, port and rack of a broker."""

NO_TAGS = b"\0"
_LEADER = Struct(">BBBiib")  # one tagged field, its number, its size; id, epoch, no tags
_I32 = Struct(">i")
_ENDPOINTS = 0  # the number of the field, in both responses


def leader_tags(number: int, leader: Leader | None) -> bytes:
    """Return the tagged fields of a partition; `number` is the field of the leader."""
    return NO_TAGS if leader is None else _LEADER.pack(1, number, 9, *leader, 0)


def endpoint_tags(endpoints: Sequence[BrokerEndpoint]) -> bytes:
    """Return the tagged fields of a response: where the leaders that it names are reached."""
    if not endpoints:
        return NO_TAGS
    parts = [uvarint(len(endpoints) + 1)]
    for broker_id, host, port, rack in endpoints:
        parts += (_I32.pack(broker_id), _compact(host), _I32.pack(port), _compact(rack), NO_TAGS)
    body = b"".join(parts)
    return bytes((1, _ENDPOINTS)) + uvarint(len(body)) + body


def _compact(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded
