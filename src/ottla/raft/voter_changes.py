"""Changes of the voter set: add, remove, update (KIP-853).

One change at a time, so that the majorities of two sets after each other overlap. A change
begins only when the leader has committed a record of its own epoch and the last voter set is
committed. Adding asks the new voter for its kraft.versions first and wants it caught up; its
answer waits until the new set is committed by a majority of the new set.
"""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from ottla.raft.effects import Peer, Reply
from ottla.raft.leader import Leader
from ottla.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
    UpgradeVotersRequest,
    UpgradeVotersResponse,
)
from ottla.raft.voter_history import DYNAMIC_VOTERS
from ottla.raft.voters import Voter, VoterSet


class VoterChange:
    """A change that the leader is making, and who waits for it."""

    __slots__ = ("deadline_ms", "offset", "request", "request_id")

    def __init__(
        self,
        request_id: object,
        request: AddVoterRequest | RemoveVoterRequest | UpgradeVotersRequest,
        deadline_ms: float,
    ) -> None:
        self.request_id = request_id
        self.request = request
        self.deadline_ms = deadline_ms
        self.offset: int | None = None
        """Where the new voter set is in the log, None before it is appended."""

    def versions_received(
        self, leader: Leader, peer_id: int, response: ApiVersionsResponse
    ) -> None:
        """Append the set with the new voter, if that supports it and is caught up."""
        request = self.request
        if not isinstance(request, AddVoterRequest) or self.offset is not None:
            return
        if peer_id != request.voter.id:
            return
        quorum = leader.quorum
        version = quorum.voters.kraft_version
        replica = leader.replicas.observers.get(request.voter)
        if response.error != ErrorCode.NONE:
            message = f"The new voter answered ApiVersions with {response.error.name}."
            self.finish(leader, ErrorCode.REQUEST_TIMED_OUT, message)
        elif not response.min_kraft_version <= version <= response.max_kraft_version:
            message = f"The new voter does not support kraft.version {version}."
            self.finish(leader, ErrorCode.INVALID_REQUEST, message)
        elif replica is None or not replica.is_caught_up(quorum.now_ms):
            message = f"The new voter {request.voter} has not caught up with the leader yet."
            self.finish(leader, ErrorCode.REQUEST_TIMED_OUT, message)
        else:
            versions = (response.min_kraft_version, response.max_kraft_version)
            voters = quorum.voters.last.add(Voter(request.voter, request.endpoints, *versions))
            assert voters is not None
            self.offset = leader.append_voters(voters)
            if not request.ack_when_committed:
                self.finish(leader, ErrorCode.NONE)

    def high_watermark_moved(self, leader: Leader) -> None:
        """Finish if the new set is committed now."""
        assert leader.high_watermark is not None
        if self.offset is not None and leader.high_watermark > self.offset:
            self.finish(leader, ErrorCode.NONE)

    def expire(self, leader: Leader) -> None:
        self.finish(leader, ErrorCode.REQUEST_TIMED_OUT)

    def abort(self, leader: Leader) -> None:
        self.finish(leader, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def finish(self, leader: Leader, error: ErrorCode, message: str | None = None) -> None:
        """Answer the request and end the change."""
        leader.voter_change = None
        _reply(leader, self.request_id, self.request, error, message)


def handle(
    leader: Leader,
    request_id: object,
    request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest,
) -> None:
    """Begin a change, or say why not."""
    error, message = _why_not(leader)
    if error == ErrorCode.NONE:
        if isinstance(request, AddVoterRequest):
            error, message = _add(leader, request_id, request)
        elif isinstance(request, RemoveVoterRequest):
            error, message = _remove(leader, request_id, request)
        else:
            error, message = _update(leader, request)
    if error != ErrorCode.NONE or isinstance(request, UpdateVoterRequest):
        _reply(leader, request_id, request, error, message)


def upgrade(leader: Leader, request_id: object, request: UpgradeVotersRequest) -> None:
    """Put the voters into the log, which were given by settings so far (kraft.version 1).

    Their directory ids are known from their fetches.
    """
    quorum, history = leader.quorum, leader.quorum.voters
    error, message = ErrorCode.NONE, None
    voters: list[Voter] = []
    if leader.high_watermark is None or leader.voter_change is not None:
        error, message = ErrorCode.REQUEST_TIMED_OUT, "The leader cannot change the voters yet."
    elif history.kraft_version < DYNAMIC_VOTERS:
        for voter in history.last.voters:
            key = leader.replicas.voters[voter.key.id].heard_key
            if voter.key.id == quorum.local.key.id:
                voters.append(quorum.local)
            elif key is not None and key.directory_id is not None:
                voters.append(Voter(key, voter.endpoints))
            else:
                error = ErrorCode.REQUEST_TIMED_OUT
                message = f"The leader has not heard of controller {voter.key.id} yet."
    if error != ErrorCode.NONE or not voters:
        _reply(leader, request_id, request, error, message)
        return
    deadline_ms = quorum.now_ms + quorum.config.request_timeout_ms
    leader.voter_change = change = VoterChange(request_id, request, deadline_ms)
    change.offset = leader.end_offset + 1
    leader.append_version(VoterSet(voters))


def _why_not(leader: Leader) -> tuple[ErrorCode, str | None]:
    """Return the error if no change can begin now."""
    history = leader.quorum.voters
    if leader.voter_change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "The leader is making another voter change."
    if leader.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT, "The leader has not committed in its epoch yet."
    if history.kraft_version < DYNAMIC_VOTERS:
        message = f"The voters cannot change with kraft.version {history.kraft_version}."
        return ErrorCode.UNSUPPORTED_VERSION, message
    if history.last_offset is None or history.last_offset >= leader.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT, "The last voter change is not committed yet."
    return ErrorCode.NONE, None


def _add(
    leader: Leader, request_id: object, request: AddVoterRequest
) -> tuple[ErrorCode, str | None]:
    quorum = leader.quorum
    if request.voter.id < 0 or request.voter.directory_id is None or not request.endpoints:
        message = "A new voter needs an id, a directory id and an endpoint."
        return ErrorCode.INVALID_REQUEST, message
    if quorum.voters.last.get(request.voter.id) is not None:
        return ErrorCode.DUPLICATE_VOTER, f"The id {request.voter.id} is a voter already."
    peer = Peer(request.voter.id, request.endpoints)
    if not quorum.connections.is_ready(peer.id, quorum.now_ms):
        return ErrorCode.REQUEST_TIMED_OUT, f"The new voter {request.voter} is not reachable."
    timeout_ms = min(request.timeout_ms, quorum.config.request_timeout_ms)
    leader.voter_change = VoterChange(request_id, request, quorum.now_ms + timeout_ms)
    quorum.send(peer, ApiVersionsRequest())
    return ErrorCode.NONE, None


def _remove(
    leader: Leader, request_id: object, request: RemoveVoterRequest
) -> tuple[ErrorCode, str | None]:
    quorum = leader.quorum
    if request.voter.id < 0 or request.voter.directory_id is None:
        return ErrorCode.INVALID_REQUEST, "A voter is named by its id and directory id."
    voters = quorum.voters.last.remove(request.voter)
    if voters is None:
        message = f"{request.voter} cannot be removed from {quorum.voters.last}."
        return ErrorCode.VOTER_NOT_FOUND, message
    deadline_ms = quorum.now_ms + quorum.config.request_timeout_ms
    leader.voter_change = change = VoterChange(request_id, request, deadline_ms)
    change.offset = leader.end_offset
    leader.append_voters(voters)
    return ErrorCode.NONE, None


def _update(leader: Leader, request: UpdateVoterRequest) -> tuple[ErrorCode, str | None]:
    """Replace a voter's entry. The answer does not wait for the commit."""
    quorum = leader.quorum
    version = quorum.voters.kraft_version
    if request.voter.directory_id is None or not request.endpoints:
        return ErrorCode.INVALID_REQUEST, None
    if not request.min_kraft_version <= version <= request.max_kraft_version:
        return ErrorCode.INVALID_REQUEST, None
    versions = (request.min_kraft_version, request.max_kraft_version)
    voters = quorum.voters.last.update(Voter(request.voter, request.endpoints, *versions))
    if voters is None:
        return ErrorCode.VOTER_NOT_FOUND, None
    if voters != quorum.voters.last:
        leader.append_voters(voters)
    return ErrorCode.NONE, None


def _reply(
    leader: Leader,
    request_id: object,
    request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest | UpgradeVotersRequest,
    error: ErrorCode,
    message: str | None,
) -> None:
    quorum = leader.quorum
    if isinstance(request, AddVoterRequest):
        quorum.emit(Reply(request_id, AddVoterResponse(error, message)))
    elif isinstance(request, RemoveVoterRequest):
        quorum.emit(Reply(request_id, RemoveVoterResponse(error, message)))
    elif isinstance(request, UpgradeVotersRequest):
        quorum.emit(Reply(request_id, UpgradeVotersResponse(error, message)))
    else:
        response = UpdateVoterResponse(
            error, quorum.epoch, quorum.election.leader_id, quorum.leader_endpoints
        )
        quorum.emit(Reply(request_id, response))
