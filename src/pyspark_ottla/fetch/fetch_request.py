"""Builds a Fetch request for several positions.

Topics are named by id if all of them have one (KIP-516), otherwise by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyspark_ottla.fetch.position import Position
from pyspark_ottla.options.read_settings import ReadSettings

NO_SESSION: Final = -1
READ_COMMITTED: Final = 1
LAST_VERSION_WITH_NAMES: Final = 12


def fetch_request(
    settings: ReadSettings, positions: Sequence[Position], topic_ids: Mapping[str, bytes]
) -> tuple[FetchRequest, int | None]:
    """Return the request, and the highest version to send it in. None means any version."""
    limit = min(settings.max_partition_fetch_bytes, settings.fetch_max_bytes)
    topics: dict[str, list[FetchPartition]] = {}
    for position in positions:
        asked = FetchPartition(
            partition=position.range.partition,
            fetch_offset=position.offset,
            partition_max_bytes=position.bytes_to_ask(limit),
        )
        topics.setdefault(position.range.topic, []).append(asked)
    request = FetchRequest(
        max_wait=settings.fetch_max_wait_ms,
        min_bytes=1,
        max_bytes=max(settings.fetch_max_bytes, *(p.least_bytes for p in positions), 1),
        isolation_level=READ_COMMITTED if settings.read_committed else 0,
        session_epoch=NO_SESSION,
        rack_id=settings.client.client_rack,
        topics=[
            FetchTopic(topic=name, topic_id=topic_ids[name], partitions=asked)
            for name, asked in topics.items()
        ],
    )
    by_name = any(topic_ids[name] == ZERO_UUID for name in topics)
    return request, LAST_VERSION_WITH_NAMES if by_name else None
