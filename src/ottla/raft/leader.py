"""Leader: appends to the log, and counts how far a majority of the voters has it.

The high watermark is the offset that a majority has flushed (the leader's own flush counts
as one), and it moves only when it covers the leader-change record of this epoch: records of
earlier epochs are never committed by their number of copies alone (Raft, 5.4.2).

A leader that a majority has not fetched from for 1.5 fetch timeouts resigns, so that
clients on its side of a cut network learn that nothing is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.effects import Append, AppendControl, KraftVersion, LeaderChange, Voters
from ottla.raft.replicas import Replicas
from ottla.raft.role import NEVER, Role
from ottla.raft.voter_history import DYNAMIC_VOTERS, KraftVersionAt, VotersAt

if TYPE_CHECKING:
    from ottla.raft.fetch_requests import ParkedFetch
    from ottla.raft.messages import VoteRequest
    from ottla.raft.quorum_state import QuorumState
    from ottla.raft.voter_changes import VoterChange
    from ottla.raft.voters import ReplicaKey, VoterSet

CHECK_QUORUM_FACTOR = 1.5


class Leader(Role):
    __slots__ = (
        "begin_epoch_at_ms",
        "check_quorum_deadline_ms",
        "end_offset",
        "fetched_voters",
        "high_watermark",
        "is_asked_to_resign",
        "parked_fetches",
        "replicas",
        "start_offset",
        "voter_change",
    )
    name = "leader"

    def __init__(self, quorum: QuorumState) -> None:
        super().__init__(quorum)
        assert not quorum.is_log_writing
        self.start_offset = quorum.log.end_offset
        self.end_offset = self.start_offset
        self.high_watermark: int | None = None
        """None until a majority has the first record of this epoch."""
        self.replicas = Replicas(quorum.voters.last)
        self.fetched_voters: set[int] = set()
        self.check_quorum_deadline_ms = quorum.now_ms + self._check_quorum_ms
        self.begin_epoch_at_ms = quorum.now_ms
        self.parked_fetches: dict[ReplicaKey, ParkedFetch] = {}
        self.voter_change: VoterChange | None = None
        self.is_asked_to_resign = False

    def epoch_start_offset(self) -> int:
        return self.start_offset

    def grants_vote(self, request: VoteRequest, is_log_up_to_date: bool) -> bool:
        return False

    def begin(self, granting_ids: tuple[int, ...]) -> None:
        """Append the records that start the epoch, in one batch.

        The voters follow the leader change if the log has none yet, or if this leader
        listens elsewhere than they say.
        """
        quorum = self.quorum
        history, local = quorum.voters, quorum.local
        records: list[LeaderChange | KraftVersion | Voters] = [
            LeaderChange(local.key.id, history.last.ids, granting_ids)
        ]
        if history.kraft_version >= DYNAMIC_VOTERS and (
            history.last_offset in (None, -1) or history.last.needs_update(local)
        ):
            voters = history.last.update(local)
            assert voters is not None
            records += (KraftVersion(history.kraft_version), Voters(voters))
            history.add(
                (
                    KraftVersionAt(self.end_offset + 1, history.kraft_version),
                    VotersAt(self.end_offset + 2, voters),
                )
            )
        quorum.emit_log_change(AppendControl(quorum.epoch, self.end_offset, tuple(records)))
        self._appended(len(records))

    def append(self, batch: object, count: int) -> None:
        """Append a batch of the local controller."""
        assert count > 0
        self.quorum.emit_log_change(Append(self.quorum.epoch, self.end_offset, batch))
        self._appended(count)

    def append_voters(self, voters: VoterSet) -> int:
        """Append a new voter set, which counts from now on; return its offset."""
        offset = self.end_offset
        quorum = self.quorum
        quorum.emit_log_change(AppendControl(quorum.epoch, offset, (Voters(voters),)))
        quorum.voters.add((VotersAt(offset, voters),))
        self.replicas.change_voters(voters)
        self._appended(1)
        self.update_high_watermark()
        return offset

    def append_version(self, voters: VoterSet) -> None:
        """Append kraft.version 1 with the voters, which are in the log from now on."""
        offset, quorum = self.end_offset, self.quorum
        records = KraftVersion(DYNAMIC_VOTERS), Voters(voters)
        quorum.emit_log_change(AppendControl(quorum.epoch, offset, records))
        quorum.voters.add((KraftVersionAt(offset, DYNAMIC_VOTERS), VotersAt(offset + 1, voters)))
        self.replicas.change_voters(voters)
        self._appended(len(records))
        self.update_high_watermark()

    def _appended(self, count: int) -> None:
        """Tell the waiting followers first: they write while this node flushes."""
        self.end_offset += count
        self._complete_parked_fetches()
        self.quorum.flush()

    def log_flushed(self) -> None:
        assert self.quorum.flushed_end_offset <= self.end_offset
        self.update_high_watermark()

    def update_high_watermark(self) -> None:
        """Move the high watermark to what a majority has, if that is more than before."""
        quorum = self.quorum
        if own := self.replicas.voter(quorum.local.key):
            own.end_offset = self._own_end_offset()
        offset = self.replicas.majority_end_offset()
        if offset is None or not self._covers_epoch_start(offset):
            return
        if self.high_watermark is not None and offset <= self.high_watermark:
            return
        self.high_watermark = offset
        quorum.commit(offset)
        if self.voter_change is not None:
            self.voter_change.high_watermark_moved(self)
        if not quorum.is_voter and (quorum.voters.last_offset or 0) < offset:
            self.is_asked_to_resign = True
        self._complete_parked_fetches()

    def _own_end_offset(self) -> int:
        """Return up to where the leader's own copy counts."""
        return self.quorum.flushed_end_offset

    def _covers_epoch_start(self, offset: int) -> bool:
        """Return True if the leader-change record of this epoch is below the offset."""
        return offset > self.start_offset

    def note_fetch(self, key: ReplicaKey) -> None:
        """Count a Fetch or FetchSnapshot of a voter as its sign of life."""
        if self.replicas.voter(key) is None:
            return
        self.fetched_voters.add(key.id)
        voters = self.replicas.voters
        others = len(voters) // 2 + 1 - (self.quorum.local.key.id in voters)
        if len(self.fetched_voters & voters.keys()) >= others:
            self.fetched_voters.clear()
            self.check_quorum_deadline_ms = self.quorum.now_ms + self._check_quorum_ms

    @property
    def _check_quorum_ms(self) -> float:
        return self.quorum.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR

    def _complete_parked_fetches(self) -> None:
        if self.parked_fetches:
            from ottla.raft.fetch_requests import complete_parked

            complete_parked(self)

    def poll(self) -> float:
        quorum = self.quorum
        if len(self.replicas.voters) == 1 and quorum.is_voter:
            check_quorum_ms = NEVER
        else:
            check_quorum_ms = self.check_quorum_deadline_ms
        if quorum.is_shutting_down or self.is_asked_to_resign or quorum.now_ms >= check_quorum_ms:
            self._resign()
            return NEVER
        return min(
            check_quorum_ms, self._expire_voter_change(), self._expire_parked(), self._announce()
        )

    def _resign(self) -> None:
        local_id = self.quorum.local.key.id
        successors = self.replicas.by_descending_end_offset()
        self.quorum.become_resigned(tuple(r.key for r in successors if r.key.id != local_id))

    def _expire_voter_change(self) -> float:
        change = self.voter_change
        if change is None:
            return NEVER
        if self.quorum.now_ms < change.deadline_ms:
            return change.deadline_ms
        change.expire(self)
        return NEVER

    def _expire_parked(self) -> float:
        if not self.parked_fetches:
            return NEVER
        from ottla.raft.fetch_requests import expire_parked

        return expire_parked(self)

    def _announce(self) -> float:
        """Tell the voters that do not fetch from here that this node leads."""
        quorum = self.quorum
        local_id = quorum.local.key.id
        if all(voter_id == local_id for voter_id in self.replicas.voters):
            return NEVER
        if quorum.now_ms < self.begin_epoch_at_ms:
            return self.begin_epoch_at_ms
        from ottla.raft.messages import BeginQuorumEpochRequest

        interval_ms = quorum.config.fetch_timeout_ms // 2
        for replica in self.replicas.voters.values():
            fetched_ms = replica.last_fetch_ms
            is_fetching = fetched_ms is not None and quorum.now_ms - fetched_ms < interval_ms
            if replica.key.id != local_id and not (replica.has_acknowledged and is_fetching):
                request = BeginQuorumEpochRequest(
                    local_id, quorum.epoch, quorum.local.endpoints, replica.key
                )
                quorum.send(quorum.voter_peer(replica.key.id), request)
        self.begin_epoch_at_ms = quorum.now_ms + interval_ms
        return self.begin_epoch_at_ms

    def end(self) -> None:
        if self.parked_fetches:
            from ottla.raft.fetch_requests import fail_parked

            fail_parked(self)
        if self.voter_change is not None:
            self.voter_change.abort(self)
