"""Consumers of the consumer protocol that talk to a node in memory, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.partitions import MorePartitions
from ottla.controller.topics import UnwantedTopic
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from tests.support.decisions import create_partitions, delete_topics
from tests.support.groups import GROUP, PARTITIONS, TOPIC, commit_request
from tests.support.groups import Broker as PlainBroker

__all__ = ["GROUP", "PARTITIONS", "TOPIC"]

INTERVAL_MS = 5_000
SESSION_MS = 45_000
REBALANCE_MS = 60_000
ASSIGNMENT_MS = 1_000

TopicPartition = tuple[bytes, int]
FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)
"""Answers after which a consumer has nothing any more."""


class Broker(PlainBroker):
    """A node, and settings of the group."""

    def alter_group(self, **settings: str | None) -> ErrorCode:
        """Give the group settings of its own, or take them back."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=ResourceType.GROUP,
                    resource_name=GROUP,
                    configs=[
                        AlterableConfig(name=name, config_operation=value is None, value=value)
                        for name, value in settings.items()
                    ],
                )
            ]
        )
        (result,) = self.connect().ask(request, IncrementalAlterConfigsResponse).responses
        return ErrorCode(result.error_code)


class Consumer:
    """A consumer: what it was told, what it has, and what it last said it has."""

    def __init__(
        self,
        broker: Broker,
        member_id: str,
        topics: Sequence[str] | None = (TOPIC,),
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.broker = broker
        self.client = broker.connect(member_id)
        self.member_id = member_id
        self.topics = None if topics is None else list(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.rebalance_ms = rebalance_ms
        self.epoch = 0
        self.target: set[TopicPartition] = set()
        self.owned: set[TopicPartition] = set()
        self.said: set[TopicPartition] | None = None
        self.lost_track = True
        """Whether the next heartbeat says everything, as after an error."""

    # -- one request ---------------------------------------------------------------------

    def request(self, **changes: object) -> ConsumerGroupHeartbeatRequest:
        full = self.epoch == 0 or self.lost_track
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout=self.rebalance_ms if full else -1,
            subscribed_topic_names=self.topics if full else None,
            subscribed_topic_regex=self.regex if full else None,
            server_assignor=self.assignor if full else None,
            topic_partitions=_listed(self.owned) if full or self.said != self.owned else None,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def send(self, **changes: object) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; its answer is not acted upon."""
        return self.client.ask(self.request(**changes), ConsumerGroupHeartbeatResponse)

    def heartbeat(self, **changes: object) -> ErrorCode:
        """Send a heartbeat; note its answer, which `reconcile` acts upon."""
        return self.take(self.send(**changes))

    def take(self, response: ConsumerGroupHeartbeatResponse) -> ErrorCode:
        code = ErrorCode(response.error_code)
        if code in FENCED:
            self.abandon()
        if code is not ErrorCode.NONE:
            self.lost_track = True
            return code
        self.said = set(self.owned)
        self.lost_track = False
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.target = {
                (topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }
            self.said = None  # it says what it has once it has done what was asked
        return code

    def abandon(self) -> None:
        """Give up everything and join again next time."""
        self.epoch = 0
        self.owned = set()
        self.target = set()
        self.said = None

    def reconcile(self) -> None:
        """Do what was asked: give up what is not in the target, take what is."""
        self.owned = set(self.target)

    def revoke(self) -> None:
        """Do the first half of it."""
        self.owned &= self.target

    # -- several -------------------------------------------------------------------------

    def poll(self) -> ErrorCode:
        """Send a heartbeat, do what its answer asks for, and send another one that says so."""
        code = self.heartbeat()
        if self.epoch > 0 and (self.said is None or self.owned != self.target):
            self.reconcile()
            return self.heartbeat()
        return code

    def leave(self) -> ErrorCode:
        response = self.send(member_epoch=-1, topic_partitions=None)
        self.abandon()
        return ErrorCode(response.error_code)

    def leave_for_a_while(self) -> ErrorCode:
        response = self.send(member_epoch=-2, topic_partitions=None)
        self.abandon()
        return ErrorCode(response.error_code)

    def subscribe(self, topics: Sequence[str] | None, regex: str | None = None) -> ErrorCode:
        """Change the subscription; "" takes a regular expression back."""
        self.topics = list(topics or ())
        self.regex = regex
        return self.heartbeat(
            subscribed_topic_names=self.topics, subscribed_topic_regex=regex or ""
        )

    def commit(self, offset: int, partition: int = 0, **changes: object) -> ErrorCode:
        request = commit_request(
            {(TOPIC, partition): offset}, generation_id=self.epoch, member_id=self.member_id
        )
        for name, value in changes.items():
            setattr(request, name, value)
        response = self.client.ask(request, OffsetCommitResponse, 9)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def has(self, topic: str = TOPIC) -> list[int]:
        """Return the partitions of a topic that it has."""
        topic_id = self.broker.node.image.topics[topic].topic_id
        return sorted(partition for owner, partition in self.owned if owner == topic_id)


def _listed(owned: set[TopicPartition]) -> list[RequestTopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(owned):
        topics.setdefault(topic_id, []).append(partition)
    return [
        RequestTopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in topics.items()
    ]


def settle(broker: Broker, *consumers: Consumer, rounds: int = 6) -> None:
    """Let everybody send heartbeats until nothing changes any more."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.poll()
        broker.pass_ms(ASSIGNMENT_MS)


def consumer_group(broker: Broker) -> ConsumerGroup:
    group = broker.shard().groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group


def describe(broker: Broker) -> DescribedGroup:
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP])
    (described,) = broker.connect().ask(request, ConsumerGroupDescribeResponse).groups
    return described


def add_partitions(broker: Broker, topic: str, count: int) -> None:
    """Let a topic have `count` partitions in all."""
    node = broker.node
    decision = create_partitions(node.image, broker.random, [MorePartitions(topic, count)])
    node.controller.write(decision.records)


def delete_topic(broker: Broker, topic: str) -> None:
    node = broker.node
    decision = delete_topics(node.image, node.config, [UnwantedTopic(topic)])
    node.controller.write(decision.records)


def snapshot(group: ConsumerGroup) -> object:
    """Return all that the log knows of a group, to be compared."""
    return (
        group.epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.assignment_ms,
        {member_id: (m.metadata, m.current) for member_id, m in group.members.items()},
        dict(group.static_members),
        {member_id: dict(target) for member_id, target in group.targets.items()},
        dict(group.regexes),
        {topic_id: dict(owners) for topic_id, owners in group.owners.items()},
        {name: getattr(group.member_counts, name) for name in group.member_counts.__slots__},
    )
