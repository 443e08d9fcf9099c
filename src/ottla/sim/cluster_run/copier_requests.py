"""The requests of a copier, in the versions that belong to its transaction version."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ottla.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.sim.cluster_run.history import PartitionKey
from ottla.sim.cluster_run.transaction_history import Transaction
from ottla.sim.network.exchange import Exchange
from ottla.wire.message import Message
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUP_ID: Final = "copiers"
READ_COMMITTED: Final = 1
Asked = tuple[Message, int]
"""A request and its version."""
_PRODUCE: Final = {0: 10, 1: 11, 2: 12}
_COMMIT: Final = {0: 3, 1: 4, 2: 5}
_END: Final = {0: 3, 1: 4, 2: 5}
SESSION_MS: Final = 1000
_REBALANCE_MS: Final = 1000
_PROTOCOL: Final = "range"


class GroupMember(NamedTuple):
    """Who commits offsets: a member of a group in a generation (KIP-447), or no member."""

    member_id: str
    generation_id: int


NO_MEMBER: Final = GroupMember("", -1)


def find_coordinator(topic: str, group_id: str, transactional_id: str) -> Asked:
    """Return the request that creates the topic of a coordinator."""
    is_group = topic == OFFSETS_TOPIC
    key = group_id if is_group else transactional_id
    return FindCoordinatorRequest(key=key, key_type=0 if is_group else 1), 3


def take_over(transactional_id: str, timeout_ms: int) -> Asked:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    return request, 5


def committed_offset(group_id: str, source: PartitionKey, *, require_stable: bool = True) -> Asked:
    topic = OffsetFetchRequestTopic(name=source[0], partition_indexes=[source[1]])
    request = OffsetFetchRequest(group_id=group_id, topics=[topic], require_stable=require_stable)
    return request, 7


def read(source: PartitionKey, position: int) -> Asked:
    partition = FetchPartition(
        partition=source[1], fetch_offset=position, partition_max_bytes=100_000
    )
    request = FetchRequest(
        max_wait=100,
        min_bytes=1,
        max_bytes=1_000_000,
        isolation_level=READ_COMMITTED,
        session_epoch=-1,
        topics=[FetchTopic(topic=source[0], partitions=[partition])],
    )
    return request, 12


def add_partitions(
    transactional_id: str, producer: tuple[int, int], keys: list[PartitionKey]
) -> Asked:
    topics: dict[str, list[int]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(index)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )
    return request, 3


def add_offsets(transactional_id: str, producer: tuple[int, int], group_id: str) -> Asked:
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group_id,
    )
    return request, 3


def write(transactional_id: str, key: PartitionKey, batch: bytes, version: int) -> Asked:
    data = PartitionProduceData(index=key[1], records=batch)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout=2000,
        topic_data=[TopicProduceData(name=key[0], partition_data=[data])],
    )
    return request, _PRODUCE[version]


def commit_offset(
    transactional_id: str,
    producer: tuple[int, int],
    source: PartitionKey,
    transaction: Transaction,
    version: int,
    member: GroupMember,
) -> Asked:
    """Return the commit of the offset after the input. Its metadata is the transaction's number."""
    partition = TxnOffsetCommitRequestPartition(
        partition_index=source[1],
        committed_offset=transaction.end,
        committed_metadata=str(transaction.number),
    )
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=transaction.source[0],
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=member.generation_id,
        member_id=member.member_id,
        topics=[TxnOffsetCommitRequestTopic(name=source[0], partitions=[partition])],
    )
    return request, _COMMIT[version]


def end(transactional_id: str, producer: tuple[int, int], committed: bool, version: int) -> Asked:
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
    )
    return request, _END[version]


def join(group_id: str, member_id: str) -> Asked:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout=SESSION_MS,
        rebalance_timeout=_REBALANCE_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
    )
    return request, 7


def sync(group_id: str, member: GroupMember, assignment: dict[str, list[PartitionKey]]) -> Asked:
    """Return the request for an assignment. A leader says what each member gets."""
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=member.generation_id,
        member_id=member.member_id,
        protocol_type="consumer",
        protocol_name=_PROTOCOL,
        assignments=[
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=",".join(f"{name}:{index}" for name, index in keys).encode(),
            )
            for member_id, keys in assignment.items()
        ],
    )
    return request, 5


def heartbeat(group_id: str, member: GroupMember) -> Asked:
    request = HeartbeatRequest(
        group_id=group_id, generation_id=member.generation_id, member_id=member.member_id
    )
    return request, 4


def coordinator_kind(request: Message) -> str | None:
    """Return the topic of the coordinator that a request goes to, None if it goes to none."""
    if isinstance(request, _OF_GROUPS):
        return OFFSETS_TOPIC
    if isinstance(request, FetchRequest | ProduceRequest):
        return None
    return TRANSACTIONS_TOPIC


def changes(request: Message) -> bool:
    """Return True if a request that arrives late may do harm to a later transaction."""
    return not isinstance(request, _HARMLESS)


def code_of(exchange: Exchange) -> int:
    """Return the error code of an answer."""
    request, reply = exchange.request, exchange.reply
    answer: Any = reply
    if isinstance(request, ProduceRequest):
        return int(answer.responses[0].partition_responses[0].error_code)
    if isinstance(request, FetchRequest):
        return int(answer.responses[0].partitions[0].error_code)
    if isinstance(request, AddPartitionsToTxnRequest):
        codes = {
            int(partition.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        return max(codes - {_NOT_ATTEMPTED}, default=0)
    if isinstance(request, TxnOffsetCommitRequest):
        return int(answer.topics[0].partitions[0].error_code)
    if isinstance(request, OffsetFetchRequest) and not answer.error_code:
        return int(answer.topics[0].partitions[0].error_code)
    return int(answer.error_code)


_NOT_ATTEMPTED: Final = 55
_MEMBERSHIP: Final = (JoinGroupRequest, SyncGroupRequest, HeartbeatRequest)
_OF_GROUPS: Final = (OffsetFetchRequest, TxnOffsetCommitRequest, *_MEMBERSHIP)
_HARMLESS: Final = (FetchRequest, OffsetFetchRequest, InitProducerIdRequest, *_MEMBERSHIP)
