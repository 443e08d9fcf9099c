"""Follower: fetches from the leader, as voter or observer.

A fetch offset tells the leader what is durable here, so the next Fetch waits for the flush
of what the last one brought. A voter that gets no answer for the fetch timeout becomes
prospective; an observer goes unattached and looks for the leader elsewhere. Neither waits that
long if the leader's address refuses connections: then its process has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.effects import AppendFetched, InstallSnapshot, Peer, Truncate, WriteSnapshot
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.messages import (
    AnyRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    UpdateVoterRequest,
)
from ottla.raft.role import GIVE_WAY_MS, NEVER, Role
from ottla.raft.voter_history import DYNAMIC_VOTERS

if TYPE_CHECKING:
    from ottla.raft.messages import VoteRequest
    from ottla.raft.quorum_state import QuorumState

UPDATE_VOTER_FACTOR = 3
"""How many fetch timeouts pass between two looks at the own entry in the voter set."""

SUCCESSION_MS = 50
"""How long each voter waits for the one before it to replace a leader whose process has ended."""


class Follower(Role):
    __slots__ = (
        "fetch_deadline_ms",
        "has_fetched",
        "has_introduced_itself",
        "has_leader_ended",
        "leader_high_watermark",
        "snapshot_id",
        "snapshot_position",
        "update_voter_at_ms",
    )
    name = "follower"

    def __init__(self, quorum: QuorumState) -> None:
        super().__init__(quorum)
        self.fetch_deadline_ms = (
            quorum.patience_end_ms()
            if quorum.is_starting
            else quorum.now_ms + quorum.config.fetch_timeout_ms
        )
        self.has_fetched = False
        self.has_introduced_itself = False
        """True if the leader was told who this voter is, which static voters do not say."""
        self.has_leader_ended = False
        self.leader_high_watermark: int | None = None
        self.snapshot_id: OffsetAndEpoch | None = None
        """The snapshot that is being fetched."""
        self.snapshot_position = 0
        self.update_voter_at_ms = quorum.now_ms
        if quorum.voters.kraft_version < DYNAMIC_VOTERS:
            self.update_voter_at_ms += quorum.config.fetch_timeout_ms * UPDATE_VOTER_FACTOR

    def grants_vote(self, request: VoteRequest, is_log_up_to_date: bool) -> bool:
        """Grant a pre-vote if the leader has not answered yet or resigned; a vote never."""
        return request.pre_vote and is_log_up_to_date and not self.has_fetched

    def poll(self) -> float:
        quorum = self.quorum
        if quorum.is_log_writing:
            return NEVER
        if quorum.now_ms < self.fetch_deadline_ms:
            return min(self._fetch(), self.fetch_deadline_ms)
        if quorum.can_stand:
            quorum.become_prospective()
        else:
            quorum.become_unattached(quorum.epoch, quorum.election.leader_id)
        return NEVER

    def end_quorum_epoch(self, backoff_ms: float) -> None:
        """Stand for election after this time: the leader resigned, and is not defended."""
        self.has_fetched = False
        self.fetch_deadline_ms = self.quorum.now_ms + backoff_ms

    def leader_ended(self) -> None:
        """Replace a leader whose process has ended, without waiting for the fetch timeout.

        The leader is not defended any more. The voters stand one after the other, in the order
        of their ids after the leader's, so that they do not take votes from each other.
        """
        quorum = self.quorum
        if self.has_leader_ended:
            return
        self.has_fetched = False
        self.has_leader_ended = True
        if not quorum.can_stand:
            quorum.become_unattached(quorum.epoch, quorum.election.leader_id)
            return
        wait_ms = quorum.below(SUCCESSION_MS // 2) + SUCCESSION_MS * self._place_in_succession()
        self.fetch_deadline_ms = min(self.fetch_deadline_ms, quorum.now_ms + wait_ms)

    def pre_vote_granted(self, request: VoteRequest) -> None:
        """Give way to the voter that stands, if this one was about to."""
        if self.has_leader_ended:
            self.fetch_deadline_ms = self.quorum.now_ms + GIVE_WAY_MS

    def _place_in_succession(self) -> int:
        quorum = self.quorum
        leader_id = quorum.election.leader_id
        assert leader_id is not None
        ids = [each for each in quorum.voters.last.ids if each != leader_id]
        after = [each for each in ids if each > leader_id]
        ranked = after + [each for each in ids if each < leader_id]
        local_id = quorum.local.key.id
        return ranked.index(local_id) if local_id in ranked else len(ranked)

    def leader_answered(self) -> None:
        """Start the fetch timeout again."""
        self.has_fetched = True
        self.has_leader_ended = False
        self.fetch_deadline_ms = self.quorum.now_ms + self.quorum.config.fetch_timeout_ms

    def _fetch(self) -> float:
        """Send what is due to the leader, or a Fetch to another node if it does not answer."""
        quorum = self.quorum
        leader_id = quorum.election.leader_id
        assert leader_id is not None
        connections, now_ms = quorum.connections, quorum.now_ms
        if connections.has_timed_out(leader_id, now_ms):
            connections.give_up(leader_id, now_ms)
        if connections.is_paused(leader_id, now_ms):
            return min(quorum.fetch_from_any(), connections.ready_at_ms(leader_id))
        if connections.is_waiting(now_ms):
            return connections.next_ready_at_ms()
        return quorum.send(Peer(leader_id, quorum.leader_endpoints), self._request())

    def _request(self) -> AnyRequest:
        quorum = self.quorum
        if quorum.now_ms >= self.update_voter_at_ms:
            period_ms = quorum.config.fetch_timeout_ms * UPDATE_VOTER_FACTOR
            self.update_voter_at_ms = quorum.now_ms + period_ms
            if self._needs_update():
                local = quorum.local
                versions = (local.min_kraft_version, local.max_kraft_version)
                return UpdateVoterRequest(local.key, quorum.epoch, local.endpoints, *versions)
        if self.snapshot_id is None:
            return quorum.fetch_request()
        return FetchSnapshotRequest(
            quorum.local.key,
            quorum.epoch,
            self.snapshot_id,
            self.snapshot_position,
            quorum.config.fetch_snapshot_max_bytes,
        )

    def _needs_update(self) -> bool:
        """Return True if the leader should be told where this voter listens, and what it supports.

        With static voters a leader of Apache Kafka must hear that from each of them before it can
        raise kraft.version.
        """
        quorum, voters = self.quorum, self.quorum.voters
        if voters.kraft_version >= DYNAMIC_VOTERS:
            return voters.last.needs_update(quorum.local)
        return quorum.is_voter and not self.has_introduced_itself

    def voter_updated(self) -> None:
        """Take note that the leader knows this voter, or does not want to."""
        self.has_introduced_itself = True

    def fetched(self, response: FetchResponse) -> None:
        """Do what the leader answered: truncate, fetch a snapshot, or append."""
        self.leader_answered()
        if response.diverging is not None:
            self._truncate(response.diverging)
        elif response.snapshot_id is not None:
            self.snapshot_id, self.snapshot_position = response.snapshot_id, 0
        else:
            self.leader_high_watermark = response.high_watermark
            if response.records is not None:
                self.quorum.emit_log_change(AppendFetched(response.records))
                self.quorum.flush()
            else:
                self._update_high_watermark()

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        quorum = self.quorum
        ours = quorum.log.end_offset_for_epoch(diverging.epoch)
        end_offset = ours.offset
        if ours.epoch == diverging.epoch:
            end_offset = min(end_offset, diverging.offset)
        assert end_offset < quorum.log.end_offset, f"nothing to truncate at {diverging}"
        assert quorum.high_watermark is None or end_offset >= quorum.high_watermark, (
            f"truncation to {end_offset} below the high watermark {quorum.high_watermark}"
        )
        quorum.voters.truncate(end_offset)
        quorum.flushed_end_offset = min(quorum.flushed_end_offset, end_offset)
        quorum.emit_log_change(Truncate(end_offset))
        quorum.flush()

    def fetched_snapshot(self, response: FetchSnapshotResponse) -> None:
        """Write a part of the snapshot; install it after the last part."""
        self.leader_answered()
        if self.snapshot_id is None or response.snapshot_id != self.snapshot_id:
            self.snapshot_id = None
            return
        if response.position != self.snapshot_position:
            return
        self.quorum.emit(WriteSnapshot(self.snapshot_id, response.position, response.data))
        self.snapshot_position += len(response.data)
        if self.snapshot_position >= response.size:
            self.quorum.emit_log_change(InstallSnapshot(self.snapshot_id))
            self.snapshot_id = None

    def snapshot_not_found(self) -> None:
        """Start over with a Fetch: the leader has a newer snapshot."""
        self.leader_answered()
        self.snapshot_id = None

    def log_flushed(self) -> None:
        self._update_high_watermark()

    def _update_high_watermark(self) -> None:
        """Take over the leader's high watermark, as far as the log here goes."""
        if self.leader_high_watermark is None:
            return
        offset = min(self.leader_high_watermark, self.quorum.flushed_end_offset)
        if self.quorum.high_watermark is None or offset > self.quorum.high_watermark:
            self.quorum.commit(offset)
