"""The records of __transaction_state: Kafka's bytes, in both versions."""

from __future__ import annotations

import pytest

from ottla.coordinator.runtime.record import RecordError
from ottla.coordinator.transactions.records import (
    PartitionsOfTopic,
    TransactionLogKey,
    TransactionLogValue,
    decode,
    encode,
)


def value(level: int) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=1000,
        producer_epoch=7,
        transaction_timeout_ms=60000,
        transaction_status=1,
        transaction_partitions=[PartitionsOfTopic(topic="t", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=4,
        level=level,
    )


def test_the_bytes_of_version_0() -> None:
    key, data = encode((TransactionLogKey(transactional_id="ab"), value(0)))
    assert key == b"\0\0" + b"\0\2ab"
    assert data == (
        b"\0\0"
        + (1000).to_bytes(8, "big")
        + (7).to_bytes(2, "big")
        + (60000).to_bytes(4, "big")
        + b"\1"
        + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\2"
        + (5).to_bytes(8, "big")
        + (4).to_bytes(8, "big")
    )  # fmt: skip


def test_the_bytes_of_version_1_have_the_tagged_fields_that_are_set() -> None:
    written = value(2)
    written.previous_producer_id = 999
    written.client_transaction_version = 2
    _, data = encode((TransactionLogKey(transactional_id="ab"), written))
    assert data == (
        b"\0\1"
        + (1000).to_bytes(8, "big")
        + (7).to_bytes(2, "big")
        + (60000).to_bytes(4, "big")
        + b"\1"
        + b"\2" + b"\2t" + b"\3" + b"\0\0\0\0" + b"\0\0\0\2" + b"\0"
        + (5).to_bytes(8, "big")
        + (4).to_bytes(8, "big")
        + b"\2" + b"\0\x08" + (999).to_bytes(8, "big") + b"\2\2\0\2"
    )  # fmt: skip


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_record_is_read_as_it_was_written(level: int) -> None:
    record = (TransactionLogKey(transactional_id="id"), value(level))
    assert decode(*encode(record)) == record


def test_a_tombstone_has_no_value() -> None:
    key = TransactionLogKey(transactional_id="id")
    assert decode(*encode((key, None))) == (key, None)


def test_a_later_version_is_not_understood() -> None:
    key, data = encode((TransactionLogKey(transactional_id="id"), value(2)))
    assert data is not None
    with pytest.raises(RecordError, match="newer broker"):
        decode(key, b"\0\2" + data[2:])
