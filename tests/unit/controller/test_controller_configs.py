from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.brokers import ELR_VERSION
from ottla.controller.configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    ConfigChange,
    ConfigOperation,
    replacement,
)
from ottla.controller.eligible_leaders import switch_on
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    NO_LEADER,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.message import Message
from tests.support.decisions import alter_configs

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
MANY_REPLICAS = ",".join(f"{index}:1" for index in range(6000))
CONFIG = BrokerConfig({"log.retention.hours": "5"})
Apply = Callable[[MetadataImage, list[Message]], None]
Change = Callable[..., ApiError | None]


@pytest.fixture
def image(image: MetadataImage, apply: Apply) -> MetadataImage:
    apply(image, [TopicRecord(name="a", topic_id=b"a" * 16)])
    return image


@pytest.fixture
def change(image: MetadataImage, apply: Apply) -> Change:
    """Change settings one after the other and apply them; return the error, if any."""

    def change(
        resource_type: int, resource_name: str, *operations: tuple[str, int, str | None]
    ) -> ApiError | None:
        changes = [ConfigOperation(*operation) for operation in operations]
        wanted = [ConfigChange(resource_type, resource_name, changes)]
        decision = alter_configs(image, CONFIG, wanted)
        apply(image, decision.records)
        return decision.results[0].error

    return change


def test_settings_are_set_and_taken_back(change: Change, image: MetadataImage) -> None:
    assert change(TOPIC, "a", ("retention.ms", SET, "5"), ("segment.ms", SET, "6")) is None
    assert image.topic_config("a") == {"retention.ms": "5", "segment.ms": "6"}
    assert change(TOPIC, "a", ("retention.ms", DELETE, None), ("flush.ms", DELETE, "x")) is None
    assert image.topic_config("a") == {"segment.ms": "6"}


def test_lists_grow_and_shrink(change: Change, image: MetadataImage) -> None:
    assert change(TOPIC, "a", ("cleanup.policy", APPEND, "compact")) is None
    assert image.topic_config("a") == {"cleanup.policy": "delete,compact"}
    assert change(TOPIC, "a", ("cleanup.policy", APPEND, "compact,delete")) is None
    assert image.topic_config("a") == {"cleanup.policy": "delete,compact"}
    assert change(TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete")) is None
    assert image.topic_config("a") == {"cleanup.policy": "compact"}


def test_only_what_changes_becomes_a_record(image: MetadataImage, apply: Apply) -> None:
    stored = ConfigRecord(resource_type=2, resource_name="a", name="segment.ms", value="6")
    apply(image, [stored])
    operations = [ConfigOperation("segment.ms", SET, "6"), ConfigOperation("flush.ms", SET, "7")]
    decision = alter_configs(image, CONFIG, [ConfigChange(TOPIC, "a", operations)])
    assert decision.records == [
        ConfigRecord(resource_type=2, resource_name="a", name="flush.ms", value="7")
    ]


def test_a_replacement_leaves_nothing_else(
    change: Change, image: MetadataImage, apply: Apply
) -> None:
    change(TOPIC, "a", ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))
    wanted = replacement(TOPIC, "a", [("segment.ms", "7"), ("flush.ms", "8")])
    decision = alter_configs(image, CONFIG, [wanted])
    apply(image, decision.records)
    assert image.topic_config("a") == {"segment.ms": "7", "flush.ms": "8"}
    assert len(decision.records) == 3


def test_brokers_are_set_one_by_one_and_all_together(change: Change, image: MetadataImage) -> None:
    assert change(BROKER, "1", ("max.connections", SET, "5")) is None
    assert change(BROKER, "", ("log.retention.ms", SET, "6")) is None
    assert image.config_of(BROKER, "1") == {"max.connections": "5"}
    assert image.config_of(BROKER, "") == {"log.retention.ms": "6"}


def test_a_setting_for_all_brokers_is_checked_though_this_one_has_its_own(change: Change) -> None:
    assert change(BROKER, "1", ("log.cleaner.threads", SET, "2")) is None
    refusal = change(BROKER, "", ("log.cleaner.threads", SET, "many"))
    assert refusal is not None
    assert refusal.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("attempt", "code", "message"),
    [
        (
            (TOPIC, "a", ("retention.ms", SET, "soon")),
            ErrorCode.INVALID_CONFIG,
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        (
            (TOPIC, "a", ("retention", SET, "1")),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: retention; did you mean",
        ),
        (
            (TOPIC, "a", ("retention.ms", APPEND, "1")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            (TOPIC, "a", ("nothing", SUBTRACT, "1")),
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key nothing because its type is not LIST.",
        ),
        (
            (TOPIC, "a", ("follower.replication.throttled.replicas", APPEND, MANY_REPLICAS)),
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of",
        ),
        (
            (TOPIC, "a", ("cleanup.policy", APPEND, "shred")),
            ErrorCode.INVALID_CONFIG,
            "Invalid value shred for configuration cleanup.policy: String must be one of: compact,",
        ),
        ((TOPIC, "a", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST, "Null value not"),
        ((TOPIC, "a", ("retention.ms", 7, "1")), ErrorCode.INVALID_REQUEST, "operation 7"),
        (
            (TOPIC, "b", ("retention.ms", SET, "1")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'b' does not exist.",
        ),
        ((TOPIC, "b", ("retention.ms", SET, "x")), ErrorCode.INVALID_CONFIG, "Invalid value"),
        (
            (TOPIC, "", ("retention.ms", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            "Default topic resources",
        ),
        (
            (BROKER, "1", ("num.partitions", SET, "2")),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            (BROKER, "1", ("max.connections", SET, "-1")),
            ErrorCode.INVALID_REQUEST,
            "Invalid value -1 for configuration max.connections: Value must be at least 0",
        ),
        (
            (BROKER, "", ("max.connections.per.ip", SET, "0")),
            ErrorCode.INVALID_REQUEST,
            "only together with",
        ),
        (
            (BROKER, "", ("max.connection", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            "Unknown setting max.connection; did you mean max.connections",
        ),
        (
            (BROKER, "2", ("max.connections", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 2",
        ),
        ((BROKER, "x", ("max.connections", SET, "1")), ErrorCode.INVALID_REQUEST, "it is: x"),
        (
            (BROKER_LOGGER, "1", ("kafka", SET, "DEBUG")),
            ErrorCode.INVALID_REQUEST,
            "has no log4j loggers",
        ),
        ((16, "x", ("y", SET, "z")), ErrorCode.INVALID_REQUEST, "client metrics are not supported"),
        ((99, "x", ("y", SET, "z")), ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_what_cannot_be_set_says_why(
    change: Change,
    image: MetadataImage,
    attempt: tuple[int, str, tuple[str, int, str | None]],
    code: ErrorCode,
    message: str,
) -> None:
    error = change(*attempt)
    assert error is not None
    assert error.code == code
    assert message in str(error)
    assert image.configs == {}


def test_a_setting_twice_is_refused(change: Change) -> None:
    error = change(TOPIC, "a", ("flush.ms", SET, "1"), ("flush.ms", DELETE, None))
    assert error is not None
    assert error.code == ErrorCode.INVALID_REQUEST
    assert "Error due to duplicate config keys" in str(error)


def test_a_resource_twice_is_refused_and_others_go_on(image: MetadataImage, apply: Apply) -> None:
    apply(image, [TopicRecord(name="b", topic_id=b"b" * 16)])
    flush = [ConfigOperation("flush.ms", SET, "1")]
    changes = [ConfigChange(TOPIC, name, flush) for name in ("a", "b", "a")]
    decision = alter_configs(image, CONFIG, changes)
    codes = [result.error.code if result.error else None for result in decision.results]
    assert codes == [ErrorCode.INVALID_REQUEST, None, ErrorCode.INVALID_REQUEST]
    assert [record.resource_name for record in decision.records] == ["b"]  # type: ignore[attr-defined]


def test_settings_are_checked_together(change: Change) -> None:
    assert change(TOPIC, "a", ("min.compaction.lag.ms", SET, "10")) is None
    error = change(TOPIC, "a", ("max.compaction.lag.ms", SET, "9"))
    assert error is not None
    assert error.code == ErrorCode.INVALID_CONFIG


def test_a_request_has_so_many_resources_at_most(image: MetadataImage) -> None:
    changes = [ConfigChange(TOPIC, f"t{number}", []) for number in range(10_001)]
    results = alter_configs(image, CONFIG, changes).results
    assert results[0].error is not None
    assert results[0].error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert results[-1].error is not None
    assert results[-1].error.code == ErrorCode.POLICY_VIOLATION


MIN_ISR = "min.insync.replicas"


@pytest.fixture
def eligible(image: MetadataImage, apply: Apply) -> MetadataImage:
    """Return an image in which replica 2 may lead the partition though it left the ISR."""
    apply(
        image,
        [
            FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
            PartitionRecord(
                partition_id=0,
                topic_id=b"a" * 16,
                replicas=[1, 2],
                isr=[1],
                leader=1,
                eligible_leader_replicas=[2],
            ),
        ],
    )
    return image


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "a"), (BROKER, "")])
def test_with_other_min_insync_replicas_nobody_outside_of_the_isr_may_lead(
    change: Change, eligible: MetadataImage, kind: int, name: str
) -> None:
    """With 1, the leader alone may commit what replica 2 does not have."""
    assert change(TOPIC, "a", ("retention.ms", SET, "5")) is None
    assert eligible.topics["a"].partitions[0].eligible_leader_replicas == (2,)
    assert change(kind, name, (MIN_ISR, SET, "1")) is None
    assert eligible.topics["a"].partitions[0].eligible_leader_replicas == ()


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "a"), (BROKER, "")])
@pytest.mark.parametrize("elr", [[2], []])
def test_with_nobody_in_sync_those_that_may_lead_still_may(
    change: Change, eligible: MetadataImage, apply: Apply, kind: int, name: str, elr: list[int]
) -> None:
    """Seed 70 of the mixed profile: else the last leader is forgotten, and nobody leads again."""
    nobody = PartitionChangeRecord(
        partition_id=0,
        topic_id=b"a" * 16,
        isr=[],
        leader=NO_LEADER,
        eligible_leader_replicas=elr,
        last_known_elr=[1],
    )
    apply(eligible, [nobody])
    assert change(kind, name, (MIN_ISR, SET, "1")) is None
    partition = eligible.topics["a"].partitions[0]
    assert partition.isr == ()
    assert partition.eligible_leader_replicas == tuple(elr)
    assert partition.last_known_elr == (1,)


def test_all_brokers_have_the_same_min_insync_replicas_with_eligible_leaders(
    change: Change, image: MetadataImage, apply: Apply
) -> None:
    assert change(BROKER, "", (MIN_ISR, SET, "2")) is None
    assert change(BROKER, "1", (MIN_ISR, SET, "3")) is None
    apply(image, [FeatureLevelRecord(name=ELR_VERSION, feature_level=1), *switch_on(image, CONFIG)])
    assert image.config_of(BROKER, "1") == {}
    assert image.config_of(BROKER, "") == {MIN_ISR: "2"}
    for name, operation in [("1", (MIN_ISR, SET, "3")), ("", (MIN_ISR, DELETE, None))]:
        error = change(BROKER, name, operation)
        assert error is not None
        assert error.code == ErrorCode.INVALID_CONFIG
    assert image.config_of(BROKER, "") == {MIN_ISR: "2"}
