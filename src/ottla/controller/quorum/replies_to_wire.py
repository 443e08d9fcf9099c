"""Kafka's requests from peers in Raft's words, and Raft's replies in Kafka's messages.

A request that is about another cluster or another partition is refused here; the rest is
decided by the state machine. Each API has a function that reads a request and one that writes
a reply. `refuse` functions write a reply to a request that fails as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.controller.node_limits import check_listeners
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID
from ottla.raft import messages as raft
from ottla.raft.description import QuorumDescription, ReplicaDescription
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.voters import Endpoint, ReplicaKey
from ottla.wire.messages import add_raft_voter as wire_add
from ottla.wire.messages import begin_quorum_epoch as wire_begin
from ottla.wire.messages import describe_quorum as wire_describe
from ottla.wire.messages import end_quorum_epoch as wire_end
from ottla.wire.messages import fetch as wire_fetch
from ottla.wire.messages import fetch_snapshot as wire_snapshot
from ottla.wire.messages import remove_raft_voter as wire_remove
from ottla.wire.messages import update_raft_voter as wire_update
from ottla.wire.messages import vote as wire_vote

_FIRST_WITH_DIRECTORIES = 1
"""The version of Vote and similar requests that names voters by directory."""


def check_cluster(asked: str | None, own: str) -> None:
    """Raise INCONSISTENT_CLUSTER_ID for a request of another cluster."""
    if asked is not None and asked != own:
        raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is the cluster {own}")


# -- votes and epochs --------------------------------------------------------------------


def vote(request: wire_vote.VoteRequest, version: int) -> raft.VoteRequest:
    """Return what a (prospective) candidate asks."""
    asked = _only_partition(request.topics, "topic_name", METADATA_TOPIC)
    if asked.replica_epoch < 0 or asked.last_offset < 0 or asked.last_offset_epoch < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "an epoch or an offset is negative")
    return raft.VoteRequest(
        _key(asked.replica_id, asked.replica_directory_id),
        asked.replica_epoch,
        _meant(request.voter_id, asked.voter_directory_id, version),
        asked.last_offset,
        asked.last_offset_epoch,
        asked.pre_vote,
    )


def vote_reply(reply: raft.VoteResponse) -> wire_vote.VoteResponse:
    """Return the answer to a candidate."""
    partition = wire_vote.ResponsePartitionData(
        error_code=reply.error,
        leader_id=_number(reply.leader_id),
        leader_epoch=reply.epoch,
        vote_granted=reply.vote_granted,
    )
    topic = wire_vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = [wire_vote.NodeEndpoint(**node) for node in _nodes(reply.leader_id, reply.endpoints)]
    return wire_vote.VoteResponse(topics=[topic], node_endpoints=nodes)


def begin_quorum_epoch(
    request: wire_begin.BeginQuorumEpochRequest, version: int
) -> raft.BeginQuorumEpochRequest:
    """Return what a leader announces."""
    asked = _only_partition(request.topics, "topic_name", METADATA_TOPIC)
    return raft.BeginQuorumEpochRequest(
        asked.leader_id,
        asked.leader_epoch,
        _listeners(request.leader_endpoints),
        _meant(request.voter_id, asked.voter_directory_id, version),
    )


def begin_quorum_epoch_reply(
    reply: raft.BeginQuorumEpochResponse,
) -> wire_begin.BeginQuorumEpochResponse:
    """Return the answer to a leader that announced itself."""
    partition = wire_begin.ResponsePartitionData(
        error_code=reply.error, leader_id=_number(reply.leader_id), leader_epoch=reply.epoch
    )
    topic = wire_begin.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = [wire_begin.NodeEndpoint(**node) for node in _nodes(reply.leader_id, reply.endpoints)]
    return wire_begin.BeginQuorumEpochResponse(topics=[topic], node_endpoints=nodes)


def end_quorum_epoch(
    request: wire_end.EndQuorumEpochRequest, version: int
) -> raft.EndQuorumEpochRequest:
    """Return what a leader that resigns says."""
    asked = _only_partition(request.topics, "topic_name", METADATA_TOPIC)
    if version >= _FIRST_WITH_DIRECTORIES:
        candidates = tuple(
            _key(each.candidate_id, each.candidate_directory_id)
            for each in asked.preferred_candidates
        )
    else:
        candidates = tuple(ReplicaKey(each) for each in asked.preferred_successors)
    return raft.EndQuorumEpochRequest(
        asked.leader_id, asked.leader_epoch, _listeners(request.leader_endpoints), candidates
    )


def end_quorum_epoch_reply(
    reply: raft.EndQuorumEpochResponse,
) -> wire_end.EndQuorumEpochResponse:
    """Return the answer to a leader that resigned."""
    partition = wire_end.ResponsePartitionData(
        error_code=reply.error, leader_id=_number(reply.leader_id), leader_epoch=reply.epoch
    )
    topic = wire_end.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = [wire_end.NodeEndpoint(**node) for node in _nodes(reply.leader_id, reply.endpoints)]
    return wire_end.EndQuorumEpochResponse(topics=[topic], node_endpoints=nodes)


# -- records and snapshots ---------------------------------------------------------------


def fetch(request: wire_fetch.FetchRequest, version: int) -> raft.FetchRequest:
    """Return what a replica of the metadata log asks for."""
    has_ids = version >= 13
    asked = (
        _only_partition(request.topics, "topic_id", METADATA_TOPIC_ID)
        if has_ids
        else _only_partition(request.topics, "topic", METADATA_TOPIC)
    )
    replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    if asked.fetch_offset < 0 or asked.last_fetched_epoch < 0 or asked.current_leader_epoch < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "an epoch or an offset is negative")
    return raft.FetchRequest(
        _key(replica_id, asked.replica_directory_id),
        asked.current_leader_epoch,
        asked.fetch_offset,
        asked.last_fetched_epoch,
        _known(asked.high_watermark) if version >= 18 else 2**63 - 1,
        max(request.max_wait, 0),
        max(request.max_bytes, 1),
    )


def fetch_reply(reply: raft.FetchResponse, records: bytes | None) -> wire_fetch.FetchResponse:
    """Return the answer to a replica, with records if there are some."""
    diverging, snapshot = reply.diverging, reply.snapshot_id
    partition = wire_fetch.PartitionData(
        error_code=reply.error,
        high_watermark=_number(reply.high_watermark),
        last_stable_offset=_number(reply.high_watermark),
        log_start_offset=reply.log_start_offset,
        diverging_epoch=None
        if diverging is None
        else wire_fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
        current_leader=wire_fetch.LeaderIdAndEpoch(
            leader_id=_number(reply.leader_id), leader_epoch=reply.epoch
        ),
        snapshot_id=None
        if snapshot is None
        else wire_fetch.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        aborted_transactions=None,
        records=records if records is not None else b"",
    )
    topic = wire_fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    nodes = [wire_fetch.NodeEndpoint(**node) for node in _nodes(reply.leader_id, reply.endpoints)]
    return wire_fetch.FetchResponse(responses=[topic], node_endpoints=nodes)


def fetch_snapshot(
    request: wire_snapshot.FetchSnapshotRequest, version: int
) -> raft.FetchSnapshotRequest:
    """Return which part of a snapshot a replica asks for."""
    asked = _only_partition(request.topics, "name", METADATA_TOPIC)
    return raft.FetchSnapshotRequest(
        _key(request.replica_id, asked.replica_directory_id),
        asked.current_leader_epoch,
        OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch),
        asked.position,
        max(request.max_bytes, 1),
    )


def fetch_snapshot_reply(
    reply: raft.FetchSnapshotResponse,
) -> wire_snapshot.FetchSnapshotResponse:
    """Return the answer to a replica that fetches a snapshot."""
    snapshot = reply.snapshot_id or OffsetAndEpoch(-1, -1)
    partition = wire_snapshot.ResponsePartitionSnapshot(
        error_code=reply.error,
        snapshot_id=wire_snapshot.ResponseSnapshotId(
            end_offset=snapshot.offset, epoch=snapshot.epoch
        ),
        current_leader=wire_snapshot.LeaderIdAndEpoch(
            leader_id=_number(reply.leader_id), leader_epoch=reply.epoch
        ),
        size=reply.size,
        position=reply.position,
        unaligned_records=reply.data,
    )
    topic = wire_snapshot.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    nodes = [
        wire_snapshot.NodeEndpoint(**node) for node in _nodes(reply.leader_id, reply.endpoints)
    ]
    return wire_snapshot.FetchSnapshotResponse(topics=[topic], node_endpoints=nodes)


# -- voters ------------------------------------------------------------------------------


def add_voter(request: wire_add.AddRaftVoterRequest, version: int) -> raft.AddVoterRequest:
    """Return which voter to add."""
    if not request.listeners:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the voter has no listener for controllers")
    return raft.AddVoterRequest(
        ReplicaKey(request.voter_id, request.voter_directory_id),
        _listeners(request.listeners),
        request.timeout,
        request.ack_when_committed if version >= 1 else True,
    )


def add_voter_reply(reply: raft.AddVoterResponse) -> wire_add.AddRaftVoterResponse:
    """Return what became of adding a voter."""
    return wire_add.AddRaftVoterResponse(error_code=reply.error, error_message=reply.message)


def remove_voter(
    request: wire_remove.RemoveRaftVoterRequest, version: int
) -> raft.RemoveVoterRequest:
    """Return which voter to remove."""
    return raft.RemoveVoterRequest(ReplicaKey(request.voter_id, request.voter_directory_id))


def remove_voter_reply(reply: raft.RemoveVoterResponse) -> wire_remove.RemoveRaftVoterResponse:
    """Return what became of removing a voter."""
    return wire_remove.RemoveRaftVoterResponse(error_code=reply.error, error_message=reply.message)


def update_voter(
    request: wire_update.UpdateRaftVoterRequest, version: int
) -> raft.UpdateVoterRequest:
    """Return where a voter listens now, and which versions it supports."""
    feature = request.k_raft_version_feature
    return raft.UpdateVoterRequest(
        ReplicaKey(request.voter_id, request.voter_directory_id),
        request.current_leader_epoch,
        _listeners(request.listeners),
        feature.min_supported_version,
        feature.max_supported_version,
    )


def update_voter_reply(reply: raft.UpdateVoterResponse) -> wire_update.UpdateRaftVoterResponse:
    """Return what became of updating a voter."""
    (node,) = _nodes(reply.leader_id, reply.endpoints) or [{"host": "", "port": 0}]
    leader = wire_update.CurrentLeader(
        leader_id=_number(reply.leader_id),
        leader_epoch=reply.epoch,
        host=node["host"],
        port=node["port"],
    )
    return wire_update.UpdateRaftVoterResponse(error_code=reply.error, current_leader=leader)


def description(
    found: QuorumDescription, wall_minus_monotonic_ms: float
) -> wire_describe.DescribeQuorumResponse:
    """Return the answer to DescribeQuorum. Times become times of day."""

    def state(replica: ReplicaDescription) -> wire_describe.ReplicaState:
        return wire_describe.ReplicaState(
            replica_id=replica.key.id,
            replica_directory_id=replica.key.directory_id or ZERO_UUID,
            log_end_offset=_number(replica.log_end_offset),
            last_fetch_timestamp=_time(replica.last_fetch_ms, wall_minus_monotonic_ms),
            last_caught_up_timestamp=_time(replica.last_caught_up_ms, wall_minus_monotonic_ms),
        )

    partition = wire_describe.ResponsePartitionData(
        leader_id=found.leader_id,
        leader_epoch=found.leader_epoch,
        high_watermark=_number(found.high_watermark),
        current_voters=[state(replica) for replica in found.voters],
        observers=[state(replica) for replica in found.observers],
    )
    topic = wire_describe.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = [
        wire_describe.Node(
            node_id=voter_id,
            listeners=[
                wire_describe.Listener(name=name, host=host, port=port)
                for name, host, port in endpoints
            ],
        )
        for voter_id, endpoints in found.endpoints.items()
    ]
    return wire_describe.DescribeQuorumResponse(topics=[topic], nodes=nodes)


# -- small parts -------------------------------------------------------------------------


def _only_partition(topics: Sequence[Any], field: str, expected: object) -> Any:
    """Return the partition that is asked for. Raise INVALID_REQUEST unless it is the metadata's."""
    if len(topics) != 1 or getattr(topics[0], field) != expected or len(topics[0].partitions) != 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"the request is not about {METADATA_TOPIC} alone"
        )
    return topics[0].partitions[0]


def _key(node_id: int, directory_id: bytes) -> ReplicaKey:
    return ReplicaKey(node_id, None if directory_id == ZERO_UUID else directory_id)


def _meant(node_id: int, directory_id: bytes, version: int) -> ReplicaKey | None:
    """Return whom a request is meant for, None if it does not say."""
    if version < _FIRST_WITH_DIRECTORIES or node_id < 0:
        return None
    return _key(node_id, directory_id)


def _listeners(listeners: Sequence[Any]) -> tuple[Endpoint, ...]:
    """Return where a voter listens."""
    check_listeners(listeners)
    return tuple(Endpoint(each.name, each.host, each.port) for each in listeners)


def _nodes(leader_id: int | None, endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    """Return the leader's address as the fields of a NodeEndpoint, if it is known."""
    if leader_id is None or not endpoints:
        return []
    return [{"node_id": leader_id, "host": endpoints[0].host, "port": endpoints[0].port}]


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _time(monotonic_ms: float | None, wall_minus_monotonic_ms: float) -> int:
    return -1 if monotonic_ms is None else int(monotonic_ms + wall_minus_monotonic_ms)
