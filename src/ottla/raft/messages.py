"""Requests and responses between quorum members, in the domain's words.

The driver translates them to Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch,
FetchSnapshot, AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter and ApiVersions; it also checks
the cluster id, topic and partition of requests. None stands for what Kafka writes as -1
(leader, high watermark) or as the zero id (directories).

A response's `epoch`, `leader_id` and `endpoints` tell what its sender knows about the leader.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.model.errors import ErrorCode
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.voters import Endpoint, ReplicaKey

NONE = ErrorCode.NONE
Endpoints: TypeAlias = tuple[Endpoint, ...]


class VoteRequest(NamedTuple):
    """A (prospective) candidate asks for a vote. `voter` is the voter that it asks."""

    candidate: ReplicaKey
    epoch: int
    voter: ReplicaKey | None
    last_offset: int
    """The end offset of the candidate's log."""
    last_epoch: int
    pre_vote: bool = False


class VoteResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    endpoints: Endpoints
    vote_granted: bool = False


class BeginQuorumEpochRequest(NamedTuple):
    """A leader announces itself. `voter` is the voter that it tells."""

    leader_id: int
    epoch: int
    endpoints: Endpoints
    voter: ReplicaKey | None


class BeginQuorumEpochResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    endpoints: Endpoints


class EndQuorumEpochRequest(NamedTuple):
    """A leader resigns. The preferred candidates come by descending end offset."""

    leader_id: int
    epoch: int
    endpoints: Endpoints
    preferred_candidates: tuple[ReplicaKey, ...]


class EndQuorumEpochResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    endpoints: Endpoints


class FetchRequest(NamedTuple):
    """A replica asks for the records after its own, which are durable."""

    replica: ReplicaKey
    epoch: int
    """The epoch that the replica believes to be the current one."""
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int | None
    """What the replica knows; a higher one is told at once (KIP-1166)."""
    max_wait_ms: int
    max_bytes: int


class FetchResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    endpoints: Endpoints
    high_watermark: int | None = None
    log_start_offset: int = 0
    diverging: OffsetAndEpoch | None = None
    """The logs differ: the leader's last epoch up to the fetched one, and where it ends."""
    snapshot_id: OffsetAndEpoch | None = None
    """The leader's log does not go back that far: fetch this snapshot."""
    records: object | None = None
    """Validated batches for `AppendFetched`, None if there are none."""


class FetchSnapshotRequest(NamedTuple):
    replica: ReplicaKey
    epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


class FetchSnapshotResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    endpoints: Endpoints
    snapshot_id: OffsetAndEpoch | None = None
    position: int = 0
    size: int = 0
    data: bytes = b""


class AddVoterRequest(NamedTuple):
    voter: ReplicaKey
    endpoints: Endpoints
    timeout_ms: int
    ack_when_committed: bool = True


class AddVoterResponse(NamedTuple):
    error: ErrorCode
    message: str | None = None


class RemoveVoterRequest(NamedTuple):
    voter: ReplicaKey


class RemoveVoterResponse(NamedTuple):
    error: ErrorCode
    message: str | None = None


class UpdateVoterRequest(NamedTuple):
    """A voter tells its leader that it listens elsewhere or supports other versions."""

    voter: ReplicaKey
    epoch: int
    endpoints: Endpoints
    min_kraft_version: int
    max_kraft_version: int


class UpdateVoterResponse(NamedTuple):
    error: ErrorCode
    epoch: int
    leader_id: int | None
    endpoints: Endpoints


class UpgradeVotersRequest(NamedTuple):
    """The controller wants kraft.version 1: the voters are in the log from then on.

    It is not sent between nodes.
    """


class UpgradeVotersResponse(NamedTuple):
    error: ErrorCode
    message: str | None = None


class ApiVersionsRequest(NamedTuple):
    """The leader asks a future voter which kraft.versions it supports."""


class ApiVersionsResponse(NamedTuple):
    error: ErrorCode
    min_kraft_version: int = 0
    max_kraft_version: int = 0


AnyRequest: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | UpgradeVotersRequest
    | ApiVersionsRequest
)
LeaderResponse: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | UpdateVoterResponse
)
AnyResponse: TypeAlias = (
    LeaderResponse
    | AddVoterResponse
    | RemoveVoterResponse
    | UpgradeVotersResponse
    | ApiVersionsResponse
)
