"""Drives the Raft state machine on this node's metadata log, as a quorum of one.

The state machine decides, this class executes its effects in order: `quorum-state` is on disk
before anything else happens, batches are queued in the log, a flush runs off the loop, and
its end is reported back, which commits the records.

Raft cannot take an append back. If the log cannot be written, what is not committed is cut off
and the state machine is thrown away; the next append starts a new one, in a new epoch, like a
node that was restarted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ottla.controller.metadata_log import MetadataLog
from ottla.metadata.control_records import (
    LeaderChangeMessage,
    LeaderChangeVoter,
    QuorumRecords,
    control_batch,
)
from ottla.metadata.serde import MetadataError
from ottla.ports import read_file, write_file_atomically
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
from ottla.raft.quorum_state_file import FILE_NAME, decode, encode
from ottla.raft.voter_history import KraftVersionAt, VotersAt
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.wire.message import Message


class MetadataQuorum:
    """The quorum of one. Set `on_committed` and `on_failed` after `start`."""

    def __init__(self, log: MetadataLog, local: ReplicaKey, records: QuorumRecords) -> None:
        """Take what the log said about voters; MetadataError if there are others than this node."""
        self._log = log
        self._files = log.log.resources.files
        self._path = log.log.path(FILE_NAME)
        self._records = records
        self._local, self._voters = _voters(local, records)
        self._election = self._read_election()
        self._quorum: Quorum | None = None
        self._effects: deque[Effect] = deque()
        self._is_persisting = False
        self._is_flush_due = False
        self.waits = False
        """True while nothing is served: the disk is waited for."""
        self.is_broken = False
        """True if a failed write could not be taken back: nothing is written any more."""
        self.high_watermark = log.end_offset
        self.on_committed: Callable[[int], None] = lambda high_watermark: None
        self.on_failed: Callable[[OSError], None] = _raise

    @property
    def epoch(self) -> int:
        """The epoch that this node leads or led last."""
        election = self._election if self._quorum is None else self._quorum.election
        return 0 if election is None else election.epoch

    def start(self) -> None:
        """Become the leader of a new epoch, and wait for the disk. OSError when it fails."""
        self.waits = True
        self._start()
        self.run()
        self.waits = False

    def append(self, batches: Sequence[tuple[bytearray, int]]) -> list[int]:
        """Take a group of batches, each with its number of records; returns their end offsets.

        Call `run` to have them appended; `on_committed` or `on_failed` follows. One group at
        a time.
        """
        if self._quorum is None:
            self._start()
        ends = []
        for batch, count in batches:
            effects = self._step(AppendRecords(self.epoch, batch, count))
            ends += [e.base_offset + count for e in effects if isinstance(e, Append)]
        assert len(ends) == len(batches)
        return ends

    # -- the state machine ---------------------------------------------------------------

    def _start(self) -> None:
        random = self._log.log.resources.random
        self._quorum = Quorum(self._local, self._log, random.below)
        version, voters = self._records
        control_records: list[ControlRecord] = []
        # Where they stand does not matter here: they are never cut off.
        if version is not None:
            control_records.append(KraftVersionAt(0, version.k_raft_version))
        if voters is not None:
            control_records.append(VotersAt(0, self._voters))
        self._step(Start(self._election, self._voters, tuple(control_records)))
        assert self._quorum.is_leader, "a quorum of one elects itself"

    def _step(self, event: Event) -> list[Effect]:
        assert self._quorum is not None
        effects = self._quorum.step(event, self._log.log.resources.clock.monotonic_ms())
        self._effects.extend(effects)
        return effects

    def run(self) -> None:
        """Execute effects in order, until there are none or one has to wait."""
        while self._effects and not self._is_persisting:
            effect = self._effects.popleft()
            if isinstance(effect, Committed):
                self._commit(effect.high_watermark)
                continue
            try:
                self._execute(effect)
            except OSError as error:
                self._fail(error)
                return
        if self._is_flush_due and not self._is_persisting:
            self._is_flush_due = False
            self._flush()

    def _execute(self, effect: Effect) -> None:
        if isinstance(effect, Append):
            assert isinstance(effect.batch, bytearray)
            self._append(effect.batch, effect.epoch, effect.base_offset)
        elif isinstance(effect, Flush):
            self._is_flush_due = True
        elif isinstance(effect, Persist):
            self._persist(effect.election)
        elif isinstance(effect, AppendControl):
            self._append_control(effect)
        else:
            assert isinstance(effect, RoleChanged), f"{effect} needs other nodes"

    def _commit(self, high_watermark: int) -> None:
        self.high_watermark = self._log.log.high_watermark = high_watermark
        self.on_committed(high_watermark)

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
        if error is None:
            self._step(LogFlushed(self._log.end_offset))
            self.run()
        else:
            self._fail(error)

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
                self.run()

        self._log.log.resources.background.submit(
            lambda: write_file_atomically(self._files, self._path, content), persisted
        )

    def _fail(self, error: OSError) -> None:
        """Go back to what is committed; the next append starts the state machine again."""
        self._effects.clear()
        self._is_flush_due = False
        self._quorum = None
        self.is_broken = not self._log.cut_back(self.high_watermark)
        self.on_failed(error)

    def _read_election(self) -> ElectionState | None:
        try:
            content = read_file(self._files, self._path)
        except FileNotFoundError:  # a new directory, or one of an older version
            return None
        try:
            return decode(content)
        except ValueError as error:
            raise MetadataError(
                f"{self._path} is damaged ({error}); restore it from a copy"
            ) from error


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


def _raise(error: OSError) -> None:
    raise error
