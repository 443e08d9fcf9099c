"""The copy of one segment to the remote tier, by the leader of its partition.

It is a segment of the local log, or one that was rewritten from remote segments, which it replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.log.log import Log
from ottla.model.errors import ErrorCode
from ottla.ports import Buffer, FileRange, ObjectStoreError
from ottla.tiered.metadata_records import SegmentMetadata, SegmentState
from ottla.tiered.remote_segments import RemoteSegments
from ottla.tiered.segment_upload import SegmentUpload, delete_objects

if TYPE_CHECKING:
    from ottla.broker.remote_tier.tiered_partition import TieredPartition

WRITE_AGAIN_MS: Final = 1000
GIVE_UP_MS: Final = 60_000
"""How long a broker that no longer leads waits for the outcome of its copy."""


class CopyTask:
    """A copy from COPY_STARTED to COPY_FINISHED, in one leader epoch."""

    def __init__(
        self,
        owner: TieredPartition,
        log: Log,
        segment: SegmentMetadata,
        objects: dict[str, Buffer | FileRange],
        ended: Callable[[bool, str | None], None],
    ) -> None:
        """Prepare a copy of these objects. It needs the turn of a task (`RemoteTier.run`).

        `ended` is called with True if the segment was copied, and with the problem, if any.
        """
        self._owner = owner
        self._leader_epoch = owner.partition.leader_epoch
        self._log = log
        self.segment = segment
        self._objects = objects
        self._ended = ended
        self._was_known = False
        """True once the segment was seen in the metadata."""
        self._is_over = False
        self._is_stored = False
        """True once all objects are stored, and COPY_FINISHED may be written."""

    def begin(self) -> None:
        """Tell that the copy begins, then store the objects."""
        self._owner.tier.metadata.write(self.segment, self._started)

    @property
    def _is_wanted(self) -> bool:
        """True while this broker leads the partition as it did at the beginning."""
        partition = self._owner.partition
        return (
            partition.leader is not None
            and partition.leader_epoch == self._leader_epoch
            and self._owner.log is self._log
        )

    def _started(self, code: ErrorCode) -> None:
        if code:
            # It may be written all the same. Then it is given up when another copy has ended.
            self._end(f"the copy of a segment cannot be written to the metadata: {code.name}")
            return
        self._upload()

    def _upload(self) -> None:
        tier = self._owner.tier
        if not self._is_wanted:
            self._give_up()
            return
        tier.charge_copy(self.segment.size)
        tier.metrics.copies += 1
        SegmentUpload(
            tier.store,
            tier.node.ports.background,
            self.segment,
            self._objects,
            self._stored,
            lambda: self._is_wanted,
            self._also_replaces(),
        )

    def _also_replaces(self) -> tuple[bytes, ...]:
        """Return segments in the same range that were replaced before, and are not deleted yet.

        The manifests that replace them may be deleted first.
        """
        segments, new = self._owner.segments, self.segment
        if segments is None or not new.replaces:
            return ()
        old = (segments.segments[segment_id] for segment_id in segments.replaced)
        return tuple(
            each.segment_id
            for each in old
            if new.start_offset <= each.start_offset and each.end_offset <= new.end_offset
        )

    def _stored(self, error: OSError | None) -> None:
        problem = f"the segment at offset {self.segment.start_offset} cannot be copied: {error}"
        if error is not None:
            self._owner.tier.metrics.copy_errors += 1
        if not self._is_wanted:
            self._give_up()
        elif isinstance(error, ObjectStoreError):
            self._owner.repeat(problem, self._upload)
        elif error is not None:  # the local disk cannot be read
            self._owner.tier.node.storage_failed(self._owner.partition, error)
            self._end(problem)
        else:
            self._is_stored = True
            self._owner.tier.metrics.copied_bytes += self.segment.size
            self._write_finished()

    def _write_finished(self) -> None:
        self._owner.write(self.segment, SegmentState.COPY_FINISHED, self._finished)

    def _finished(self, code: ErrorCode) -> None:
        if self._is_over:
            return
        if code and self._is_wanted:
            self._owner.tier.later(WRITE_AGAIN_MS, self._write_again)
        elif code:
            self._owner.tier.later(GIVE_UP_MS, self._end)
        # The copy is over when the metadata says what became of it.

    def _write_again(self) -> None:
        if self._is_over:
            return
        if self._is_wanted:
            self._write_finished()
        else:
            self._owner.tier.later(GIVE_UP_MS, self._end)

    def note(self, segments: RemoteSegments) -> None:
        """Take note that a record was read: with the next one, the segment may be gone again."""
        self._was_known = self._was_known or self.segment.segment_id in segments.segments

    def metadata_changed(self, segments: RemoteSegments) -> None:
        """Follow what the metadata says about the segment.

        If the segment is missing there, its first record may not have been read yet. The segment
        is known to be deleted only if it was there before.
        """
        known = segments.segments.get(self.segment.segment_id)
        self.note(segments)
        if self._is_over or not self._is_stored:
            return
        if known is not None and known.state == SegmentState.COPY_FINISHED:
            self._end(is_copied=True)
        elif (known is None and self._was_known) or (
            known is not None
            and (known.state != SegmentState.COPY_STARTED or not segments.can_finish(known))
        ):
            # Another leader has copied the same records and given this up, or it has rewritten
            # or deleted what this would replace. Or all of the remote part is being deleted.
            self._give_up()

    def replica_gone(self) -> None:
        """End the copy: this broker has no tiered replica any more, and follows no metadata of it.

        If the topic is there, the segment may be readable already. Whoever leads the partition or
        deletes its remote part knows of the segment.
        """
        if self._is_over or not self._is_stored:
            return
        topic_id = self._owner.remote.topic_id
        if topic_id in self._owner.tier.node.image.topics_by_id:
            self._end()
        else:
            self._give_up()

    def _give_up(self) -> None:
        """Delete the objects that were stored: no metadata will name them."""
        if not self._is_over:
            self._is_over = True
            self._delete_stored()

    def _delete_stored(self) -> None:
        def deleted(error: OSError | None) -> None:
            if error is None:
                self._ended(False, None)
            else:
                problem = f"an upload that was given up cannot be deleted: {error}"
                self._owner.repeat(problem, self._delete_stored)

        delete_objects(self._owner.tier.store, self.segment, deleted)

    def _end(self, problem: str | None = None, *, is_copied: bool = False) -> None:
        if not self._is_over:
            self._is_over = True
            self._ended(is_copied, problem)
