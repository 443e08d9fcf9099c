from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import ENOSPC
from typing import Any

import pytest

from ottla.broker.node import Node
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

Ask = Callable[..., CreateTopicsResponse]


def creation(
    name: str, partitions: int = -1, configs: dict[str, str | None] | None = None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
    )


def codes(items: Sequence[Any]) -> list[int]:
    return [item.error_code for item in items]


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_in_every_version(ask: Ask, node: Node, version: int) -> None:
    request = CreateTopicsRequest(topics=[creation("a", 3, {"retention.ms": "5"})])
    (result,) = ask(request, version).topics
    assert (result.name, result.error_code, result.error_message) == ("a", 0, None)
    assert len(node.image.topics["a"].partitions) == 3
    assert node.store.get(TopicPartition("a", 2)) is not None
    log = node.topics.partition_named("a", 0).online_log()
    assert log.config.retention_ms == 5
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        described = {each.name: each for each in result.configs or ()}
        assert (described["retention.ms"].value, described["retention.ms"].config_source) == (
            "5",
            1,
        )
        assert described["segment.bytes"].config_source == 5
        assert len(described) == 33
    if version >= 7:
        assert result.topic_id == node.image.topics["a"].topic_id


def test_some_are_created_and_others_refused(ask: Ask, node: Node) -> None:
    request = CreateTopicsRequest(
        topics=[
            creation("good"),
            creation("bad name"),
            creation("odd", 0),
            creation("wrong", 1, {"retention.ms": None}),
            creation("twice"),
            creation("twice"),
            CreatableTopic(
                name="far",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[9])],
            ),
        ]
    )
    results = {result.name: result for result in ask(request).topics}
    assert {name: result.error_code for name, result in results.items()} == {
        "good": ErrorCode.NONE,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "odd": ErrorCode.INVALID_PARTITIONS,
        "wrong": ErrorCode.INVALID_CONFIG,
        "twice": ErrorCode.INVALID_REQUEST,
        "far": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
    assert all(result.error_message for name, result in results.items() if name != "good")
    assert list(node.image.topics) == ["good"]
    assert codes(ask(CreateTopicsRequest(topics=[creation("good")])).topics) == [
        ErrorCode.TOPIC_ALREADY_EXISTS
    ]


def test_validation_alone_creates_nothing(ask: Ask, node: Node) -> None:
    request = CreateTopicsRequest(topics=[creation("a", 3), creation("b", 0)], validate_only=True)
    good, bad = ask(request).topics
    assert (good.error_code, good.topic_id, good.num_partitions) == (0, ZERO_UUID, 3)
    assert bad.error_code == ErrorCode.INVALID_PARTITIONS
    assert node.image.topics == {}


def test_topics_survive_a_restart(
    start_node: Callable[..., Node], connect: Callable[..., object]
) -> None:
    files = MemoryFiles()
    node = start_node(files)
    connect(node).ask(  # type: ignore[attr-defined]
        CreateTopicsRequest(topics=[creation("a", 2, {"retention.ms": "5"}), creation("b")])
    )
    topic_id = node.image.topics["a"].topic_id
    node.shutdown()
    again = start_node(files)
    assert again.image.topics["a"].topic_id == topic_id
    assert again.image.topic_config("a") == {"retention.ms": "5"}
    assert again.topics.partition_named("a", 1).online_log().config.retention_ms == 5
    assert again.cluster_id == node.cluster_id


def test_topics_are_deleted_by_name_and_id(ask: Ask, node: Node) -> None:
    ask(CreateTopicsRequest(topics=[creation(name) for name in ("a", "b", "c")]))
    topic_id = node.image.topics["b"].topic_id
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name="a"),
            DeleteTopicState(topic_id=topic_id),
            DeleteTopicState(name="x"),
            DeleteTopicState(topic_id=b"x" * 16),
            DeleteTopicState(),
        ]
    )
    responses = ask(request).responses  # type: ignore[attr-defined]
    assert [(each.name, each.error_code) for each in responses] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.INVALID_REQUEST),
    ]
    assert responses[1].topic_id == topic_id
    assert list(node.image.topics) == ["c"]
    assert node.store.get(TopicPartition("a", 0)) is None


@pytest.mark.parametrize("version", range(1, 6))
def test_old_versions_delete_by_name(ask: Ask, node: Node, version: int) -> None:
    ask(CreateTopicsRequest(topics=[creation("a")]))
    request = DeleteTopicsRequest(topic_names=["a", "x"])
    responses = ask(request, version).responses  # type: ignore[attr-defined]
    assert codes(responses) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert node.image.topics == {}


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_switched_off_is_told_in_the_versions_words(
    start_node: Callable[..., Node], connect: Callable[..., object], version: int, code: ErrorCode
) -> None:
    node = start_node(delete_topic_enable="false")
    ask = connect(node).ask  # type: ignore[attr-defined]
    ask(CreateTopicsRequest(topics=[creation("a")]))
    responses = ask(DeleteTopicsRequest(topic_names=["a"]), version).responses
    assert codes(responses) == [code]
    assert list(node.image.topics) == ["a"]


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(ask: Ask, node: Node, version: int) -> None:
    ask(CreateTopicsRequest(topics=[creation("a", 1), creation("b", 1)]))
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name="a", count=3, assignments=None),
            CreatePartitionsTopic(
                name="b", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[1])]
            ),
            CreatePartitionsTopic(name="c", count=2, assignments=None),
        ]
    )
    results = ask(request, version).results  # type: ignore[attr-defined]
    assert codes(results) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert results[0].error_message is None
    assert results[2].error_message == "There is no topic c"
    assert len(node.image.topics["a"].partitions) == 3
    assert node.topics.partition_named("a", 2).online_log().log_end_offset == 0
    assert len(node.image.topics["b"].partitions) == 2


def test_partitions_can_be_validated_alone(ask: Ask, node: Node) -> None:
    ask(CreateTopicsRequest(topics=[creation("a", 2)]))
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=3, assignments=None)], validate_only=True
    )
    assert codes(ask(request).results) == [0]  # type: ignore[attr-defined]
    assert len(node.image.topics["a"].partitions) == 2
    smaller = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=2, assignments=None)]
    )
    assert codes(ask(smaller).results) == [ErrorCode.INVALID_PARTITIONS]  # type: ignore[attr-defined]


def test_metadata_that_cannot_be_stored_is_told_to_everyone(
    start_node: Callable[..., Node], connect: Callable[..., object]
) -> None:
    disk = FaultyFiles(MemoryFiles())
    node = start_node(disk)
    ask = connect(node).ask  # type: ignore[attr-defined]
    ask(CreateTopicsRequest(topics=[creation("a")]))
    disk.fail("sync", OSError(ENOSPC, "No space left on device"))
    results = ask(CreateTopicsRequest(topics=[creation("b"), creation("bad name")])).topics
    assert codes(results) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert "No space left" in results[0].error_message
    assert list(node.image.topics) == ["a"]
    disk.heal()
    assert codes(ask(CreateTopicsRequest(topics=[creation("b")])).topics) == [ErrorCode.NONE]
