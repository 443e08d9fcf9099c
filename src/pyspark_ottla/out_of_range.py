"""Why an offset is not in a log: its beginning moved on, or its end is before it."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.errors import check
from ottla.client.topics.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from ottla.model.ids import TopicPartition
from pyspark_ottla.position import Position


class Loss(NamedTuple):
    """Everything from the position to `up_to` is gone."""

    up_to: int
    why: str


def find_loss(client: Client, position: Position, timeout_ms: float) -> Loss | None:
    """What is gone at the position, or None if it is in the log after all; raises ClientError."""
    deadline = Deadline(timeout_ms, f"finding the offsets of {position.range}")
    earliest = _ask(client, position, EARLIEST_TIMESTAMP, deadline)
    if position.offset < earliest:
        why = f"the log begins at {earliest}: retention or a deletion of records removed them"
        return Loss(earliest, why)
    latest = _ask(client, position, LATEST_TIMESTAMP, deadline)
    if position.offset > latest:
        return Loss(position.range.end, f"the log ends at {latest}: it was truncated")
    return None


def _ask(client: Client, position: Position, timestamp: int, deadline: Deadline) -> int:
    partition = TopicPartition(position.range.topic, position.range.partition)
    answers = list_offsets(client, {partition: position.leader}, timestamp, deadline)
    check(answers[partition].error_code, str(partition))
    return answers[partition].offset
