"""A follower of a partition: it appends the leader's batches and follows its high watermark.

Offsets and leader epochs come with the leader's batches. Before a follower appends, it truncates
its log to the point where its leader epochs differ from the leader's (KIP-101, KIP-279).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.replication.partition import Partition


class PartitionFollower:
    """The role of a replica that another broker leads."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def append(
        self, buffer: bytearray, view: memoryview, start: int, end: int, now_ms: int
    ) -> None:
        """Queue the leader's batches at [start, end) of a fetch response."""
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def write(self) -> None:
        """Write what was appended. If that raises OSError, the log has undone what was queued."""
        self._partition.online_log().write_queued()

    def truncate(self, epoch: int, end_offset: int) -> int:
        """Truncate the log where its epochs differ from the leader's; return its new end.

        `epoch` and `end_offset` are the leader's largest epoch at or before ours and its end.
        """
        log = self._partition.online_log()
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        target = min(end_offset, own_end) if own_epoch == epoch else own_end
        if target < 0:  # nothing in common: begin again where the leader's log begins
            target = log.log_start_offset
        if target < log.log_end_offset:
            log.truncate_to(target)
        return log.log_end_offset

    def set_high_watermark(self, leader_high_watermark: int) -> None:
        """Follow the leader's high watermark, up to the end of this log; never go back."""
        partition = self._partition
        log = partition.online_log()
        high_watermark = min(leader_high_watermark, log.written_end)
        if high_watermark > log.high_watermark:
            log.high_watermark = high_watermark
            partition.notify()
