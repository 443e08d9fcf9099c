"""Sequences, epochs, transactions and the snapshot of producers."""

from __future__ import annotations

import gc

import pytest

from ottla.log.state.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from ottla.log.state.producer_states import ProducerStates
from ottla.log.state.producer_table import ProducerBatch, ProducerEntry
from ottla.model.errors import ApiError, ErrorCode

MAX_SEQUENCE = 2**31 - 1


def taken(
    states: ProducerStates, epoch: int, base: int, count: int = 1, offset: int = 0, pid: int = 7
) -> int | None:
    """Check and append a batch; return the offset of the original if it is a duplicate."""
    last = (base + count - 1) & MAX_SEQUENCE
    duplicate = states.check(pid, epoch, base, last)
    if duplicate is not None:
        return duplicate.base_offset
    states.append(pid, epoch, base, last, offset, offset + count - 1, 1000 + offset)
    return None


def refused(states: ProducerStates, epoch: int, base: int, count: int = 1) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        states.check(7, epoch, base, base + count - 1)
    return error.value.code


def test_sequences_follow_each_other() -> None:
    states = ProducerStates()
    assert taken(states, 0, 0, count=3) is None
    assert taken(states, 0, 3, count=2, offset=3) is None
    assert states.entries[7].last_sequence == 4


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert taken(ProducerStates(), 3, 1234) is None


def test_one_of_the_last_five_is_a_duplicate() -> None:
    states = ProducerStates()
    for number in range(7):
        taken(states, 0, number, offset=100 + number)
    for number in range(2, 7):
        assert taken(states, 0, number) == 100 + number
    assert refused(states, 0, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(states.entries[7].batches) == 5


def test_a_duplicate_has_the_same_two_ends() -> None:
    states = ProducerStates()
    taken(states, 0, 0, count=3)
    assert refused(states, 0, 0, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, 0, 1, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused() -> None:
    states = ProducerStates()
    taken(states, 0, 0)
    assert refused(states, 0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced() -> None:
    states = ProducerStates()
    taken(states, 5, 0)
    assert refused(states, 4, 1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_0() -> None:
    states = ProducerStates()
    taken(states, 0, 0, count=5)
    assert refused(states, 1, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert taken(states, 1, 0, offset=5) is None
    assert states.entries[7].producer_epoch == 1
    assert len(states.entries[7].batches) == 1  # batches of the old epoch are no duplicates


def test_sequences_wrap() -> None:
    states = ProducerStates()
    taken(states, 0, MAX_SEQUENCE - 1, count=4)
    assert states.entries[7].last_sequence == 1
    assert taken(states, 0, 2, offset=4) is None
    assert taken(states, 0, MAX_SEQUENCE - 1, count=4) == 0
    other = ProducerStates()
    taken(other, 0, MAX_SEQUENCE)
    assert taken(other, 0, 0, offset=1) is None


def test_undo_puts_back_what_was() -> None:
    states = ProducerStates()
    taken(states, 0, 0)
    states.mark_written()
    before = dict(states.entries)
    taken(states, 0, 1, offset=1)
    taken(states, 0, 2, offset=2)
    taken(states, 0, 0, pid=8, offset=3)
    states.undo_queued()
    assert states.entries == before
    assert taken(states, 0, 1, offset=1) is None


def test_silent_producers_expire_unless_in_a_transaction() -> None:
    states = ProducerStates()
    taken(states, 0, 0, pid=1)
    taken(states, 0, 0, pid=2, offset=500)
    states.append_unchecked(3, 0, ProducerBatch(0, 0, 9, 9, 1000), is_transactional=True)
    assert states.expire(now_ms=1400, expiration_ms=400) == 1
    assert sorted(states.entries) == [2, 3]


def test_open_and_unreplicated_transactions_are_unstable() -> None:
    states = ProducerStates()
    assert states.first_unstable_offset(100) is None
    states.append_unchecked(1, 0, ProducerBatch(0, 4, 10, 14, 1), is_transactional=True)
    states.append_unchecked(1, 0, ProducerBatch(5, 5, 15, 15, 1), is_transactional=True)
    states.append_unchecked(2, 0, ProducerBatch(0, 0, 20, 20, 1), is_transactional=True)
    assert states.first_unstable_offset(100) == 10
    completed = states.end_transaction(1, 0, 3, 30, 2, is_abort=True)
    assert completed == (1, 10, 30, True)
    assert states.first_unstable_offset(30) == 10  # the marker is not replicated yet
    assert states.first_unstable_offset(31) == 20
    states.end_transaction(2, 0, 3, 31, 2, is_abort=False)
    assert states.first_unstable_offset(32) is None


def test_a_marker_without_records_completes_nothing() -> None:
    states = ProducerStates()
    assert states.end_transaction(1, 4, 0, 30, 2, is_abort=True) is None
    assert states.entries[1].producer_epoch == 4


def test_snapshots_have_kafkas_bytes() -> None:
    batch = ProducerBatch(5, 9, 100, 104, 1234)
    entries = {1000: ProducerEntry.of(2, (batch,), 1234, 6, 100)}
    body = (
        "00000001"  # entries
        "00000000000003e8"  # producer id
        "0002"  # epoch
        "00000009"  # last sequence
        "0000000000000068"  # last offset
        "00000004"  # offset delta
        "00000000000004d2"  # timestamp
        "00000006"  # coordinator epoch
        "0000000000000064"  # first offset of the transaction
    )
    content = encode_snapshot(entries)
    assert content[:2].hex() == "0001"
    assert content[6:].hex() == body
    assert decode_snapshot(content) == entries


def test_an_empty_snapshot() -> None:
    assert encode_snapshot({})[6:].hex() == "00000000"
    assert decode_snapshot(encode_snapshot({})) == {}


def test_snapshots_keep_all_retained_batches_the_last_one_last() -> None:
    states = ProducerStates()
    for number in range(6):
        taken(states, 0, number, offset=number)
    content = encode_snapshot(states.entries)
    assert decode_snapshot(content) == states.entries
    # A reader that keeps one entry a producer keeps the last one.
    assert content[-46:][10:14] == (5).to_bytes(4, "big")


def test_snapshots_keep_producers_without_batches() -> None:
    entries = {5: ProducerEntry.of(1, (), 77, 2, -1)}
    assert decode_snapshot(encode_snapshot(entries)) == entries


def test_snapshots_keep_wrapped_and_missing_sequences() -> None:
    wrapped = ProducerBatch(MAX_SEQUENCE, 1, 10, 12, 5)
    missing = ProducerBatch(-1, -1, 10, 12, 5)
    entries = {
        1: ProducerEntry.of(0, (wrapped,), 5, -1, -1),
        2: ProducerEntry.of(0, (missing,), 5, -1, -1),
    }
    assert decode_snapshot(encode_snapshot(entries)) == entries


@pytest.mark.parametrize("damage", ["short", "version", "crc", "count", "cut"])
def test_damaged_snapshots_are_refused(damage: str) -> None:
    content = bytearray(encode_snapshot({1: ProducerEntry.of(0, (), 5, -1, -1)}))
    match damage:
        case "short":
            content = content[:5]
        case "version":
            content[1] = 2
        case "crc":
            content[-1] ^= 1
        case "count":
            content[6] = 0x7F
        case "cut":
            content = content[:-3]
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(content))


def test_garbage_collection_does_not_look_at_producers() -> None:
    states = ProducerStates()
    for producer_id in range(100):
        states.append(producer_id, 1, 0, 0, 2**40, 2**40, 2**41)
        states.append_unchecked(producer_id, 1, ProducerBatch(1, 1, 9, 9, 2**41), True)
        states.end_transaction(producer_id, 1, 0, 10, 2**41, is_abort=False)
    packed = states.entries.packed
    assert not gc.is_tracked(packed)
    assert not any(map(gc.is_tracked, packed.values()))
    loaded = ProducerStates()
    loaded.load(decode_snapshot(encode_snapshot(states.entries)))
    assert loaded.entries == states.entries
    assert not gc.is_tracked(loaded.entries.packed)
