"""What has ended leaves no objects in cycles, which only a look at everything would free.

Topics, replicas, groups, transactions, fetch sessions and connections may live for long. By then
no collection looks at them any more (`server/garbage_collection`), so reference counts must
free them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.message import Message
from ottla.wire.messages import add_partitions_to_txn as apt
from ottla.wire.messages import consumer_group_heartbeat as cgh
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import delete_groups as dg
from ottla.wire.messages import delete_topics as dt
from ottla.wire.messages import end_txn as et
from ottla.wire.messages import fetch as fe
from ottla.wire.messages import find_coordinator as fc
from ottla.wire.messages import init_producer_id as ipi
from ottla.wire.messages import join_group as jg
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import sync_group as sg
from tests.support.broker import Broker, Client, produce
from tests.support.network import World, framed

TIMES = 20
_numbers = count()


class Life:
    """A broker, and a client that asks until it has an answer."""

    def __init__(self) -> None:
        self.broker = Broker(offsets_topic_num_partitions="3")
        self.name = ""

    def ask(self, client: Client, request: Message, version: int) -> Any:
        client.send(request, version)
        while True:
            self.broker.node.settle()
            for _, response in client.replies():
                return response
            self.broker.pass_time(1)

    def create_topic(self, client: Client) -> None:
        topic = ct.CreatableTopic(name=self.name, num_partitions=3, replication_factor=1)
        response = self.ask(client, ct.CreateTopicsRequest(topics=[topic]), 7)
        assert response.topics[0].error_code == 0

    def delete_group(self, client: Client) -> None:
        response = self.ask(client, dg.DeleteGroupsRequest(groups_names=[self.name]), 2)
        assert response.results[0].error_code == 0


def deleted_topic(life: Life, client: Client) -> None:
    life.create_topic(client)
    for index in range(3):
        life.ask(client, produce(life.name, index=index), 9)
    topic = dt.DeleteTopicState(name=life.name, topic_id=bytes(16))
    response = life.ask(client, dt.DeleteTopicsRequest(topics=[topic]), 6)
    assert response.responses[0].error_code == 0


def replica_that_moves_away(life: Life, client: Client) -> None:
    life.create_topic(client)
    topic_id = life.broker.node.image.topics[life.name].topic_id
    change = PartitionChangeRecord(
        partition_id=0, topic_id=topic_id, replicas=[2], isr=[2], leader=2
    )
    life.broker.write_metadata(change)
    life.broker.pass_time(1)
    assert sorted(life.broker.node.topics.by_id[topic_id].partitions) == [1, 2]


def classic_group(life: Life, client: Client) -> None:
    def join(member_id: str) -> Any:
        protocol = jg.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = jg.JoinGroupRequest(
            group_id=life.name,
            session_timeout=10_000,
            rebalance_timeout=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        return life.ask(client, request, 5)

    member_id = join("").member_id
    generation = join(member_id).generation_id
    assignment = sg.SyncGroupRequestAssignment(member_id=member_id, assignment=b"x")
    sync = sg.SyncGroupRequest(
        group_id=life.name,
        generation_id=generation,
        member_id=member_id,
        assignments=[assignment],
    )
    assert life.ask(client, sync, 3).error_code == 0
    leave = lg.LeaveGroupRequest(
        group_id=life.name, members=[lg.MemberIdentity(member_id=member_id)]
    )
    assert life.ask(client, leave, 4).error_code == 0
    life.delete_group(client)


def consumer_group(life: Life, client: Client) -> None:
    for epoch in (0, -1):
        heartbeat = cgh.ConsumerGroupHeartbeatRequest(
            group_id=life.name,
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout=10_000 if epoch == 0 else -1,
            subscribed_topic_names=["t"] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else None,
        )
        assert life.ask(client, heartbeat, 1).error_code == 0
    life.delete_group(client)


def group_of_offsets(life: Life, client: Client) -> None:
    partition = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = oc.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = oc.OffsetCommitRequest(
        group_id=life.name, generation_id_or_member_epoch=-1, topics=[topic]
    )
    assert life.ask(client, request, 9).topics[0].partitions[0].error_code == 0
    life.delete_group(client)


def transaction(life: Life, client: Client) -> None:
    producer = life.ask(
        client,
        ipi.InitProducerIdRequest(transactional_id=life.name, transaction_timeout=1000),
        4,
    )
    add = apt.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=life.name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[apt.AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    life.ask(client, add, 3)
    end = et.EndTxnRequest(
        transactional_id=life.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    assert life.ask(client, end, 3).error_code == 0


def fetch_session(life: Life, client: Client) -> None:
    for session_epoch in (0, -1):
        partition = fe.FetchPartition(partition=0, partition_max_bytes=1000)
        request = fe.FetchRequest(
            max_wait=0,
            max_bytes=1000,
            session_epoch=session_epoch,
            topics=[fe.FetchTopic(topic="t", partitions=[partition])],
        )
        life.ask(client, request, 12)


@pytest.mark.parametrize(
    "live",
    [
        deleted_topic,
        replica_that_moves_away,
        classic_group,
        consumer_group,
        group_of_offsets,
        transaction,
        fetch_session,
    ],
)
def test_what_has_ended_is_freed(live: Callable[[Life, Client], None]) -> None:
    life = Life()
    life.broker.topic("t")
    first = life.broker.connect()
    for kind in (0, 1):
        life.ask(first, fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), 4)

    def live_and_end() -> None:
        life.name = f"name{next(_numbers)}"
        client = life.broker.connect()
        live(life, client)
        life.broker.node.close_connection(client.connection)

    live_and_end()  # imports what it needs
    assert garbage_of(live_and_end) == 0


def test_a_closed_connection_is_freed() -> None:
    world = World()

    def connect_and_close() -> None:
        stream, channel = world.accept()
        world.receive(channel, stream, framed(b"a request"))
        world.node.ready.append(channel.connection)
        world.engine.close(channel)  # with a reply that is ready
        world.engine.settle()

    connect_and_close()
    assert garbage_of(connect_and_close) == 0


def garbage_of(action: Callable[[], None]) -> int:
    """Return how many objects in cycles are left if something is done many times."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            action()
        return gc.collect()
    finally:
        gc.enable()
