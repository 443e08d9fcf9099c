"""The transaction index: its bytes, and cutting it."""

from __future__ import annotations

from ottla.log.segment.txn_index import (
    AbortedTxn,
    append_txn,
    read_txn_index,
    truncate_txn_index,
)
from ottla.memory_files import MemoryFiles
from ottla.ports import read_file

PATH = "00000000000000000000.txnindex"
FIRST = AbortedTxn(producer_id=7, first_offset=1, last_offset=10, last_stable_offset=11)
SECOND = AbortedTxn(producer_id=8, first_offset=3, last_offset=20, last_stable_offset=15)


def test_entries_have_34_bytes() -> None:
    files = MemoryFiles()
    append_txn(files, PATH, FIRST)
    assert read_file(files, PATH).hex() == (
        "000000000000000000070000000000000001000000000000000a000000000000000b"
    )


def test_a_marker_is_added_once() -> None:
    files = MemoryFiles()
    for transaction in (FIRST, SECOND, SECOND, FIRST):
        append_txn(files, PATH, transaction)
    assert read_txn_index(files, PATH) == [FIRST, SECOND]


def test_truncating_everything_removes_the_file() -> None:
    files = MemoryFiles()
    append_txn(files, PATH, FIRST)
    append_txn(files, PATH, SECOND)
    truncate_txn_index(files, PATH, 20)
    assert read_txn_index(files, PATH) == [FIRST]
    truncate_txn_index(files, PATH, 5)
    assert not files.exists(PATH)
    assert read_txn_index(files, PATH) == []


def test_a_torn_entry_and_a_strange_version_end_the_index() -> None:
    files = MemoryFiles()
    append_txn(files, PATH, FIRST)
    append_txn(files, PATH, SECOND)
    file = files.open(PATH, writable=True)
    file.truncate(60)
    assert read_txn_index(files, PATH) == [FIRST]
    file.pwritev([b"\x00\x09"], 0)
    assert read_txn_index(files, PATH) == []
