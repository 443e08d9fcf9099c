"""Drives the Raft state machine on this node's metadata log, as a quorum of one.

The state machine decides, this class executes its effects in order: `quorum-state` is on disk
before anything else happens, batches are queued in the log, a flush runs off the loop, and
its end is reported back, which commits the records.

What a new epoch takes (`quorum-state`, the leader-change record) is executed with the first group,
so that both share a flush.

Raft cannot take an append back. If the log cannot be written, what is not committed is cut off
and a new state machine takes over in a new epoch, like that of a node that was restarted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ottla.controller.election_file import read_election
from ottla.controller.metadata_log import MetadataLog
from ottla.metadata.control_records import QuorumRecords, control_batch
from ottla.metadata.serde import MetadataError
from ottla.ports import write_file_atomically
from ottla.raft.effects import (
    Append,
    AppendControl,
    Committed,
    Effect,
    Flush,
    LeaderChange,
    Persist,
    RoleChanged,
)
from ottla.raft.election import ElectionState
from ottla.raft.events import AppendRecords, ControlRecord, Event, LogFlushed, Start
from ottla.raft.quorum import Quorum
from ottla.raft.quorum_state_file import FILE_NAME, encode
from ottla.raft.voter_history import KraftVersionAt, VotersAt
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.wire.message import Message
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.leader_change_message import Voter as LeaderChangeVoter


class _Group:
    """Batches on their way to the disk."""

    __slots__ = ("base_offset", "batches", "done")

    def __init__(
        self,
        batches: Sequence[tuple[bytearray, int]],
        done: Callable[[int | OSError], None],
    ) -> None:
        self.batches = batches
        self.done = done
        self.base_offset: int | None = None
        """Where the first one is in the log; None until it is appended."""


class MetadataQuorum:
    """The quorum of one. The first group that is appended makes it lead a new epoch."""

    def __init__(self, log: MetadataLog, local: ReplicaKey, records: QuorumRecords) -> None:
        """Take what the log said about voters. Raise MetadataError if there are other nodes."""
        self._log = log
        self._files = log.log.resources.files
        self._path = log.log.path(FILE_NAME)
        self._records = records
        self._local, self._voters = _voters(local, records)
        self._election = read_election(log.log)
        self._effects: deque[Effect] = deque()
        self._is_persisting = False
        self._is_flush_due = False
        self._group: _Group | None = None
        self.waits = False
        """True while nothing is served: the disk is waited for."""
        self.is_broken = False
        """True if a failed write could not be taken back: nothing is written any more."""
        self.high_watermark = log.log.high_watermark = log.end_offset
        self._quorum = self._start()

    @property
    def epoch(self) -> int:
        """The epoch that this node leads."""
        return self._quorum.election.epoch

    @property
    def quorum(self) -> Quorum:
        """The state machine."""
        return self._quorum

    def append(
        self,
        batches: Sequence[tuple[bytearray, int]],
        done: Callable[[int | OSError], None],
    ) -> None:
        """Append batches, each with its number of records. One group at a time.

        `done` gets the offset of the first batch once all are committed, or the error; then
        nothing of the group is left.
        """
        assert self._group is None, "a group is being written"
        self._group = _Group(batches, done)
        self._run()

    # -- the state machine ---------------------------------------------------------------

    def _start(self) -> Quorum:
        """Return a state machine that leads a new epoch; what that takes is in `_effects`."""
        resources = self._log.log.resources
        quorum = Quorum(self._local, self._log, resources.random.below)
        version, voters = self._records
        control_records: list[ControlRecord] = []
        # Where they stand does not matter here: they are never cut off.
        if version is not None:
            control_records.append(KraftVersionAt(0, version.k_raft_version))
        if voters is not None:
            control_records.append(VotersAt(0, self._voters))
        start = Start(self._election, self._voters, tuple(control_records))
        self._effects.extend(quorum.step(start, resources.clock.monotonic_ms()))
        assert quorum.is_leader, "a quorum of one elects itself"
        return quorum

    def _step(self, event: Event) -> None:
        now_ms = self._log.log.resources.clock.monotonic_ms()
        self._effects.extend(self._quorum.step(event, now_ms))

    def _run(self) -> None:
        """Execute effects in order, then append the group, until something has to wait."""
        try:
            self._execute_all()
            if self._group is not None and not self._is_persisting:
                self._append_group(self._group)
        except OSError as error:
            self._fail(error)
            return
        if self._is_flush_due and not self._is_persisting:
            self._is_flush_due = False
            self._flush()

    def _execute_all(self) -> None:
        while self._effects and not self._is_persisting:
            self._execute(self._effects.popleft())

    def _execute(self, effect: Effect) -> None:
        if isinstance(effect, Append):
            assert isinstance(effect.batch, bytearray)
            self._append(effect.batch, effect.epoch, effect.base_offset)
        elif isinstance(effect, Flush):
            self._is_flush_due = True
        elif isinstance(effect, Committed):
            self.high_watermark = self._log.log.high_watermark = effect.high_watermark
        elif isinstance(effect, Persist):
            self._persist(effect.election)
        elif isinstance(effect, AppendControl):
            self._append_control(effect)
        else:
            assert isinstance(effect, RoleChanged), f"{effect} needs other nodes"

    def _append_group(self, group: _Group) -> None:
        if group.base_offset is not None:
            return
        group.base_offset = self._log.end_offset
        for batch, count in group.batches:
            self._step(AppendRecords(self.epoch, batch, count))
            self._execute_all()

    def _append(self, batch: bytearray, epoch: int, base_offset: int) -> None:
        offset = self._log.append(batch, epoch)
        assert offset == base_offset, f"appended at {offset}, expected {base_offset}"

    def _append_control(self, effect: AppendControl) -> None:
        messages: list[Message] = []
        for record in effect.records:
            assert isinstance(record, LeaderChange), f"{record} changes the voters"
            messages.append(
                LeaderChangeMessage(
                    leader_id=record.leader_id,
                    voters=[LeaderChangeVoter(voter_id=i) for i in record.voter_ids],
                    granting_voters=[LeaderChangeVoter(voter_id=i) for i in record.granting_ids],
                )
            )
        batch = control_batch(messages, self._log.log.resources.clock.wall_ms())
        self._append(batch, effect.epoch, effect.base_offset)

    # -- the disk ------------------------------------------------------------------------

    def _flush(self) -> None:
        if not self.waits:
            self._log.flush(self._flushed)
            return
        try:
            self._log.flush_now()
        except OSError as error:
            self._fail(error)
            return
        self._flushed(None)

    def _flushed(self, error: OSError | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._step(LogFlushed(self._log.end_offset))
        self._execute_all()
        assert self.high_watermark == self._log.end_offset, "a quorum of one commits what it has"
        self._finish_group()

    def _persist(self, election: ElectionState) -> None:
        """Write quorum-state; nothing else happens until it is on disk."""
        version = self._records.kraft_version
        content = encode(
            election, 0 if version is None else version.k_raft_version, self._voters.ids
        )
        if self.waits:
            write_file_atomically(self._files, self._path, content)
            self._election = election
            return
        self._is_persisting = True

        def persisted(error: OSError | None) -> None:
            self._is_persisting = False
            if error is not None:
                self._fail(error)
            else:
                self._election = election
                self._run()

        self._log.log.resources.background.submit(
            lambda: write_file_atomically(self._files, self._path, content), persisted
        )

    def _finish_group(self) -> None:
        group, self._group = self._group, None
        assert group is not None
        assert group.base_offset is not None
        group.done(group.base_offset)

    def _fail(self, error: OSError) -> None:
        """Go back to what is committed, and start the state machine again.

        If that cannot be done, the log directory is lost.
        """
        self._effects.clear()
        self._is_flush_due = False
        self.is_broken = not self._log.cut_back(self.high_watermark)
        if not self.is_broken:
            self._quorum = self._start()
        group, self._group = self._group, None
        assert group is not None
        group.done(error)
        if self.is_broken:
            log = self._log.log
            log.resources.on_error(log.directory, error)


def _voters(local: ReplicaKey, records: QuorumRecords) -> tuple[Voter, VoterSet]:
    """Return this node as a voter and the voter set; the log's own, where it has one."""
    if records.voters is None:
        return Voter(local), VoterSet([Voter(ReplicaKey(local.id))])
    voters = VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in records.voters.voters
    )
    own = voters.get(local.id)
    if own is None or not voters.is_only_voter(local):
        raise MetadataError(
            f"the metadata log has the voters {', '.join(map(str, voters.keys))}; this node,"
            f" {local}, runs as a quorum of one and cannot join them"
        )
    return own, voters
