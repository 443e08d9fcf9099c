"""Reading objects of the tier from a store: whole small ones, and large ones in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from ottla.records.checksum import crc32c
from ottla.server.object_stores.blocking_store import BlockingStore
from ottla.tier_reader.errors import DamagedObject
from ottla.tiered.manifest import Manifest

FIRST_CHUNK: Final = 512 * 1024
MAX_CHUNK: Final = 8 * 1024 * 1024


def read_object(store: BlockingStore, manifest: Manifest, kind: str) -> bytes:
    """Return an object of a segment; raise DamagedObject unless it is as the manifest says."""
    key, summary = manifest.key(kind), manifest.objects[kind]
    content = b"".join(read_in_pieces(store, key, 0, summary.size))
    if crc32c(content) != summary.crc32c:
        raise DamagedObject(key, "its CRC is not that in the manifest")
    return content


def read_in_pieces(store: BlockingStore, key: str, position: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of an object up to a position; a thread reads the next piece meanwhile.

    Raise ObjectStoreError, and DamagedObject if the object ends too early.
    """
    if end - position <= FIRST_CHUNK:
        if position < end:
            yield _whole(key, store.get(key, position, end - position), end - position)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="ottla-tier") as reader:
        coming: tuple[Future[bytes], int] | None = None
        for at, size in _ranges(position, end):
            following = reader.submit(store.get, key, at, size), size
            if coming is not None:
                yield _whole(key, coming[0].result(), coming[1])
            coming = following
        if coming is not None:
            yield _whole(key, coming[0].result(), coming[1])


def _ranges(position: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the position and the size of each piece; they grow."""
    size = FIRST_CHUNK
    while position < end:
        yield position, min(size, end - position)
        position += size
        size = min(size * 2, MAX_CHUNK)


def _whole(key: str, piece: bytes, size: int) -> bytes:
    if len(piece) != size:
        raise DamagedObject(key, f"{size - len(piece)} bytes are missing at the end")
    return piece
