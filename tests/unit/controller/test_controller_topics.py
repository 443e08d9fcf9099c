from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.topics import CreatedTopic, NewTopic, UnwantedTopic
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from ottla.model.errors import ErrorCode
from ottla.ports import Random
from ottla.wire.message import Message
from tests.support.decisions import create_topics, delete_topics

Apply = Callable[[MetadataImage, list[Message]], None]
CONFIG = BrokerConfig()


@pytest.fixture
def created(image: MetadataImage, random: Random, apply: Apply) -> Callable[..., CreatedTopic]:
    """Create a topic and apply the records; return the one result."""

    def create(topic: NewTopic, config: BrokerConfig = CONFIG) -> CreatedTopic:
        decision = create_topics(image, config, random, [topic])
        apply(image, decision.records)
        return decision.results[0]

    return create


def test_a_topic_becomes_records(image: MetadataImage, random: Random) -> None:
    topic = NewTopic("orders", 2, 1, configs=[("retention.ms", "5")])
    decision = create_topics(image, CONFIG, random, [topic])
    topic_id = bytes(15) + b"\x01"
    partitions = [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[b"\x01" * 16],
        )
        for index in (0, 1)
    ]
    setting = ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5")
    assert decision.results == [CreatedTopic("orders", None, topic_id, 2, 1)]
    assert decision.records == [
        TopicRecord(name="orders", topic_id=topic_id),
        setting,
        *partitions,
    ]


def test_nothing_said_takes_the_brokers_defaults(
    created: Callable[..., CreatedTopic], image: MetadataImage
) -> None:
    result = created(NewTopic("a"), BrokerConfig({"num.partitions": "7"}))
    assert (result.num_partitions, result.replication_factor) == (7, 1)
    assert len(image.topics["a"].partitions) == 7


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            NewTopic(""),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "name is invalid: '.' is not allowed"),
        (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "name is invalid: '..' is not allowed"),
        (
            NewTopic("a" * 250),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "longer than the max allowed length 249",
        ),
        (
            NewTopic("a b"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "'a b' contains one or more characters",
        ),
        (
            NewTopic("é"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "other than ASCII alphanumerics, '.', '_'",
        ),
        (
            NewTopic("__cluster_metadata"),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata",
        ),
        (
            NewTopic("here.and.there"),
            ErrorCode.TOPIC_ALREADY_EXISTS,
            "Topic 'here.and.there' already exists.",
        ),
        (
            NewTopic("here_and.there"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'here_and.there' collides with existing topic: here.and.there",
        ),
        (
            NewTopic("a", 0, 1),
            ErrorCode.INVALID_PARTITIONS,
            "set to an invalid non-positive value.",
        ),
        (
            NewTopic("a", -2, 1),
            ErrorCode.INVALID_PARTITIONS,
            "set to an invalid non-positive value.",
        ),
        (
            NewTopic("a", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "larger than 0, or -1 to use the default",
        ),
        (
            NewTopic("a", 1, -2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "larger than 0, or -1 to use the default",
        ),
        (
            NewTopic("a", 1, 2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2"
            " cannot be reached because only 1 broker(s) are registered.",
        ),
        (
            NewTopic("a", 10_001, 1),
            ErrorCode.POLICY_VIOLATION,
            "One request may have 10000 new partitions, not 10001",
        ),
        (NewTopic("a", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION, "One request may have"),
        (
            NewTopic("a", configs=[("retention.ms", None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            NewTopic("a", configs=[("retention.mss", "1"), ("segment.ms", "0")]),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: retention.mss; did you mean retention.ms",
        ),
        (
            NewTopic("a", 0, 0, configs=[("segment.ms", "0")]),
            ErrorCode.INVALID_CONFIG,
            "Invalid value 0 for configuration segment.ms: Value must be at least 1",
        ),
        (
            NewTopic("a", 1, -1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "partition assignment was specified, but number of partitions was not set to -1.",
        ),
        (
            NewTopic("a", -1, 1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("a", assignments=[(0, [1]), (2, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("a", assignments=[(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("a", assignments=[(0, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes an empty replica list.",
        ),
        (
            NewTopic("a", assignments=[(0, [9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 9, but no such broker is registered.",
        ),
        (
            NewTopic("a", assignments=[(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes the broker 1 more than once.",
        ),
    ],
)
def test_what_cannot_be_created_says_why(
    created: Callable[..., CreatedTopic],
    image: MetadataImage,
    topic: NewTopic,
    code: ErrorCode,
    message: str,
) -> None:
    created(NewTopic("here.and.there"))
    result = created(topic)
    assert result.error is not None
    assert result.error.code == code
    assert message in str(result.error)
    assert list(image.topics) == ["here.and.there"]


def test_the_longest_name_is_allowed(created: Callable[..., CreatedTopic]) -> None:
    assert created(NewTopic("a" * 249)).error is None


def test_replicas_by_hand(brokers: Callable[..., MetadataImage], random: Random) -> None:
    image = brokers(3, fenced=(3,))
    topic = NewTopic("a", assignments=[(1, [3, 2]), (0, [2, 1])])
    decision = create_topics(image, CONFIG, random, [topic])
    first, second = decision.records[1:]
    assert isinstance(first, PartitionRecord)
    assert isinstance(second, PartitionRecord)
    assert (first.partition_id, first.replicas, first.isr, first.leader) == (0, [2, 1], [2, 1], 2)
    # A fenced broker is neither in sync nor leader.
    assert (second.partition_id, second.replicas, second.isr) == (1, [3, 2], [2])
    assert second.leader == 2
    assert decision.results[0][3:] == (2, 2)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            [(0, [1, 2]), (1, [1])],
            "partition with 1 replica(s), but this is not consistent with previous partitions",
        ),
        ([(0, [3])], r"brokers [3] are fenced"),
    ],
)
def test_replicas_by_hand_must_fit(
    brokers: Callable[..., MetadataImage],
    random: Random,
    assignments: list[tuple[int, list[int]]],
    message: str,
) -> None:
    image = brokers(3, fenced=(3,))
    topic = NewTopic("a", assignments=assignments)
    error = create_topics(image, CONFIG, random, [topic]).results[0].error
    assert error is not None
    assert error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message in str(error)


def test_a_request_goes_topic_by_topic(image: MetadataImage, random: Random) -> None:
    topics = [
        NewTopic("twice"),
        NewTopic("a.b"),
        NewTopic("bad name"),
        NewTopic("twice"),
        NewTopic("a_b"),
        NewTopic("c"),
    ]
    decision = create_topics(image, CONFIG, random, topics)
    codes = {r.name: r.error.code if r.error else None for r in decision.results}
    assert codes == {
        "twice": ErrorCode.INVALID_REQUEST,
        "a.b": None,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "c": None,
    }
    made = [record.name for record in decision.records if isinstance(record, TopicRecord)]
    assert made == ["a.b", "c"]


def test_partitions_of_one_request_add_up(image: MetadataImage, random: Random) -> None:
    topics = [NewTopic("a", 9_000), NewTopic("b", 1_001), NewTopic("c", 1_000)]
    results = create_topics(image, CONFIG, random, topics).results
    assert [r.error.code if r.error else None for r in results] == [
        None,
        ErrorCode.POLICY_VIOLATION,
        None,
    ]


def test_a_request_has_so_many_topics_at_most(image: MetadataImage, random: Random) -> None:
    topics = [NewTopic(f"t{number}", configs=[("x", "y")]) for number in range(10_001)]
    results = create_topics(image, CONFIG, random, topics).results
    errors = [result.error.code for result in results if result.error]
    assert errors == [ErrorCode.INVALID_CONFIG] * 10_000 + [ErrorCode.POLICY_VIOLATION]


def test_the_last_value_of_a_setting_that_is_there_twice_counts(
    created: Callable[..., CreatedTopic], image: MetadataImage
) -> None:
    result = created(NewTopic("a", configs=[("retention.ms", "1"), ("retention.ms", "2")]))
    assert result.error is None
    assert image.topic_config("a") == {"retention.ms": "2"}


def test_no_active_broker_no_topic(brokers: Callable[..., MetadataImage], random: Random) -> None:
    error = create_topics(brokers(1, fenced=(1,)), CONFIG, random, [NewTopic("a")]).results[0].error
    assert error is not None
    assert error.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "All brokers are currently fenced." in str(error)


def test_topics_are_deleted_by_name_and_by_id(
    created: Callable[..., CreatedTopic], image: MetadataImage, apply: Apply
) -> None:
    by_name, by_id = created(NewTopic("a")).topic_id, created(NewTopic("b")).topic_id
    wanted = [UnwantedTopic("a"), UnwantedTopic(None, by_id)]
    decision = delete_topics(image, CONFIG, wanted)
    assert [tuple(result) for result in decision.results] == [
        ("a", by_name, None),
        ("b", by_id, None),
    ]
    assert decision.records == [
        RemoveTopicRecord(topic_id=by_name),
        RemoveTopicRecord(topic_id=by_id),
    ]
    apply(image, decision.records)
    assert image.topics == {}


@pytest.mark.parametrize(
    ("topics", "code", "message"),
    [
        (
            [UnwantedTopic("x")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "does not host this topic-partition.",
        ),
        (
            [UnwantedTopic(None, b"x" * 16)],
            ErrorCode.UNKNOWN_TOPIC_ID,
            "does not host this topic ID.",
        ),
        (
            [UnwantedTopic(None)],
            ErrorCode.INVALID_REQUEST,
            "Neither topic name nor id were specified.",
        ),
        (
            [UnwantedTopic("a", b"x" * 16)],
            ErrorCode.INVALID_REQUEST,
            "You may not specify both topic name and",
        ),
        ([UnwantedTopic("a")] * 2, ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        (
            [UnwantedTopic("__consumer_offsets")],
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "internal topic and cannot be deleted",
        ),
    ],
)
def test_what_cannot_be_deleted_says_why(
    created: Callable[..., CreatedTopic],
    image: MetadataImage,
    topics: list[UnwantedTopic],
    code: ErrorCode,
    message: str,
) -> None:
    created(NewTopic("a"))
    created(NewTopic("__consumer_offsets"))
    decision = delete_topics(image, CONFIG, topics)
    assert decision.records == []
    assert len(decision.results) == 1
    error = decision.results[0].error
    assert error is not None
    assert error.code == code
    assert message in str(error)


def test_a_topic_by_name_and_by_id_is_deleted_once(
    created: Callable[..., CreatedTopic], image: MetadataImage
) -> None:
    topic_id = created(NewTopic("a")).topic_id
    decision = delete_topics(image, CONFIG, [UnwantedTopic("a"), UnwantedTopic(None, topic_id)])
    assert len(decision.records) == 1
    assert decision.results[0].error is None
    error = decision.results[1].error
    assert error is not None
    assert error.code == ErrorCode.INVALID_REQUEST


def test_deletion_can_be_switched_off(
    created: Callable[..., CreatedTopic], image: MetadataImage
) -> None:
    created(NewTopic("a"))
    config = BrokerConfig({"delete.topic.enable": "false"})
    decision = delete_topics(image, config, [UnwantedTopic("a")])
    error = decision.results[0].error
    assert decision.records == []
    assert error is not None
    assert error.code == ErrorCode.TOPIC_DELETION_DISABLED
    assert "Topic deletion is disabled." in str(error)
