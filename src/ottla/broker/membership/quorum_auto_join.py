"""Lets a controller of a dynamic quorum become a voter by itself (KIP-853).

It does so with controller.quorum.auto.join.enable, and if it is one of
controller.quorum.bootstrap.servers and started on an empty directory: then it is a first start, or
its disk was lost. A voter of the same id with another directory is that lost disk, and is
removed first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.raft.voter_history import DYNAMIC_VOTERS
from ottla.raft.voters import ReplicaKey
from ottla.wire.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from ottla.wire.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.controller.quorum.member import QuorumMember

RETRY_MS: Final = 100
TIMEOUT_MS: Final = 5_000


class QuorumAutoJoin:
    """Asks the leader to be a voter, until it is one."""

    def __init__(self, node: Node, local: ReplicaKey) -> None:
        self._node = node
        self._local = local
        self._try_later()

    def _try_later(self) -> None:
        now_ms = self._node.clock.monotonic_ms()
        self._node.timers.at(now_ms + RETRY_MS, self._try)

    def _try(self) -> None:
        member = self._node.controller.member
        assert member is not None
        voters, version = member.quorum.voters, member.quorum.kraft_version
        own = voters.get(self._local.id)
        if own is not None and own.key == self._local:
            return  # it is a voter, or will be one
        if member.leader is None or version < DYNAMIC_VOTERS:
            self._try_later()
        elif own is not None:
            self._remove_lost(own.key)
        else:
            self._add()

    def _add(self) -> None:
        node = self._node
        request = AddRaftVoterRequest(
            cluster_id=node.cluster_id,
            timeout=TIMEOUT_MS,
            voter_id=self._local.id,
            voter_directory_id=self._local.directory_id or ZERO_UUID,
            listeners=[
                Listener(name=each.listener, host=each.host, port=each.port)
                for each in node.controller_endpoints
            ],
        )
        node.channel.send(request, 0, AddRaftVoterResponse, self._answered, TIMEOUT_MS)

    def _remove_lost(self, lost: ReplicaKey) -> None:
        """Take the vote of an earlier life, once it is clear that it has ended."""
        registration = self._node.controller_registration
        if registration is not None and registration.is_settled:
            self._remove(lost)
        else:
            self._try_later()

    def _remove(self, lost: ReplicaKey) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=self._node.cluster_id,
            voter_id=lost.id,
            voter_directory_id=lost.directory_id or ZERO_UUID,
        )
        self._node.channel.send(request, 0, RemoveRaftVoterResponse, self._answered, TIMEOUT_MS)

    def _answered(
        self, result: AddRaftVoterResponse | RemoveRaftVoterResponse | TimeoutError
    ) -> None:
        """Look again later: the log tells whether this node is a voter."""
        if not isinstance(result, TimeoutError) and result.error_code not in _EXPECTED:
            self._node.report(
                f"this controller cannot become a voter yet: {result.error_message or ''}"
                f" (error code {result.error_code})"
            )
        self._try_later()


def may_join(node: Node, member: QuorumMember) -> bool:
    """Return True if this controller is to become a voter by itself."""
    quorum = node.config.quorum
    if quorum.controller_quorum_voters or not node.controller_endpoints:
        return False
    return quorum.controller_quorum_auto_join_enable or (member.was_empty and is_listed(node))


def is_listed(node: Node, *, first: bool = False) -> bool:
    """Return True if this node is among the bootstrap servers, or is the first of them."""
    servers = node.config.quorum.controller_quorum_bootstrap_servers
    own = {(each.host, each.port) for each in node.controller_endpoints}
    return any((each.host, each.port) in own for each in (servers[:1] if first else servers))


_EXPECTED: Final = (
    ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,
)
