"""Raft's requests to peers in Kafka's messages, and Kafka's responses in Raft's words.

Kafka batches these APIs by topic and partition. There is only one: partition 0 of
`__cluster_metadata`. A response without it, or with more, is not understood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.controller.brokers import KRAFT_VERSION
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID
from ottla.raft import messages as raft
from ottla.raft.log_view import OffsetAndEpoch
from ottla.raft.voters import Endpoint, ReplicaKey
from ottla.wire.message import Message
from ottla.wire.messages import api_versions as wire_api_versions
from ottla.wire.messages import begin_quorum_epoch as wire_begin
from ottla.wire.messages import end_quorum_epoch as wire_end
from ottla.wire.messages import fetch as wire_fetch
from ottla.wire.messages import fetch_snapshot as wire_snapshot
from ottla.wire.messages import update_raft_voter as wire_update
from ottla.wire.messages import vote as wire_vote
from ottla.wire.primitives import DecodeError

T = TypeVar("T")


class Sent(NamedTuple):
    """A request as it is sent, and how to read its response."""

    request: Message
    version: int
    response: type[Message]
    understand: Callable[[Any], raft.AnyResponse]


class RequestTranslator:
    """Translates for one node: its cluster, and the listener on which controllers talk."""

    def __init__(self, cluster_id: str, listener: str) -> None:
        self._cluster_id = cluster_id
        self._listener = listener

    def translate(self, message: raft.AnyRequest) -> Sent:
        """Return a request in Kafka's words."""
        if isinstance(message, raft.FetchRequest):
            return self._fetch(message)
        if isinstance(message, raft.VoteRequest):
            return self._vote(message)
        if isinstance(message, raft.BeginQuorumEpochRequest):
            return self._begin(message)
        if isinstance(message, raft.EndQuorumEpochRequest):
            return self._end(message)
        if isinstance(message, raft.FetchSnapshotRequest):
            return self._fetch_snapshot(message)
        if isinstance(message, raft.UpdateVoterRequest):
            return self._update_voter(message)
        assert isinstance(message, raft.ApiVersionsRequest), f"{message} is not sent by nodes"
        return Sent(
            wire_api_versions.ApiVersionsRequest(
                client_software_name="ottla", client_software_version="raft"
            ),
            4,  # older versions do not tell features whose lowest level is 0
            wire_api_versions.ApiVersionsResponse,
            _api_versions,
        )

    # -- votes and epochs ----------------------------------------------------------------

    def _vote(self, message: raft.VoteRequest) -> Sent:
        partition = wire_vote.RequestPartitionData(
            replica_epoch=message.epoch,
            replica_id=message.candidate.id,
            replica_directory_id=message.candidate.directory_id or ZERO_UUID,
            voter_directory_id=directory_of(message.voter),
            last_offset_epoch=message.last_epoch,
            last_offset=message.last_offset,
            pre_vote=message.pre_vote,
        )
        topic = wire_vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        request = wire_vote.VoteRequest(
            cluster_id=self._cluster_id, voter_id=id_of(message.voter), topics=[topic]
        )
        return Sent(request, 2, wire_vote.VoteResponse, self._voted)

    def _voted(self, response: wire_vote.VoteResponse) -> raft.VoteResponse:
        if response.error_code:
            return raft.VoteResponse(_error(response.error_code), -1, None, ())
        found = _only_partition(response.topics)
        return raft.VoteResponse(
            _error(found.error_code),
            found.leader_epoch,
            _node(found.leader_id),
            self._endpoints(response.node_endpoints, found.leader_id),
            found.vote_granted,
        )

    def _begin(self, message: raft.BeginQuorumEpochRequest) -> Sent:
        partition = wire_begin.RequestPartitionData(
            voter_directory_id=directory_of(message.voter),
            leader_id=message.leader_id,
            leader_epoch=message.epoch,
        )
        topic = wire_begin.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        request = wire_begin.BeginQuorumEpochRequest(
            cluster_id=self._cluster_id,
            voter_id=id_of(message.voter),
            topics=[topic],
            leader_endpoints=[
                wire_begin.LeaderEndpoint(name=name, host=host, port=port)
                for name, host, port in message.endpoints
            ],
        )
        return Sent(request, 1, wire_begin.BeginQuorumEpochResponse, self._begun)

    def _begun(self, response: wire_begin.BeginQuorumEpochResponse) -> raft.AnyResponse:
        if response.error_code:
            return raft.BeginQuorumEpochResponse(_error(response.error_code), -1, None, ())
        found = _only_partition(response.topics)
        return raft.BeginQuorumEpochResponse(
            _error(found.error_code),
            found.leader_epoch,
            _node(found.leader_id),
            self._endpoints(response.node_endpoints, found.leader_id),
        )

    def _end(self, message: raft.EndQuorumEpochRequest) -> Sent:
        partition = wire_end.RequestPartitionData(
            leader_id=message.leader_id,
            leader_epoch=message.epoch,
            preferred_candidates=[
                wire_end.ReplicaInfo(
                    candidate_id=key.id, candidate_directory_id=key.directory_id or ZERO_UUID
                )
                for key in message.preferred_candidates
            ],
        )
        topic = wire_end.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        request = wire_end.EndQuorumEpochRequest(
            cluster_id=self._cluster_id,
            topics=[topic],
            leader_endpoints=[
                wire_end.LeaderEndpoint(name=name, host=host, port=port)
                for name, host, port in message.endpoints
            ],
        )
        return Sent(request, 1, wire_end.EndQuorumEpochResponse, self._ended)

    def _ended(self, response: wire_end.EndQuorumEpochResponse) -> raft.AnyResponse:
        if response.error_code:
            return raft.EndQuorumEpochResponse(_error(response.error_code), -1, None, ())
        found = _only_partition(response.topics)
        return raft.EndQuorumEpochResponse(
            _error(found.error_code),
            found.leader_epoch,
            _node(found.leader_id),
            self._endpoints(response.node_endpoints, found.leader_id),
        )

    # -- records and snapshots -----------------------------------------------------------

    def _fetch(self, message: raft.FetchRequest) -> Sent:
        known = message.high_watermark
        partition = wire_fetch.FetchPartition(
            current_leader_epoch=message.epoch,
            fetch_offset=message.fetch_offset,
            last_fetched_epoch=message.last_fetched_epoch,
            log_start_offset=-1,
            partition_max_bytes=message.max_bytes,
            replica_directory_id=message.replica.directory_id or ZERO_UUID,
            high_watermark=-1 if known is None else known,
        )
        request = wire_fetch.FetchRequest(
            cluster_id=self._cluster_id,
            replica_state=wire_fetch.ReplicaState(replica_id=message.replica.id, replica_epoch=-1),
            max_wait=message.max_wait_ms,
            min_bytes=0,
            max_bytes=message.max_bytes,
            session_epoch=-1,
            topics=[wire_fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )
        return Sent(request, 18, wire_fetch.FetchResponse, self._fetched)

    def _fetched(self, response: wire_fetch.FetchResponse) -> raft.FetchResponse:
        if response.error_code:
            return raft.FetchResponse(_error(response.error_code), -1, None, ())
        found = _only_partition(response.responses)
        leader, diverging, snapshot = found.current_leader, found.diverging_epoch, found.snapshot_id
        return raft.FetchResponse(
            _error(found.error_code),
            leader.leader_epoch,
            _node(leader.leader_id),
            self._endpoints(response.node_endpoints, leader.leader_id),
            None if found.high_watermark < 0 else found.high_watermark,
            found.log_start_offset,
            None if diverging.epoch < 0 else OffsetAndEpoch(diverging.end_offset, diverging.epoch),
            None if snapshot.epoch < 0 else OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
            bytearray(found.records) if found.records else None,
        )

    def _fetch_snapshot(self, message: raft.FetchSnapshotRequest) -> Sent:
        partition = wire_snapshot.RequestPartitionSnapshot(
            current_leader_epoch=message.epoch,
            snapshot_id=wire_snapshot.RequestSnapshotId(
                end_offset=message.snapshot_id.offset, epoch=message.snapshot_id.epoch
            ),
            position=message.position,
            replica_directory_id=message.replica.directory_id or ZERO_UUID,
        )
        topic = wire_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
        request = wire_snapshot.FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=message.replica.id,
            max_bytes=message.max_bytes,
            topics=[topic],
        )
        return Sent(request, 1, wire_snapshot.FetchSnapshotResponse, self._fetched_snapshot)

    def _fetched_snapshot(self, response: wire_snapshot.FetchSnapshotResponse) -> raft.AnyResponse:
        if response.error_code:
            return raft.FetchSnapshotResponse(_error(response.error_code), -1, None, ())
        found = _only_partition(response.topics)
        leader = found.current_leader
        return raft.FetchSnapshotResponse(
            _error(found.error_code),
            leader.leader_epoch,
            _node(leader.leader_id),
            self._endpoints(response.node_endpoints, leader.leader_id),
            OffsetAndEpoch(found.snapshot_id.end_offset, found.snapshot_id.epoch),
            found.position,
            found.size,
            bytes(found.unaligned_records or b""),
        )

    # -- voters --------------------------------------------------------------------------

    def _update_voter(self, message: raft.UpdateVoterRequest) -> Sent:
        request = wire_update.UpdateRaftVoterRequest(
            cluster_id=self._cluster_id,
            current_leader_epoch=message.epoch,
            voter_id=message.voter.id,
            voter_directory_id=message.voter.directory_id or ZERO_UUID,
            listeners=[
                wire_update.Listener(name=name, host=host, port=port)
                for name, host, port in message.endpoints
            ],
            k_raft_version_feature=wire_update.KRaftVersionFeature(
                min_supported_version=message.min_kraft_version,
                max_supported_version=message.max_kraft_version,
            ),
        )
        return Sent(request, 0, wire_update.UpdateRaftVoterResponse, self._updated)

    def _updated(self, response: wire_update.UpdateRaftVoterResponse) -> raft.AnyResponse:
        leader = response.current_leader
        endpoints = (Endpoint(self._listener, leader.host, leader.port),) if leader.host else ()
        return raft.UpdateVoterResponse(
            _error(response.error_code), leader.leader_epoch, _node(leader.leader_id), endpoints
        )

    def _endpoints(self, nodes: Iterable[Any], leader_id: int) -> tuple[Endpoint, ...]:
        """Return where the leader listens, if the response says it."""
        return tuple(
            Endpoint(self._listener, node.host, node.port)
            for node in nodes
            if node.node_id == leader_id
        )


def id_of(key: ReplicaKey | None) -> int:
    """Return the id of a node, -1 for none."""
    return -1 if key is None else key.id


def directory_of(key: ReplicaKey | None) -> bytes:
    """Return the id of a replica's directory, zero if unknown."""
    return (key and key.directory_id) or ZERO_UUID


def _node(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _only_partition(topics: Sequence[Any]) -> Any:
    """Return the partition of a response. Raise DecodeError unless there is exactly one."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise DecodeError("the response is not about the one partition of the metadata")
    return topics[0].partitions[0]


def _api_versions(response: wire_api_versions.ApiVersionsResponse) -> raft.AnyResponse:
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            return raft.ApiVersionsResponse(
                _error(response.error_code), feature.min_version, feature.max_version
            )
    return raft.ApiVersionsResponse(_error(response.error_code))
