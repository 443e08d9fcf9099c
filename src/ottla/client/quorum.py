"""The metadata quorum: who votes and who follows, and changes of the voters (KIP-836, KIP-853)."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.address import Address
from ottla.client.cluster import Client
from ottla.client.errors import check
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID, uuid_to_text
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

_SUBJECT = "the metadata quorum"


class QuorumReplica(NamedTuple):
    """A node that has the metadata log. A time is None if the leader does not know it."""

    node_id: int
    directory_id: str | None
    is_voter: bool
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None
    endpoints: tuple[str, ...]


class QuorumState(NamedTuple):
    """The quorum as its leader sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: list[QuorumReplica]


def describe_quorum(client: Client) -> QuorumState:
    """Return the voters and observers of the quorum."""
    deadline = client.deadline("describing the quorum")
    partition = RequestPartitionData(partition_index=0)
    request = DescribeQuorumRequest(
        topics=[RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )

    def ask() -> QuorumState:
        connection = client.any(deadline)
        response = client.call(connection, request, DescribeQuorumResponse, deadline)
        check(response.error_code, _SUBJECT, response.error_message)
        (found,) = response.topics[0].partitions
        check(found.error_code, _SUBJECT, found.error_message)
        endpoints = {
            node.node_id: tuple(f"{each.host}:{each.port}" for each in node.listeners)
            for node in response.nodes
        }

        def replica(state: ReplicaState, is_voter: bool) -> QuorumReplica:
            no_id = state.replica_directory_id == ZERO_UUID
            return QuorumReplica(
                state.replica_id,
                None if no_id else uuid_to_text(state.replica_directory_id),
                is_voter,
                state.log_end_offset,
                _known(state.last_fetch_timestamp),
                _known(state.last_caught_up_timestamp),
                endpoints.get(state.replica_id, ()),
            )

        replicas = [replica(each, True) for each in found.current_voters]
        replicas += [replica(each, False) for each in found.observers]
        return QuorumState(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            sorted(replicas, key=lambda each: (not each.is_voter, each.node_id)),
        )

    return client.retry(ask, deadline, harmless_twice=True)


def add_voter(
    client: Client, node_id: int, directory_id: bytes, listener: str, address: Address
) -> None:
    """Let a controller vote. It must run and follow the metadata already."""
    deadline = client.deadline(f"adding voter {node_id}")
    endpoint = Listener(name=listener, host=address.host, port=address.port)
    request = AddRaftVoterRequest(
        timeout=int(client.timeout_ms),
        voter_id=node_id,
        voter_directory_id=directory_id,
        listeners=[endpoint],
    )

    def ask() -> None:
        connection = client.any(deadline)
        request.cluster_id = client.cluster_id
        response = client.call(connection, request, AddRaftVoterResponse, deadline)
        check(response.error_code, f"voter {node_id}", response.error_message)

    client.retry(ask, deadline, harmless_twice=False)


def remove_voter(client: Client, node_id: int, directory_id: bytes) -> None:
    """Take the vote from a controller."""
    deadline = client.deadline(f"removing voter {node_id}")
    request = RemoveRaftVoterRequest(voter_id=node_id, voter_directory_id=directory_id)

    def ask() -> None:
        connection = client.any(deadline)
        request.cluster_id = client.cluster_id
        response = client.call(connection, request, RemoveRaftVoterResponse, deadline)
        check(response.error_code, f"voter {node_id}", response.error_message)

    client.retry(ask, deadline, harmless_twice=False)


def _known(time_ms: int) -> int | None:
    return None if time_ms < 0 else time_ms
