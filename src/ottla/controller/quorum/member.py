"""A member of a quorum of several nodes, as the controller of a node uses it.

Every node follows the metadata: what the quorum has committed is read from the log and replayed,
in slices, so that a long log does not hold the loop. The leader replays what others wrote
before it, then its controller is active: it may append, and applies its own records itself.

    follower or observer     committed records are replayed
    leader, not active       the same, until all records of earlier leaders are replayed
    leader, active           `append` works; groups are told when they are committed
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.controller.metadata_log import MetadataLog
from ottla.controller.metadata_reader import MetadataTransactions
from ottla.controller.metadata_snapshots import LoadedSnapshot, MetadataSnapshots
from ottla.controller.quorum import control_records
from ottla.controller.quorum.driver import QuorumDriver, end_of_broker
from ottla.controller.quorum.peers import QuorumPeers
from ottla.controller.quorum.quorum_bootstrap import QuorumBootstrap
from ottla.metadata.control_records import QuorumRecords, decode_control
from ottla.metadata.image import MetadataImage
from ottla.metadata.serde import decode_record
from ottla.metadata.snapshot import SnapshotId
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import ITEMS_A_STEP, Steps
from ottla.raft.config import QuorumConfig
from ottla.raft.effects import KraftVersion, Peer, RoleChanged, Voters
from ottla.raft.election import ElectionState
from ottla.raft.events import ControlRecord, Start
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.quorum import Quorum
from ottla.raft.voter_history import DYNAMIC_VOTERS
from ottla.raft.voters import Endpoint, Voter, VoterSet
from ottla.records.record import iterate_records
from ottla.replication.timers import Timers
from ottla.wire.message import Message

SLICE_BYTES = 64 * 1024
"""How much of the log is replayed at a time."""


class MetadataFollower(Protocol):
    """Who follows the committed metadata: the controller of this node."""

    def follow(
        self, records: Steps[Sequence[Message]], end_offset: int, epoch: int, size: int
    ) -> None:
        """Take committed records that were not submitted here, up to an offset of the log.

        They are decoded in steps.
        """
        ...

    def restart_from(self, loaded: LoadedSnapshot, snapshot: SnapshotId) -> None:
        """Take the image of a snapshot in place of the present one."""
        ...

    @property
    def is_publishing(self) -> bool:
        """True while committed records are being published, in steps. Then `go_on` is called."""
        ...

    def leadership_changed(self) -> None:
        """Take note that this node has become active, or that somebody else leads."""
        ...


class _Group:
    """Batches of the active controller that are not committed yet."""

    __slots__ = ("base_offset", "count", "done", "to_append")

    def __init__(
        self,
        batches: Sequence[tuple[bytearray, int]],
        done: Callable[[int | OSError | ApiError], None],
    ) -> None:
        self.base_offset: int | None = None
        """Where the first one is in the log; None until it is appended."""
        self.count = sum(count for _, count in batches)
        self.to_append = len(batches)
        self.done = done


class QuorumMember:
    """This node in the quorum, as voter or observer."""

    waits = False
    is_broken = False

    def __init__(
        self,
        log: MetadataLog,
        snapshots: MetadataSnapshots,
        local: Voter,
        config: QuorumConfig,
        bootstrap: tuple[Peer, ...],
        peers: QuorumPeers,
        timers: Timers,
        follower: MetadataFollower,
        cluster_id: str,
        static_voters: VoterSet,
        quorum_bootstrap: QuorumBootstrap | None = None,
    ) -> None:
        """Make a member. With `quorum_bootstrap` it may begin a quorum, if its log is empty."""
        self.log = log
        self._local = local
        self._quorum_bootstrap = quorum_bootstrap
        self.was_empty = False
        """True if it started without any metadata."""
        self._cluster_id = cluster_id
        self._static_voters = static_voters
        self._snapshots = snapshots
        self._clock = log.log.resources.clock
        self._timers = timers
        self._follower = follower
        quorum = Quorum(local, log, log.log.resources.random.below, config, bootstrap)
        self.driver = QuorumDriver(quorum, log, peers, timers, self)
        snapshots.on_removed = self.driver.snapshot_taken
        self._transactions = MetadataTransactions()
        self.high_watermark = 0
        """Up to here the metadata is known to be committed."""
        self.replayed_offset = 0
        """Up to here the controller's image has the metadata."""
        self._is_replaying = False
        self._is_resting = False
        """True while the next slice waits for other work."""
        self._role: RoleChanged | None = None
        self._is_active = False
        self._groups: deque[_Group] = deque()

    def start(
        self,
        election: ElectionState | None,
        control: Sequence[ControlRecord],
        replayed_offset: int,
    ) -> None:
        """Join the quorum when the event loop runs, with the image as of `replayed_offset`."""
        self.replayed_offset = self.high_watermark = replayed_offset
        start = Start(election, self._static_voters, tuple(control))
        is_new = election is None or (election.epoch == 0 and election.voted is None)
        self.was_empty = is_new and not control and self.log.end_offset == 0
        begin = self._begin if self.was_empty and self._quorum_bootstrap else self.driver.start
        self._timers.at(self._clock.monotonic_ms(), lambda: begin(start))

    def _begin(self, start: Start) -> None:
        """Begin a quorum with this node as its only voter, unless there is one already."""
        assert self._quorum_bootstrap is not None

        def answered(is_nobody: bool) -> None:
            if is_nobody:
                version = control_records.to_message(KraftVersion(DYNAMIC_VOTERS))
                voters = control_records.to_message(Voters(VoterSet([self._local])))
                records = QuorumRecords().after(version).after(voters)
                try:
                    self._snapshots.write_first(records, MetadataImage(self._cluster_id))
                except OSError as error:
                    raise end_of_broker(error) from error
                found = control_records.of_snapshot(records, 0)
                self.driver.start(Start(start.election, start.static_voters, found))
            else:
                self.driver.start(start)

        self._quorum_bootstrap.ask(answered)

    # -- who leads -----------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.driver.epoch

    @property
    def quorum(self) -> Quorum:
        """The state machine."""
        return self.driver.quorum

    @property
    def is_active(self) -> bool:
        """True if this node's controller may write."""
        return self._is_active

    @property
    def leader(self) -> tuple[int, tuple[Endpoint, ...]] | None:
        """The leader's id and where it listens; None if there is none, or it is not known."""
        role = self._role
        if role is None or role.leader_id is None or role.role == "resigned":
            return None
        return role.leader_id, self.driver.quorum.leader_endpoints

    def role_changed(self, change: RoleChanged) -> None:
        """Note the role. A leader becomes active once it has replayed everything before it."""
        self._role = change
        was_active, self._is_active = self._is_active, False
        if was_active or self._groups:
            self._refuse_groups()
        self._become_active()
        self._follower.leadership_changed()

    def _become_active(self) -> None:
        role = self._role
        if role is None or role.role != "leader" or self._is_active:
            return
        assert role.epoch_start_offset is not None
        if self.replayed_offset > role.epoch_start_offset and not self._follower.is_publishing:
            self._is_active = True
            self._follower.leadership_changed()

    # -- writing -------------------------------------------------------------------------

    def append(
        self,
        batches: Sequence[tuple[bytearray, int]],
        done: Callable[[int | OSError | ApiError], None],
    ) -> None:
        """Append batches, each with its number of records.

        `done` gets the offset of the first one once all are committed, or NOT_CONTROLLER. Then
        it is not known whether the records will be committed.
        """
        self._groups.append(_Group(batches, done))
        self.driver.append(self.epoch, batches, lambda error: self._refuse_groups())

    def appended(self, base_offset: int) -> None:
        """Note where a batch is in the log: the next one of the oldest group that lacks some."""
        group = next(group for group in self._groups if group.to_append)
        group.to_append -= 1
        if group.base_offset is None:
            group.base_offset = base_offset

    def _refuse_groups(self) -> None:
        groups, self._groups = self._groups, deque()
        error = ApiError(ErrorCode.NOT_CONTROLLER, "another controller has taken over")
        for group in groups:
            group.done(error)

    # -- following -----------------------------------------------------------------------

    def committed(self, high_watermark: int) -> None:
        """Replay what is committed now."""
        self.high_watermark = high_watermark
        self._replay()

    def _replay(self) -> None:
        """Replay a slice; the rest follows between wake-ups, when what was read is published."""
        if self._is_replaying or self._is_resting:
            return
        self._is_replaying = True
        try:
            self._replay_all()
        finally:
            self._is_replaying = False
        self._become_active()

    def go_on(self) -> None:
        """Continue: what was replayed is published."""
        self._replay()

    def _replay_all(self) -> None:
        while self.replayed_offset < self.high_watermark and not self._follower.is_publishing:
            group = self._groups[0] if self._groups else None
            base_offset = None if group is None else group.base_offset
            if group is None or base_offset is None or self.replayed_offset < base_offset:
                limit = self.high_watermark if base_offset is None else base_offset
                if not self._replay_slice(min(limit, self.high_watermark)):
                    self._is_resting = True
                    self._timers.at(self._clock.monotonic_ms(), self._continue_replay)
                    return
            elif base_offset + group.count <= self.high_watermark:
                self._groups.popleft()
                self.replayed_offset = base_offset + group.count
                group.done(base_offset)
            else:
                return

    def _continue_replay(self) -> None:
        self._is_resting = False
        self._replay()

    def _replay_slice(self, limit: int) -> bool:
        """Replay about SLICE_BYTES, up to an offset; return True if that was all."""
        size = 0
        batches: list[tuple[bool, bytes]] = []
        epoch = 0
        offset = self.replayed_offset
        for batch, data in self.log.batches(offset):
            if batch.base_offset >= limit or size >= SLICE_BYTES:
                break
            size += batch.size
            epoch, offset = batch.partition_leader_epoch, batch.next_offset
            batches.append((batch.is_control, data))
        self.replayed_offset = offset
        self._follower.follow(self._read(batches), offset, epoch, size)
        return offset >= limit

    def _read(self, batches: Sequence[tuple[bool, bytes]]) -> Steps[Sequence[Message]]:
        """Return the records of batches. One decision may have written very many."""
        records: list[Message] = []
        transactions = self._transactions
        for is_control, data in batches:
            for number, record in enumerate(iterate_records(data), 1):
                if is_control:
                    message = decode_control(record)
                    self._snapshots.quorum_records = self._snapshots.quorum_records.after(message)
                else:
                    records += transactions.take(decode_record(record.value or b""))
                if not number % ITEMS_A_STEP:
                    yield
        return records

    def snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> tuple[ControlRecord, ...]:
        """Start over from a snapshot of the leader."""
        snapshot = SnapshotId(*snapshot_id)
        loaded = self._snapshots.load_installed(snapshot, MetadataImage(self._cluster_id))
        self._snapshots.quorum_records = loaded.quorum_records
        self._transactions = MetadataTransactions()
        self.replayed_offset = self.high_watermark = snapshot.offset
        self._follower.restart_from(loaded, snapshot)
        return control_records.of_snapshot(loaded.quorum_records, snapshot.offset)
