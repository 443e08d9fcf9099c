from __future__ import annotations

from struct import pack
from zlib import crc32

import pytest

from ottla.client.consumer.fetched_records import read_fetched
from ottla.client.errors import ClientError
from ottla.records.compression import CODECS
from ottla.records.control import ControlType, build_marker
from ottla.records.record import build_batch
from ottla.wire.messages.fetch import AbortedTransaction


def batch(first: int, count: int, *, codec: int = 0, is_control: bool = False) -> bytes:
    records = [(b"key", b"value %d" % (first + i), 1000 + i, ()) for i in range(count)]
    return bytes(build_batch(records, base_offset=first, codec=codec, is_control=is_control))


@pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
def test_records_of_several_batches(codec: int) -> None:
    fetched = read_fetched(batch(5, 3, codec=codec) + batch(8, 2, codec=codec), "t", 1, 5)
    assert [record.offset for record in fetched.records] == [5, 6, 7, 8, 9]
    assert [record.value for record in fetched.records] == [b"value %d" % i for i in range(5, 10)]
    assert (fetched.partition, fetched.next_offset) == (1, 10)


def test_records_before_the_offset_asked_for_are_left_out() -> None:
    fetched = read_fetched(batch(0, 10), "t", 0, 7)
    assert [record.offset for record in fetched.records] == [7, 8, 9]


def test_control_batches_are_passed_over() -> None:
    fetched = read_fetched(batch(0, 1) + batch(1, 1, is_control=True), "t", 0, 0)
    assert [record.offset for record in fetched.records] == [0]
    assert fetched.next_offset == 2


@pytest.mark.parametrize("cut", [1, 30, 61])
def test_a_batch_that_is_cut_off_waits_for_the_next_fetch(cut: int) -> None:
    fetched = read_fetched(batch(0, 2) + batch(2, 2)[:cut], "t", 0, 0)
    assert [record.offset for record in fetched.records] == [0, 1]
    assert fetched.next_offset == 2


def test_nothing_fetched() -> None:
    assert read_fetched(b"", "t", 0, 42) == (0, [], 42)


def test_a_wrong_checksum_is_told_with_its_place() -> None:
    damaged = bytearray(batch(0, 2) + batch(2, 2))
    damaged[-1] ^= 1
    with pytest.raises(
        ClientError, match=r"t-3 has a damaged batch at or after offset 2.*checksum"
    ):
        read_fetched(damaged, "t", 3, 0)


def test_garbage_is_told_too() -> None:
    with pytest.raises(ClientError, match="damaged batch"):
        read_fetched(bytes(100), "t", 0, 0)


def old_message(offset: int, value: bytes) -> bytes:
    """Return a message of magic 1 (before Kafka 0.11): crc, magic, attributes, time, key, value."""
    body = pack(">bbqii", 1, 0, 1234, -1, len(value)) + value
    return pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def test_messages_of_the_format_before_0_11() -> None:
    fetched = read_fetched(old_message(4, b"a") + old_message(5, b"b") + batch(6, 1), "t", 0, 5)
    assert [(r.offset, r.value) for r in fetched.records] == [(5, b"b"), (6, b"value 6")]
    assert fetched.next_offset == 7


def test_a_wrong_checksum_in_the_old_format() -> None:
    damaged = bytearray(old_message(4, b"a"))
    damaged[-1] ^= 1
    with pytest.raises(ClientError, match="checksum"):
        read_fetched(damaged, "t", 0, 4)


def in_transaction(first: int, producer_id: int) -> bytes:
    return bytes(
        build_batch(
            [(b"key", b"value", 1000, ())],
            base_offset=first,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    )


def marker(first: int, producer_id: int, kind: ControlType) -> bytes:
    return bytes(
        build_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=1000,
            base_offset=first,
        )
    )


def test_aborted_transactions_are_left_out() -> None:
    data = b"".join(
        [
            in_transaction(0, 7),
            in_transaction(1, 8),
            batch(2, 1),
            in_transaction(3, 7),
            marker(4, 7, ControlType.ABORT),
            in_transaction(5, 7),
            marker(6, 8, ControlType.COMMIT),
            marker(7, 7, ControlType.COMMIT),
            in_transaction(8, 8),
            marker(9, 8, ControlType.ABORT),
        ]
    )
    aborted = [
        AbortedTransaction(producer_id=8, first_offset=8),
        AbortedTransaction(producer_id=7, first_offset=0),
    ]
    fetched = read_fetched(data, "t", 0, 0, aborted)
    assert [record.offset for record in fetched.records] == [1, 2, 5]
    assert fetched.next_offset == 10
    assert len(read_fetched(data, "t", 0, 0).records) == 6
