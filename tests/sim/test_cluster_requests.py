"""What a client asks any broker of a cluster for, and what only the controller decides."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.membership.recently_fenced import LISTED_MS
from ottla.model.errors import ErrorCode
from ottla.sim.cluster import CONTROLLER, SimCluster
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.sim.test_membership import unfenced
from tests.sim.test_quorum_of_several import NODES, active
from tests.sim.test_replication import image, log_bytes, produce, started


def ask(cluster: SimCluster, number: int, request: Any, version: int) -> Any:
    return cluster.ask(number, request, version)


def follower_of_the_quorum(cluster: SimCluster, *numbers: int) -> int:
    """Return a broker whose controller is not the active one."""
    return next(n for n in numbers or NODES if n != active(cluster, *(numbers or NODES)))


def create(cluster: SimCluster, name: str, replicas: tuple[int, ...]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
    )
    number = follower_of_the_quorum(cluster)
    response = ask(cluster, number, CreateTopicsRequest(topics=[topic], timeout=10_000), 7)
    assert [each.error_code for each in response.topics] == [0]
    cluster.run_until(lambda: all(name in cluster.node(n).image.topics for n in NODES))


def described(cluster: SimCluster, number: int, name: str, version: int = 12) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    return ask(cluster, number, request, version)


# -- what clients see ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_metadata_leaves_out_a_dead_broker(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "alone", (3,))
    create(cluster, "shared", (3, 1, 2))
    cluster.kill(3)
    cluster.run_until(lambda: all(unfenced(cluster, n) == {1, 2} for n in (1, 2)))
    cluster.run_for(LISTED_MS + 1)
    response = described(cluster, 1, "alone")
    assert sorted(broker.node_id for broker in response.brokers) == [1, 2]
    assert response.controller_id in (1, 2)
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (partition.replica_nodes, partition.offline_replicas) == ([3], [3])
    (partition,) = described(cluster, 1, "shared").topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (0, 1)
    assert (partition.replica_nodes, partition.offline_replicas) == ([3, 1, 2], [3])
    (partition,) = described(cluster, 1, "shared", 0).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.REPLICA_NOT_AVAILABLE, 1)
    assert partition.replica_nodes == [1, 2]
    shown = ask(cluster, 1, DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert {each.broker_id: each.is_fenced for each in shown.brokers} == {
        1: False,
        2: False,
        3: True,
    }
    assert shown.controller_id in (1, 2)


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_broker_is_listed_until_clients_have_followed_its_leaders(seed: int) -> None:
    """librdkafka loses partitions for a second if broker and leader change in one answer."""
    cluster = started(seed)
    create(cluster, "shared", (3, 1, 2))
    cluster.kill(3)
    cluster.run_until(lambda: all(unfenced(cluster, n) == {1, 2} for n in (1, 2)))
    for version in (1, 12):
        response = described(cluster, 1, "shared", version)
        assert sorted(broker.node_id for broker in response.brokers) == [1, 2, 3]
        assert response.controller_id in (1, 2)
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (0, 1)
    assert partition.offline_replicas == [3]
    cluster.start(3)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    cluster.run_for(LISTED_MS + 1)
    response = described(cluster, 1, "shared")
    assert sorted(broker.node_id for broker in response.brokers) == [1, 2, 3]


def test_any_broker_is_named_as_the_controller() -> None:
    cluster = started(7)  # each node draws once for each image: here all draw different ones
    named = {
        described(cluster, number, "nothing").controller_id for _ in range(10) for number in NODES
    }
    assert named == set(NODES)


@pytest.mark.parametrize("seed", range(3))
def test_groups_wait_for_enough_brokers(seed: int) -> None:
    settings = {"offsets.topic.replication.factor": "4", "offsets.topic.num.partitions": "2"}
    cluster = SimCluster(3, seed, settings, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    request = FindCoordinatorRequest(key="group")
    for number in NODES:
        response = ask(cluster, number, request, 1)
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "only 3 broker(s) are registered" in response.error_message


@pytest.mark.parametrize("seed", range(3))
def test_the_offsets_topic_is_replicated(seed: int) -> None:
    settings = {"offsets.topic.num.partitions": "2"}
    cluster = SimCluster(3, seed, settings, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    ask(cluster, follower_of_the_quorum(cluster), FindCoordinatorRequest(key="group"), 1)
    name = "__consumer_offsets"
    cluster.run_until(lambda: all(name in cluster.node(n).image.topics for n in NODES))
    partitions = cluster.node(1).image.topics[name].partitions
    assert [sorted(each.replicas) for each in partitions] == [[1, 2, 3], [1, 2, 3]]


# -- elections -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_preferred_leader_is_elected_again(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t", (3, 1, 2))
    cluster.kill(3)
    cluster.run_until(lambda: image(cluster, 1, "t").leader == 1)
    request = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout=10_000
    )
    number = follower_of_the_quorum(cluster, 1, 2)
    (topic,) = ask(cluster, number, request, 2).replica_election_results
    code = topic.partition_result[0].error_code
    assert code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.start(3)
    cluster.run_until(lambda: set(image(cluster, 1, "t").isr) == set(NODES))
    (topic,) = ask(cluster, follower_of_the_quorum(cluster), request, 2).replica_election_results
    assert topic.partition_result[0].error_code == 0
    cluster.run_until(lambda: all(image(cluster, n, "t").leader == 3 for n in NODES))
    (topic,) = ask(cluster, 1, request, 2).replica_election_results
    assert topic.partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_leaders_are_balanced_by_themselves() -> None:
    settings = {"leader.imbalance.check.interval.seconds": "20"}
    cluster = SimCluster(3, 7, settings, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    create(cluster, "t", (3, 1, 2))
    cluster.kill(3)
    cluster.run_until(lambda: image(cluster, 1, "t").leader == 1)
    cluster.start(3)
    cluster.run_until(lambda: set(image(cluster, 1, "t").isr) == set(NODES), 15_000)
    assert image(cluster, 1, "t").leader == 1
    cluster.run_until(lambda: image(cluster, 1, "t").leader == 3, 45_000)


def test_leaders_stay_where_they_are_if_that_is_wanted() -> None:
    settings = {
        "leader.imbalance.check.interval.seconds": "5",
        "auto.leader.rebalance.enable": "false",
    }
    cluster = SimCluster(3, 7, settings, are_one_cluster=True)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    create(cluster, "t", (3, 1, 2))
    cluster.kill(3)
    cluster.run_until(lambda: image(cluster, 1, "t").leader == 1)
    cluster.start(3)
    cluster.run_until(lambda: set(image(cluster, 1, "t").isr) == set(NODES))
    cluster.run_for(30_000)
    assert image(cluster, 1, "t").leader == 1


@pytest.mark.parametrize("seed", range(3))
def test_an_unclean_election_on_demand(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t", (3, 1))
    assert produce(cluster, 3, "t", b"one") == 0
    cluster.kill(1)
    cluster.run_until(lambda: image(cluster, 2, "t").isr == (3,))
    cluster.kill(3)
    cluster.start(1)
    cluster.run_until(lambda: unfenced(cluster, 2) == {1, 2})
    assert image(cluster, 2, "t").leader == -1
    request = ElectLeadersRequest(election_type=1, topic_partitions=None, timeout=10_000)
    (topic,) = ask(cluster, 2, request, 2).replica_election_results
    assert [(each.partition_id, each.error_code) for each in topic.partition_result] == [(0, 0)]
    cluster.run_until(lambda: image(cluster, 1, "t").leader == 1)
    assert image(cluster, 1, "t").isr == (1,)


# -- reassignments -------------------------------------------------------------------------


def reassign(cluster: SimCluster, replicas: list[int] | None, name: str = "t") -> int:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=[partition])], timeout=10_000
    )
    response = ask(cluster, follower_of_the_quorum(cluster), request, 1)
    assert response.error_code == 0
    (topic,) = response.responses
    return int(topic.partitions[0].error_code)


def hosts(cluster: SimCluster, number: int, name: str = "t") -> bool:
    return cluster.node(number).topics.named(name) is not None


@pytest.mark.parametrize("seed", range(5))
def test_replicas_move_with_their_records(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t", (1, 2))
    assert [produce(cluster, 1, "t", b"%d" % n) for n in range(5)] == [0] * 5
    expected = log_bytes(cluster, 1, "t")
    assert reassign(cluster, [3, 2]) == 0
    cluster.run_until(lambda: all(image(cluster, n, "t").replicas == (3, 2) for n in NODES))
    cluster.run_until(lambda: image(cluster, 3, "t").leader == 3)
    assert set(image(cluster, 3, "t").isr) == {2, 3}
    cluster.run_until(lambda: not hosts(cluster, 1))
    assert log_bytes(cluster, 3, "t") == expected
    assert produce(cluster, 3, "t", b"last") == 0
    assert produce(cluster, 1, "t", b"wrong") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [each.topic_partition.topic for each in cluster.node(1).store] == []
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("seed", range(3))
def test_a_reassignment_can_be_cancelled(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t", (1, 2))
    assert produce(cluster, 1, "t", b"one") == 0
    cluster.kill(3)
    cluster.run_until(lambda: all(unfenced(cluster, n) == {1, 2} for n in (1, 2)))
    cluster.run_until(lambda: active(cluster, 1, 2) is not None)
    partition = ReassignablePartition(partition_index=0, replicas=[3, 2])
    topic = ReassignableTopic(name="t", partitions=[partition])
    begin = AlterPartitionReassignmentsRequest(topics=[topic], timeout=10_000)
    assert ask(cluster, 1, begin, 0).responses[0].partitions[0].error_code == 0
    cluster.run_until(lambda: image(cluster, 1, "t").replicas == (3, 2, 1))
    (listed,) = ask(cluster, 2, ListPartitionReassignmentsRequest(topics=None), 0).topics
    (going,) = listed.partitions
    assert (going.replicas, going.adding_replicas, going.removing_replicas) == ([3, 2, 1], [3], [1])
    partition.replicas = None
    assert ask(cluster, 2, begin, 0).responses[0].partitions[0].error_code == 0
    cluster.run_until(lambda: image(cluster, 1, "t").replicas == (2, 1))
    assert set(image(cluster, 1, "t").isr) == {1, 2}
    assert ask(cluster, 2, ListPartitionReassignmentsRequest(topics=None), 0).topics == []
    assert produce(cluster, image(cluster, 1, "t").leader, "t", b"two") == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_is_removed_from_a_broker_that_was_away(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t", (1, 2, 3))
    assert produce(cluster, 1, "t", b"one") == 0
    cluster.run_until(lambda: log_bytes(cluster, 3, "t") == log_bytes(cluster, 1, "t"))
    cluster.kill(3)
    cluster.run_until(lambda: all(unfenced(cluster, n) == {1, 2} for n in (1, 2)))
    cluster.run_until(lambda: active(cluster, 1, 2) is not None)
    partition = ReassignablePartition(partition_index=0, replicas=[1, 2])
    topic = ReassignableTopic(name="t", partitions=[partition])
    request = AlterPartitionReassignmentsRequest(topics=[topic], timeout=10_000)
    assert ask(cluster, 1, request, 0).responses[0].partitions[0].error_code == 0
    cluster.start(3)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))
    cluster.run_until(lambda: not hosts(cluster, 3))
    cluster.run_until(lambda: not list(cluster.node(3).store))


@pytest.mark.parametrize("seed", range(3))
def test_a_topic_is_created_again_while_a_broker_is_away(seed: int) -> None:
    cluster = started(seed)
    create(cluster, "t", (1, 2, 3))
    assert produce(cluster, 1, "t", b"old") == 0
    cluster.run_until(lambda: log_bytes(cluster, 3, "t") == log_bytes(cluster, 1, "t"))
    cluster.kill(3)
    cluster.run_until(lambda: all(unfenced(cluster, n) == {1, 2} for n in (1, 2)))
    cluster.run_until(lambda: active(cluster, 1, 2) is not None)
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout=10_000)
    assert ask(cluster, 1, delete, 6).responses[0].error_code == 0
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 3])],
    )
    again = ask(cluster, 1, CreateTopicsRequest(topics=[topic], timeout=10_000), 7)
    assert again.topics[0].error_code == 0
    cluster.run_until(lambda: "t" in cluster.node(1).image.topics)
    cluster.start(3)
    cluster.run_until(lambda: set(image(cluster, 1, "t").isr) == {1, 3})
    assert produce(cluster, 1, "t", b"new") == 0
    cluster.run_until(lambda: b"new" in log_bytes(cluster, 3, "t"))
    assert log_bytes(cluster, 3, "t") == log_bytes(cluster, 1, "t")
    assert b"old" not in log_bytes(cluster, 3, "t")


# -- membership and features ---------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_broker_is_unregistered(seed: int) -> None:
    cluster = started(seed)
    cluster.kill(3)
    cluster.run_until(lambda: all(unfenced(cluster, n) == {1, 2} for n in (1, 2)))
    cluster.run_until(lambda: active(cluster, 1, 2) is not None)
    number = follower_of_the_quorum(cluster, 1, 2)
    assert ask(cluster, number, UnregisterBrokerRequest(broker_id=3), 0).error_code == 0
    cluster.run_until(lambda: all(set(cluster.node(n).image.brokers) == {1, 2} for n in (1, 2)))
    again = ask(cluster, number, UnregisterBrokerRequest(broker_id=3), 0)
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.start(3)
    cluster.run_until(lambda: all(unfenced(cluster, n) == set(NODES) for n in NODES))


@pytest.mark.parametrize("seed", range(3))
def test_controllers_register_and_features_change(seed: int) -> None:
    cluster = started(seed)
    cluster.run_until(
        lambda: all(set(cluster.node(n).image.controllers) == set(NODES) for n in NODES)
    )
    endpoints = cluster.node(1).image.controllers[2].endpoints
    assert [(each.listener_name, each.host) for each in endpoints] == [(CONTROLLER, "broker-2")]
    name = "eligible.leader.replicas.version"
    elr = FeatureUpdateKey(feature=name, max_version_level=0, upgrade_type=2)
    request = UpdateFeaturesRequest(feature_updates=[elr], timeout=10_000)
    number = follower_of_the_quorum(cluster)
    response = ask(cluster, number, request, 1)
    assert [each.error_code for each in response.results] == [0]
    cluster.run_until(lambda: all(name not in cluster.node(n).image.features for n in NODES))
    elr.max_version_level = 9
    assert ask(cluster, number, request, 2).error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_controller_registers_again_after_a_restart() -> None:
    cluster = started(2)
    cluster.run_until(
        lambda: all(set(cluster.node(n).image.controllers) == set(NODES) for n in NODES)
    )
    before = cluster.node(1).image.controllers[3].incarnation_id
    cluster.kill(3)
    cluster.start(3)
    cluster.run_until(lambda: cluster.node(1).image.controllers[3].incarnation_id != before)


@pytest.mark.parametrize("number", NODES)
def test_any_broker_describes_the_quorum(number: int) -> None:
    cluster = started(4)
    topic = RequestTopicData(
        topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)]
    )
    response = ask(cluster, number, DescribeQuorumRequest(topics=[topic]), 2)
    assert response.error_code == 0
    (partition,) = response.topics[0].partitions
    assert partition.leader_id == active(cluster)
    assert sorted(each.replica_id for each in partition.current_voters) == list(NODES)
    topic.topic_name = "other"
    (partition,) = (
        ask(cluster, number, DescribeQuorumRequest(topics=[topic]), 2).topics[0].partitions
    )
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
