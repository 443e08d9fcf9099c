"""FindCoordinator, ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

import pytest

from ottla.coordinator.runtime.partitioner import java_hash, partition_of
from ottla.model.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from tests.support.groups import (
    GROUP,
    TOPIC,
    Broker,
    Member,
    commit,
    commit_request,
    fetch,
    stable_group,
    subscription,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [  # as jshell says
        ("", 0),
        ("a", 97),
        ("group-1", 293427299),
        ("polygenelubricants", -2147483648),
        ("grün", 3185949),
        ("\U0001f600", 1772899),
        ("console-consumer-12345", 158455506),
    ],
)
def test_java_hash(text: str, number: int) -> None:
    assert java_hash(text) == number


def test_the_smallest_hash_has_no_opposite() -> None:
    assert partition_of("polygenelubricants", 50) == 0


@pytest.mark.parametrize("version", range(FindCoordinatorRequest.MAX_VERSION + 1))
def test_find_coordinator_makes_the_topic(version: int) -> None:
    broker = Broker(offsets_topic_num_partitions="7", offsets_topic_segment_bytes="2097152")
    request = FindCoordinatorRequest(key=GROUP, coordinator_keys=[GROUP, "other"])
    response = broker.connect().ask(request, FindCoordinatorResponse, version)
    found = response.coordinators if version >= 4 else [response]
    assert {(c.error_code, c.node_id, c.host, c.port) for c in found} == {
        (ErrorCode.NONE, 1, "localhost", 9092)
    }
    assert [c.key for c in response.coordinators] == ([GROUP, "other"] if version >= 4 else [])
    topic = broker.node.image.topics["__consumer_offsets"]
    assert len(topic.partitions) == 7
    assert topic.partitions[0].replicas == (1,)
    assert dict(broker.node.image.topic_config("__consumer_offsets")) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "2097152",
    }


@pytest.mark.parametrize("version", range(1, FindCoordinatorRequest.MAX_VERSION + 1))
def test_the_first_transactional_id_creates_its_topic(broker: Broker, version: int) -> None:
    client = broker.connect()
    request = FindCoordinatorRequest(key="t", key_type=1, coordinator_keys=["t"])
    response = client.ask(request, FindCoordinatorResponse, version)
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id, found.host) == (ErrorCode.NONE, 1, "localhost")
    assert len(broker.node.image.topics["__transaction_state"].partitions) == 50
    assert dict(broker.node.image.topic_config("__transaction_state")) == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    init = client.ask(
        InitProducerIdRequest(transactional_id="t", transaction_timeout=1000),
        InitProducerIdResponse,
        5,
    )
    assert (init.error_code, init.producer_epoch) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("key_type", [2, 3, -1])
def test_there_are_no_coordinators_of_other_types(broker: Broker, key_type: int) -> None:
    request = FindCoordinatorRequest(key="x", key_type=key_type, coordinator_keys=["x"])
    response = broker.connect().ask(request, FindCoordinatorResponse)
    (coordinator,) = response.coordinators
    assert coordinator.error_code == ErrorCode.INVALID_REQUEST
    assert (coordinator.node_id, coordinator.port) == (-1, -1)
    old = broker.connect().ask(request, FindCoordinatorResponse, 3)
    assert old.error_code == ErrorCode.INVALID_REQUEST
    assert old.error_message


def test_a_key_that_is_repeated_is_looked_up_once(broker: Broker) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["a", "b", "a", "a", "b"])
    response = broker.connect().ask(request, FindCoordinatorResponse)
    assert [found.key for found in response.coordinators] == ["a", "b"]


def names(broker: Broker, **filters: list[str]) -> set[str]:
    response = broker.connect().ask(ListGroupsRequest(**filters), ListGroupsResponse)
    assert response.error_code == ErrorCode.NONE
    return {group.group_id for group in response.groups}


def test_groups_are_listed_by_state_and_type() -> None:
    broker = Broker(offsets_topic_num_partitions="5")
    stable_group(broker, Member(broker, group_id="stable"))
    Member(broker, group_id="preparing").join()
    commit(broker.connect(), {(TOPIC, 0): 1}, group_id="simple")
    assert names(broker) == {"stable", "preparing", "simple"}
    assert names(broker, states_filter=["Stable", "empty "]) == {"stable", "simple"}
    assert names(broker, states_filter=["PREPARINGREBALANCE"]) == {"preparing"}
    assert names(broker, states_filter=["Dead"]) == set()
    assert names(broker, types_filter=["classic"]) == {"stable", "preparing", "simple"}
    assert names(broker, types_filter=["Consumer"]) == set()
    assert names(broker, types_filter=["nonsense"]) == set()


@pytest.mark.parametrize("version", range(ListGroupsRequest.MAX_VERSION + 1))
def test_every_version_of_list(broker: Broker, version: int) -> None:
    stable_group(broker, Member(broker))
    response = broker.connect().ask(ListGroupsRequest(), ListGroupsResponse, version)
    (group,) = response.groups
    assert (group.group_id, group.protocol_type) == (GROUP, "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


def test_a_list_waits_for_what_is_not_committed(broker: Broker) -> None:
    broker.connect().queue(commit_request({(TOPIC, 0): 1}), 9)
    lister = broker.connect()
    pending = lister.queue(ListGroupsRequest())
    lister.receive()
    assert pending.response is None
    broker.settle()
    assert [group.group_id for group in pending.of(ListGroupsResponse).groups] == [GROUP]


@pytest.mark.parametrize("version", range(DescribeGroupsRequest.MAX_VERSION + 1))
def test_every_version_of_describe(broker: Broker, version: int) -> None:
    first, second = Member(broker, "a"), Member(broker, "b", instance_id="i")
    stable_group(broker, first, second)
    request = DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True)
    (group,) = broker.connect().ask(request, DescribeGroupsResponse, version).groups
    assert group.error_code == ErrorCode.NONE
    assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
    assert group.protocol_data == "range"
    described = {m.client_id: m for m in group.members}
    assert described["a"].client_host == "/127.0.0.1"
    assert described["a"].member_metadata == subscription(TOPIC)
    assert described["b"].member_assignment == b"b"
    assert described["b"].group_instance_id == ("i" if version >= 4 else None)
    operations = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    assert group.authorized_operations == (operations if version >= 3 else -(2**31))


def test_a_group_that_is_not_there_is_dead(broker: Broker) -> None:
    request = DescribeGroupsRequest(groups=["nobody"])
    (old,) = broker.connect().ask(request, DescribeGroupsResponse, 5).groups
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")
    (new,) = broker.connect().ask(request, DescribeGroupsResponse, 6).groups
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert "nobody" in (new.error_message or "")


def test_a_group_in_a_rebalance_shows_no_metadata(broker: Broker) -> None:
    first = Member(broker)
    stable_group(broker, first)
    Member(broker, "b").join()
    request = DescribeGroupsRequest(groups=[GROUP])
    (group,) = broker.connect().ask(request, DescribeGroupsResponse).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert {m.member_metadata for m in group.members} == {b""}


@pytest.mark.parametrize("version", range(DeleteGroupsRequest.MAX_VERSION + 1))
def test_every_version_of_delete(version: int) -> None:
    broker = Broker(offsets_topic_num_partitions="5")
    client = broker.connect()
    commit(client, {(TOPIC, 0): 1, (TOPIC, 1): 1}, group_id="simple")
    member = Member(broker, group_id="emptied")
    stable_group(broker, member)
    member.commit(3)
    member.leave()
    stable_group(broker, Member(broker, group_id="stable"))
    request = DeleteGroupsRequest(groups_names=["simple", "stable", "nobody", "emptied", "simple"])
    response = client.ask(request, DeleteGroupsResponse, version)
    assert [(result.group_id, result.error_code) for result in response.results] == [
        ("simple", ErrorCode.NONE),
        ("stable", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ("emptied", ErrorCode.NONE),
    ]
    assert names(broker) == {"stable"}
    assert fetch(client, group_id="simple") == {}
    broker.crash_and_restart()
    assert names(broker) == {"stable"}
    assert fetch(broker.connect(), group_id="emptied") == {}


def test_deleting_nothing(broker: Broker) -> None:
    assert broker.connect().ask(DeleteGroupsRequest(), DeleteGroupsResponse).results == []


def test_a_group_with_more_offsets_than_one_batch_holds_is_deleted() -> None:
    broker = Broker()
    broker.create_topic("wide", 3000)
    client = broker.connect()
    for start in range(0, 3000, 1000):
        commit(client, {("wide", i): i for i in range(start, start + 1000)})
    response = client.ask(DeleteGroupsRequest(groups_names=[GROUP]), DeleteGroupsResponse)
    assert response.results[0].error_code == ErrorCode.NONE
    broker.crash_and_restart()
    assert GROUP not in broker.shard().groups


def test_a_deleted_group_can_be_made_again(broker: Broker) -> None:
    member = Member(broker)
    stable_group(broker, member)
    member.commit(3)
    member.leave()
    broker.connect().ask(DeleteGroupsRequest(groups_names=[GROUP]), DeleteGroupsResponse)
    again = Member(broker)
    stable_group(broker, again)
    assert again.joined.generation_id == 1
    assert fetch(again.client) == {}


def test_offsets_are_not_created_where_there_is_no_coordinator() -> None:
    broker = Broker()
    broker.node.groups.runtimes.clear()
    request = commit_request({(TOPIC, 0): 1})
    response = broker.connect().ask(request, OffsetCommitResponse, 9)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    described = broker.connect().ask(DescribeGroupsRequest(groups=[GROUP]), DescribeGroupsResponse)
    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    deleted = broker.connect().ask(DeleteGroupsRequest(groups_names=[GROUP]), DeleteGroupsResponse)
    assert deleted.results[0].error_code == ErrorCode.NOT_COORDINATOR
