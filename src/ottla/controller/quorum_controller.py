"""The controller: decisions become metadata records, which count once they are committed.

`submit` takes the records of one decision. All decisions of a wake-up are written as one
group, a batch each, so that a crash keeps all of a decision or nothing. A group is forced to
disk off the loop; meanwhile the next one collects. Then, in order of submission, each decision
becomes part of `image`, is published, and its `done` is called.

Decisions are made on `latest_image`, which has everything that was submitted, so that two
requests for the same name do not both succeed. Answers and hosted logs follow `image`.

If a group cannot be stored, it and everything submitted after it fail with
KAFKA_STORAGE_ERROR. The log is cut back and `latest_image` falls back to `image`. If the cut
fails too, nothing is written any more: the log on disk and the image may then differ.

Transitions: start() once, then submit() as often as needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.controller.metadata_log import MetadataLog
from ottla.controller.metadata_quorum import MetadataQuorum
from ottla.controller.metadata_reader import MetadataReader, whole_transactions
from ottla.controller.metadata_snapshots import MetadataSnapshots, SnapshotConfig
from ottla.log.log import Log
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.serde import encode_record
from ottla.model.errors import ApiError, ErrorCode
from ottla.raft.voters import ReplicaKey
from ottla.records.record import build_batch
from ottla.wire.message import Message

DEFAULT_SNAPSHOT_CONFIG = SnapshotConfig()


class _Submission(NamedTuple):
    """One decision on its way to the log; without records it waits for those before it."""

    batch: bytearray | None
    record_count: int
    delta: MetadataDelta
    image: MetadataImage
    done: Callable[[ApiError | None], None]


class QuorumController:
    """Writes metadata records, and keeps the image they make."""

    def __init__(
        self,
        log: Log,
        image: MetadataImage,
        local: ReplicaKey,
        at_wake_up_end: Callable[[Callable[[], None]], object],
        snapshot_config: SnapshotConfig = DEFAULT_SNAPSHOT_CONFIG,
    ) -> None:
        self.log = log
        self.image = image
        """The committed image."""
        self.latest_image = image
        """The image with everything that was submitted."""
        self.publish: Callable[[MetadataDelta, MetadataImage], None] = _nobody
        """Called with each delta that was committed, and the image it makes."""
        self._clock = log.resources.clock
        self._local = local
        self._metadata_log = MetadataLog(log)
        self._snapshots = MetadataSnapshots(self._metadata_log, snapshot_config)
        self._at_wake_up_end = at_wake_up_end
        self._queued: list[_Submission] = []
        self._writing: deque[_Submission] = deque()
        """The group on its way to the disk."""
        self._is_scheduled = False

    # -- start ---------------------------------------------------------------------------

    def start(self) -> None:
        """Build the image from the newest snapshot and the log after it, then lead the quorum.

        MetadataError when they do not make sense, OSError when the disk fails.
        """
        log = self._metadata_log
        offset, delta, quorum_records = self._snapshots.load(self.image)
        if log.end_offset < offset:
            self.log.truncate_fully(offset)  # the snapshot has all of it and more
        reader = MetadataReader(log, offset, quorum_records)
        for record in whole_transactions(reader.records()):
            delta.replay(record)
        self._snapshots.replayed(reader.size)
        self._snapshots.quorum_records = reader.quorum_records
        self._quorum = MetadataQuorum(log, self._local, reader.quorum_records)
        self.image = self.latest_image = delta.apply(log.end_offset, log.end_epoch)

    @property
    def leader_epoch(self) -> int:
        return self._quorum.epoch

    # -- writing -------------------------------------------------------------------------

    @property
    def has_uncommitted(self) -> bool:
        """True if `latest_image` may have changes that fail yet."""
        return bool(self._writing or self._queued)

    def submit(self, records: Sequence[Message], done: Callable[[ApiError | None], None]) -> None:
        """Have records committed; `done` hears None then, or KAFKA_STORAGE_ERROR.

        Without records, wait for everything submitted before. `done` may be called at once.
        """
        refusal = self._refusal() if records else None
        if refusal is not None or not (records or self.has_uncommitted):
            done(refusal)
            return
        try:
            submission = self._submission(records, done)
        except ApiError as error:
            done(error)
            return
        self._queued.append(submission)
        self.latest_image = submission.image
        if not self._writing and not self._is_scheduled:
            self._is_scheduled = True
            self._at_wake_up_end(self._write_group)

    def write(self, records: Sequence[Message]) -> None:
        """Commit records and wait for the disk; only while nothing is served.

        KAFKA_STORAGE_ERROR when they cannot be stored: then nothing has changed.
        """
        assert not self.has_uncommitted, "submit instead"
        outcome: list[ApiError | None] = []
        self._quorum.waits = True
        try:
            self.submit(records, outcome.append)
            self._write_group()
        finally:
            self._quorum.waits = False
        (error,) = outcome
        if error is not None:
            raise error

    def _submission(
        self, records: Sequence[Message], done: Callable[[ApiError | None], None]
    ) -> _Submission:
        delta = MetadataDelta(self.latest_image)
        if not records:
            return _Submission(None, 0, delta, self.latest_image, done)
        now_ms = self._clock.wall_ms()
        batch = build_batch([(None, encode_record(record), now_ms, ()) for record in records])
        if len(batch) > self.log.config.segment_bytes:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"The request makes {len(batch)} bytes of metadata records, more than"
                f" metadata.log.segment.bytes ({self.log.config.segment_bytes}): split it up",
            )
        image = delta.replay_all(records).apply()
        return _Submission(batch, len(records), delta, image, done)

    def _write_group(self) -> None:
        self._is_scheduled = False
        if self._writing or not self._queued:
            return
        self._writing.extend(self._queued)
        self._queued.clear()
        batches = [(s.batch, s.record_count) for s in self._writing if s.batch is not None]
        if batches:
            self._quorum.append(batches, self._written)
        else:
            self._written(self._quorum.high_watermark)

    def _written(self, result: int | OSError) -> None:
        """Take a group that was committed from an offset on, or failed; write the next one."""
        if isinstance(result, OSError):
            self._fail(result)
        else:
            self._commit(result)
        self._write_group()

    def _commit(self, offset: int) -> None:
        while self._writing:
            submission = self._writing[0]
            if submission.batch is not None:
                offset += submission.record_count
                self.image = submission.image._replace(end_offset=offset, epoch=self.leader_epoch)
                if len(self._writing) == 1 and not self._queued:
                    self.latest_image = self.image
                self.publish(submission.delta, self.image)
                self._snapshots.committed(len(submission.batch), self.image)
            self._writing.popleft()
            submission.done(None)

    def _fail(self, error: OSError) -> None:
        """Answer everything that was submitted; the quorum has cut the log back."""
        failed = [*self._writing, *self._queued]
        self._writing.clear()
        self._queued.clear()
        self.latest_image = self.image
        failure = ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log cannot be written: {error}"
        )
        for submission in failed:
            submission.done(failure)

    def _refusal(self) -> ApiError | None:
        if not self._quorum.is_broken:
            return None
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            "The metadata log failed earlier and could not be repaired: restart the broker",
        )

    # -- snapshots -----------------------------------------------------------------------

    def maintain_snapshots(self) -> None:
        """Write a snapshot if one is due by time, and remove old ones; called now and then."""
        self._snapshots.write_if_due(self.image)
        self._snapshots.remove_old()


def _nobody(delta: MetadataDelta, image: MetadataImage) -> None:
    """Do nothing: nobody follows the metadata yet."""
