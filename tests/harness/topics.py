"""Topics made and records moved over a raw connection, for tests about something else."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from tests.harness.deadline import eventually
from tests.harness.raw import Answer, RawConnection


def create_topic(
    bootstrap_servers: str, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> uuid.UUID:
    """Create a topic and wait until every partition has a leader; the topic's id."""
    with RawConnection(bootstrap_servers) as connection:
        (made,) = connection.request(
            "create_topics",
            7,
            timeout=10_000,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [
                        {"name": key, "value": value} for key, value in (configs or {}).items()
                    ],
                }
            ],
        ).topics
        assert made.error_code == 0, f"{made.error_code!r}: {made.error_message}"
        eventually(lambda: _all_lead(connection, name, partitions), f"{name} has its leaders")
        topic_id: uuid.UUID = made.topic_id
        return topic_id


def _all_lead(connection: RawConnection, name: str, partitions: int) -> bool:
    """Return whether every partition answers; a Kafka broker announces leaders before they do."""
    answer = connection.request(
        "list_offsets",
        7,
        replica_id=-1,
        topics=[
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": -1}
                    for index in range(partitions)
                ],
            }
        ],
    )
    (found,) = answer.topics
    return all(each.error_code == 0 for each in found.partitions)


def metadata_of(connection: RawConnection, *names: str) -> Answer:
    """Return metadata of these topics, without creating them."""
    return connection.request(
        "metadata", 12, topics=[{"name": name} for name in names], allow_auto_topic_creation=False
    )


def topic_id_of(connection: RawConnection, name: str) -> uuid.UUID:
    """Return the id the broker gave a topic."""
    (found,) = metadata_of(connection, name).topics
    topic_id: uuid.UUID = found.topic_id
    return topic_id


def produce(
    connection: RawConnection,
    topic: str,
    batch: bytes,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = 9,
) -> Any:
    """Produce one batch to one partition; that partition's part of the answer."""
    answer = connection.request(
        "produce",
        version,
        transactional_id=None,
        acks=acks,
        timeout=10_000,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    )
    return answer.responses[0].partition_responses[0]


def fetch(
    connection: RawConnection,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_048_576,
) -> Any:
    """Fetch one partition without a session; that partition's part of the answer."""
    answer = connection.request(
        "fetch",
        12,
        **fetch_fields(
            {topic: {partition: offset}},
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
        ),
    )
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


def fetch_fields(
    positions: Mapping[str, Mapping[int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_048_576,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Mapping[str, list[int]] | None = None,
) -> dict[str, object]:
    """Return the fields of a Fetch request (up to v12, by topic name)."""
    return {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "rack_id": "",
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": partition,
                        "current_leader_epoch": -1,
                        "fetch_offset": offset,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": partition_max_bytes,
                    }
                    for partition, offset in partitions.items()
                ],
            }
            for topic, partitions in positions.items()
        ],
        "forgotten_topics_data": [
            {"topic": topic, "partitions": partitions}
            for topic, partitions in (forgotten or {}).items()
        ],
    }
