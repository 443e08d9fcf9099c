"""A name, id or partition that a request repeats is handled once."""

from __future__ import annotations

import pytest

from ottla.broker.handlers import create_topics, describe_configs, describe_producers
from ottla.log.state.producer_table import ProducerEntry
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.testing.fakes import START_MS
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from tests.support.broker import Broker, Client, produce

TOPIC = 2


@pytest.fixture
def client(broker: Broker) -> Client:
    broker.topic("t")
    broker.topic("u")
    return broker.connect()


def asked(*topics: str | bytes) -> MetadataRequest:
    return MetadataRequest(
        topics=[
            MetadataRequestTopic(name=topic)
            if isinstance(topic, str)
            else MetadataRequestTopic(name=None, topic_id=topic)
            for topic in topics
        ]
    )


def test_metadata_by_name(client: Client) -> None:
    topics = client.ask(asked("t", "u", "t", "t"), 12).topics
    assert [topic.name for topic in topics] == ["t", "u"]


def test_metadata_by_id(client: Client) -> None:
    known, unknown = client.broker.node.image.topics["t"].topic_id, bytes(15) + b"\x99"
    topics = client.ask(asked(known, unknown, known, unknown), 12).topics
    assert [(topic.topic_id, topic.error_code) for topic in topics] == [
        (known, ErrorCode.NONE),
        (unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(
    ("name", "topic_id"),
    [(None, bytes(15) + b"\x99"), ("t", bytes(15) + b"\x99"), (None, ZERO_UUID)],
)
def test_metadata_without_ids(
    client: Client, version: int, name: str | None, topic_id: bytes
) -> None:
    """As in Kafka, versions 10 and 11 have the field but refuse the whole request."""
    request = asked("u")
    assert request.topics is not None
    request.topics.append(MetadataRequestTopic(name=name, topic_id=topic_id))
    response = client.ask(request, version)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
        ("u", ZERO_UUID, ErrorCode.INVALID_REQUEST),
        (name or "", topic_id, ErrorCode.INVALID_REQUEST),
    ]


def describe(
    client: Client, *resources: tuple[str, list[str] | None]
) -> list[DescribeConfigsResult]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=keys
            )
            for name, keys in resources
        ]
    )
    results: list[DescribeConfigsResult] = client.ask(request).results
    return results


def test_configs_of_one_topic_are_merged(client: Client) -> None:
    (result,) = describe(client, ("t", ["retention.ms"]), ("t", ["segment.ms", "retention.ms"]))
    assert sorted(config.name for config in result.configs) == ["retention.ms", "segment.ms"]
    (everything,) = describe(client, ("t", ["retention.ms"]), ("t", None))
    assert len(everything.configs) > 20


def test_configs_end_at_a_limit(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_configs, "MOST_BYTES", 1000)
    first, second = describe(client, ("t", None), ("u", None))
    assert first.error_code == ErrorCode.NONE
    assert (second.error_code, second.configs) == (ErrorCode.POLICY_VIOLATION, [])


def test_created_topics_are_described_up_to_a_limit(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create_topics, "MOST_DESCRIBED", 1)
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in "ab"]
    )
    first, second = broker.connect().ask(request).topics
    assert len(first.configs) > 20
    assert first.topic_config_error_code == ErrorCode.NONE
    assert (second.error_code, second.configs) == (ErrorCode.NONE, [])
    assert second.topic_config_error_code == ErrorCode.POLICY_VIOLATION
    assert set(broker.node.image.topics) == {"a", "b"}


def test_producers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "tu":
        log = client.broker.node.topics.partition_named(name, 0).online_log()
        log.producers.entries[7] = ProducerEntry(0, b"", START_MS, -1, -1)
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[0, 0]) for name in "tut"]
    )
    first, second = client.ask(request).topics
    for topic in (first, second):
        (partition,) = topic.partitions
        assert [producer.producer_id for producer in partition.active_producers] == [7]
    monkeypatch.setattr(describe_producers, "MOST_PRODUCERS", 0)
    first, second = client.ask(request).topics
    assert first.partitions[0].error_code == ErrorCode.NONE
    assert second.partitions[0].error_code == ErrorCode.POLICY_VIOLATION


def test_records_are_deleted_up_to_the_last_offset_given(client: Client) -> None:
    for _ in range(3):
        client.ask(produce(), 12)
    partitions = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (3, 1)]
    topics = [DeleteRecordsTopic(name="t", partitions=[each]) for each in partitions]
    (result,) = client.ask(DeleteRecordsRequest(topics=topics)).topics
    assert [(each.partition_index, each.low_watermark) for each in result.partitions] == [(0, 1)]


def test_log_dirs(client: Client) -> None:
    topics = [DescribableLogDirTopic(topic="t", partitions=[0, 0, 5])] * 2
    (result,) = client.ask(DescribeLogDirsRequest(topics=topics)).results
    assert [(topic.name, len(topic.partitions)) for topic in result.topics] == [("t", 1)]


def test_coordinators_and_groups(client: Client) -> None:
    coordinators = client.ask(FindCoordinatorRequest(coordinator_keys=["a", "b", "a"])).coordinators
    assert [found.key for found in coordinators] == ["a", "b"]
    groups = client.ask(DescribeGroupsRequest(groups=["a", "b", "a"])).groups
    assert [group.group_id for group in groups] == ["a", "b"]


def test_offsets_of_one_group_are_merged(client: Client) -> None:
    client.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
    topics = [
        OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(committed_offset=3)]
        )
        for name in "tu"
    ]
    client.ask(
        OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics), 9
    )

    def fetched(*groups: list[OffsetFetchRequestTopics] | None) -> list[tuple[str, list[int]]]:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id="g", topics=group) for group in groups]
        )
        (group,) = client.ask(request, 9).groups
        return [(t.name, [p.committed_offset for p in t.partitions]) for t in group.topics]

    t, u = (OffsetFetchRequestTopics(name=name, partition_indexes=[0, 0]) for name in "tu")
    assert fetched([t, t, u]) == [("t", [3]), ("u", [3])]
    t, u = (OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in "tu")
    assert fetched([t], [u], [t]) == [("t", [3]), ("u", [3])]
    assert fetched([t], None) == [("t", [3]), ("u", [3])]
