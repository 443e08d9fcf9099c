from __future__ import annotations

import pytest

from ottla.records.batch import CorruptBatch, parse_header
from ottla.records.control import ControlType, build_marker, control_type, coordinator_epoch
from ottla.records.record import records_of


@pytest.mark.parametrize("marker", [ControlType.ABORT, ControlType.COMMIT])
def test_markers(marker: ControlType) -> None:
    data = build_marker(
        marker, producer_id=9, producer_epoch=4, coordinator_epoch=12, timestamp=77, base_offset=5,
        leader_epoch=3,
    )  # fmt: skip
    batch = parse_header(data, 0)
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 4, -1)
    assert (batch.base_offset, batch.record_count, batch.partition_leader_epoch) == (5, 1, 3)
    (record,) = records_of(data)
    assert record.key == b"\0\0\0" + bytes((marker,))
    assert record.value == b"\0\0\0\0\0\x0c"
    assert control_type(record.key) is marker
    assert coordinator_epoch(record.value) == 12
    assert record.timestamp == 77


def test_only_transactions_have_markers() -> None:
    with pytest.raises(ValueError, match="LEADER_CHANGE"):
        build_marker(
            ControlType.LEADER_CHANGE, producer_id=1, producer_epoch=1, coordinator_epoch=1,
            timestamp=1,
        )  # fmt: skip


def test_types_and_versions_to_come() -> None:
    assert control_type(b"\0\0\0\x06") is ControlType.KRAFT_VOTERS
    assert control_type(b"\0\0\0\x63") is ControlType.UNKNOWN
    assert control_type(b"\0\x01\0\x01more") is ControlType.COMMIT
    assert coordinator_epoch(b"\0\x01\0\0\0\x07more") == 7


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\x01"])
def test_bad_keys(key: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        control_type(key)


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0", b"\x80\0\0\0\0\0"])
def test_bad_values(value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        coordinator_epoch(value)
