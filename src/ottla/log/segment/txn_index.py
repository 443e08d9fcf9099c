"""The transaction index of a segment: the aborted transactions whose markers lie in it.

Entries of 34 bytes: version (2), producer id, first offset, last offset (that of the marker)
and the last stable offset when it was written (8 each), in the order of the markers. The file
exists only if there is such a transaction.

`TxnIndex` keeps the entries in memory once they were read, as they are in the file: a fetch with
read_committed looks into them each time.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from ottla.ports import Files, read_file

_VERSION = 0
_MOST_BYTES = 2**31
TXN_ENTRY = Struct(">hqqqq")
"""An entry of the file: its version, then the fields of an `AbortedTxn`."""

_ENTRY = TXN_ENTRY
_SIZE = _ENTRY.size
_LAST_OFFSET = Struct(">q")
_LAST_OFFSET_AT = 18


class AbortedTxn(NamedTuple):
    """An aborted transaction, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The transaction index of one segment."""

    __slots__ = ("_entries", "_files", "_path")

    def __init__(self, files: Files, path: str, *, exists: bool) -> None:
        """`exists` is False if there is no such file: then nothing is read."""
        self._files = files
        self._path = path
        self._entries: bytearray | None = None if exists else bytearray()

    @classmethod
    def of(cls, files: Files, entries: bytes) -> TxnIndex:
        """Return an index with the entries of a file that was read elsewhere."""
        index = cls(files, "", exists=False)
        index._entries = bytearray(entries[: len(entries) - len(entries) % _SIZE])
        return index

    @property
    def entries(self) -> bytearray:
        """All valid entries, as they are in the file."""
        if self._entries is None:
            self._entries = _pack(read_txn_index(self._files, self._path))
        return self._entries

    def append(self, transaction: AbortedTxn) -> bool:
        """Add a transaction unless its marker is in the index already; return True if added."""
        entries = self.entries
        if entries and self._last_offset(len(entries) // _SIZE - 1) >= transaction.last_offset:
            return False
        packed = _ENTRY.pack(_VERSION, *transaction)
        file = self._files.open(self._path, create=True, writable=True)
        file.truncate(len(entries))
        file.pwritev([packed], len(entries))
        entries += packed
        return True

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose markers lie at or after an offset."""
        entries = self.entries
        kept = self._first_at(offset) * _SIZE
        if kept < len(entries):
            self._entries = entries[:kept]
            write_txn_index(self._files, self._path, _unpack(self._entries))

    def collect(self, offset: int, upper: int, found: list[AbortedTxn]) -> bool:
        """Add the transactions that have records from `offset` to before `upper`.

        Returns True if no later segment can have another one.
        """
        entries = self.entries
        for start in range(self._first_at(offset) * _SIZE, len(entries), _SIZE):
            transaction = AbortedTxn._make(_ENTRY.unpack_from(entries, start)[1:])
            if transaction.first_offset < upper:
                found.append(transaction)
            if transaction.last_stable_offset >= upper:
                return True
        return False

    def _first_at(self, offset: int) -> int:
        """Return the number of the first entry whose marker lies at or after an offset."""
        count = len(self.entries) // _SIZE
        return bisect_left(range(count), offset, key=self._last_offset)

    def _last_offset(self, number: int) -> int:
        offset: int = _LAST_OFFSET.unpack_from(self.entries, number * _SIZE + _LAST_OFFSET_AT)[0]
        return offset


def read_txn_index(files: Files, path: str) -> list[AbortedTxn]:
    """Return the transactions of an index up to the first damaged entry; none without a file."""
    try:
        content = read_file(files, path, _MOST_BYTES)
    except FileNotFoundError:
        return []
    whole = len(content) - len(content) % _SIZE
    found: list[AbortedTxn] = []
    previous = -1
    for version, *fields in _ENTRY.iter_unpack(content[:whole]):
        transaction = AbortedTxn._make(fields)
        if version != _VERSION or transaction.last_offset <= previous:
            break
        found.append(transaction)
        previous = transaction.last_offset
    return found


def write_txn_index(files: Files, path: str, transactions: list[AbortedTxn]) -> None:
    """Replace the transactions of the index; remove the file if there are none."""
    if not transactions:
        files.unlink(path)
        return
    file = files.open(path, create=True, writable=True)
    file.truncate(0)
    file.pwritev([_pack(transactions)], 0)


def _pack(transactions: list[AbortedTxn]) -> bytearray:
    return bytearray(b"").join(_ENTRY.pack(_VERSION, *each) for each in transactions)


def _unpack(entries: bytearray) -> list[AbortedTxn]:
    return [AbortedTxn._make(fields[1:]) for fields in _ENTRY.iter_unpack(entries)]
