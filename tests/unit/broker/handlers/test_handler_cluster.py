from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.node import Node
from ottla.metadata.records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla.model.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    RequestCursor,
    TopicRequest,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

Ask = Callable[..., DescribeClusterResponse]


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_as_seen_through_a_listener(ask: Ask, node: Node, version: int) -> None:
    response = ask(DescribeClusterRequest(), version)
    assert response.error_code == 0
    assert response.cluster_id == node.cluster_id
    assert len(response.cluster_id) == 22
    assert response.controller_id == 1
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "localhost", 9092)
    assert response.cluster_authorized_operations == -(2**31)


def test_each_listener_has_its_own_address(
    start_node: Callable[..., Node], connect: Callable[..., object]
) -> None:
    node = start_node(
        listeners="IN://a:1,OUT://b:2",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        broker_rack="r1",
    )
    for listener, address in (("IN", ("a", 1)), ("OUT", ("b", 2))):
        client = connect(node, listener)
        (broker,) = client.ask(DescribeClusterRequest()).brokers  # type: ignore[attr-defined]
        assert (broker.host, broker.port) == address
        assert broker.rack == "r1"


def test_fenced_brokers_are_shown_when_asked_for(ask: Ask, node: Node) -> None:
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="far", port=1)
    node.controller.write([RegisterBrokerRecord(broker_id=2, end_points=[endpoint], fenced=True)])
    assert [each.broker_id for each in ask(DescribeClusterRequest()).brokers] == [1]
    both = ask(DescribeClusterRequest(include_fenced_brokers=True)).brokers
    assert [(each.broker_id, each.is_fenced) for each in both] == [(1, False), (2, True)]


def test_a_leader_that_clients_of_the_listener_cannot_reach(ask: Ask, node: Node) -> None:
    topic = CreatableTopic(name="far", num_partitions=1, replication_factor=1)
    ask(CreateTopicsRequest(topics=[topic]))
    endpoint = BrokerEndpoint(name="OTHER", host="far", port=1)
    partition = PartitionRecord(
        partition_id=1,
        topic_id=node.image.topics["far"].topic_id,
        replicas=[2, 1],
        isr=[2],
        leader=2,
    )
    broker = RegisterBrokerRecord(broker_id=2, end_points=[endpoint], fenced=False)
    node.controller.write([broker, partition])

    def found(version: int) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="far")])
        return ask(request, version).topics[0].partitions[1]  # type: ignore[attr-defined]

    assert found(12).error_code == ErrorCode.LISTENER_NOT_FOUND
    assert (found(12).leader_id, found(12).offline_replicas) == (-1, [2])
    assert found(5).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    gone = UnregisterBrokerRecord(broker_id=2)
    node.controller.write([gone])
    assert found(12).error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_operations_are_shown_when_asked_for(ask: Ask) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert ask(request).cluster_authorized_operations > 0


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_other_endpoints_are_refused(ask: Ask, endpoint_type: int, code: ErrorCode) -> None:
    response = ask(DescribeClusterRequest(endpoint_type=endpoint_type))
    assert response.error_code == code
    assert response.error_message


@pytest.fixture
def pages(ask: Ask) -> Callable[..., DescribeTopicPartitionsResponse]:
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in (("b", 3), ("a", 2), ("c", 1))
    ]
    ask(CreateTopicsRequest(topics=topics))

    def page(
        *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> DescribeTopicPartitionsResponse:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor and RequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        return ask(request)  # type: ignore[return-value]

    return page


def shape(page: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(t.name, [p.partition_index for p in t.partitions]) for t in page.topics]


def test_all_topics_in_the_order_of_their_names(
    pages: Callable[..., DescribeTopicPartitionsResponse], node: Node
) -> None:
    page = pages()
    assert shape(page) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert page.next_cursor is None
    topic = page.topics[0]
    assert topic.topic_id == node.image.topics["a"].topic_id
    assert topic.topic_authorized_operations > 0
    partition = topic.partitions[0]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
    assert (partition.eligible_leader_replicas, partition.offline_replicas) == ([], [])


def test_pages_follow_the_cursor(
    pages: Callable[..., DescribeTopicPartitionsResponse],
) -> None:
    seen: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(3):
        page = pages(limit=2, cursor=cursor)
        seen += [(name, index) for name, indexes in shape(page) for index in indexes]
        following = page.next_cursor
        cursor = (following.topic_name, following.partition_index) if following else None
    assert cursor is None
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


def test_a_page_that_ends_with_a_topic_points_to_the_next(
    pages: Callable[..., DescribeTopicPartitionsResponse],
) -> None:
    cursor = pages(limit=2).next_cursor
    assert cursor is not None
    assert (cursor.topic_name, cursor.partition_index) == ("b", 0)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_partition(
    pages: Callable[..., DescribeTopicPartitionsResponse], limit: int
) -> None:
    assert shape(pages(limit=limit)) == [("a", [0])]


def test_the_broker_limits_pages(
    start_node: Callable[..., Node], connect: Callable[..., object]
) -> None:
    ask = connect(start_node(max_request_partition_size_limit="1")).ask  # type: ignore[attr-defined]
    topic = CreatableTopic(name="a", num_partitions=2, replication_factor=1)
    ask(CreateTopicsRequest(topics=[topic]))
    assert shape(ask(DescribeTopicPartitionsRequest())) == [("a", [0])]


def test_topics_that_do_not_exist(
    pages: Callable[..., DescribeTopicPartitionsResponse],
) -> None:
    page = pages("c", "x", "bad name")
    assert [(t.name, t.error_code) for t in page.topics] == [
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("c", 0),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_cursor_to_a_deleted_topic_goes_on_with_the_next(
    pages: Callable[..., DescribeTopicPartitionsResponse],
) -> None:
    assert shape(pages(cursor=("ab", 5))) == [("b", [0, 1, 2]), ("c", [0])]


@pytest.mark.parametrize(
    "cursor",
    [
        RequestCursor(topic_name="b", partition_index=-1),
        RequestCursor(topic_name="x", partition_index=0),
        RequestCursor(),
    ],
)
def test_a_cursor_that_cannot_be_is_refused(
    pages: object, ask: Callable[..., DescribeTopicPartitionsResponse], cursor: RequestCursor
) -> None:
    topics = [TopicRequest(name="a"), TopicRequest(name="b")]
    response = ask(DescribeTopicPartitionsRequest(topics=topics, cursor=cursor))
    assert [(topic.name, topic.error_code, topic.partitions) for topic in response.topics] == [
        ("a", ErrorCode.INVALID_REQUEST, []),
        ("b", ErrorCode.INVALID_REQUEST, []),
    ]


def test_an_unknown_topic_after_a_full_page_is_on_the_next(
    pages: object, ask: Callable[..., DescribeTopicPartitionsResponse]
) -> None:
    topics = [TopicRequest(name="a"), TopicRequest(name="x")]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2)
    response = ask(request)
    assert [topic.name for topic in response.topics] == ["a"]
    assert response.next_cursor is not None
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("x", 0)
