"""Files that an interrupted deletion or compaction left behind.

`.deleted` files are deleted. `.cleaned` files are the unfinished output of a compaction and are
deleted too. `.swap` files are its finished output: they replace the segments they were made from,
unless a `.cleaned` file at or before them shows that not all of them were finished.
"""

from __future__ import annotations

from ottla.log.file_names import (
    CLEANED,
    DELETED,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    offset_name,
    offset_of,
)
from ottla.log.resources import Resources
from ottla.log.segment.batch_scan import written_batches


def clear_leftovers(resources: Resources, directory: str, notes: list[str]) -> dict[str, int]:
    """Clean up a log's directory; return the names and sizes of the files that stay."""
    files = resources.files
    sizes = {entry.name: entry.size for entry in files.list(directory) if not entry.is_dir}
    for name in [name for name in sizes if name.endswith(TEMPORARY)]:
        files.unlink(f"{directory}/{name}")
        del sizes[name]
    if any(name.endswith((DELETED, CLEANED, SWAP)) for name in sizes):
        _clear(resources, directory, sizes, notes)
    for name in list(sizes):
        offset = offset_of(name)
        orphan = offset is not None and name.endswith(SEGMENT_SUFFIXES)
        if orphan and offset_name(offset or 0, LOG) not in sizes:
            notes.append(f"{directory}/{name}: there is no such segment; removed")
            files.unlink(f"{directory}/{name}")
            del sizes[name]
    return sizes


def _clear(resources: Resources, directory: str, sizes: dict[str, int], notes: list[str]) -> None:
    files = resources.files
    for name in [name for name in sizes if name.endswith(DELETED)]:
        resources.trash.add_file(f"{directory}/{name}", 0)
        del sizes[name]
    cleaned = [name for name in sizes if name.endswith(CLEANED)]
    unfinished = min((offset_of(name) or 0 for name in cleaned), default=2**63)
    swaps = [name for name in sizes if name.endswith(SWAP)]
    invalid = [name for name in swaps if (offset_of(name) or 0) >= unfinished]
    for name in {*cleaned, *invalid}:
        files.unlink(f"{directory}/{name}")
        del sizes[name]
    _swap(resources, directory, sizes, [name for name in swaps if name in sizes], notes)


def _swap(
    resources: Resources,
    directory: str,
    sizes: dict[str, int],
    swaps: list[str],
    notes: list[str],
) -> None:
    files = resources.files
    first, after = 2**63, -1
    for name in swaps:
        if name.endswith(LOG + SWAP):
            offset = offset_of(name) or 0
            first = min(first, offset)
            after = max(after, _end_of_swap(resources, directory, name, offset, sizes[name]))
    for name in list(sizes):
        if name.endswith((SWAP, SNAPSHOT)):
            continue
        if first <= (-1 if (begin := offset_of(name)) is None else begin) < after:
            files.unlink(f"{directory}/{name}")
            del sizes[name]
    for name in swaps:
        target = name.removesuffix(SWAP)
        files.rename(f"{directory}/{name}", f"{directory}/{target}")
        sizes[target] = sizes.pop(name)
        notes.append(f"{directory}/{target}: restored after an interrupted compaction")


def _end_of_swap(resources: Resources, directory: str, name: str, offset: int, size: int) -> int:
    end_offset = offset
    file = resources.files.open(f"{directory}/{name}")
    for batch in written_batches(file, 0, size, offset):
        end_offset = batch.next_offset
    return end_offset
