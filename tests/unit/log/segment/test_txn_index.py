"""The transaction index: its bytes, cutting it, and finding transactions in it."""

from __future__ import annotations

from random import Random
from struct import Struct

import pytest

from ottla.log.segment.txn_index import (
    AbortedTxn,
    TxnIndex,
    each_once,
    pack_aborted,
    read_txn_index,
    unpack_entries,
)
from ottla.memory_files import MemoryFiles
from ottla.ports import read_file
from tests.support.request_cost import count_calls

PATH = "00000000000000000000.txnindex"
FIRST = AbortedTxn(producer_id=7, first_offset=1, last_offset=10, last_stable_offset=11)
SECOND = AbortedTxn(producer_id=8, first_offset=3, last_offset=20, last_stable_offset=15)
THIRD = AbortedTxn(producer_id=7, first_offset=15, last_offset=30, last_stable_offset=31)


def new_index(*transactions: AbortedTxn) -> tuple[MemoryFiles, TxnIndex]:
    files = MemoryFiles()
    index = TxnIndex(files, PATH, exists=False)
    for transaction in transactions:
        index.append(transaction)
    return files, index


def collect(index: TxnIndex, offset: int, upper: int) -> tuple[list[AbortedTxn], bool]:
    found = bytearray()
    is_end = index.collect(offset, upper, found)
    return unpack_entries(found), is_end


def test_entries_have_34_bytes() -> None:
    files, _ = new_index(FIRST)
    assert read_file(files, PATH).hex() == (
        "000000000000000000070000000000000001000000000000000a000000000000000b"
    )


def test_a_marker_is_added_once() -> None:
    files, index = new_index(FIRST, SECOND, SECOND, FIRST)
    assert read_txn_index(files, PATH) == [FIRST, SECOND]
    assert not index.append(SECOND)
    assert index.append(THIRD)


def test_truncating_everything_removes_the_file() -> None:
    files, index = new_index(FIRST, SECOND)
    index.truncate_to(21)
    assert read_txn_index(files, PATH) == [FIRST, SECOND]
    index.truncate_to(20)
    assert read_txn_index(files, PATH) == [FIRST]
    assert collect(index, 0, 100) == ([FIRST], False)
    index.truncate_to(5)
    assert not files.exists(PATH)
    assert read_txn_index(files, PATH) == []
    assert index.append(SECOND)
    assert read_txn_index(files, PATH) == [SECOND]


def test_a_torn_entry_and_a_strange_version_end_the_index() -> None:
    files, _ = new_index(FIRST, SECOND)
    file = files.open(PATH, writable=True)
    file.truncate(60)
    assert read_txn_index(files, PATH) == [FIRST]
    file.pwritev([b"\x00\x09"], 0)
    assert read_txn_index(files, PATH) == []


def test_zeros_after_a_power_failure_end_the_index() -> None:
    files, _ = new_index(FIRST)
    files.open(PATH, writable=True).truncate(34 * 3)
    assert read_txn_index(files, PATH) == [FIRST]


def test_an_entry_goes_over_a_torn_one() -> None:
    files, _ = new_index(FIRST, SECOND)
    files.open(PATH, writable=True).truncate(60)
    assert TxnIndex(files, PATH, exists=True).append(SECOND)
    assert read_txn_index(files, PATH) == [FIRST, SECOND]


def test_transactions_with_records_in_a_range_are_found() -> None:
    files, index = new_index(FIRST, SECOND, THIRD)
    for read in (index, TxnIndex(files, PATH, exists=True)):
        assert collect(read, 0, 100) == ([FIRST, SECOND, THIRD], False)
        assert collect(read, 11, 100) == ([SECOND, THIRD], False)
        assert collect(read, 21, 25) == ([THIRD], True)
        assert collect(read, 31, 100) == ([], False)
        assert collect(read, 0, 3) == ([FIRST], True)  # everything later is stable after it
        assert collect(read, 4, 14) == ([FIRST, SECOND], True)


def aborted_after(count: int, first_offset: int = 1) -> list[AbortedTxn]:
    """Return transactions that were aborted one after the other, while one before was open."""
    return [
        AbortedTxn(number, 2 * number + first_offset, 2 * number + first_offset + 1, 0)
        for number in range(count)
    ]


def test_a_fetch_skips_what_was_aborted_behind_an_open_transaction() -> None:
    """Their last stable offset is that of the open one, so it does not end a search."""
    count = 20_000
    files, index = new_index(*aborted_after(count))
    last = AbortedTxn(count, 0, 2 * count + 1, 2 * count + 2)  # the one that was open
    assert index.append(last)
    opened = TxnIndex(files, PATH, exists=True)
    assert len(opened.entries) == 34 * (count + 1)
    for read in (index, opened):
        found = bytearray()
        assert count_calls(lambda read=read, found=found: read.collect(0, 10, found)) < 1000  # type: ignore[misc]
        assert unpack_entries(found) == [*aborted_after(count)[:5], last]


def test_transactions_that_were_open_at_the_same_time_are_copied_in_blocks() -> None:
    count = 20_000
    overlapping = [AbortedTxn(number, number, count + number, 0) for number in range(count)]
    _, index = new_index(*overlapping)
    found = bytearray()
    assert count_calls(lambda: index.collect(0, count, found)) < 2000
    assert unpack_entries(found) == overlapping
    for tag_bytes in (0, 1):
        packed = bytearray()
        assert count_calls(lambda to=packed, n=tag_bytes: to.extend(pack_aborted(found, n))) < 100  # type: ignore[misc]
        pairs = [Struct(">qq").pack(number, number) for number in range(count)]
        assert packed == b"".join(pair + bytes(tag_bytes) for pair in pairs)


def test_entries_that_are_there_twice_are_left_out() -> None:
    _, index = new_index(FIRST, SECOND)
    entries = bytearray(index.entries)
    assert each_once(entries) == entries
    assert each_once(entries + entries) == entries


@pytest.mark.parametrize("seed", range(5))
def test_what_a_search_finds_does_not_depend_on_what_it_skips(seed: int) -> None:
    chance = Random(seed)
    count = chance.randrange(1, 1500)
    offset, transactions = 0, []
    open_since = chance.randrange(0, 300)
    for number in range(count):
        first = max(offset - chance.randrange(0, 40 if number % 97 else 900), 0)
        offset += chance.randrange(1, 4)
        stable = min(open_since, first) if chance.random() < 0.9 else offset + 1
        transactions.append(AbortedTxn(number, first, offset, stable))
    files, index = new_index(*transactions)
    index.truncate_to(transactions[-1].last_offset)  # and so the last one is gone
    transactions.pop()
    for read in (index, TxnIndex(files, PATH, exists=True)):
        for _ in range(30):
            start = chance.randrange(0, offset + 2)
            upper = start + chance.randrange(1, 300)
            found, is_end = collect(read, start, upper)
            after = [each for each in transactions if each.last_offset >= start]
            ends = [n for n, each in enumerate(after) if each.last_stable_offset >= upper]
            if ends:
                after = after[: ends[0] + 1]
            expected = [each for each in after if each.first_offset < upper]
            assert [each for each in found if each in expected] == expected
            assert all(each.first_offset < upper for each in found)
            assert ends or not is_end
