"""The controller: decisions become metadata records, which count once they are committed.

`submit` takes the records of one decision. All decisions of a wake-up are written as one
group, a batch each, so that a crash keeps all of a decision or nothing. A group is forced to
disk off the loop; meanwhile the next one collects. Then, in order of submission, each decision
becomes part of `image`, is published, and its `done` is called.

Decisions are made on `latest_image`, which has everything that was submitted, so that two
requests for the same name do not both succeed. Answers and hosted logs follow `image`.

A decision may be about thousands of partitions, so everything happens in steps: deciding, encoding
the records, and publishing them. Decisions are made one after the other, in the order in which
they were asked for: nobody else changes `latest_image` between two steps of a decision.

If a group cannot be stored, it and everything submitted after it fail with
KAFKA_STORAGE_ERROR. The log is cut back and `latest_image` falls back to `image`. If the cut
fails too, nothing is written any more: the log on disk and the image may then differ.

A quorum of one leads from its start on (`start`). In a quorum of several (`join`), the
controller of every node follows the committed metadata, and only the active one, that of the
leader, takes submissions. If another one takes over, what was not committed fails with
NOT_CONTROLLER: it may be committed yet, by the new leader.

Transitions: start() or join() once, then decide() or submit() as often as needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ottla.controller.election_file import read_election
from ottla.controller.metadata_log import MetadataLog
from ottla.controller.metadata_quorum import MetadataQuorum
from ottla.controller.metadata_reader import MetadataReader, whole_transactions
from ottla.controller.metadata_snapshots import (
    LoadedSnapshot,
    MetadataSnapshots,
    SnapshotConfig,
)
from ottla.log.log import Log
from ottla.metadata.control_records import QuorumRecords
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.record_versions import at_level, encode_at, level_of
from ottla.metadata.serde import MetadataError
from ottla.metadata.snapshot import SnapshotId
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, in_steps, run_to_end
from ottla.model.value import Value
from ottla.raft.voters import ReplicaKey
from ottla.records.record import build_values_batch
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.controller.quorum.member import QuorumMember
    from ottla.raft.description import QuorumDescription

DEFAULT_SNAPSHOT_CONFIG = SnapshotConfig()


class _Submission(Value):
    """One decision on its way to the log; without records it waits for those before it."""

    batch: bytearray | None
    record_count: int
    delta: MetadataDelta
    image: MetadataImage
    done: Callable[[ApiError | None], None]


Decide: TypeAlias = Callable[[MetadataImage], Steps[Sequence[Message]]]
"""Takes the latest image and returns the records to write, in steps."""

_Proposal: TypeAlias = tuple[Decide, Callable[[ApiError | None], None]]


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
        self.prepare: Callable[[MetadataDelta, MetadataImage], Steps[None]] = _nothing
        """Runs with each delta that was committed before it is published: what takes long."""
        self.publish: Callable[[MetadataDelta, MetadataImage], None] = _nobody
        """Called with each delta that was committed, and the image it makes."""
        self.run: Callable[[Steps[None]], object] = run_to_end
        """Runs steps: now, or some of them later."""
        self._clock = log.resources.clock
        self._local = local
        self._metadata_log = MetadataLog(log)
        self._snapshots = MetadataSnapshots(self._metadata_log, snapshot_config)
        self._at_wake_up_end = at_wake_up_end
        self.member: QuorumMember | None = None
        """This node's part in a quorum of several; None for a quorum of one."""
        self.on_leadership: list[Callable[[], None]] = []
        """Called when this controller becomes active, or when another node leads."""
        self._queued: list[_Submission] = []
        self._writing: deque[_Submission] = deque()
        """The group on its way to the disk."""
        self._is_scheduled = False
        self._proposals: deque[_Proposal] = deque()
        """Decisions to make; the first one may be under way."""
        self._failures = 0
        self.is_publishing = False
        """True while committed records are being published, in steps."""

    # -- start ---------------------------------------------------------------------------

    def start(self) -> None:
        """Build the image from the newest snapshot and the log after it, then lead the quorum.

        Raise MetadataError when they do not make sense, OSError when the disk fails.
        """
        log = self._metadata_log
        loaded = self._snapshots.load(self.image)
        if log.end_offset < loaded.offset:
            self.log.truncate_fully(loaded.offset)  # the snapshot has all of it and more
        reader = MetadataReader(log, loaded.offset, loaded.quorum_records)
        delta = loaded.delta
        for record in whole_transactions(reader.records()):
            delta.replay(record)
        self._snapshots.replayed(reader.size)
        self._snapshots.quorum_records = reader.quorum_records
        self._quorum: MetadataQuorum | QuorumMember = MetadataQuorum(
            log, self._local, reader.quorum_records
        )
        self.image = self.latest_image = delta.apply(log.end_offset, log.end_epoch)

    @property
    def leader_epoch(self) -> int:
        return self._quorum.epoch

    def join(self, make_member: Callable[[MetadataLog, MetadataSnapshots], QuorumMember]) -> None:
        """Build the image from the newest snapshot, then take part in a quorum of several.

        The records after the snapshot are replayed when they are known to be committed.
        """
        from ottla.controller.quorum.control_records import at_offset, of_snapshot

        log = self._metadata_log
        loaded = self._snapshots.load(self.image)
        if log.end_offset < loaded.offset:
            self.log.truncate_fully(loaded.offset)
        self._snapshots.quorum_records = loaded.quorum_records
        self.image = self.latest_image = loaded.delta.apply(
            loaded.offset, log.snapshots[-1].epoch if log.snapshots else 0
        )
        control = list(of_snapshot(loaded.quorum_records, loaded.offset))
        for offset, message in MetadataReader(log, loaded.offset, QuorumRecords()).control():
            kept = at_offset(message, offset)
            if kept is not None:
                control.append(kept)
        member = make_member(log, self._snapshots)
        self._quorum = self.member = member
        member.start(read_election(log.log), control, loaded.offset)

    # -- following a quorum of several ---------------------------------------------------

    @property
    def is_active(self) -> bool:
        """True if this controller decides; that of a quorum of one always does."""
        return self.member is None or self.member.is_active

    def follow(
        self, records: Steps[Sequence[Message]], end_offset: int, epoch: int, size: int
    ) -> None:
        """Take committed records that were not submitted here. They are decoded in steps."""
        delta = MetadataDelta(self.image)
        self.is_publishing = True
        self.run(self._follow(delta, records, end_offset, epoch, size))

    def _follow(
        self,
        delta: MetadataDelta,
        records: Steps[Sequence[Message]],
        end_offset: int,
        epoch: int,
        size: int,
    ) -> Steps[None]:
        yield from delta.replay_in_steps((yield from records))
        image = yield from delta.apply_in_steps()
        yield from self._take_over(delta, image._replace(end_offset=end_offset, epoch=epoch))
        self._snapshots.committed(size, self.image)
        self._published()

    def _take_over(self, delta: MetadataDelta, image: MetadataImage) -> Steps[None]:
        yield from self.prepare(delta, image)
        self.image = image
        if not self.has_uncommitted:
            # Else these are control records of the quorum, such as new voters, between decisions.
            self.latest_image = image
        self.publish(delta, image)

    def _published(self) -> None:
        """Let the quorum go on: it waits while something is being published."""
        self.is_publishing = False
        if self.member is not None:
            self.member.go_on()

    def restart_from(self, loaded: LoadedSnapshot, snapshot: SnapshotId) -> None:
        """Take the image of a snapshot that came from the leader."""
        from ottla.metadata.image_difference import difference

        new = loaded.delta.apply(snapshot.offset, snapshot.epoch)
        self.is_publishing = True
        self.run(self._restart(difference(self.image, new), new))

    def _restart(self, delta: MetadataDelta, image: MetadataImage) -> Steps[None]:
        yield from self._take_over(delta, image)
        self._published()

    def leadership_changed(self) -> None:
        """Report that another node leads, or that this one does."""
        for tell in self.on_leadership:
            tell()

    # -- the quorum ----------------------------------------------------------------------

    def describe_quorum(self, now_ms: float) -> QuorumDescription | None:
        """Return the voters and observers, None if another controller leads the quorum."""
        return self._quorum.quorum.describe(now_ms)

    @property
    def voter_ids(self) -> frozenset[int]:
        """The other voters of the quorum and this one; none if this is a cluster of its own."""
        return frozenset() if self.member is None else frozenset(self.member.quorum.voters.ids)

    # -- writing -------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """The offset that the next submitted record will have."""
        queued = sum(each.record_count for each in self._queued)
        if self._writing and self.log.log_end_offset == self.image.end_offset:
            queued += sum(each.record_count for each in self._writing)  # not in the log yet
        return self.log.log_end_offset + queued

    @property
    def has_uncommitted(self) -> bool:
        """True if `latest_image` may have changes that fail yet."""
        return bool(self._writing or self._queued)

    def submit(self, records: Sequence[Message], done: Callable[[ApiError | None], None]) -> None:
        """Submit records; `done` gets None when they are committed, or KAFKA_STORAGE_ERROR.

        Without records, wait for everything submitted before. `done` may be called at once.
        """
        self.decide(lambda image: _as_steps(records), done)

    def decide(self, decide: Decide, done: Callable[[ApiError | None], None]) -> None:
        """Make a decision on the latest image, when it is its turn, and have it committed.

        `decide` returns the records. `done` is called as with `submit`.
        """
        self._proposals.append((decide, done))
        if len(self._proposals) == 1:
            self.run(self._make_decisions())

    def _make_decisions(self) -> Steps[None]:
        while self._proposals:
            decide, done = self._proposals[0]
            failures = self._failures
            records = yield from decide(self.latest_image)
            is_lost = failures != self._failures
            submission = None if is_lost else (yield from self._prepared(records, done))
            self._proposals.popleft()
            if is_lost or (submission is not None and failures != self._failures):
                done(_storage_error("a write that this relies on has failed"))
            elif submission is not None:
                self._enqueue(submission)

    def _prepared(
        self, records: Sequence[Message], done: Callable[[ApiError | None], None]
    ) -> Steps[_Submission | None]:
        """Return the records as they are submitted; None if `done` was called already."""
        refusal = self._refusal() if records else None
        if refusal is not None or not (records or self.has_uncommitted):
            done(refusal)
            return None
        try:
            return (yield from self._submission(records, done))
        except ApiError as error:
            done(error)
            return None

    def _enqueue(self, submission: _Submission) -> None:
        self._queued.append(submission)
        self.latest_image = submission.image
        if not self._writing and not self._is_scheduled:
            self._is_scheduled = True
            self._at_wake_up_end(self._write_group)

    def write(self, records: Sequence[Message]) -> None:
        """Commit records and wait for the disk; only while nothing is served.

        Raise KAFKA_STORAGE_ERROR when they cannot be stored: then nothing has changed.
        """
        assert not self.has_uncommitted, "submit instead"
        assert not self._proposals, "submit instead"
        outcome: list[ApiError | None] = []
        run, self.run = self.run, run_to_end
        self._quorum.waits = True
        try:
            self.submit(records, outcome.append)
            self._write_group()
        finally:
            self._quorum.waits = False
            self.run = run
        (error,) = outcome
        if error is not None:
            raise error

    def _submission(
        self, records: Sequence[Message], done: Callable[[ApiError | None], None]
    ) -> Steps[_Submission]:
        delta = MetadataDelta(self.latest_image)
        if not records:
            return _Submission(None, 0, delta, self.latest_image, done)
        now_ms = self._clock.wall_ms()
        level = level_of(self.latest_image, records)
        records = at_level(records, level)
        values = yield from in_steps(encode_at(level), records)
        batch = yield from build_values_batch(values, now_ms)
        if len(batch) > self.log.config.segment_bytes:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"The request makes {len(batch)} bytes of metadata records, more than"
                f" metadata.log.segment.bytes ({self.log.config.segment_bytes}): split it up",
            )
        try:
            yield from delta.replay_in_steps(records)
            image = yield from delta.apply_in_steps()
        except MetadataError as error:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"The request contradicts the metadata: {error}"
            ) from error
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

    def _written(self, result: int | OSError | ApiError) -> None:
        """Take a group that was committed from an offset on, or failed; write the next one."""
        if isinstance(result, OSError):
            self._fail(_storage_error(str(result)))
            self._write_group()
        elif isinstance(result, ApiError):
            self._fail(result)
            self._write_group()
        else:
            self.is_publishing = True
            self.run(self._commit(result))

    def _commit(self, offset: int) -> Steps[None]:
        """Publish the decisions of a group, then write the next group."""
        while self._writing:
            submission = self._writing[0]
            if submission.batch is not None:
                offset += submission.record_count
                image = submission.image._replace(end_offset=offset, epoch=self.leader_epoch)
                yield from self.prepare(submission.delta, image)
                self.image = image
                if len(self._writing) == 1 and not self._queued:
                    self.latest_image = self.image
                self.publish(submission.delta, self.image)
                self._snapshots.committed(len(submission.batch), self.image)
            self._writing.popleft()
            submission.done(None)
            if self._writing:
                yield  # no other group is written meanwhile
        self._published()
        self._write_group()

    def _fail(self, failure: ApiError) -> None:
        """Answer everything that was submitted; the quorum has cut the log back."""
        self._failures += 1
        failed = [*self._writing, *self._queued]
        self._writing.clear()
        self._queued.clear()
        self.latest_image = self.image
        for submission in failed:
            submission.done(failure)

    def _refusal(self) -> ApiError | None:
        if not self.is_active:
            return ApiError(ErrorCode.NOT_CONTROLLER, "this is not the active controller")
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


def _storage_error(reason: str) -> ApiError:
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log cannot be written: {reason}")


def _as_steps(records: Sequence[Message]) -> Steps[Sequence[Message]]:
    yield
    return records


def _nothing(delta: MetadataDelta, image: MetadataImage) -> Steps[None]:
    """Prepare nothing: nobody follows the metadata yet."""
    yield


def _nobody(delta: MetadataDelta, image: MetadataImage) -> None:
    """Do nothing: nobody follows the metadata yet."""
