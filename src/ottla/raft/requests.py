"""Answers to the requests of peers.

Requests of an older epoch are fenced; a newer epoch is taken over before anything else.
"""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.raft import fetch_requests, voter_changes
from ottla.raft.effects import Reply
from ottla.raft.events import Request
from ottla.raft.follower import Follower
from ottla.raft.leader import Leader
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
    UpgradeVotersRequest,
    UpgradeVotersResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.quorum_state import QuorumState
from ottla.raft.voters import ReplicaKey

ENOUGH_EPOCHS = 2**30
"""No quorum holds this many elections. Below it, the epoch of a request may be any number ahead."""
MOST_EPOCHS_AHEAD = 100
"""How far ahead of this node the epoch of a request may be, from ENOUGH_EPOCHS on.

Epochs are 32-bit numbers, and after the last one no leader could be elected any more. So a few
false requests must not lead there. A node that is further behind learns the epoch from the answers
to its own requests.
"""


def handle(quorum: QuorumState, event: Request) -> None:
    """Answer a request, now or (parked by the leader) later."""
    message = event.message
    if isinstance(message, FetchRequest):
        _fetch(quorum, event.request_id, message)
    elif isinstance(message, VoteRequest):
        error, is_granted = _vote(quorum, message)
        leader = leader_fields(quorum)
        quorum.emit(Reply(event.request_id, VoteResponse(error, *leader, is_granted)))
    elif isinstance(message, BeginQuorumEpochRequest):
        error = _begin_quorum_epoch(quorum, message)
        leader = leader_fields(quorum)
        quorum.emit(Reply(event.request_id, BeginQuorumEpochResponse(error, *leader)))
    elif isinstance(message, EndQuorumEpochRequest):
        error = _end_quorum_epoch(quorum, message)
        leader = leader_fields(quorum)
        quorum.emit(Reply(event.request_id, EndQuorumEpochResponse(error, *leader)))
    elif isinstance(message, FetchSnapshotRequest):
        _fetch_snapshot(quorum, event.request_id, message)
    elif isinstance(message, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest):
        _change_voters(quorum, event.request_id, message)
    elif isinstance(message, UpgradeVotersRequest):
        if isinstance(quorum.role, Leader):
            voter_changes.upgrade(quorum.role, event.request_id, message)
        else:
            refused = UpgradeVotersResponse(ErrorCode.NOT_CONTROLLER)
            quorum.emit(Reply(event.request_id, refused))
    else:
        raise AssertionError(f"the driver answers {message}")


def leader_fields(quorum: QuorumState) -> fetch_requests.LeaderFields:
    """Return what every response tells about the leader."""
    return quorum.epoch, quorum.election.leader_id, quorum.leader_endpoints


def _vote(quorum: QuorumState, request: VoteRequest) -> tuple[ErrorCode, bool]:
    """Decide about a vote or pre-vote.

    A candidate has raised its epoch above all of its log; a prospective one has not.
    """
    highest_epoch = request.epoch if request.pre_vote else request.epoch - 1
    if request.last_offset < 0 or not 0 <= request.last_epoch <= highest_epoch:
        return ErrorCode.INVALID_REQUEST, False
    if request.epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, False
    if request.candidate.id < 0 or _is_too_far_ahead(quorum, request.epoch):
        return ErrorCode.INVALID_REQUEST, False
    if request.epoch > quorum.epoch:
        quorum.become_unattached(request.epoch)
    if not _is_meant(quorum, request.voter):
        return ErrorCode.INVALID_VOTER_KEY, False
    log = quorum.log
    theirs = (request.last_epoch, request.last_offset)
    is_granted = quorum.role.grants_vote(request, theirs >= (log.end_epoch, log.end_offset))
    if is_granted and request.pre_vote:
        quorum.role.pre_vote_granted(request)
    elif is_granted and quorum.election.voted is None:
        quorum.vote_for(request.candidate)
    return ErrorCode.NONE, is_granted


def _begin_quorum_epoch(quorum: QuorumState, request: BeginQuorumEpochRequest) -> ErrorCode:
    if error := _check_leader(quorum, request.leader_id, request.epoch):
        return error
    quorum.learn_leader(request.epoch, request.leader_id, request.endpoints)
    if not _is_meant(quorum, request.voter):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE


def _end_quorum_epoch(quorum: QuorumState, request: EndQuorumEpochRequest) -> ErrorCode:
    if error := _check_leader(quorum, request.leader_id, request.epoch):
        return error
    quorum.learn_leader(request.epoch, request.leader_id, request.endpoints)
    role = quorum.role
    if isinstance(role, Follower) and quorum.election.leader_id == request.leader_id:
        role.end_quorum_epoch(_succession_backoff_ms(quorum, request.preferred_candidates))
    return ErrorCode.NONE


def _check_leader(quorum: QuorumState, leader_id: int, epoch: int) -> ErrorCode | None:
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader_id < 0 or _is_too_far_ahead(quorum, epoch):
        return ErrorCode.INVALID_REQUEST
    if quorum.is_led_by_another(epoch, leader_id):
        return ErrorCode.INVALID_REQUEST
    return None


def _is_too_far_ahead(quorum: QuorumState, epoch: int) -> bool:
    return epoch > max(ENOUGH_EPOCHS, quorum.epoch + MOST_EPOCHS_AHEAD)


def _is_meant(quorum: QuorumState, voter: ReplicaKey | None) -> bool:
    return voter is None or voter.matches(quorum.local.key)


def _succession_backoff_ms(quorum: QuorumState, candidates: tuple[ReplicaKey, ...]) -> int:
    """Return how long to wait: nothing for the first of the list, doubling after it.

    A leader that crashed and came back has no list; then the time is random.
    """
    longest_ms = quorum.config.election_backoff_max_ms
    if not candidates:
        return quorum.below(longest_ms)
    for position, candidate in enumerate(candidates):
        if candidate.matches(quorum.local.key):
            if position == 0:
                return 0
            base_ms = longest_ms >> (len(candidates) - 1)
            return min(longest_ms, base_ms << (position - 1))
    return longest_ms


def _leader(quorum: QuorumState, epoch: int) -> Leader | ErrorCode:
    """Return the leader's role if this node leads that epoch, else the error to answer."""
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > quorum.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(quorum.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if quorum.is_shutting_down:
        return ErrorCode.BROKER_NOT_AVAILABLE
    return quorum.role


def _fetch(quorum: QuorumState, request_id: object, request: FetchRequest) -> None:
    leader: Leader | ErrorCode = ErrorCode.INVALID_REQUEST
    if request.fetch_offset >= 0 and 0 <= request.last_fetched_epoch <= request.epoch:
        leader = _leader(quorum, request.epoch)
    if isinstance(leader, Leader):
        fetch_requests.handle(leader, request_id, request)
    else:
        quorum.emit(Reply(request_id, FetchResponse(leader, *leader_fields(quorum))))


def _fetch_snapshot(quorum: QuorumState, request_id: object, request: FetchSnapshotRequest) -> None:
    leader = _leader(quorum, request.epoch)
    if isinstance(leader, Leader) and request.snapshot_id == OffsetAndEpoch(0, 0):
        leader = ErrorCode.SNAPSHOT_NOT_FOUND  # each node has the bootstrap snapshot itself
    if isinstance(leader, Leader):
        fetch_requests.handle_snapshot(leader, request_id, request)
    else:
        quorum.emit(Reply(request_id, FetchSnapshotResponse(leader, *leader_fields(quorum))))


def _change_voters(
    quorum: QuorumState,
    request_id: object,
    request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest,
) -> None:
    epoch = request.epoch if isinstance(request, UpdateVoterRequest) else quorum.epoch
    leader = _leader(quorum, epoch)
    if isinstance(leader, Leader):
        voter_changes.handle(leader, request_id, request)
    elif isinstance(request, AddVoterRequest):
        quorum.emit(Reply(request_id, AddVoterResponse(leader)))
    elif isinstance(request, RemoveVoterRequest):
        quorum.emit(Reply(request_id, RemoveVoterResponse(leader)))
    else:
        response = UpdateVoterResponse(leader, *leader_fields(quorum))
        quorum.emit(Reply(request_id, response))
