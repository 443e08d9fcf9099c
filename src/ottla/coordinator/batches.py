"""Records of a command as one batch: kept by a crash all together or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinator.serde import GroupRecord, encode
from ottla.records.record import build_batch


def batch_of(records: Sequence[GroupRecord], now_ms: int, codec: int = 0) -> bytearray:
    """A sealed batch of the records."""
    return build_batch([(*encode(record), now_ms, ()) for record in records], codec=codec)
