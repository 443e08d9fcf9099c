"""A follower whose next records are only in the remote tier takes its state from there.

It asks the leader where the log and where its local segments begin. From the remote segment before
them it takes the leader epochs and the state of producers. Then its log begins after this segment,
which may reach into the leader's local segments, and it goes on fetching.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.log.state.leader_epochs import EpochCache, EpochEntry
from ottla.log.state.producer_snapshot import CorruptSnapshot, decode_snapshot
from ottla.log.state.producer_table import ProducerTable
from ottla.log.store.checkpoints import CorruptCheckpoint
from ottla.ports import ObjectNotFound, ObjectStoreError, Peer, Response
from ottla.replication.partition import Partition
from ottla.tiered.layout import LEADER_EPOCHS, SNAPSHOT
from ottla.tiered.metadata_records import SegmentMetadata, SegmentState
from ottla.tiered.remote_segments import epoch_ranges
from ottla.tiered.segment_upload import key_of
from ottla.wire.api_table import ApiKey
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from ottla.broker.remote_tier.remote_tier import RemoteTier

EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
_EPOCH_VERSION: Final = 4
_TIMEOUT_MS: Final = 10_000
_MOST_BYTES: Final = 256 * 1024 * 1024

FindOffset = Callable[[Peer, Partition, int, Callable[[int | None], None]], None]


class FollowerRebuild:
    """The rebuild of one follower, in one leader epoch; `done` gets True if it succeeded."""

    def __init__(
        self,
        tier: RemoteTier,
        peer: Peer,
        partition: Partition,
        find_offset: FindOffset,
        done: Callable[[bool], None],
    ) -> None:
        self._tier = tier
        self._peer = peer
        self._partition = partition
        self._find_offset = find_offset
        self._done = done
        self._leader_epoch = partition.leader_epoch
        self._log_start = self._local_start = -1
        self._candidates: list[tuple[SegmentMetadata, int]] = []
        """Remote segments, and where the log could begin with each; the best ones are last."""

    @property
    def _is_wanted(self) -> bool:
        partition = self._partition
        return (
            partition.follower is not None
            and partition.leader_epoch == self._leader_epoch
            and not partition.removed
            and partition.log is not None
        )

    def begin(self) -> None:
        """Ask where the leader's log begins."""
        self._tier.metrics.rebuilds += 1
        self._find_offset(self._peer, self._partition, EARLIEST, self._found_start)

    def _found_start(self, offset: int | None) -> None:
        if offset is None or not self._is_wanted:
            self._done(False)
            return
        self._log_start = offset
        self._find_offset(self._peer, self._partition, EARLIEST_LOCAL, self._found_local_start)

    def _found_local_start(self, offset: int | None) -> None:
        tiered = self._tier.partitions.get(self._partition)
        segments = None if tiered is None else tiered.segments
        if offset is None or segments is None or not self._is_wanted:
            self._done(False)
            return
        self._local_start = offset
        self._log_start = min(self._log_start, offset)
        last = offset - 1
        self._candidates = [
            (each, end)
            for each in segments.in_state(SegmentState.COPY_FINISHED)
            if each.start_offset <= last <= each.end_offset and segments.is_readable(each)
            for end in sorted({offset, each.end_offset + 1})
        ]
        self._try_next()

    def _try_next(self) -> None:
        """Take the newest remote segment that is of the leader's log."""
        if not self._candidates or not self._is_wanted:
            self._done(False)
            return
        segment, end_offset = self._candidates.pop()
        epoch = _epoch_of(segment, end_offset - 1)
        asked = OffsetForLeaderPartition(
            partition=self._partition.index,
            current_leader_epoch=self._leader_epoch,
            leader_epoch=epoch,
        )
        topic = OffsetForLeaderTopic(topic=self._partition.topic.name, partitions=[asked])
        request = OffsetForLeaderEpochRequest(replica_id=self._tier.node.node_id, topics=[topic])
        body = encoder(OffsetForLeaderEpochRequest, _EPOCH_VERSION)(request)

        def answered(result: Response | OSError) -> None:
            if isinstance(result, OSError):
                self._done(False)
            elif _ends_at_or_after(result, epoch, end_offset):
                self._read_epochs(segment, end_offset)
            else:
                self._try_next()

        try:
            self._peer.send(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, _EPOCH_VERSION, body, _TIMEOUT_MS, answered
            )
        except BlockingIOError:
            self._done(False)

    def _read_epochs(self, segment: SegmentMetadata, local_start: int) -> None:
        def read(content: bytes | ObjectStoreError) -> None:
            try:
                if isinstance(content, ObjectStoreError):
                    raise content
                epochs = EpochCache.decode(content).entries
            except (ObjectStoreError, CorruptCheckpoint) as error:
                self._fail(error)
            else:
                self._read_producers(segment, local_start, epochs)

        self._tier.store.get(key_of(segment, LEADER_EPOCHS), 0, _MOST_BYTES, read)

    def _read_producers(
        self, segment: SegmentMetadata, local_start: int, epochs: tuple[EpochEntry, ...]
    ) -> None:
        def read(content: bytes | ObjectStoreError) -> None:
            try:
                if isinstance(content, ObjectNotFound):
                    producers = ProducerTable()
                elif isinstance(content, ObjectStoreError):
                    raise content
                else:
                    producers = decode_snapshot(content)
            except (ObjectStoreError, CorruptSnapshot) as error:
                self._fail(error)
            else:
                self._finish(local_start, epochs, producers)

        self._tier.store.get(key_of(segment, SNAPSHOT), 0, _MOST_BYTES, read)

    def _fail(self, error: Exception) -> None:
        self._tier.metrics.rebuild_errors += 1
        self._tier.report(f"{self._partition.name} cannot be rebuilt: {error}; trying again")
        self._done(False)

    def _finish(
        self,
        local_start: int,
        epochs: tuple[EpochEntry, ...],
        producers: ProducerTable,
    ) -> None:
        log = self._partition.log
        if log is None or not self._is_wanted or not log.config.remote_storage_enable:
            self._done(False)
            return
        try:
            log.begin_after_tier(local_start, self._log_start, epochs, producers)
        except OSError as error:
            self._tier.metrics.rebuild_errors += 1
            self._tier.node.storage_failed(self._partition, error)
            self._done(False)
            return
        self._partition.notify()
        self._done(True)


def _epoch_of(segment: SegmentMetadata, offset: int) -> int:
    """Return the leader epoch in which a segment has an offset, -1 if that is not known."""
    ranges = epoch_ranges(segment)
    return next((epoch for epoch, first, last in ranges if first <= offset <= last), -1)


def _ends_at_or_after(result: Response, epoch: int, offset: int) -> bool:
    """Return True if the leader's log has an epoch up to an offset at least."""
    view = result.view[result.start : result.end].toreadonly()
    response, _ = decoder(OffsetForLeaderEpochResponse, _EPOCH_VERSION)(view, 0, len(view))
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code == 0:
                return answer.leader_epoch == epoch and answer.end_offset >= offset
    return False
