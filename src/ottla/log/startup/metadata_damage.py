"""Tell an interrupted write at the end of the metadata log from damage.

What was forced to disk is never cut off from the metadata log: the topics in it would be lost. A
crash can leave a part of the last write only, and that is cut off as in any log. Records that are
followed by whole ones were forced to disk, and so were those before the recovery point.

A power failure may keep any sectors of the last write, and a write may hold several batches. A
sector that was not kept reads as zeros. So a batch with such a sector counts as interrupted.
"""

from __future__ import annotations

from ottla.log.damage import DamagedLog
from ottla.log.file_names import LOG
from ottla.log.segment.batch_scan import check_crc, header_at
from ottla.log.segment.segment import Segment
from ottla.records.batch import HEADER_SIZE, MAGIC_OFFSET, MAGIC_V2, Batch, CorruptBatch

_SECTOR = 512
_MAGIC = bytes([MAGIC_V2])
_MOST_READ = 64 * 1024 * 1024


def check_end_of_metadata(
    segment: Segment, position: int, next_offset: int, recovery_point: int, problem: str
) -> None:
    """Raise DamagedLog if the end of a segment, from a bad batch on, must not be cut off."""
    content = segment.file.pread(min(segment.size - position, _MOST_READ), position)
    if next_offset < recovery_point:
        reason = f"everything before offset {recovery_point} was forced to disk"
    elif _is_torn(content, position) or not _has_whole_batch(content, next_offset):
        return
    else:
        reason = "whole records follow"
    raise DamagedLog(
        segment.path(LOG),
        f"at offset {next_offset}: {problem}. This is no interrupted write, because {reason}."
        f" Restore {segment.directory} from a copy",
    )


def _is_torn(content: bytes, position: int) -> bool:
    """Return True if the batch at the start of the content has a sector of zeros."""
    end = HEADER_SIZE
    batch = _header(content, 0)
    if batch is not None and batch.size <= len(content):
        end = batch.size
    start = 0
    while start < end:
        stop = min(start + _SECTOR - (position + start) % _SECTOR, end)
        if not any(content[start:stop]):
            return True
        start = stop
    return False


def _has_whole_batch(content: bytes, next_offset: int) -> bool:
    """Return True if a batch with a good CRC lies after the bad one, wherever it begins."""
    found = content.find(_MAGIC, MAGIC_OFFSET + 1)
    while found >= 0:
        start = found - MAGIC_OFFSET
        batch = _header(content, start)
        if batch is not None and batch.base_offset > next_offset and batch.end <= len(content):
            try:
                check_crc(content, batch, start)
            except CorruptBatch:
                pass
            else:
                return True
        found = content.find(_MAGIC, found + 1)
    return False


def _header(content: bytes, start: int) -> Batch | None:
    try:
        return header_at(content, start, start)
    except CorruptBatch:
        return None
