"""Which offsets of partitions are on the brokers' disks, and which in the remote tier (KIP-405)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.topics.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetAnswer,
    list_offsets,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5


class TieredOffsets(NamedTuple):
    """Offsets of a partition as its leader knows them; None if it does not tell."""

    earliest: int | None
    earliest_local: int | None
    latest_tiered: int | None
    """The last offset in the remote tier, -1 if there is none."""
    latest: int | None


def tiered_offsets(
    client: Client, leaders: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, TieredOffsets]:
    """Ask the leaders of all partitions."""
    asked = (
        EARLIEST_TIMESTAMP,
        EARLIEST_LOCAL_TIMESTAMP,
        LATEST_TIERED_TIMESTAMP,
        LATEST_TIMESTAMP,
    )
    answers = [list_offsets(client, leaders, timestamp, deadline) for timestamp in asked]
    return {
        partition: TieredOffsets(*(_known(answer[partition]) for answer in answers))
        for partition in leaders
    }


def _known(answer: OffsetAnswer) -> int | None:
    return answer.offset if answer.error_code == ErrorCode.NONE else None
