"""Clients that only ask: offsets by time and epoch, and everything the broker describes."""

from __future__ import annotations

from ottla.sim.clients.client import Client
from ottla.sim.judges.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from ottla.sim.model.cluster import Place
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_FIRST_MAX_TIMESTAMP = 7


class Prober(Client):
    """Asks for offsets mostly."""

    def act(self) -> None:
        place = self.pick_place()
        dice = self.chance.random()
        if place is None or dice < 0.15:
            self._describe(place)
        elif dice < 0.3:
            self._ask_epoch(place)
        else:
            self._ask_offset(place)

    def _ask_offset(self, place: Place) -> None:
        version = self.chance.randint(1, 11)
        now_ms = self.environment.wall_ms()
        timestamp = self.chance.choice((LATEST, EARLIEST, now_ms - self.chance.randrange(5000)))
        if version >= _FIRST_MAX_TIMESTAMP and self.chance.random() < 0.2:
            timestamp = MAX_TIMESTAMP
        topic = ListOffsetsTopic(
            name=place.topic.name,
            partitions=[
                ListOffsetsPartition(partition_index=place.partition_index, timestamp=timestamp)
            ],
        )
        self.ask(ListOffsetsRequest(topics=[topic]), version)

    def _ask_epoch(self, place: Place) -> None:
        topic = OffsetForLeaderTopic(
            topic=place.topic.name,
            partitions=[
                OffsetForLeaderPartition(
                    partition=place.partition_index, leader_epoch=self.chance.randint(0, 6)
                )
            ],
        )
        self.ask(OffsetForLeaderEpochRequest(topics=[topic]), self.chance.randint(2, 4))

    def _describe(self, place: Place | None) -> None:
        match self.chance.randrange(5):
            case 0:
                request = ApiVersionsRequest(
                    client_software_name="sim", client_software_version="1"
                )
                self.ask(request, self.chance.randint(0, 4))
            case 1:
                self.ask(DescribeClusterRequest(), self.chance.randint(0, 2))
            case 2:
                self.ask(DescribeLogDirsRequest(topics=None), self.chance.randint(1, 4))
            case 3:
                self.ask(DescribeTopicPartitionsRequest(response_partition_limit=100), 0)
            case _:
                topics = []
                if place is not None:
                    topics = [
                        TopicRequest(
                            name=place.topic.name, partition_indexes=[place.partition_index]
                        )
                    ]
                self.ask(DescribeProducersRequest(topics=topics), 0)
