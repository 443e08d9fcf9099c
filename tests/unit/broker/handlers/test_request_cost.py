"""What a request costs is bounded by its size and a constant, and no request holds the loop.

Every API that is served gets requests that repeat one name, id or partition thousands of times,
and large requests that make sense. The response must not be many times larger than the request,
and the node must not make many calls in one wake-up. Calls are counted, because times differ from
run to run; ten thousand of them take a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from ottla.broker.handlers import SERVED
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.records import GroupMetadataValue, MemberMetadata
from ottla.coordinator.transactions.add_partitions import MAX_PARTITIONS
from ottla.log.state.producer_table import ProducerEntry
from ottla.records.record import build_batch
from ottla.testing.fakes import START_MS
from ottla.wire.api_table import ApiKey
from ottla.wire.message import Message
from ottla.wire.messages import add_offsets_to_txn as aot
from ottla.wire.messages import add_partitions_to_txn as apt
from ottla.wire.messages import add_raft_voter as arv
from ottla.wire.messages import alter_configs as ac
from ottla.wire.messages import alter_partition_reassignments as apr
from ottla.wire.messages import alter_replica_log_dirs as arld
from ottla.wire.messages import api_versions as av
from ottla.wire.messages import consumer_group_describe as cgd
from ottla.wire.messages import consumer_group_heartbeat as cgh
from ottla.wire.messages import create_partitions as cp
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import delete_groups as dg
from ottla.wire.messages import delete_records as dr
from ottla.wire.messages import delete_topics as dt
from ottla.wire.messages import describe_cluster as dcl
from ottla.wire.messages import describe_configs as dc
from ottla.wire.messages import describe_groups as deg
from ottla.wire.messages import describe_log_dirs as dld
from ottla.wire.messages import describe_producers as dp
from ottla.wire.messages import describe_quorum as dq
from ottla.wire.messages import describe_topic_partitions as dtp
from ottla.wire.messages import describe_transactions as det
from ottla.wire.messages import elect_leaders as el
from ottla.wire.messages import end_txn as et
from ottla.wire.messages import fetch as fe
from ottla.wire.messages import find_coordinator as fc
from ottla.wire.messages import heartbeat as hb
from ottla.wire.messages import incremental_alter_configs as iac
from ottla.wire.messages import init_producer_id as ipi
from ottla.wire.messages import join_group as jg
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import list_groups as lig
from ottla.wire.messages import list_offsets as lo
from ottla.wire.messages import list_partition_reassignments as lpr
from ottla.wire.messages import list_transactions as lt
from ottla.wire.messages import metadata as md
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import offset_delete as od
from ottla.wire.messages import offset_fetch as of
from ottla.wire.messages import offset_for_leader_epoch as ofe
from ottla.wire.messages import produce as pr
from ottla.wire.messages import remove_raft_voter as rrv
from ottla.wire.messages import sync_group as sg
from ottla.wire.messages import txn_offset_commit as toc
from ottla.wire.messages import unregister_broker as ub
from ottla.wire.messages import update_features as uf
from ottla.wire.messages import write_txn_markers as wtm
from tests.support.broker import Broker
from tests.support.request_cost import TickingClock, cost_of

MANY = 3000
PARTITIONS = 600
GROUP = "g"
TIMES_REQUEST = 64
"""How many times larger than its request a response may be."""

CONSTANT_BYTES = 256 * 1024
MOST_BYTES = {ApiKey.DESCRIBE_CONFIGS: 20 * 1024 * 1024}
"""APIs whose responses have a limit of their own."""

MOST_CALLS = 30_000


class Case(NamedTuple):
    """A request, and what is there before it."""

    name: str
    request: Message | Callable[[Broker], Message]
    version: int
    prepare: Callable[[Broker], object] | None = None


def topics(broker: Broker, count: int = 1, partitions: int = PARTITIONS) -> None:
    """Create t, t1, t2 and so on. The first has most partitions."""
    first = ct.CreatableTopic(name="t", num_partitions=partitions, replication_factor=1)
    others = [
        ct.CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1)
        for number in range(1, count)
    ]
    cost_of(broker, ct.CreateTopicsRequest(topics=[first, *others]), 7)


def many_topics(broker: Broker) -> None:
    topics(broker, 600, 1)


def group(broker: Broker) -> None:
    """Create a group with an offset that has long metadata."""
    topics(broker, 1, 3)
    cost_of(broker, fc.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
    partition = oc.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="m" * 4000
    )
    topic = oc.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = oc.OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic]
    )
    cost_of(broker, request, 9)


def large_group(broker: Broker) -> None:
    """Create a group with very many members."""
    group(broker)
    members = [
        MemberMetadata(
            member_id=name, client_id="c", session_timeout=10_000, rebalance_timeout=10_000
        )
        for name in names()
    ]
    value = GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol="range", leader="name0", members=members
    )
    large = broker.node.groups.runtime_of(GROUP).shard.groups[GROUP]
    assert isinstance(large, ClassicGroup)
    large.install(value)


def producers(broker: Broker) -> None:
    """Let a partition remember many producers."""
    topics(broker, 1, 1)
    log = broker.node.topics.partition_named("t", 0).online_log()
    for producer_id in range(MANY):
        log.producers.entries[producer_id] = ProducerEntry(0, b"", START_MS, -1, -1)


def transactions(broker: Broker) -> None:
    """Let a producer have an id and a group, and others be known."""
    group(broker)
    cost_of(broker, fc.FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), 4)
    for name in ("id", *(f"id{number}" for number in range(30))):
        request = ipi.InitProducerIdRequest(transactional_id=name, transaction_timeout=1000)
        cost_of(broker, request, 5)


def producer_id(broker: Broker) -> int:
    shard = broker.node.transactions.runtime_of("id").shard
    return shard.transactions["id"].value.producer_id


def add_partitions(broker: Broker, count: int) -> apt.AddPartitionsToTxnRequest:
    """Add one partition many times, or many that do not exist."""
    indexes = [0] * MANY if count == 1 else list(range(count))
    return apt.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=producer_id(broker),
        v3_and_below_topics=[apt.AddPartitionsToTxnTopic(name="t", partitions=indexes)],
    )


def topic_id(broker: Broker) -> bytes:
    return broker.node.image.topics["t"].topic_id


def names() -> list[str]:
    return [f"name{number}" for number in range(MANY)]


BATCH = bytes(build_batch([(None, b"v", START_MS, ())]))
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


def produce_to_all(batch: bytes) -> pr.ProduceRequest:
    """Write to every partition of t, and to as many that do not exist."""
    partitions = [
        pr.PartitionProduceData(index=index, records=batch) for index in range(2 * PARTITIONS)
    ]
    topic = pr.TopicProduceData(name="t", partition_data=partitions)
    return pr.ProduceRequest(acks=-1, timeout=1000, topic_data=[topic])


def produce_by_id(broker: Broker) -> pr.ProduceRequest:
    request = produce_to_all(BATCH)
    request.topic_data[0].topic_id = topic_id(broker)
    return request


def many_partitions(broker: Broker) -> None:
    """Create a topic with very many partitions; some have records."""
    topics(broker, 1, 2 * PARTITIONS)
    cost_of(broker, produce_to_all(BATCH), 12)


def fetch_many(max_wait_ms: int, session_epoch: int = -1, offset: int = 0) -> fe.FetchRequest:
    """Fetch from very many partitions. If it may wait, it asks for more than there is."""
    partitions = [
        fe.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
        for index in range(2 * PARTITIONS)
    ]
    return fe.FetchRequest(
        max_wait=max_wait_ms,
        min_bytes=1 << 30 if max_wait_ms else 1,
        session_epoch=session_epoch,
        topics=[fe.FetchTopic(topic="t", partitions=partitions)],
    )


def large_session(broker: Broker) -> int:
    """Open a fetch session with very many partitions; return its id."""
    client = broker.connect()
    client.send(fetch_many(0, session_epoch=0), 12)
    broker.node.settle()
    while not client.connection.out:
        broker.pass_time(1)
    ((_, response),) = client.replies()
    assert isinstance(response, fe.FetchResponse)
    return response.session_id


CASES: dict[int, list[Case]] = {
    ApiKey.PRODUCE: [
        Case(
            "one partition many times",
            pr.ProduceRequest(
                acks=-1,
                timeout=1000,
                topic_data=[
                    pr.TopicProduceData(
                        name="t",
                        partition_data=[pr.PartitionProduceData(index=0, records=BATCH)] * 300,
                    )
                ],
            ),
            12,
            topics,
        ),
        Case("many partitions", produce_to_all(BATCH), 12, topics),
        Case("many partitions by id", produce_by_id, 13, topics),
        Case("many partitions of an old version", produce_to_all(BATCH), 8, topics),
        Case(
            "partitions that do not exist",
            pr.ProduceRequest(
                acks=1,
                topic_data=[
                    pr.TopicProduceData(
                        name="t",
                        partition_data=[
                            pr.PartitionProduceData(index=index, records=None)
                            for index in range(3 * MANY)
                        ],
                    )
                ],
            ),
            12,
            topics,
        ),
        Case(
            "many topics",
            pr.ProduceRequest(
                acks=1,
                topic_data=[
                    pr.TopicProduceData(
                        name=name, partition_data=[pr.PartitionProduceData(records=BATCH)]
                    )
                    for name in names()
                ],
            ),
            12,
        ),
    ],
    ApiKey.FETCH: [
        Case(
            "one partition many times",
            fe.FetchRequest(
                max_wait=0,
                topics=[
                    fe.FetchTopic(topic="t", partitions=[fe.FetchPartition(partition=0)] * MANY)
                ],
            ),
            12,
            topics,
        ),
        Case(
            "many partitions",
            fe.FetchRequest(
                max_wait=0,
                topics=[
                    fe.FetchTopic(
                        topic="t",
                        partitions=[
                            fe.FetchPartition(partition=index) for index in range(PARTITIONS)
                        ],
                    )
                ],
            ),
            12,
            topics,
        ),
        *[
            Case(
                f"very many partitions, version {version}", fetch_many(0), version, many_partitions
            )
            for version in (4, 7, 12)
        ],
        Case("very many partitions that wait", fetch_many(10), 12, many_partitions),
        Case("very many partitions in a session", fetch_many(10, session_epoch=0), 12, topics),
        Case(
            "very many topics",
            fe.FetchRequest(
                max_wait=0,
                topics=[
                    fe.FetchTopic(topic=name, partitions=[fe.FetchPartition()]) for name in names()
                ],
            ),
            12,
        ),
        Case(
            "a small request of a large session",
            lambda broker: fe.FetchRequest(
                session_id=large_session(broker), session_epoch=1, max_wait=10, min_bytes=1 << 30
            ),
            12,
            many_partitions,
        ),
        Case(
            "very many forgotten partitions",
            lambda broker: fe.FetchRequest(
                session_id=large_session(broker),
                session_epoch=1,
                forgotten_topics_data=[fe.ForgottenTopic(topic="t", partitions=list(range(MANY)))],
            ),
            12,
            many_partitions,
        ),
    ],
    ApiKey.LIST_OFFSETS: [
        Case(
            "one partition many times",
            lo.ListOffsetsRequest(
                topics=[
                    lo.ListOffsetsTopic(name="t", partitions=[lo.ListOffsetsPartition()] * MANY)
                ]
            ),
            10,
            topics,
        ),
        Case(
            "many partitions",
            lo.ListOffsetsRequest(
                topics=[
                    lo.ListOffsetsTopic(
                        name="t",
                        partitions=[
                            lo.ListOffsetsPartition(partition_index=index, timestamp=-1)
                            for index in range(PARTITIONS)
                        ],
                    )
                ]
            ),
            10,
            topics,
        ),
        Case(
            "many topics",
            lo.ListOffsetsRequest(
                topics=[
                    lo.ListOffsetsTopic(name=name, partitions=[lo.ListOffsetsPartition()])
                    for name in names()
                ]
            ),
            10,
        ),
    ],
    ApiKey.METADATA: [
        Case(
            "one name many times",
            md.MetadataRequest(topics=[md.MetadataRequestTopic(name="t")] * MANY),
            12,
            topics,
        ),
        Case(
            "one id many times",
            lambda broker: md.MetadataRequest(
                topics=[md.MetadataRequestTopic(name=None, topic_id=topic_id(broker))] * MANY
            ),
            12,
            topics,
        ),
        Case(
            "one unknown name many times",
            md.MetadataRequest(topics=[md.MetadataRequestTopic(name="new")] * MANY),
            9,
        ),
        Case("all topics", md.MetadataRequest(topics=None), 12, many_topics),
        Case("all partitions", md.MetadataRequest(topics=None), 8, topics),
        Case(
            "names that do not exist",
            md.MetadataRequest(
                topics=[md.MetadataRequestTopic(name=name) for name in names()],
                allow_auto_topic_creation=False,
            ),
            12,
        ),
        Case(
            "names that are created",
            md.MetadataRequest(
                topics=[md.MetadataRequestTopic(name=name) for name in names()[:1000]]
            ),
            12,
        ),
        Case(
            "ids in a version without ids",
            md.MetadataRequest(
                topics=[md.MetadataRequestTopic(name="t", topic_id=bytes(15) + b"1")] * MANY
            ),
            10,
        ),
    ],
    ApiKey.OFFSET_COMMIT: [
        Case(
            "one partition many times",
            oc.OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=-1,
                topics=[
                    oc.OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            oc.OffsetCommitRequestPartition(
                                committed_offset=1, committed_metadata=""
                            )
                        ]
                        * 300,
                    )
                ],
            ),
            9,
            group,
        )
    ],
    ApiKey.OFFSET_FETCH: [
        Case(
            "one partition many times",
            of.OffsetFetchRequest(
                groups=[
                    of.OffsetFetchRequestGroup(
                        group_id=GROUP,
                        topics=[of.OffsetFetchRequestTopics(name="t", partition_indexes=[0] * MANY)]
                        * 3,
                    )
                ]
            ),
            9,
            group,
        ),
        Case(
            "one group many times",
            of.OffsetFetchRequest(
                groups=[of.OffsetFetchRequestGroup(group_id=GROUP, topics=None)] * MANY
            ),
            9,
            group,
        ),
        Case(
            "many partitions of an old version",
            of.OffsetFetchRequest(
                group_id=GROUP,
                topics=[of.OffsetFetchRequestTopic(name="t", partition_indexes=list(range(MANY)))],
            ),
            7,
            group,
        ),
    ],
    ApiKey.FIND_COORDINATOR: [
        Case("one key many times", fc.FindCoordinatorRequest(coordinator_keys=["k"] * MANY), 4),
        Case("many keys", fc.FindCoordinatorRequest(coordinator_keys=names()), 4),
    ],
    ApiKey.JOIN_GROUP: [
        Case(
            "one protocol many times",
            jg.JoinGroupRequest(
                group_id=GROUP,
                session_timeout=10_000,
                rebalance_timeout=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[jg.JoinGroupRequestProtocol(name="range", metadata=b"")] * 1000,
            ),
            9,
            group,
        ),
        Case(
            "very many protocols",
            jg.JoinGroupRequest(
                group_id=GROUP,
                session_timeout=10_000,
                rebalance_timeout=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[
                    jg.JoinGroupRequestProtocol(name=f"p{number}", metadata=b"")
                    for number in range(30_000)
                ],
            ),
            9,
            group,
        ),
    ],
    ApiKey.HEARTBEAT: [
        Case("unknown member", hb.HeartbeatRequest(group_id=GROUP, member_id="m"), 4, group)
    ],
    ApiKey.LEAVE_GROUP: [
        Case(
            "one member many times",
            lg.LeaveGroupRequest(group_id=GROUP, members=[lg.MemberIdentity(member_id="m")] * 1000),
            5,
            group,
        ),
        Case(
            "many members",
            lg.LeaveGroupRequest(
                group_id=GROUP, members=[lg.MemberIdentity(member_id=name) for name in names()]
            ),
            5,
            large_group,
        ),
    ],
    ApiKey.SYNC_GROUP: [
        Case(
            "one assignment many times",
            sg.SyncGroupRequest(
                group_id=GROUP,
                member_id="m",
                protocol_type="consumer",
                protocol_name="range",
                assignments=[sg.SyncGroupRequestAssignment(member_id="m")] * MANY,
            ),
            5,
            group,
        )
    ],
    ApiKey.DESCRIBE_GROUPS: [
        Case("one group many times", deg.DescribeGroupsRequest(groups=[GROUP] * MANY), 6, group),
        Case("many groups", deg.DescribeGroupsRequest(groups=names()), 6, group),
        Case("many members", deg.DescribeGroupsRequest(groups=[GROUP]), 6, large_group),
    ],
    ApiKey.LIST_GROUPS: [
        Case(
            "one filter many times",
            lig.ListGroupsRequest(states_filter=["Empty"] * MANY, types_filter=["classic"] * MANY),
            5,
            group,
        )
    ],
    ApiKey.API_VERSIONS: [
        Case(
            "newest",
            av.ApiVersionsRequest(client_software_name="c", client_software_version="1"),
            4,
        )
    ],
    ApiKey.CREATE_TOPICS: [
        Case(
            "one name many times",
            ct.CreateTopicsRequest(topics=[ct.CreatableTopic(name="a")] * MANY),
            7,
        ),
        Case(
            "validate only",
            ct.CreateTopicsRequest(
                topics=[
                    ct.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
                    for name in names()
                ],
                validate_only=True,
            ),
            7,
        ),
        Case(
            "many partitions",
            ct.CreateTopicsRequest(
                topics=[ct.CreatableTopic(name="a", num_partitions=2500, replication_factor=1)]
            ),
            7,
        ),
        Case(
            "one setting many times",
            ct.CreateTopicsRequest(
                topics=[
                    ct.CreatableTopic(
                        name="a",
                        num_partitions=1,
                        replication_factor=1,
                        configs=[ct.CreatableTopicConfig(name="retention.ms", value="1")] * MANY,
                    )
                ]
            ),
            7,
        ),
    ],
    ApiKey.DELETE_TOPICS: [
        Case("one name many times", dt.DeleteTopicsRequest(topic_names=["t"] * MANY), 5, topics),
        Case(
            "many topics",
            dt.DeleteTopicsRequest(
                topics=[dt.DeleteTopicState(name=f"t{number}") for number in range(1, 600)]
            ),
            6,
            many_topics,
        ),
        Case("many partitions", dt.DeleteTopicsRequest(topic_names=["t"]), 5, topics),
    ],
    ApiKey.DELETE_RECORDS: [
        Case(
            "one partition many times",
            dr.DeleteRecordsRequest(
                topics=[
                    dr.DeleteRecordsTopic(
                        name="t", partitions=[dr.DeleteRecordsPartition(offset=0)] * MANY
                    )
                ]
            ),
            2,
            topics,
        ),
        Case(
            "many partitions",
            dr.DeleteRecordsRequest(
                topics=[
                    dr.DeleteRecordsTopic(
                        name="t",
                        partitions=[
                            dr.DeleteRecordsPartition(partition_index=index, offset=0)
                            for index in range(PARTITIONS)
                        ],
                    )
                ]
            ),
            2,
            topics,
        ),
    ],
    ApiKey.INIT_PRODUCER_ID: [Case("newest", ipi.InitProducerIdRequest(transactional_id=None), 5)],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [
        Case(
            "one partition many times",
            ofe.OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    ofe.OffsetForLeaderTopic(
                        topic="t",
                        partitions=[
                            ofe.OffsetForLeaderPartition(current_leader_epoch=-1, leader_epoch=0)
                        ]
                        * MANY,
                    )
                ],
            ),
            4,
            topics,
        )
    ],
    ApiKey.DESCRIBE_CONFIGS: [
        Case(
            "one broker many times",
            dc.DescribeConfigsRequest(
                resources=[
                    dc.DescribeConfigsResource(
                        resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None
                    )
                ]
                * MANY,
                include_synonyms=True,
                include_documentation=True,
            ),
            4,
        ),
        Case(
            "many topics",
            dc.DescribeConfigsRequest(
                resources=[
                    dc.DescribeConfigsResource(
                        resource_type=TOPIC_RESOURCE, resource_name=f"t{n}", configuration_keys=None
                    )
                    for n in range(1, 600)
                ],
                include_synonyms=True,
                include_documentation=True,
            ),
            4,
            many_topics,
        ),
    ],
    ApiKey.ALTER_CONFIGS: [
        Case(
            "one topic many times",
            ac.AlterConfigsRequest(
                resources=[ac.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t")]
                * MANY
            ),
            2,
            topics,
        ),
        Case(
            "many topics",
            ac.AlterConfigsRequest(
                resources=[
                    ac.AlterConfigsResource(
                        resource_type=TOPIC_RESOURCE,
                        resource_name=f"t{number}",
                        configs=[ac.AlterableConfig(name="retention.ms", value="1")],
                    )
                    for number in range(1, 600)
                ]
            ),
            2,
            many_topics,
        ),
    ],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [
        Case(
            "one topic many times",
            iac.IncrementalAlterConfigsRequest(
                resources=[
                    iac.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t")
                ]
                * MANY
            ),
            1,
            topics,
        ),
        Case(
            "a list with many words",
            iac.IncrementalAlterConfigsRequest(
                resources=[
                    iac.AlterConfigsResource(
                        resource_type=TOPIC_RESOURCE,
                        resource_name="t",
                        configs=[
                            iac.AlterableConfig(
                                name="cleanup.policy", config_operation=2, value=",".join(names())
                            )
                        ],
                    )
                ]
            ),
            1,
            topics,
        ),
    ],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [
        Case(
            "one partition many times",
            arld.AlterReplicaLogDirsRequest(
                dirs=[
                    arld.AlterReplicaLogDir(
                        path="/nowhere",
                        topics=[arld.AlterReplicaLogDirTopic(name="t", partitions=[0] * MANY)],
                    )
                ]
            ),
            2,
            topics,
        ),
    ],
    ApiKey.DESCRIBE_LOG_DIRS: [
        Case("all", dld.DescribeLogDirsRequest(topics=None), 4, topics),
        Case(
            "one partition many times",
            dld.DescribeLogDirsRequest(
                topics=[dld.DescribableLogDirTopic(topic="t", partitions=[0] * MANY)]
            ),
            4,
            topics,
        ),
    ],
    ApiKey.CREATE_PARTITIONS: [
        Case(
            "one topic many times",
            cp.CreatePartitionsRequest(
                topics=[cp.CreatePartitionsTopic(name="t", count=700, assignments=None)] * MANY
            ),
            3,
            topics,
        ),
        Case(
            "many partitions",
            cp.CreatePartitionsRequest(
                topics=[cp.CreatePartitionsTopic(name="t", count=2000, assignments=None)]
            ),
            3,
            topics,
        ),
    ],
    ApiKey.DELETE_GROUPS: [
        Case("one group many times", dg.DeleteGroupsRequest(groups_names=[GROUP] * MANY), 2, group),
        Case("many groups", dg.DeleteGroupsRequest(groups_names=names()), 2, group),
    ],
    ApiKey.OFFSET_DELETE: [
        Case(
            "one partition many times",
            od.OffsetDeleteRequest(
                group_id=GROUP,
                topics=[
                    od.OffsetDeleteRequestTopic(
                        name="t", partitions=[od.OffsetDeleteRequestPartition()] * MANY
                    )
                ],
            ),
            0,
            group,
        )
    ],
    ApiKey.DESCRIBE_CLUSTER: [Case("brokers", dcl.DescribeClusterRequest(), 1)],
    ApiKey.DESCRIBE_PRODUCERS: [
        Case(
            "one partition many times",
            dp.DescribeProducersRequest(
                topics=[dp.TopicRequest(name="t", partition_indexes=[0] * MANY)] * 3
            ),
            0,
            producers,
        )
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: [
        Case("one many times", lambda broker: add_partitions(broker, 1), 3, transactions),
        Case(
            "many that do not exist", lambda broker: add_partitions(broker, MANY), 3, transactions
        ),
        Case(
            "as many as a transaction may have, that do not exist",
            lambda broker: add_partitions(broker, MAX_PARTITIONS),
            3,
            transactions,
        ),
        Case(
            "many transactions",
            apt.AddPartitionsToTxnRequest(
                transactions=[
                    apt.AddPartitionsToTxnTransaction(
                        transactional_id=f"id{number}",
                        verify_only=bool(number % 2),
                        topics=[apt.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
                    )
                    for number in range(MANY)
                ]
            ),
            5,
            transactions,
        ),
    ],
    ApiKey.ADD_OFFSETS_TO_TXN: [
        Case(
            "one",
            lambda broker: aot.AddOffsetsToTxnRequest(
                transactional_id="id", producer_id=producer_id(broker), group_id=GROUP
            ),
            4,
            transactions,
        )
    ],
    ApiKey.END_TXN: [
        Case(
            "an abort of nothing",
            lambda broker: et.EndTxnRequest(transactional_id="id", producer_id=producer_id(broker)),
            5,
            transactions,
        )
    ],
    ApiKey.TXN_OFFSET_COMMIT: [
        Case(
            "many partitions, each twice",
            lambda broker: toc.TxnOffsetCommitRequest(
                transactional_id="id",
                producer_id=producer_id(broker),
                group_id=GROUP,
                generation_id=-1,
                topics=[
                    toc.TxnOffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            toc.TxnOffsetCommitRequestPartition(partition_index=index // 2)
                            for index in range(2000)
                        ],
                    )
                ],
            ),
            5,
            transactions,
        )
    ],
    ApiKey.DESCRIBE_TRANSACTIONS: [
        Case(
            "many ids",
            det.DescribeTransactionsRequest(transactional_ids=[*names(), *["id"] * MANY]),
            0,
            transactions,
        )
    ],
    ApiKey.LIST_TRANSACTIONS: [
        Case(
            "with all filters",
            lt.ListTransactionsRequest(
                state_filters=names(),
                producer_id_filters=list(range(MANY)),
                transactional_id_pattern="(id[0-9]+)+",
            ),
            2,
            transactions,
        )
    ],
    ApiKey.WRITE_TXN_MARKERS: [
        Case(
            "one partition many times",
            wtm.WriteTxnMarkersRequest(
                markers=[
                    wtm.WritableTxnMarker(
                        topics=[wtm.WritableTxnMarkerTopic(name="t", partition_indexes=[0] * MANY)]
                    )
                ]
            ),
            1,
            topics,
        ),
        Case(
            "many partitions and producers",
            wtm.WriteTxnMarkersRequest(
                markers=[
                    wtm.WritableTxnMarker(
                        producer_id=number,
                        topics=[
                            wtm.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1, 2, 3000])
                        ],
                    )
                    for number in range(MANY // 10)
                ]
            ),
            2,
            topics,
        ),
    ],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [
        Case(
            "one name many times",
            dtp.DescribeTopicPartitionsRequest(topics=[dtp.TopicRequest(name="t")] * MANY),
            0,
            topics,
        ),
        Case(
            "names that do not exist",
            dtp.DescribeTopicPartitionsRequest(
                topics=[dtp.TopicRequest(name=name) for name in names()]
            ),
            0,
        ),
    ],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [
        Case(
            "one topic many times",
            cgh.ConsumerGroupHeartbeatRequest(
                group_id="consumers",
                member_id="m",
                member_epoch=0,
                rebalance_timeout=10_000,
                subscribed_topic_names=["t"] * MANY,
                topic_partitions=[],
            ),
            1,
            group,
        )
    ],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [
        Case(
            "one group many times",
            cgd.ConsumerGroupDescribeRequest(group_ids=[GROUP] * MANY),
            1,
            group,
        ),
        Case("many groups", cgd.ConsumerGroupDescribeRequest(group_ids=names()), 1, group),
    ],
    ApiKey.ELECT_LEADERS: [
        Case(
            "one partition many times",
            el.ElectLeadersRequest(
                topic_partitions=[el.TopicPartitions(topic="t", partitions=[0] * MANY)]
            ),
            2,
            topics,
        ),
        Case("all partitions", el.ElectLeadersRequest(topic_partitions=None), 2, topics),
        Case(
            "leaders of topics that do not exist",
            el.ElectLeadersRequest(
                election_type=1,
                topic_partitions=[
                    el.TopicPartitions(topic=name, partitions=[0]) for name in names()
                ],
            ),
            2,
        ),
    ],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [
        Case(
            "one partition many times",
            apr.AlterPartitionReassignmentsRequest(
                topics=[
                    apr.ReassignableTopic(
                        name="t",
                        partitions=[apr.ReassignablePartition(replicas=[1])] * MANY,
                    )
                ]
            ),
            1,
            topics,
        ),
        Case(
            "many replicas that do not exist",
            apr.AlterPartitionReassignmentsRequest(
                topics=[
                    apr.ReassignableTopic(
                        name="t",
                        partitions=[apr.ReassignablePartition(replicas=[1, *range(2, MANY)])],
                    )
                ]
            ),
            1,
            topics,
        ),
    ],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [
        Case("all", lpr.ListPartitionReassignmentsRequest(topics=None), 0, topics),
        Case(
            "one partition many times",
            lpr.ListPartitionReassignmentsRequest(
                topics=[
                    lpr.ListPartitionReassignmentsTopics(name="t", partition_indexes=[0] * MANY)
                ]
            ),
            0,
            topics,
        ),
    ],
    ApiKey.DESCRIBE_QUORUM: [
        Case(
            "one topic many times",
            dq.DescribeQuorumRequest(
                topics=[
                    dq.RequestTopicData(
                        topic_name="t", partitions=[dq.RequestPartitionData(partition_index=0)]
                    )
                ]
                * MANY
            ),
            2,
        )
    ],
    ApiKey.UPDATE_FEATURES: [
        Case(
            "one feature many times",
            uf.UpdateFeaturesRequest(
                feature_updates=[uf.FeatureUpdateKey(feature="group.version", max_version_level=1)]
                * SERVED[ApiKey.UPDATE_FEATURES].most_items
            ),
            1,
        )
    ],
    ApiKey.UNREGISTER_BROKER: [
        Case("a broker", ub.UnregisterBrokerRequest(broker_id=2), 0, topics),
    ],
    ApiKey.ADD_RAFT_VOTER: [
        Case(
            "one listener many times",
            arv.AddRaftVoterRequest(
                listeners=[arv.Listener(name="CONTROLLER", host="h", port=1)] * MANY
            ),
            1,
        )
    ],
    ApiKey.REMOVE_RAFT_VOTER: [Case("a voter", rrv.RemoveRaftVoterRequest(voter_id=2), 0)],
}


def test_every_served_api_has_requests_here() -> None:
    assert set(CASES) == set(SERVED)


@pytest.mark.parametrize(
    ("key", "case"),
    [
        pytest.param(key, case, id=f"{ApiKey(key).name}: {case.name}")
        for key, cases in CASES.items()
        for case in cases
    ],
)
def test_cost(key: int, case: Case) -> None:
    broker = Broker(TickingClock())
    if case.prepare is not None:
        case.prepare(broker)
    request = case.request if isinstance(case.request, Message) else case.request(broker)
    cost_of(Broker(TickingClock()), request, case.version)  # imports and compiles what it needs
    cost = cost_of(broker, request, case.version)
    constant = MOST_BYTES.get(ApiKey(key), CONSTANT_BYTES)
    assert cost.response_bytes <= TIMES_REQUEST * cost.request_bytes + constant
    assert cost.most_calls <= MOST_CALLS
