"""A member of the metadata quorum: events in, ordered effects out.

`Quorum` does no I/O and reads no clock. It is given an event and the time, and returns what
to do; the README of this package says how a driver does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.model.errors import ApiError, ErrorCode
from ottla.raft.config import QuorumConfig
from ottla.raft.effects import Effect, Peer, RoleName, SetDeadline, ShutdownFinished
from ottla.raft.election import ElectionState
from ottla.raft.events import (
    AppendRecords,
    Event,
    LogFlushed,
    Request,
    RequestFailed,
    Resign,
    Response,
    ShutDown,
    SnapshotInstalled,
    SnapshotTaken,
    Start,
)
from ottla.raft.leader import Leader
from ottla.raft.log_view import LogView
from ottla.raft.quorum_state import QuorumState
from ottla.raft.role import NEVER
from ottla.raft.voter_history import VoterHistory
from ottla.raft.voters import Endpoint, Voter, VoterSet

if TYPE_CHECKING:
    from ottla.raft.description import QuorumDescription

DEFAULT_CONFIG = QuorumConfig()


class Quorum:
    """One node's part in the quorum, as voter or observer."""

    def __init__(
        self,
        local: Voter,
        log: LogView,
        below: Callable[[int], int],
        config: QuorumConfig = DEFAULT_CONFIG,
        bootstrap: tuple[Peer, ...] = (),
    ) -> None:
        """Take the node's own key and endpoints, its log, and a source of randomness.

        `below(n)` returns a number in [0, n). `bootstrap` are servers to ask for the leader,
        with negative ids; the voters are asked too.
        """
        self._state = QuorumState(local, log, config, below, bootstrap)
        self._deadline_ms = NEVER
        self._is_finished = False

    @property
    def role(self) -> RoleName:
        return self._state.role.name

    @property
    def election(self) -> ElectionState:
        """The epoch, its leader if known, and the vote given in it."""
        return self._state.election

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the leader of the epoch listens; empty if that is not known."""
        return self._state.leader_endpoints

    @property
    def is_leader(self) -> bool:
        return isinstance(self._state.role, Leader)

    @property
    def is_voter(self) -> bool:
        return self._state.is_voter

    @property
    def high_watermark(self) -> int | None:
        """The end of what this node knows to be committed, None before it knows."""
        return self._state.high_watermark

    @property
    def voters(self) -> VoterSet:
        """The latest voter set of the log, committed or not."""
        return self._state.voters.last

    @property
    def kraft_version(self) -> int:
        """0 with static voters, 1 with voters that are in the log."""
        return self._state.voters.kraft_version

    def describe(self, now_ms: float) -> QuorumDescription | None:
        """Return the quorum as DescribeQuorum shows it, None if this node is not the leader."""
        from ottla.raft.description import describe

        role = self._state.role
        return describe(role, now_ms) if isinstance(role, Leader) else None

    def step(self, event: Event, now_ms: float) -> list[Effect]:
        """Take an event; return what to do, in order.

        An AppendRecords by anybody but the leader of its epoch raises
        ApiError(NOT_LEADER_OR_FOLLOWER) and changes nothing.
        """
        state = self._state
        state.now_ms = now_ms
        self._handle(event)
        deadline_ms = NEVER if self._finish_shutdown() else self._poll()
        effects = state.take_effects()
        assert deadline_ms > now_ms, f"{self.role} left undone what is due"
        if deadline_ms != self._deadline_ms:
            self._deadline_ms = deadline_ms
            effects.append(SetDeadline(None if deadline_ms == NEVER else deadline_ms))
        return effects

    def _handle(self, event: Event) -> None:
        state = self._state
        if isinstance(event, AppendRecords):
            self._append(event)
        elif isinstance(event, LogFlushed):
            self._log_flushed(event)
        elif isinstance(event, Start):
            self._start(event)
        elif isinstance(event, Request):
            from ottla.raft import requests

            requests.handle(state, event)
        elif isinstance(event, Response | RequestFailed):
            from ottla.raft import responses

            responses.handle(state, event)
        elif isinstance(event, SnapshotInstalled):
            self._snapshot_installed(event)
        elif isinstance(event, SnapshotTaken):
            state.voters.trim(state.log.start_offset)
        elif isinstance(event, Resign):
            if isinstance(state.role, Leader) and event.epoch == state.epoch:
                state.role.is_asked_to_resign = True
        elif isinstance(event, ShutDown):
            state.is_shutting_down = True

    def _poll(self) -> float:
        """Let the role do what is due, and the next one if that changes the role."""
        state = self._state
        while True:
            role = state.role
            deadline_ms = role.poll()
            if state.role is role:
                return deadline_ms
            if self._finish_shutdown():
                return NEVER

    def _finish_shutdown(self) -> bool:
        state = self._state
        if state.is_shutting_down and not self._is_finished:
            is_free = not state.is_voter or state.is_only_voter or state.has_remote_leader
            if is_free:
                self._is_finished = True
                state.emit(ShutdownFinished())
        return self._is_finished

    def _start(self, event: Start) -> None:
        state = self._state
        state.voters = VoterHistory(event.static_voters)
        state.voters.add(event.control_records)
        state.start(event.election)

    def _append(self, event: AppendRecords) -> None:
        role = self._state.role
        if not isinstance(role, Leader) or event.epoch != self._state.epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        role.append(event.batch, event.record_count)

    def _log_flushed(self, event: LogFlushed) -> None:
        state = self._state
        assert event.end_offset <= state.log.end_offset
        state.flushed_end_offset = event.end_offset
        state.is_log_writing = event.end_offset < state.log.end_offset
        state.voters.add(event.control_records)
        state.role.log_flushed()

    def _snapshot_installed(self, event: SnapshotInstalled) -> None:
        state = self._state
        end_offset = event.snapshot_id.offset
        assert state.log.start_offset == state.log.end_offset == end_offset
        state.flushed_end_offset = end_offset
        state.is_log_writing = False
        state.voters.replace(event.control_records)
        if state.high_watermark is None or end_offset > state.high_watermark:
            state.commit(end_offset)
        state.role.log_flushed()
