"""Elections of partition leaders (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.errors import Refused, check
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)


class ElectionType(IntEnum):
    """Who may be elected: the first replica, or any one if nobody leads."""

    PREFERRED = 0
    UNCLEAN = 1


class Elected(NamedTuple):
    """The result for one partition."""

    partition: TopicPartition
    error: Refused | None

    @property
    def was_not_needed(self) -> bool:
        """True if the partition has the wanted leader already."""
        return self.error is not None and self.error.code == ErrorCode.ELECTION_NOT_NEEDED


def elect_leaders(
    client: Client, election: ElectionType, partitions: Sequence[TopicPartition] | None
) -> list[Elected]:
    """Elect leaders of these partitions; of all that need it with None."""
    deadline = client.deadline("electing leaders")
    topics: dict[str, list[int]] = {}
    for name, index in partitions or ():
        topics.setdefault(name, []).append(index)
    request = ElectLeadersRequest(
        election_type=election,
        topic_partitions=(
            None
            if partitions is None
            else [TopicPartitions(topic=name, partitions=each) for name, each in topics.items()]
        ),
        timeout=int(client.timeout_ms),
    )

    def ask() -> list[Elected]:
        connection = client.controller(deadline)
        response = client.call(connection, request, ElectLeadersResponse, deadline)
        check(response.error_code, "the election of leaders")
        return sorted(
            Elected(
                TopicPartition(topic.topic, each.partition_id),
                Refused(each.error_code, f"{topic.topic}-{each.partition_id}", each.error_message)
                if each.error_code
                else None,
            )
            for topic in response.replica_election_results
            for each in topic.partition_result
        )

    return client.retry(ask, deadline, harmless_twice=True)
