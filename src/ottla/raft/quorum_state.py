"""The state of a quorum member, and the one place where its role changes.

Transitions (`TRANSITIONS`), and when they are made:

    unattached   -> unattached    a higher epoch without a known leader
                 -> prospective   the election timeout passed (voters)
                 -> follower      the leader of this or a higher epoch was found
    prospective  -> candidate     a majority granted its pre-vote
                 -> unattached    a higher epoch; or pre-votes lost, and no leader known; or
                                  it gives way to another prospective voter
                 -> follower      a leader was found; or pre-votes lost, and a leader known
    candidate    -> leader        a majority granted its vote
                 -> prospective   the election timeout passed
                 -> unattached    a higher epoch
                 -> follower      the leader of this or a higher epoch was found
    leader       -> resigned      shutting down, asked to, voted out, or no majority fetches
                 -> unattached    a higher epoch
                 -> follower      the leader of a higher epoch was found
    follower     -> prospective   the fetch timeout passed, or the leader's process ended (voters)
                 -> unattached    a higher epoch; or the same as above (observers)
                 -> follower      a leader of a higher epoch, or more endpoints of this one
    resigned     -> unattached    a higher epoch; or the election timeout passed: epoch + 1
                 -> follower      the leader of a higher epoch was found

Effects are collected in order. What a transition means for the disk and for the node
(`Persist`, `RoleChanged`) is emitted before the next effect and at the end of a step, so
nothing leaves the node that rests on an election state which is not durable. States that
a step only passes through are not written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.raft.candidate import Candidate
from ottla.raft.config import QuorumConfig
from ottla.raft.connections import Connections
from ottla.raft.effects import Committed, Effect, Flush, Peer, Persist, RoleChanged, RoleName, Send
from ottla.raft.election import ElectionState
from ottla.raft.leader import Leader
from ottla.raft.log_view import LogView
from ottla.raft.prospective import Prospective
from ottla.raft.role import GIVE_WAY_MS, NEVER, Role
from ottla.raft.unattached import Unattached
from ottla.raft.voter_history import VoterHistory
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from ottla.raft.messages import AnyRequest, FetchRequest

TRANSITIONS: dict[RoleName, tuple[RoleName, ...]] = {
    "unattached": ("unattached", "prospective", "follower"),
    "prospective": ("candidate", "unattached", "follower"),
    "candidate": ("leader", "prospective", "unattached", "follower"),
    "leader": ("resigned", "unattached", "follower"),
    "follower": ("prospective", "unattached", "follower"),
    "resigned": ("unattached", "follower"),
}


class QuorumState:
    """One node's view of the quorum. Roles read it, and ask it for their transitions."""

    def __init__(
        self,
        local: Voter,
        log: LogView,
        config: QuorumConfig,
        below: Callable[[int], int],
        bootstrap: tuple[Peer, ...],
    ) -> None:
        self.local = local
        self.log = log
        self.config = config
        self.connections = Connections(config)
        self.now_ms: float = 0
        self._first_elections_end_ms: float = 0
        self.voters = VoterHistory(VoterSet())
        self.election = ElectionState()
        self.leader_endpoints: tuple[Endpoint, ...] = ()
        self.high_watermark: int | None = None
        self.flushed_end_offset = log.end_offset
        self.is_log_writing = False
        """True from an effect that changes the log until `LogFlushed` reports its whole end.

        Meanwhile the node neither fetches nor asks for votes: a log end that it tells
        others is durable.
        """
        self.is_shutting_down = False
        self.role: Role = Unattached(self, NEVER)
        self.below = below
        self._bootstrap = bootstrap
        self._effects: list[Effect] = []
        self._persisted: ElectionState | None = None
        self._announced: RoleChanged | None = None
        self._settled_role: Role | None = None
        self._settled_election: ElectionState | None = None

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def is_voter(self) -> bool:
        return self.voters.last.is_voter(self.local.key)

    @property
    def can_stand(self) -> bool:
        """True for a voter, and for one whose removal is not known to be committed.

        Without the latter a quorum of two can be stuck: the leader crashes after it
        appended its own removal, and the other one lacks that record.
        """
        committed = self.high_watermark or 0
        return self.is_voter or self.voters.is_removed_after(self.local.key, committed)

    @property
    def is_only_voter(self) -> bool:
        return self.voters.last.is_only_voter(self.local.key)

    @property
    def has_remote_leader(self) -> bool:
        return self.election.leader_id not in (None, self.local.key.id)

    def emit(self, effect: Effect) -> None:
        """Add an effect, after what must be durable or known before it."""
        self._settle()
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """Return the effects of this step and begin a new list."""
        self._settle()
        effects, self._effects = self._effects, []
        return effects

    def emit_log_change(self, effect: Effect) -> None:
        """Add an effect that changes the log. `flush` must follow in the same step."""
        self.is_log_writing = True
        self.emit(effect)

    def flush(self) -> None:
        self.emit(Flush())

    def commit(self, high_watermark: int) -> None:
        """Move the high watermark up."""
        assert self.high_watermark is None or high_watermark > self.high_watermark
        self.high_watermark = high_watermark
        self.emit(Committed(high_watermark))

    def _settle(self) -> None:
        """Emit what changed in the election state and the role since the last effect."""
        if self._settled_role is self.role and self._settled_election is self.election:
            return
        self._settled_role, self._settled_election = self.role, self.election
        if self.election != self._persisted:
            self._persisted = self.election
            self._effects.append(Persist(self.election))
        role = RoleChanged(
            self.role.name, self.epoch, self.election.leader_id, self.role.epoch_start_offset()
        )
        if role != self._announced:
            self._announced = role
            self._effects.append(role)

    def send(self, peer: Peer, message: AnyRequest) -> float:
        """Send a request if this peer is ready; return when it can be sent another one."""
        if self.connections.is_ready(peer.id, self.now_ms):
            self.emit(Send(self.connections.begin(peer.id, self.now_ms), peer, message))
        return self.connections.ready_at_ms(peer.id)

    def voter_peer(self, voter_id: int) -> Peer:
        return Peer(voter_id, self.voters.last.endpoints(voter_id))

    def fetch_from_any(self) -> float:
        """Ask any node that may know the leader for records; return when to try again."""
        peers = {peer.id: peer for peer in self._bootstrap}
        for voter_id in self.voters.last.ids:
            peers[voter_id] = self.voter_peer(voter_id)
        peers.pop(self.local.key.id, None)
        if not peers:
            return NEVER
        if self.connections.is_waiting(self.now_ms):
            return self.connections.next_ready_at_ms()
        ready = [i for i in peers if self.connections.is_ready(i, self.now_ms)]
        if ready:
            return self.send(peers[ready[self.below(len(ready))]], self.fetch_request())
        return min(self.connections.ready_at_ms(i) for i in peers)

    def fetch_request(self) -> FetchRequest:
        """Return the request for the records after ours."""
        from ottla.raft.messages import FetchRequest

        assert not self.is_log_writing
        return FetchRequest(
            self.local.key,
            self.epoch,
            self.log.end_offset,
            self.log.end_epoch,
            self.high_watermark,
            self.config.fetch_max_wait_ms,
            self.config.fetch_max_bytes,
        )

    def election_deadline_ms(self) -> float:
        """Return the end of a new election timeout, with jitter."""
        timeout_ms = self.config.election_timeout_ms
        return self.now_ms + timeout_ms + self.below(timeout_ms)

    def patience_end_ms(self) -> float:
        """Return until when to wait for a leader, if nobody is known to stand for election."""
        if not self.is_starting:
            return self.election_deadline_ms()
        step_ms = self.config.first_election_ms
        return self.now_ms + step_ms * (1 + self._rank) + self.below(step_ms)

    @property
    def is_starting(self) -> bool:
        """True for a short time after the start, in which a voter does not wait for long.

        Voters that start together have no leader to wait for. One that joins a living quorum
        disturbs nobody if it stands too early: it does not get the others' pre-votes.
        """
        return self.now_ms < self._first_elections_end_ms

    @property
    def _rank(self) -> int:
        """The number of voters with lower ids. The lower it is, the sooner this node stands."""
        return sum(voter_id < self.local.key.id for voter_id in self.voters.last.ids)

    def start(self, persisted: ElectionState | None) -> None:
        """Take the role that the persisted election state asks for.

        A former leader must not lead or vote in the same epoch again: it may have lost
        records that it did not flush, and a record is named by its offset and epoch alone.
        """
        if self.config.first_election_ms:
            self._first_elections_end_ms = self.now_ms + self.config.election_timeout_ms
        self._persisted = persisted
        self.election = persisted or ElectionState()
        if self.epoch < self.log.end_epoch:
            self.election = ElectionState(self.log.end_epoch)
        local, leader_id = self.local.key, self.election.leader_id
        if leader_id is None and self.election.voted == local and self.can_stand:
            self.role = Candidate(self)
        elif self.is_only_voter:
            self.become_prospective()
        elif leader_id == local.id:
            from ottla.raft.resigned import Resigned

            self.role = Resigned(self, ())
            self.leader_endpoints = self.local.endpoints
        elif leader_id is not None and (endpoints := self.voters.last.endpoints(leader_id)):
            self.become_follower(self.epoch, leader_id, endpoints)
        elif leader_id is None and self.is_starting and self.can_stand and self._rank == 0:
            self.become_prospective()

    def become_unattached(self, epoch: int, leader_id: int | None = None) -> None:
        """Go to a higher epoch, or (from prospective, or as observer) stay in this one."""
        deadline_ms = self.role.election_deadline_ms
        if not self.can_stand:
            deadline_ms = NEVER
        elif deadline_ms == NEVER or self._is_giving_way:
            deadline_ms = self.patience_end_ms()
        voted = self.election.voted if epoch == self.epoch else None
        self._become(Unattached(self, deadline_ms), ElectionState(epoch, leader_id, voted), ())

    @property
    def _is_giving_way(self) -> bool:
        return isinstance(self.role, Unattached) and self.role.is_giving_way

    def give_way(self) -> None:
        """Let another voter stand, and stand again if it is not elected soon."""
        role = Unattached(self, self.now_ms + GIVE_WAY_MS, is_giving_way=True)
        self._become(role, self.election, ())

    def become_follower(self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...]) -> None:
        """Follow the leader of this or a higher epoch."""
        from ottla.raft.follower import Follower

        assert leader_id != self.local.key.id, f"asked to follow itself in epoch {epoch}"
        assert endpoints, f"unknown endpoints of leader {leader_id}"
        voted = self.election.voted if epoch == self.epoch else None
        self._become(Follower(self), ElectionState(epoch, leader_id, voted), endpoints)

    def become_prospective(self) -> None:
        """Ask for pre-votes in the current epoch."""
        assert not self.is_log_writing
        self._become(Prospective(self), self.election, self.leader_endpoints)

    def become_candidate(self) -> None:
        """Raise the epoch and vote for itself."""
        self._become(Candidate(self), ElectionState(self.epoch + 1, None, self.local.key), ())

    def become_leader(self, granting_ids: tuple[int, ...]) -> None:
        """Lead the epoch, and append the control records that start it."""
        assert self.can_stand
        role = Leader(self)
        election = self.election._replace(leader_id=self.local.key.id)
        self._become(role, election, self.local.endpoints)
        role.begin(granting_ids)

    def become_resigned(self, preferred_candidates: tuple[ReplicaKey, ...]) -> None:
        """Stop leading. The vote given in this epoch is kept."""
        from ottla.raft.resigned import Resigned

        role = Resigned(self, preferred_candidates)
        self._become(role, self.election, self.leader_endpoints)

    def is_led_by_another(self, epoch: int, leader_id: int | None) -> bool:
        """Return True if a message names another leader of this epoch than the one known here.

        An epoch has one leader, so one of the two is false. It does not matter which: the first
        one is kept, and if it does not answer there is another election.
        """
        known = self.election.leader_id
        return epoch == self.epoch and leader_id is not None and known not in (None, leader_id)

    def learn_leader(
        self, epoch: int, leader_id: int | None, endpoints: tuple[Endpoint, ...]
    ) -> None:
        """Take over the epoch and leader that a message tells, if they are news.

        If others say that this node leads an epoch that it does not know of, it has lost its disk:
        then that epoch has no leader.
        """
        if epoch < self.epoch:
            return
        assert not self.is_led_by_another(epoch, leader_id), f"{leader_id}: {self.election}"
        if leader_id is not None and not endpoints:
            endpoints = self.voters.last.endpoints(leader_id)
        if leader_id in (None, self.local.key.id) or not endpoints:
            if epoch > self.epoch:
                self.become_unattached(epoch)
        elif (
            epoch > self.epoch
            or self.election.leader_id is None
            or self.role.name == "unattached"
            or len(endpoints) > len(self.leader_endpoints)
        ):
            assert leader_id is not None
            self.become_follower(epoch, leader_id, endpoints)

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Give the vote of this epoch, and give the candidate time to win."""
        assert self.election.voted is None
        assert self.election.leader_id is None
        self.election = self.election._replace(voted=candidate)
        self.role.election_deadline_ms = self.election_deadline_ms()

    def _become(self, role: Role, election: ElectionState, endpoints: tuple[Endpoint, ...]) -> None:
        old, before = self.role, self.election
        assert role.name in TRANSITIONS[old.name], f"no transition {old.name} -> {role.name}"
        assert election.epoch >= before.epoch, f"epoch {before.epoch} -> {election.epoch}"
        if election.epoch == before.epoch:
            assert before.voted in (None, election.voted), f"{before} -> {election}"
            assert before.leader_id in (None, election.leader_id), f"{before} -> {election}"
        self.role, self.election, self.leader_endpoints = role, election, endpoints
        self.connections.reset()
        old.end()
