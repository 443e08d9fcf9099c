"""Control batches: what their records mean, and the markers that end a transaction.

A control record's key is a version and a type, both int16; the value depends on the type.
Newer versions may only add fields, so they are read as version 0 (KIP-98, KIP-595).
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from ottla.records.batch import CorruptBatch
from ottla.records.record import build_batch

_KEY: Final = Struct(">hh")
_MARKER: Final = Struct(">hi")


class ControlType(IntEnum):
    """Types of control records; a type from a later version reads as UNKNOWN."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_type(key: bytes | None) -> ControlType:
    """Return the type in a control record's key; raise CorruptBatch."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch(0, f"a control record needs a key of {_KEY.size} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(0, f"control record version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def coordinator_epoch(value: bytes | None) -> int:
    """Return the coordinator epoch in the value of a transaction marker; raise CorruptBatch."""
    if value is None or len(value) < _MARKER.size:
        raise CorruptBatch(0, f"a transaction marker needs a value of {_MARKER.size} bytes")
    version, epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptBatch(0, f"transaction marker version {version}")
    return int(epoch)


def build_marker(
    marker: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Build the control batch that ends a producer's transaction with COMMIT or ABORT."""
    if marker not in (ControlType.COMMIT, ControlType.ABORT):
        raise ValueError(f"{marker.name} does not end a transaction")
    return build_batch(
        [(_KEY.pack(0, marker), _MARKER.pack(0, coordinator_epoch), timestamp, ())],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
    )
