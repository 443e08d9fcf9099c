"""The transaction index of a segment: the aborted transactions whose markers lie in it.

Entries of 34 bytes: version (2), producer id, first offset, last offset (that of the marker)
and the last stable offset when it was written (8 each), in the order of the markers. The file
exists only if there is such a transaction.

`TxnIndex` keeps the entries in memory once they were read, as they are in the file: a fetch with
read_committed looks into them each time. While one transaction is open for long, thousands of
others may be aborted after it. A fetch of its records skips those, a block of entries at a time.
Thousands may also have been open at the same time. All of them are in the response, so a search
copies whole blocks and makes no objects.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

from ottla.ports import Files, read_file

_VERSION = 0
_MOST_BYTES = 2**31
TXN_ENTRY = Struct(">hqqqq")
"""An entry of the file: its version, then the fields of an `AbortedTxn`."""

_ENTRY = TXN_ENTRY
_SIZE = _ENTRY.size
_PAIR_AT: Final = 2
_PAIR_BYTES: Final = 16
"""Where an entry has its producer id and first offset."""
_OFFSET = Struct(">q")
_LAST_OFFSET_AT = 18
_STABLE_OFFSET_AT = 26
_FIRST_OFFSETS = Struct(">10xq16x")
_VERSIONS_AND_LAST_OFFSETS = Struct(">h16xq8x")
_LARGE_BYTES: Final = 256 * 1024
NEVER: Final = 2**63 - 1
"""An offset after all others."""
_BLOCK_ENTRIES: Final = 256
_BLOCK_BYTES: Final = _BLOCK_ENTRIES * _SIZE


class AbortedTxn(NamedTuple):
    """An aborted transaction, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnEntries:
    """The entries of an index: as they are in the file, and what lets a search skip most of them.

    `smallest` and `largest` have the smallest and the largest first offset of each whole block,
    `smallest_of_all` has the smallest of all.
    """

    __slots__ = ("content", "largest", "smallest", "smallest_of_all")

    def __init__(self, content: bytes | bytearray) -> None:
        self.content = content
        self.smallest: list[int] = []
        self.largest: list[int] = []
        self.smallest_of_all = NEVER
        for start in range(0, len(content), _BLOCK_BYTES):
            self._note(content[start : start + _BLOCK_BYTES])

    @classmethod
    def for_one_search(cls, content: bytes) -> TxnEntries:
        """Return the entries that a search must look at, because it can skip none of them."""
        entries = cls(b"")
        entries.content, entries.smallest_of_all = content, -1
        return entries

    def _note(self, block: bytes | bytearray) -> None:
        first_offsets = list(_FIRST_OFFSETS.iter_unpack(block))
        smallest: int = min(first_offsets)[0]
        if len(block) == _BLOCK_BYTES:
            self.smallest.append(smallest)
            self.largest.append(max(first_offsets)[0])
        self.smallest_of_all = min(self.smallest_of_all, smallest)

    def append(self, transaction: AbortedTxn, packed: bytes) -> None:
        """Add an entry."""
        self.content += packed
        self.smallest_of_all = min(self.smallest_of_all, transaction.first_offset)
        if not len(self.content) % _BLOCK_BYTES:
            self._note(self.content[-_BLOCK_BYTES:])

    def last_offset(self, number: int) -> int:
        """Return where the marker of an entry lies."""
        return self._offset_at(number * _SIZE + _LAST_OFFSET_AT)

    def _stable_offset(self, end: int) -> int:
        """Return the last stable offset of the entry that ends at a position."""
        return self._offset_at(end - _SIZE + _STABLE_OFFSET_AT)

    def _offset_at(self, position: int) -> int:
        offset: int = _OFFSET.unpack_from(self.content, position)[0]
        return offset

    def first_at(self, offset: int) -> int:
        """Return the number of the first entry whose marker lies at or after an offset."""
        count = len(self.content) // _SIZE
        return bisect_left(range(count), offset, key=self.last_offset)

    def collect(self, offset: int, upper: int, found: bytearray) -> bool:
        """Do what `TxnIndex.collect` says."""
        content = self.content
        size = len(content)
        if self.smallest_of_all >= upper:
            return size > 0 and self._stable_offset(size) >= upper
        position = self.first_at(offset) * _SIZE
        while position < size:
            block = position // _BLOCK_BYTES
            end = min((block + 1) * _BLOCK_BYTES, size)
            if block < len(self.smallest) and self.smallest[block] >= upper:
                if self._stable_offset(end) >= upper:
                    return True
            elif (
                block < len(self.largest)
                and self.largest[block] < upper
                and self._stable_offset(end) < upper
            ):
                found += content[position:end]
            else:
                for fields in _ENTRY.iter_unpack(content[position:end]):
                    if fields[2] < upper:
                        found += content[position : position + _SIZE]
                    if fields[4] >= upper:
                        return True
                    position += _SIZE
            position = end
        return False


class TxnIndex:
    """The transaction index of one segment."""

    __slots__ = ("_entries", "_files", "_path")

    def __init__(self, files: Files, path: str, *, exists: bool) -> None:
        """Prepare to read the index. If the file does not exist, nothing is read."""
        self._files = files
        self._path = path
        self._entries: TxnEntries | None = None if exists else TxnEntries(bytearray())

    @classmethod
    def of(cls, files: Files, entries: bytes) -> TxnIndex:
        """Return an index with the entries of a file that was read elsewhere."""
        index = cls(files, "", exists=False)
        whole = len(entries) - len(entries) % _SIZE
        index._entries = TxnEntries.for_one_search(entries[:whole])
        return index

    @property
    def is_read(self) -> bool:
        """True if the entries are in memory."""
        return self._entries is not None

    @property
    def is_large(self) -> bool:
        """True if it takes milliseconds to read the file."""
        try:
            return self._files.stat(self._path).size > _LARGE_BYTES
        except FileNotFoundError:
            return False

    @property
    def entries(self) -> bytes | bytearray:
        """All valid entries, as they are in the file."""
        return self._read().content

    def _read(self) -> TxnEntries:
        if self._entries is None:
            self._entries = read_txn_entries(self._files, self._path)
        return self._entries

    def set_entries(self, entries: TxnEntries) -> None:
        """Use entries that `read_txn_entries` has read elsewhere, unless some are there."""
        if self._entries is None:
            self._entries = entries

    def append(self, transaction: AbortedTxn) -> bool:
        """Add a transaction unless its marker is in the index already; return True if added."""
        entries = self._read()
        size = len(entries.content)
        if size and entries.last_offset(size // _SIZE - 1) >= transaction.last_offset:
            return False
        packed = _ENTRY.pack(_VERSION, *transaction)
        file = self._files.open(self._path, create=True, writable=True)
        file.truncate(size)
        file.pwritev([packed], size)
        entries.append(transaction, packed)
        return True

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose markers lie at or after an offset."""
        entries = self._read()
        kept = entries.first_at(offset) * _SIZE
        if kept < len(entries.content):
            self._entries = TxnEntries(entries.content[:kept])
            _write(self._files, self._path, self._entries.content)

    def collect(self, offset: int, upper: int, found: bytearray) -> bool:
        """Add the entries of transactions that have records from `offset` to before `upper`.

        Return True if no later segment can have another one.
        """
        return self._read().collect(offset, upper, found)


def read_txn_entries(files: Files, path: str) -> TxnEntries:
    """Return the entries of an index up to the first damaged one; none without a file."""
    try:
        content = read_file(files, path, _MOST_BYTES)
    except FileNotFoundError:
        return TxnEntries(bytearray())
    whole = len(content) - len(content) % _SIZE
    size, previous = 0, -1
    for version, last_offset in _VERSIONS_AND_LAST_OFFSETS.iter_unpack(content[:whole]):
        if version != _VERSION or last_offset <= previous:
            break
        size += _SIZE
        previous = last_offset
    return TxnEntries(bytearray(content[:size]))


def read_txn_index(files: Files, path: str) -> list[AbortedTxn]:
    """Return the transactions of an index up to the first damaged entry; none without a file."""
    return unpack_entries(read_txn_entries(files, path).content)


def unpack_entries(entries: bytes | bytearray) -> list[AbortedTxn]:
    """Return the transactions of entries as they are in the file."""
    return [AbortedTxn._make(fields[1:]) for fields in _ENTRY.iter_unpack(entries)]


def each_once(entries: bytearray) -> bytearray:
    """Return the entries without those that are there already."""
    starts = range(0, len(entries), _SIZE)
    whole = dict.fromkeys(bytes(entries[start : start + _SIZE]) for start in starts)
    return entries if len(whole) == len(starts) else bytearray(b"").join(whole)


def pack_aborted(entries: bytes | bytearray, tag_bytes: int) -> bytearray:
    """Return producer id and first offset of each entry, as a Fetch response has them.

    Each is followed by `tag_bytes` zeros. All are copied byte by byte of an entry, not one by one.
    """
    size = _PAIR_BYTES + tag_bytes
    packed = bytearray(len(entries) // _SIZE * size)
    for number in range(_PAIR_BYTES):
        packed[number::size] = entries[_PAIR_AT + number :: _SIZE]
    return packed


def _write(files: Files, path: str, content: bytes | bytearray) -> None:
    if not content:
        files.unlink(path)
        return
    file = files.open(path, create=True, writable=True)
    file.truncate(0)
    file.pwritev([content], 0)
