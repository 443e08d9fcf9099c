"""Topics as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.cli.output import Column, JsonValue, print_headline, print_table
from ottla.cli.sizes import ratio_text, size_text, time_text
from ottla.cli.topics.leader_logs import LeaderLogs
from ottla.client.cluster import NO_NODE
from ottla.client.topics.log_sizes import LogDescription
from ottla.client.topics.topics import PartitionDescription, TopicDescription, TopicListing
from ottla.model.ids import NO_OFFSET

_COLUMNS = [
    Column("partition", True),
    Column("leader", True),
    Column("epoch", True, is_extra=True),
    Column("replicas"),
    Column("isr"),
    Column("earliest", True),
    Column("latest", True),
    Column("size", True),
]
_EXTRA_BESIDE_REMOTE = ("replicas", "size")
"""Columns that may be left out beside those of the remote tier."""
_REMOTE_COLUMNS = [
    Column("remote to", True),
    Column("local from", True),
    Column("remote size", True, is_extra=True),
]
_COMPACTION_COLUMNS = [Column("dirty", True), Column("last clean", is_extra=True)]


def print_description(topic: TopicDescription, logs: LeaderLogs) -> None:
    """Print a topic: one line about it, its settings, its partitions and their sizes."""
    copies = max((len(partition.replicas) for partition in topic.partitions), default=0)
    facts = [topic.name, f"id {topic.topic_id or '-'}"]
    facts += [f"partitions {len(topic.partitions)}", f"replication {copies}"]
    print_headline([*facts, "internal"] if topic.is_internal else facts)
    for name, value in sorted(topic.configs.items()):
        print(f"  {name}={value}")
    found = [logs.get((topic.name, partition.partition)) for partition in topic.partitions]
    columns = _COLUMNS
    rows = [_row(each, log) for each, log in zip(topic.partitions, found, strict=True)]
    if any(log is not None and log.dirty_ratio is not None for log in found):
        columns = [*columns, *_COMPACTION_COLUMNS]
        rows = [[*row, *_compaction(log)] for row, log in zip(rows, found, strict=True)]
    if any(partition.latest_tiered_offset is not None for partition in topic.partitions):
        columns = [*columns, *_REMOTE_COLUMNS]
        rows = [
            [*row, *_remote(partition, log)]
            for row, partition, log in zip(rows, topic.partitions, found, strict=True)
        ]
    if any(partition.eligible_leaders for partition in topic.partitions):
        columns = [*columns, Column("eligible")]
        rows = [
            [*row, _joined(partition.eligible_leaders) or "-"]
            for row, partition in zip(rows, topic.partitions, strict=True)
        ]
    if _REMOTE_COLUMNS[0] in columns:
        columns = [
            each._replace(is_extra=True) if each.title in _EXTRA_BESIDE_REMOTE else each
            for each in columns
        ]
    print_table(columns, rows)


def description_as_json(topic: TopicDescription, logs: LeaderLogs) -> JsonValue:
    """Return a topic with all its details as JSON."""
    partitions: list[JsonValue] = [
        {**each._asdict(), **_log_as_json(logs.get((topic.name, each.partition)))}
        for each in topic.partitions
    ]
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "internal": topic.is_internal,
        "configs": dict(topic.configs),
        "min_insync_replicas": topic.min_insync_replicas,
        "partitions": partitions,
    }


def listing_as_json(topic: TopicListing) -> JsonValue:
    """Return a topic of a list as JSON."""
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "internal": topic.is_internal,
        "partitions": topic.partition_count,
        "replication_factor": topic.replication_factor,
    }


def _log_as_json(log: LogDescription | None) -> dict[str, JsonValue]:
    return {
        "size": None if log is None else log.size,
        "remote_size": None if log is None else log.remote_size,
        "dirty_ratio": None if log is None else log.dirty_ratio,
        "last_clean_ms": None if log is None else log.last_clean_ms,
    }


def _compaction(log: LogDescription | None) -> list[str]:
    if log is None:
        return ["?", "?"]
    return [ratio_text(log.dirty_ratio), time_text(log.last_clean_ms)]


def _row(partition: PartitionDescription, log: LogDescription | None) -> list[str]:
    return [
        str(partition.partition),
        "none" if partition.leader == NO_NODE else str(partition.leader),
        str(partition.leader_epoch),
        _joined(partition.replicas),
        _joined(partition.isr),
        _known(partition.earliest_offset),
        _known(partition.latest_offset),
        size_text(None if log is None else log.size),
    ]


def _remote(partition: PartitionDescription, log: LogDescription | None) -> list[str]:
    end = partition.latest_tiered_offset
    return [
        "-" if end == NO_OFFSET else _known(end),
        _known(partition.earliest_local_offset),
        size_text(None if log is None else log.remote_size),
    ]


def _joined(nodes: Iterable[int]) -> str:
    return ",".join(str(node) for node in nodes)


def _known(offset: int | None) -> str:
    return "?" if offset is None else str(offset)
