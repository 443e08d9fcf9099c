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

Transitions: replay() once, then submit() as often as needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.controller.metadata_log import MetadataLog
from ottla.log.log import Log
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.metadata.serde import decode_record, encode_record
from ottla.model.errors import ApiError, ErrorCode
from ottla.ports import Clock
from ottla.records.record import build_batch, records_of
from ottla.wire.message import Message


class _Submission(NamedTuple):
    """One decision on its way to the log; without a batch it waits for those before it."""

    batch: bytearray | None
    delta: MetadataDelta
    image: MetadataImage
    done: Callable[[ApiError | None], None]


class QuorumController:
    """Writes metadata records, and keeps the image they make."""

    def __init__(
        self,
        log: Log,
        image: MetadataImage,
        clock: Clock,
        at_wake_up_end: Callable[[Callable[[], None]], object],
    ) -> None:
        self.log = log
        self.image = image
        """The committed image."""
        self.latest_image = image
        """The image with everything that was submitted."""
        self.publish: Callable[[MetadataDelta, MetadataImage], None] = _nobody
        """Called with each delta that was committed, and the image it makes."""
        self.leader_epoch = max(log.leader_epochs.latest_epoch, 0) + 1
        self._clock = clock
        self._metadata_log = MetadataLog(log)
        self._at_wake_up_end = at_wake_up_end
        self._queued: list[_Submission] = []
        self._writing: list[_Submission] = []
        self._is_scheduled = False
        self._is_broken = False

    def replay(self) -> None:
        """Build the image from the log; only a part of the log is in memory at a time.

        MetadataError when the log does not make sense, OSError when it cannot be read.
        """
        delta = MetadataDelta(self.image)
        for record in whole_transactions(self._read()):
            delta.replay(record)
        log = self.log
        self.image = delta.apply(log.log_end_offset, max(log.leader_epochs.latest_epoch, 0))
        self.latest_image = self.image
        log.high_watermark = log.log_end_offset

    def _read(self) -> Iterator[Message]:
        for batch, data in self._metadata_log.batches(self.log.log_start_offset):
            if not batch.is_control:
                for record in records_of(data):
                    yield decode_record(record.value or b"")

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
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        if not records:
            return
        submission = self._submission(records, _nobody_waits)
        assert submission.batch is not None
        try:
            self._metadata_log.write_now(
                [submission.batch], self.leader_epoch, self._clock.wall_ms()
            )
        except OSError as error:
            raise self._cut_back(error) from error
        self.latest_image = submission.image
        self._commit(submission)

    def _submission(
        self, records: Sequence[Message], done: Callable[[ApiError | None], None]
    ) -> _Submission:
        delta = MetadataDelta(self.latest_image)
        if not records:
            return _Submission(None, delta, self.latest_image, done)
        now_ms = self._clock.wall_ms()
        batch = build_batch([(None, encode_record(record), now_ms, ()) for record in records])
        if len(batch) > self.log.config.segment_bytes:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"The request makes {len(batch)} bytes of metadata records, more than"
                f" metadata.log.segment.bytes ({self.log.config.segment_bytes}): split it up",
            )
        image = delta.replay_all(records).apply(
            self.latest_image.end_offset + len(records), self.leader_epoch
        )
        return _Submission(batch, delta, image, done)

    def _write_group(self) -> None:
        self._is_scheduled = False
        if self._writing or not self._queued:
            return
        self._writing, self._queued = self._queued, []
        batches = [each.batch for each in self._writing if each.batch is not None]
        if batches:
            self._metadata_log.write(
                batches, self.leader_epoch, self._clock.wall_ms(), self._written
            )
        else:
            self._written(None)

    def _written(self, error: OSError | None) -> None:
        """Take the result of a group, and write the next one."""
        group, self._writing = self._writing, []
        if error is None:
            for number, submission in enumerate(group):
                # Those that are not committed yet still count as submitted.
                self._writing = group[number + 1 :]
                self._commit(submission)
        else:
            failure = self._cut_back(error)
            failed, self._queued = group + self._queued, []
            for submission in failed:
                submission.done(failure)
        self._write_group()

    def _commit(self, submission: _Submission) -> None:
        if submission.batch is not None:
            self.image = submission.image
            self.log.high_watermark = submission.image.end_offset
            self.publish(submission.delta, submission.image)
        submission.done(None)

    def _cut_back(self, error: OSError) -> ApiError:
        """Go back to what is committed; returns what to tell those who asked for more."""
        self._is_broken = not self._metadata_log.cut_back(self.image.end_offset)
        self.latest_image = self.image
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log cannot be written: {error}"
        )

    def _refusal(self) -> ApiError | None:
        if not self._is_broken:
            return None
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            "The metadata log failed earlier and could not be repaired: restart the broker",
        )


def _nobody(delta: MetadataDelta, image: MetadataImage) -> None:
    """Do nothing: nobody follows the metadata yet."""


def _nobody_waits(error: ApiError | None) -> None:
    """Do nothing: the caller waited itself."""


def whole_transactions(records: Iterable[Message]) -> Iterator[Message]:
    """Return the records that count: those of a transaction only once it has ended (KIP-868).

    Ottla writes none; the log of a Kafka controller may hold them.
    """
    begun: list[Message] | None = None
    for record in records:
        if isinstance(record, BeginTransactionRecord):
            begun = []
        elif isinstance(record, AbortTransactionRecord):
            begun = None
        elif isinstance(record, EndTransactionRecord):
            yield from begun or ()
            begun = None
        elif begun is not None:
            begun.append(record)
        else:
            yield record
