"""Administrators: topics come and go, grow, change their settings and lose old records."""

from __future__ import annotations

from typing import Final

from ottla.model.config_resources import ResourceType
from ottla.model.ids import ZERO_UUID
from ottla.sim.clients.client import Client
from ottla.sim.model.cluster import TopicModel
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

NAMES: Final = ("alpha", "beta", "gamma", "delta")
MOST_PARTITIONS: Final = 4
_SET, _DELETE = 0, 1


class Administrator(Client):
    """Changes the cluster now and then."""

    THINK_MS = (5.0, 50.0, 300.0)

    def act(self) -> None:
        missing = [name for name in NAMES if name not in self.environment.model.topics]
        if missing and (len(missing) == len(NAMES) or self.chance.random() < 0.25):
            self._create(self.chance.choice(missing))
            return
        topic = self.environment.model.topics.get(self.chance.choice(NAMES))
        if topic is None:
            self._ask_for(self.chance.choice(NAMES))
            return
        dice = self.chance.random()
        if dice < 0.1:
            self._delete(topic)
        elif dice < 0.15:
            self._create(topic.name)
        elif dice < 0.25:
            self._grow(topic)
        elif dice < 0.5:
            self._alter(topic)
        elif dice < 0.75:
            self._delete_records(topic)
        else:
            self._describe(topic)

    def _create(self, name: str) -> None:
        configs = self.environment.profile.topic_configs(self.chance)
        topic = CreatableTopic(
            name=name,
            num_partitions=self.chance.randint(1, 3),
            replication_factor=1,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout=1000)
        request.validate_only = self.chance.random() < 0.05
        self.ask(request, self.chance.randint(2, 7))

    def _ask_for(self, name: str) -> None:
        """Ask for a topic that is not there, which may create it."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name, topic_id=ZERO_UUID)],
            allow_auto_topic_creation=self.chance.random() < 0.3,
        )
        self.ask(request, self.chance.randint(4, 12))

    def _delete(self, topic: TopicModel) -> None:
        version = self.chance.randint(1, 6)
        request = DeleteTopicsRequest(timeout=1000)
        if version < 6:
            request.topic_names = [topic.name]
        elif topic.topic_id and self.chance.random() < 0.5:
            request.topics = [DeleteTopicState(name=None, topic_id=topic.topic_id)]
        else:
            request.topics = [DeleteTopicState(name=topic.name, topic_id=ZERO_UUID)]
        self.ask(request, version)

    def _grow(self, topic: TopicModel) -> None:
        count = min(len(topic.partitions) + self.chance.randint(0, 2), MOST_PARTITIONS)
        wanted = CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
        self.ask(CreatePartitionsRequest(topics=[wanted], timeout=1000), self.chance.randint(0, 3))

    def _alter(self, topic: TopicModel) -> None:
        changes = [
            AlterableConfig(name=name, config_operation=_SET, value=value)
            for name, value in self.environment.profile.topic_configs(self.chance).items()
            if self.chance.random() < 0.5
        ]
        named = {change.name for change in changes}
        changes += [
            AlterableConfig(name=name, config_operation=_DELETE, value=None)
            for name in topic.configs
            if name not in named and self.chance.random() < 0.2
        ]
        resource = AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=topic.name, configs=changes
        )
        self.ask(IncrementalAlterConfigsRequest(resources=[resource]), self.chance.randint(0, 1))

    def _delete_records(self, topic: TopicModel) -> None:
        number = self.chance.randrange(len(topic.partitions))
        partition = topic.partitions[number]
        most = max(partition.end, partition.start) + 1
        offset = self.chance.choice((-1, partition.end, self.chance.randint(0, most)))
        wanted = DeleteRecordsTopic(
            name=topic.name,
            partitions=[DeleteRecordsPartition(partition_index=number, offset=offset)],
        )
        self.ask(DeleteRecordsRequest(topics=[wanted], timeout=1000), self.chance.randint(0, 2))

    def _describe(self, topic: TopicModel) -> None:
        if self.chance.random() < 0.5:
            self.ask(MetadataRequest(topics=None), self.chance.randint(1, 13))
            return
        resource = DescribeConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=topic.name, configuration_keys=None
        )
        self.ask(DescribeConfigsRequest(resources=[resource]), self.chance.randint(1, 4))
