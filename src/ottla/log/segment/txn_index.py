"""The transaction index of a segment: the aborted transactions whose markers lie in it.

Entries of 34 bytes: version (2), producer id, first offset, last offset (that of the marker)
and the last stable offset when it was written (8 each), in the order of the markers. The file
exists only if there is such a transaction.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla.ports import Files, read_file

_VERSION = 0
_ENTRY = Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """An aborted transaction, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_txn_index(files: Files, path: str) -> list[AbortedTxn]:
    """Return the transactions of an index up to the first damaged entry; none without a file."""
    try:
        content = read_file(files, path)
    except FileNotFoundError:
        return []
    whole = len(content) - len(content) % _ENTRY.size
    found = []
    for version, *fields in _ENTRY.iter_unpack(content[:whole]):
        if version != _VERSION:
            break
        found.append(AbortedTxn(*fields))
    return found


def write_txn_index(files: Files, path: str, transactions: list[AbortedTxn]) -> None:
    """Replace the transactions of the index; remove the file if there are none."""
    if not transactions:
        files.unlink(path)
        return
    file = files.open(path, create=True, writable=True)
    content = b"".join(_ENTRY.pack(_VERSION, *transaction) for transaction in transactions)
    file.truncate(0)
    file.pwritev([content], 0)


def append_txn(files: Files, path: str, transaction: AbortedTxn) -> bool:
    """Add a transaction unless its marker is in the index already; return True if added."""
    file = files.open(path, create=True, writable=True)
    size = file.size()
    end = size - size % _ENTRY.size
    if end:
        version, *fields = _ENTRY.unpack(file.pread(_ENTRY.size, end - _ENTRY.size))
        if version != _VERSION:
            return _append_after_damage(files, path, transaction)
        if AbortedTxn(*fields).last_offset >= transaction.last_offset:
            return False
    file.pwritev([_ENTRY.pack(_VERSION, *transaction)], end)
    return True


def _append_after_damage(files: Files, path: str, transaction: AbortedTxn) -> bool:
    transactions = read_txn_index(files, path)
    is_new = not transactions or transactions[-1].last_offset < transaction.last_offset
    write_txn_index(files, path, [*transactions, transaction] if is_new else transactions)
    return is_new


def truncate_txn_index(files: Files, path: str, offset: int) -> None:
    """Drop the transactions whose markers lie at or after an offset."""
    transactions = read_txn_index(files, path)
    kept = [transaction for transaction in transactions if transaction.last_offset < offset]
    if len(kept) != len(transactions):
        write_txn_index(files, path, kept)
