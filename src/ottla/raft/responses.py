"""What the answers of peers mean.

Every answer tells the epoch and leader that its sender knows, and that counts first: a higher
epoch ends what this node was doing. Requests are given up at each transition, so an answer
is always to a request of the present role. One that does not help (an error, or from a node
that knows less) makes a pause before the next request to that peer.
"""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.raft.events import Failure, RequestFailed, Response
from ottla.raft.follower import Follower
from ottla.raft.leader import Leader
from ottla.raft.messages import (
    AddVoterResponse,
    ApiVersionsResponse,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    LeaderResponse,
    RemoveVoterResponse,
    UpdateVoterResponse,
    UpgradeVotersResponse,
    VoteResponse,
)
from ottla.raft.nominee import Nominee
from ottla.raft.prospective import Prospective
from ottla.raft.quorum_state import QuorumState
from ottla.raft.resigned import Resigned


def handle(quorum: QuorumState, event: Response | RequestFailed) -> None:
    """Take an answer, or the news that there will be none. Unknown requests are ignored."""
    peer_id = quorum.connections.finish(event.request_id)
    if peer_id is None:
        return
    if isinstance(event, RequestFailed):
        _failed(quorum, peer_id, event.failure)
        return
    response = event.message
    if isinstance(response, ApiVersionsResponse):
        if isinstance(quorum.role, Leader) and quorum.role.voter_change is not None:
            quorum.role.voter_change.versions_received(quorum.role, peer_id, response)
        return
    assert not isinstance(response, AddVoterResponse | RemoveVoterResponse | UpgradeVotersResponse)
    role = quorum.role
    if isinstance(response, VoteResponse) and response.error == ErrorCode.UNSUPPORTED_VERSION:
        if isinstance(role, Prospective):
            role.won()  # the peer knows no pre-votes: do without them
        return
    if quorum.is_led_by_another(response.epoch, response.leader_id):
        quorum.connections.pause(peer_id, quorum.now_ms)
        return
    quorum.learn_leader(response.epoch, response.leader_id, response.endpoints)
    if response.epoch == quorum.epoch and _handle_message(quorum, peer_id, response):
        return
    if quorum.role is role:
        quorum.connections.pause(peer_id, quorum.now_ms)


def _failed(quorum: QuorumState, peer_id: int, failure: Failure) -> None:
    """Leave the peer alone for a while. A refused connection says that its process has ended."""
    if failure is Failure.CLOSED:
        return  # the next request connects again, and finds out
    quorum.connections.pause(peer_id, quorum.now_ms)
    if failure is not Failure.REFUSED:
        return
    role = quorum.role
    if isinstance(role, Follower) and peer_id == quorum.election.leader_id:
        role.leader_ended()
    elif isinstance(role, Prospective) and quorum.has_remote_leader:
        role.record_vote(peer_id, granted=False)


def _handle_message(quorum: QuorumState, peer_id: int, response: LeaderResponse) -> bool:
    """Take an answer of this epoch; return False if the peer should be left alone a while."""
    role, error = quorum.role, response.error
    if isinstance(response, VoteResponse):
        return _vote(role, peer_id, response)
    if isinstance(response, FetchSnapshotResponse) and error == ErrorCode.SNAPSHOT_NOT_FOUND:
        if isinstance(role, Follower):
            role.snapshot_not_found()
        return True
    if isinstance(response, UpdateVoterResponse) and error == ErrorCode.UNSUPPORTED_VERSION:
        if isinstance(role, Follower):
            role.voter_updated()
        return True
    if error != ErrorCode.NONE:
        return False
    if isinstance(role, Leader) and isinstance(response, BeginQuorumEpochResponse):
        if replica := role.replicas.voters.get(peer_id):
            replica.has_acknowledged = True
    elif isinstance(role, Resigned) and isinstance(response, EndQuorumEpochResponse):
        role.acknowledge(peer_id)
    elif isinstance(role, Follower):
        if isinstance(response, FetchResponse):
            role.fetched(response)
        elif isinstance(response, FetchSnapshotResponse):
            role.fetched_snapshot(response)
        elif isinstance(response, UpdateVoterResponse):
            role.leader_answered()
            role.voter_updated()
    return True


def _vote(role: object, peer_id: int, response: VoteResponse) -> bool:
    if not isinstance(role, Nominee):
        return True
    if response.error != ErrorCode.NONE:
        return False
    role.record_vote(peer_id, response.vote_granted)
    return True
