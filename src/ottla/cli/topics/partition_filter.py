"""The options of `ottla topics describe` that show only partitions with a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from ottla.client.cluster import NO_NODE
from ottla.client.topics.topics import PartitionDescription, TopicDescription


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PartitionFilter:
    """The partitions that are shown. Without any of these options, all are."""

    under_replicated: Annotated[
        bool,
        Parameter(
            help="Show only partitions with a replica that is not in sync.", show_default=False
        ),
    ] = False
    unavailable: Annotated[
        bool, Parameter(help="Show only partitions without a leader.", show_default=False)
    ] = False
    at_min_isr: Annotated[
        bool,
        Parameter(
            help="Show only partitions with just min.insync.replicas in sync.", show_default=False
        ),
    ] = False
    under_min_isr: Annotated[
        bool,
        Parameter(
            help="Show only partitions with less than min.insync.replicas in sync.",
            show_default=False,
        ),
    ] = False

    @property
    def is_asked_for(self) -> bool:
        """True if not all partitions are to be shown."""
        return self.under_replicated or self.unavailable or self.at_min_isr or self.under_min_isr

    def of(self, topics: Sequence[TopicDescription]) -> list[TopicDescription]:
        """Return the topics with those of their partitions that are to be shown."""
        if not self.is_asked_for:
            return list(topics)
        found = [
            topic._replace(
                partitions=[each for each in topic.partitions if self._concerns(topic, each)]
            )
            for topic in topics
        ]
        return [topic for topic in found if topic.partitions]

    def _concerns(self, topic: TopicDescription, partition: PartitionDescription) -> bool:
        in_sync, least = len(partition.isr), topic.min_insync_replicas
        return (
            (self.under_replicated and in_sync < len(partition.replicas))
            or (self.unavailable and partition.leader == NO_NODE)
            or (self.at_min_isr and in_sync == least)
            or (self.under_min_isr and in_sync < least)
        )
