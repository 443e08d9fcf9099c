"""A follower of a partition: it appends the leader's batches and follows its high watermark.

A fetch response of the leader is taken in like this, partition by partition:

    diverging epoch        `truncate`, then fetch again from where the log ends now
    OFFSET_OUT_OF_RANGE    `restart_at` the leader's log start offset
    OFFSET_MOVED_TO_TIERED_STORAGE    begin where the leader's local segments do, with the state
                           that the remote tier has there (KIP-405)
    records                `append`, `write` at the end of the wake-up, then `follow_leader`

Offsets and leader epochs come with the leader's batches. What a follower has beyond the point
where its epochs leave the leader's is cut off before anything is appended (KIP-101, KIP-279).

Invariants:
    the log holds the leader's bytes, up to where it ends
    the high watermark moves at most to the leader's and to the end of what is written here; it
    goes back only where the log is cut
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.partition import Partition


class PartitionFollower:
    """The role of a replica that another broker leads."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def last_fetched_epoch(self) -> int:
        """The leader epoch of the last batch, which a fetch tells the leader; -1 without any."""
        return self._partition.online_log().leader_epochs.latest_epoch

    def append(self, buffer: bytearray, view: memoryview, start: int, end: int, now_ms: int) -> int:
        """Queue the whole batches in [start, end) of a fetch response; return their size.

        Raise CORRUPT_MESSAGE, and queue nothing, if they are damaged or do not come after the end
        of the log. The bytes must stay as they are until they are written.
        """
        return self._partition.online_log().append_as_follower(buffer, view, start, end, now_ms)

    def write(self) -> None:
        """Write what was appended. If that raises OSError, the log has undone what was queued."""
        self._partition.online_log().write_queued()

    def truncate(self, epoch: int, end_offset: int) -> int:
        """Truncate the log where its epochs differ from the leader's; return its new end.

        `epoch` and `end_offset` are the leader's largest epoch at or before ours and its end.
        If we do not have that epoch, more may have to go: the next fetch finds out.
        """
        log = self._partition.online_log()
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        target = min(end_offset, own_end) if own_epoch == epoch else own_end
        if target < 0:  # no epoch in common: nothing of the log can be kept
            target = log.log_start_offset
        if target < log.log_end_offset:
            log.truncate_to(target)
        assert log.high_watermark <= log.log_end_offset <= max(target, log.log_start_offset)
        return log.log_end_offset

    def restart_at(self, offset: int) -> None:
        """Give up the log and begin again where the leader's begins."""
        self._partition.online_log().truncate_fully(offset)
        self._partition.notify()

    def follow_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over the leader's high watermark and log start offset as far as this log reaches.

        Neither goes back: a leader that was just elected may know of less than is committed.
        """
        partition = self._partition
        log = partition.online_log()
        before = log.high_watermark, log.log_start_offset
        log.high_watermark = max(min(high_watermark, log.written_end), log.high_watermark)
        log.advance_log_start(min(log_start_offset, log.high_watermark))
        if before != (log.high_watermark, log.log_start_offset):
            partition.notify()
