from __future__ import annotations

import pytest

from ottla.client.errors import Refused, UnsupportedByBroker
from ottla.client.topics.topics import (
    alter_topic,
    create_topics,
    delete_topics,
    describe_topics,
    list_topics,
)
from ottla.model.errors import ErrorCode
from ottla.wire.api_table import API_INFO, ApiKey
from ottla.wire.message import Message
from ottla.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.scripted_broker import Connect, FakeBroker, StartBroker

KAFKA_2_2 = {
    ApiKey.METADATA: (0, 7),
    ApiKey.API_VERSIONS: (0, 2),
    ApiKey.CREATE_TOPICS: (0, 3),
    ApiKey.DELETE_TOPICS: (0, 3),
    ApiKey.DESCRIBE_CONFIGS: (0, 2),
    ApiKey.ALTER_CONFIGS: (0, 1),
    ApiKey.CREATE_PARTITIONS: (0, 1),
}
OWN, BROKER_DEFAULT = 1, 5


def create(broker: FakeBroker, error_codes: dict[str, ErrorCode]) -> None:
    """Let a broker create topics, except those with an error."""

    def handle(request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            code = error_codes.get(topic.name, ErrorCode.NONE)
            if code == ErrorCode.NONE:
                broker.add_topic(topic.name, max(topic.num_partitions, 1))
            results.append(
                CreatableTopicResult(name=topic.name, topic_id=b"0123456789abcdef", error_code=code)
            )
        return CreateTopicsResponse(topics=results)

    broker.handlers[ApiKey.CREATE_TOPICS] = handle


def test_each_topic_gets_its_own_answer(fake_broker: FakeBroker, connect: Connect) -> None:
    create(fake_broker, {"old": ErrorCode.TOPIC_ALREADY_EXISTS})
    outcomes = create_topics(
        connect(fake_broker.address), ["new", "old"], partitions=4, configs={"retention.ms": "1"}
    )
    assert [(o.name, o.topic_id, o.error and o.error.code) for o in outcomes] == [
        ("new", "MDEyMzQ1Njc4OWFiY2RlZg", None),
        ("old", None, ErrorCode.TOPIC_ALREADY_EXISTS),
    ]
    (request,) = fake_broker.asked(CreateTopicsRequest)
    assert [(t.name, t.num_partitions, t.replication_factor) for t in request.topics] == [
        ("new", 4, -1),
        ("old", 4, -1),
    ]
    assert [(c.name, c.value) for c in request.topics[0].configs] == [("retention.ms", "1")]


def test_an_old_broker_must_be_told_everything(start_broker: StartBroker, connect: Connect) -> None:
    broker = start_broker(KAFKA_2_2)
    create(broker, {})
    client = connect(broker.address)
    with pytest.raises(UnsupportedByBroker, match="give --partitions and --replication-factor"):
        create_topics(client, ["t"], partitions=1)
    assert create_topics(client, ["t"], partitions=1, replication_factor=1)[0].error is None


def test_the_controller_is_found_again_when_it_moves(
    fake_broker: FakeBroker, connect: Connect
) -> None:
    codes = {"t": ErrorCode.NOT_CONTROLLER}
    create(fake_broker, codes)
    answer = fake_broker.handlers[ApiKey.CREATE_TOPICS]

    def recover(request: CreateTopicsRequest) -> Message | None:
        response = answer(request)
        codes.clear()
        return response

    fake_broker.handlers[ApiKey.CREATE_TOPICS] = recover
    assert create_topics(connect(fake_broker.address), ["t"])[0].error is None


@pytest.mark.parametrize("highest", [3, 5, 6])
def test_topics_are_deleted_in_the_brokers_words(
    start_broker: StartBroker, connect: Connect, highest: int
) -> None:
    everything = {key: (info.min_version, info.max_version) for key, info in API_INFO.items()}
    broker = start_broker(everything | {ApiKey.DELETE_TOPICS: (1, highest)})

    def handle(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        names = request.topic_names or [topic.name or "" for topic in request.topics]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=name,
                    error_code=ErrorCode.NONE
                    if name == "here"
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for name in names
            ]
        )

    broker.handlers[ApiKey.DELETE_TOPICS] = handle
    outcomes = delete_topics(connect(broker.address), ["here", "gone"])
    assert [(o.name, o.error and o.error.code) for o in outcomes] == [
        ("here", None),
        ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert "there is no such topic" in str(outcomes[1].error)


def configs(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    described = [
        DescribeConfigsResourceResult(name="retention.ms", value="1", config_source=OWN),
        DescribeConfigsResourceResult(name="segment.ms", value="2", config_source=OWN),
        DescribeConfigsResourceResult(
            name="cleanup.policy", value="x", config_source=BROKER_DEFAULT
        ),
    ]
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(resource_name=resource.resource_name, configs=described)
            for resource in request.resources
        ]
    )


def test_settings_are_changed_one_by_one(fake_broker: FakeBroker, connect: Connect) -> None:
    fake_broker.handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda _: (
        IncrementalAlterConfigsResponse()
    )
    alter_topic(connect(fake_broker.address), "t", set_configs={"a": "1"}, delete_configs=["b"])
    (request,) = fake_broker.asked(IncrementalAlterConfigsRequest)
    (resource,) = request.resources
    assert (resource.resource_type, resource.resource_name) == (2, "t")
    assert [(c.name, c.config_operation, c.value) for c in resource.configs] == [
        ("a", 0, "1"),
        ("b", 1, None),
    ]


def test_an_old_broker_gets_all_settings_and_keeps_the_others(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = start_broker(KAFKA_2_2)
    broker.handlers[ApiKey.DESCRIBE_CONFIGS] = configs
    broker.handlers[ApiKey.ALTER_CONFIGS] = lambda _: AlterConfigsResponse()
    alter_topic(connect(broker.address), "t", set_configs={"a": "1"}, delete_configs=["segment.ms"])
    (request,) = broker.asked(AlterConfigsRequest)
    assert [(c.name, c.value) for c in request.resources[0].configs] == [
        ("retention.ms", "1"),
        ("a", "1"),
    ]


def test_partitions_are_added(fake_broker: FakeBroker, connect: Connect) -> None:
    fake_broker.handlers[ApiKey.CREATE_PARTITIONS] = lambda request: CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name="t", error_code=ErrorCode.INVALID_PARTITIONS, error_message="fewer than now"
            )
        ]
    )
    with pytest.raises(Refused, match=r"topic t: fewer than now \(INVALID_PARTITIONS\)"):
        alter_topic(connect(fake_broker.address), "t", partitions=3)
    (request,) = fake_broker.asked(CreatePartitionsRequest)
    assert [(t.name, t.count, t.assignments) for t in request.topics] == [("t", 3, None)]


def test_a_description_has_what_could_be_found(fake_broker: FakeBroker, connect: Connect) -> None:
    fake_broker.add_topic("t", 3)
    fake_broker.topics["t"].partitions[2].leader_id = -1

    def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        found = [
            ListOffsetsPartitionResponse(
                partition_index=asked.partition_index,
                error_code=ErrorCode.KAFKA_STORAGE_ERROR
                if asked.partition_index == 1
                else ErrorCode.NONE,
                offset=5 if asked.timestamp == -2 else 9,
            )
            for topic in request.topics
            for asked in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=found)])

    fake_broker.handlers[ApiKey.LIST_OFFSETS] = offsets
    fake_broker.handlers[ApiKey.DESCRIBE_CONFIGS] = configs
    (topic,) = describe_topics(connect(fake_broker.address), ["t"])
    assert topic.configs == {"retention.ms": "1", "segment.ms": "2"}
    assert [(p.earliest_offset, p.latest_offset) for p in topic.partitions] == [
        (5, 9),
        (None, None),
        (None, None),
    ]


def test_a_missing_topic_is_told_at_once(fake_broker: FakeBroker, connect: Connect) -> None:
    with pytest.raises(Refused, match="topic nope: there is no such topic"):
        describe_topics(connect(fake_broker.address, timeout_ms=60_000), ["nope"])
    assert len(fake_broker.requests) == 1


def test_topics_are_listed_by_name(fake_broker: FakeBroker, connect: Connect) -> None:
    fake_broker.add_topic("b", 2)
    fake_broker.add_topic("a", 1)
    listed = list_topics(connect(fake_broker.address))
    assert [(t.name, t.partition_count, t.replication_factor) for t in listed] == [
        ("a", 1, 1),
        ("b", 2, 1),
    ]
