"""The coordinator of a group dies: another broker goes on with offsets and members."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.runtime.partitioner import partition_of
from ottla.model.errors import ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.sim.cluster import SimCluster
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.sim.test_membership import unfenced
from tests.sim.test_quorum_of_several import NODES
from tests.sim.test_replication import create

GROUP = "readers"
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def started(seed: int) -> SimCluster:
    settings = {"offsets.topic.num.partitions": "4", "offsets.topic.replication.factor": "3"}
    cluster = SimCluster(3, seed, settings, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    create(cluster, "t")
    find(cluster, 1)  # which creates the topic of the offsets
    cluster.run_until(lambda: all(OFFSETS_TOPIC in cluster.node(n).image.topics for n in NODES))
    cluster.run_for(500)
    return cluster


def coordinator(cluster: SimCluster, number: int) -> int:
    """Return which broker coordinates the group, as one of them says; 0 if it does not know."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
    response: Any = cluster.ask(number, request, 4)
    (found,) = response.coordinators
    return int(found.node_id) if found.error_code == ErrorCode.NONE else 0


def find(cluster: SimCluster, number: int) -> int:
    """Return the coordinator, once there is one."""
    for _ in range(200):
        found = coordinator(cluster, number)
        if found:
            return found
        cluster.run_for(20)
    raise AssertionError("no coordinator was found")


def commit(cluster: SimCluster, number: int, offset: int, generation: int, member: str) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
    )
    response: Any = cluster.ask(number, request, 9)
    return int(response.topics[0].partitions[0].error_code)


def committed(cluster: SimCluster, number: int) -> int:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    for _ in range(200):
        response: Any = cluster.ask(number, OffsetFetchRequest(groups=[group]), 8)
        (answer,) = response.groups
        if answer.error_code not in RETRIED:
            assert answer.error_code == ErrorCode.NONE
            return int(answer.topics[0].partitions[0].committed_offset)
        cluster.run_for(20)
    raise AssertionError("the offsets were not loaded")


def kill_coordinator(cluster: SimCluster, number: int) -> int:
    """Return the next coordinator."""
    cluster.kill(number)
    others = [n for n in NODES if n != number]
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(others) for n in others))
    found = {find(cluster, n) for n in others}
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("seed", range(4))
def test_offsets_survive_the_coordinator(seed: int) -> None:
    cluster = started(seed)
    first = find(cluster, 1)
    assert {find(cluster, n) for n in NODES} == {first}
    for offset in range(5):
        assert commit(cluster, first, offset, -1, "") == ErrorCode.NONE
    other = next(n for n in NODES if n != first)
    assert commit(cluster, other, 9, -1, "") == ErrorCode.NOT_COORDINATOR
    second = kill_coordinator(cluster, first)
    assert committed(cluster, second) == 4
    assert commit(cluster, second, 5, -1, "") == ErrorCode.NONE
    cluster.start(first)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    third = find(cluster, first)
    assert committed(cluster, third) == 5


@pytest.mark.parametrize("seed", range(3))
def test_a_commit_is_answered_when_the_followers_have_it(seed: int) -> None:
    cluster = started(seed)
    first = find(cluster, 1)
    assert commit(cluster, first, 3, -1, "") == ErrorCode.NONE
    index = partition_of(GROUP, 4)
    image = cluster.node(first).image.topics[OFFSETS_TOPIC].partitions[index]
    assert set(image.isr) == set(NODES)
    logs = [cluster.node(n).topics.partition_named(OFFSETS_TOPIC, index).log for n in NODES]
    ends = [log.log_end_offset for log in logs if log is not None]
    assert ends == [ends[0]] * 3
    assert ends[0] > 0


@pytest.mark.parametrize("seed", range(3))
def test_a_classic_member_keeps_its_session(seed: int) -> None:
    cluster = started(seed)
    first = find(cluster, 1)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"m")
    join = JoinGroupRequest(
        group_id=GROUP,
        session_timeout=30_000,
        rebalance_timeout=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined: Any = cluster.ask(first, join, 3)
    assert joined.error_code == ErrorCode.NONE
    member, generation = joined.member_id, joined.generation_id
    assignment = SyncGroupRequestAssignment(member_id=member, assignment=b"all of it")
    sync = SyncGroupRequest(
        group_id=GROUP, generation_id=generation, member_id=member, assignments=[assignment]
    )
    synced: Any = cluster.ask(first, sync, 1)
    assert synced.error_code == ErrorCode.NONE
    assert commit(cluster, first, 7, generation, member) == ErrorCode.NONE
    second = kill_coordinator(cluster, first)
    assert committed(cluster, second) == 7
    beat = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member)
    response: Any = cluster.ask(second, beat, 1)
    assert response.error_code == ErrorCode.NONE
    assert commit(cluster, second, 8, generation, member) == ErrorCode.NONE


@pytest.mark.parametrize("seed", range(3))
def test_a_consumer_protocol_member_keeps_its_epoch(seed: int) -> None:
    cluster = started(seed)
    first = find(cluster, 1)
    member = "member-0000000000000a"

    def beat(number: int, epoch: int) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout=30_000 if epoch == 0 else -1,
            subscribed_topic_names=["t"] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else None,
        )
        return cluster.ask(number, request, 1)

    joined = beat(first, 0)
    assert joined.error_code == ErrorCode.NONE
    epoch = joined.member_epoch
    assert commit(cluster, first, 7, epoch, member) == ErrorCode.NONE
    second = kill_coordinator(cluster, first)
    assert committed(cluster, second) == 7
    again = beat(second, epoch)
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, epoch)
    assert commit(cluster, second, 8, epoch, member) == ErrorCode.NONE


@pytest.mark.parametrize("seed", range(3))
def test_a_coordinator_that_is_cut_off_commits_nothing(seed: int) -> None:
    cluster = started(seed)
    first = find(cluster, 1)
    assert commit(cluster, first, 1, -1, "") == ErrorCode.NONE
    others = [n for n in NODES if n != first]
    for other in others:
        cluster.cut(first, other)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(others) for n in others))
    second = find(cluster, others[0])
    assert second != first
    assert committed(cluster, second) == 1
    assert commit(cluster, second, 5, -1, "") == ErrorCode.NONE
    for other in others:
        cluster.heal(first, other)
    assert commit(cluster, first, 2, -1, "") in RETRIED
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    third = find(cluster, first)
    assert committed(cluster, third) == 5
