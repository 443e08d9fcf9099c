"""Topics: create, list, describe, alter and delete.

Functions that change several topics return an `Outcome` for each. If one topic fails, its
outcome has an error; there is no exception, because the others may have succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.cluster import NO_NODE, Client
from ottla.client.configs import (
    ConfigChange,
    Resource,
    ResourceType,
    Setting,
    alter_configs,
    describe_configs,
)
from ottla.client.deadline import Deadline
from ottla.client.errors import Refused, TimedOut, UnsupportedByBroker, check
from ottla.client.topics.eligible_leaders import eligible_leaders
from ottla.client.topics.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetAnswer,
    list_offsets,
)
from ottla.client.topics.tiered_offsets import tiered_offsets
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition, uuid_to_text
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

BROKER_DEFAULT = -1
SETTLE_TIMEOUT_MS = 5_000
MIN_INSYNC_REPLICAS = "min.insync.replicas"
REMOTE_STORAGE_ENABLE = "remote.storage.enable"
FIRST_CREATE_VERSION_WITH_DEFAULTS = 4


class Outcome(NamedTuple):
    """The result for one topic of a request."""

    name: str
    topic_id: str | None
    error: Refused | None


class PartitionDescription(NamedTuple):
    """One partition. An offset is None if the leader did not return it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    earliest_offset: int | None
    latest_offset: int | None
    eligible_leaders: list[int] = []
    """Replicas outside the ISR that may still be elected (KIP-966)."""
    earliest_local_offset: int | None = None
    latest_tiered_offset: int | None = None
    """Where the local part begins and the remote part ends, of topics in the remote tier."""


class TopicDescription(NamedTuple):
    """One topic with its partitions and the settings that it overrides."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: list[PartitionDescription]
    configs: dict[str, str]
    min_insync_replicas: int = 1


class TopicListing(NamedTuple):
    """One topic of a list."""

    name: str
    topic_id: str | None
    is_internal: bool
    partition_count: int
    replication_factor: int


def create_topics(
    client: Client,
    names: Sequence[str],
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> list[Outcome]:
    """Create topics, all with these settings. Return a result for each."""
    deadline = client.deadline("creating topics")
    settings = [CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()]
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=settings,
        )
        for name in names
    ]
    request = CreateTopicsRequest(
        topics=topics, timeout=_timeout_ms(client), validate_only=validate_only
    )

    def ask() -> list[Outcome]:
        connection = client.controller(deadline)
        if BROKER_DEFAULT in (partitions, replication_factor):
            _require_defaults(connection.version_of(CreateTopicsRequest))
        response = client.call(connection, request, CreateTopicsResponse, deadline)
        return [
            _outcome(topic.name, topic.topic_id, topic.error_code, topic.error_message)
            for topic in response.topics
        ]

    outcomes = client.retry(ask, deadline, harmless_twice=False)
    if not validate_only:
        created = [outcome.name for outcome in outcomes if outcome.error is None]
        await_leaders(client, created, deadline.at_most(SETTLE_TIMEOUT_MS))
    return outcomes


def list_topics(client: Client) -> list[TopicListing]:
    """Return all topics of the cluster, by name."""
    deadline = client.deadline("listing topics")
    topics = client.retry(lambda: client.metadata(None, deadline), deadline, harmless_twice=True)
    listings = [
        TopicListing(
            topic.name or "",
            _text_id(topic.topic_id),
            topic.is_internal,
            len(topic.partitions),
            max((len(partition.replica_nodes) for partition in topic.partitions), default=0),
        )
        for topic in topics
    ]
    return sorted(listings, key=lambda listing: listing.name)


def describe_topics(client: Client, names: Sequence[str] | None) -> list[TopicDescription]:
    """Return these topics (None: all topics) with offsets and overridden settings.

    Raise Refused if one does not exist.
    """
    deadline = client.deadline("describing topics")

    def ask() -> list[TopicDescription]:
        topics = client.metadata(names, deadline)
        for topic in topics:
            check(topic.error_code, f"topic {topic.name}", _advice(topic.error_code))
        return _describe(client, topics, deadline)

    return client.retry(ask, deadline, harmless_twice=True)


def alter_topic(
    client: Client,
    name: str,
    *,
    partitions: int | None = None,
    set_configs: Mapping[str, str] | None = None,
    delete_configs: Sequence[str] = (),
) -> None:
    """Change settings of a topic, then its number of partitions, which can only increase."""
    deadline = client.deadline(f"altering {name}")
    to_set = set_configs or {}
    change = ConfigChange(to_set, delete_configs)
    resource = Resource(ResourceType.TOPIC, name)
    if to_set or delete_configs:
        client.retry(
            lambda: alter_configs(client, resource, change, deadline),
            deadline,
            harmless_twice=False,
        )
    if partitions is not None:
        _create_partitions(client, name, partitions, deadline)


def check_partitions(client: Client, name: str, count: int) -> None:
    """Raise Refused if the topic cannot have this number of partitions. Change nothing."""
    deadline = client.deadline(f"altering {name}")
    _create_partitions(client, name, count, deadline, validate_only=True)


def delete_topics(client: Client, names: Sequence[str]) -> list[Outcome]:
    """Delete topics with all their records. Return a result for each."""
    deadline = client.deadline("deleting topics")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout=_timeout_ms(client),
    )

    def ask() -> list[Outcome]:
        response = client.call(client.controller(deadline), request, DeleteTopicsResponse, deadline)
        return [
            _outcome(topic.name or "", topic.topic_id, topic.error_code, topic.error_message)
            for topic in response.responses
        ]

    return client.retry(ask, deadline, harmless_twice=False)


def await_leaders(client: Client, names: Sequence[str], deadline: Deadline) -> None:
    """Wait until these topics have leaders, or until the deadline.

    A cluster confirms the creation of a topic before all brokers know it. Without this wait, the
    next command may get the error that the topic does not exist.
    """

    def ask() -> None:
        for topic in client.metadata(names, deadline):
            settled = all(partition.leader_id != NO_NODE for partition in topic.partitions)
            if topic.error_code != ErrorCode.NONE or not settled:
                raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, topic.name or "")

    try:
        if names:
            client.retry(ask, deadline, harmless_twice=True)
    except (Refused, TimedOut):
        pass  # the topics are created and will have leaders soon


def _create_partitions(
    client: Client, name: str, count: int, deadline: Deadline, *, validate_only: bool = False
) -> None:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(
        topics=[topic], timeout=_timeout_ms(client), validate_only=validate_only
    )

    def ask() -> None:
        connection = client.controller(deadline)
        for result in client.call(connection, request, CreatePartitionsResponse, deadline).results:
            check(result.error_code, f"topic {name}", result.error_message)

    client.retry(ask, deadline, harmless_twice=False)


def _describe(
    client: Client, topics: Sequence[MetadataResponseTopic], deadline: Deadline
) -> list[TopicDescription]:
    if not topics:
        return []
    leaders = {
        TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
        for topic in topics
        for partition in topic.partitions
    }
    earliest = list_offsets(client, leaders, EARLIEST_TIMESTAMP, deadline)
    latest = list_offsets(client, leaders, LATEST_TIMESTAMP, deadline)
    resources = [Resource(ResourceType.TOPIC, topic.name or "") for topic in topics]
    settings = describe_configs(client, resources, deadline)
    eligible = eligible_leaders(client, [topic.name or "" for topic in topics], deadline)
    tiered = {resource.name for resource in resources if _is_tiered(settings[resource])}
    remote = {key: leader for key, leader in leaders.items() if key.topic in tiered}
    parts = tiered_offsets(client, remote, deadline) if remote else {}

    def partition_of(name: str, found: MetadataResponsePartition) -> PartitionDescription:
        key = TopicPartition(name, found.partition_index)
        part = parts.get(key)
        return PartitionDescription(
            found.partition_index,
            found.leader_id,
            found.leader_epoch,
            list(found.replica_nodes),
            list(found.isr_nodes),
            list(found.offline_replicas),
            _known(earliest[key]),
            _known(latest[key]),
            eligible.get(key, []),
            None if part is None else part.earliest_local,
            None if part is None else part.latest_tiered,
        )

    def describe(topic: MetadataResponseTopic) -> TopicDescription:
        name = topic.name or ""
        partitions = [partition_of(name, found) for found in topic.partitions]
        partitions.sort(key=lambda found: found.partition)
        found = settings[Resource(ResourceType.TOPIC, name)]
        configs = {each.name: each.value or "" for each in found if each.is_own}
        least = next((each.value for each in found if each.name == MIN_INSYNC_REPLICAS), None)
        return TopicDescription(
            name,
            _text_id(topic.topic_id),
            topic.is_internal,
            partitions,
            configs,
            int(least or 1),
        )

    return sorted((describe(topic) for topic in topics), key=lambda topic: topic.name)


def _is_tiered(settings: Sequence[Setting]) -> bool:
    return any(each.name == REMOTE_STORAGE_ENABLE and each.value == "true" for each in settings)


def _known(answer: OffsetAnswer) -> int | None:
    return answer.offset if answer.error_code == ErrorCode.NONE else None


def _outcome(name: str, topic_id: bytes, code: int, message: str | None) -> Outcome:
    if code == ErrorCode.NOT_CONTROLLER:
        raise Refused(
            code, name, message
        )  # fail the whole request: `retry` looks the controller up again
    if code == ErrorCode.NONE:
        return Outcome(name, _text_id(topic_id), None)
    return Outcome(name, None, Refused(code, f"topic {name}", _advice(code) or message))


def _advice(code: int) -> str | None:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "there is no such topic; `ottla topics list` shows all topics"
    return None


def _require_defaults(version: int) -> None:
    if version < FIRST_CREATE_VERSION_WITH_DEFAULTS:
        raise UnsupportedByBroker(
            "this broker is older than Kafka 2.4 and has no defaults for new topics:"
            " give --partitions and --replication-factor"
        )


def _text_id(topic_id: bytes) -> str | None:
    return None if topic_id == ZERO_UUID else uuid_to_text(topic_id)


def _timeout_ms(client: Client) -> int:
    return int(client.timeout_ms)
