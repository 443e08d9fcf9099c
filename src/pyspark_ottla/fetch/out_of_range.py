"""Offsets that a task should read but that are not in the log: find out why, then fail or skip."""

from __future__ import annotations

import logging
from typing import NamedTuple

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.errors import check
from ottla.client.topics.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from ottla.model.ids import TopicPartition
from pyspark_ottla.errors import DataLoss
from pyspark_ottla.fetch.position import Position

_logger = logging.getLogger(__name__)

_ADVICE = (
    "Some data may have been lost. To continue with the records that are left, set the option"
    " failOnDataLoss to false"
)


class LostOffsets(NamedTuple):
    """The offsets from a position up to, but not including, `up_to` are lost."""

    up_to: int
    reason: str


def find_lost(client: Client, position: Position, timeout_ms: float) -> LostOffsets | None:
    """Return the offsets that are lost at a position, or None if its offset is in the log.

    Raise ClientError if the broker does not answer.
    """
    deadline = Deadline(timeout_ms, f"finding the offsets of {position.range}")
    earliest = _list_offset(client, position, EARLIEST_TIMESTAMP, deadline)
    if position.offset < earliest:
        reason = f"the log begins at {earliest}: retention or DeleteRecords removed them"
        return LostOffsets(earliest, reason)
    latest = _list_offset(client, position, LATEST_TIMESTAMP, deadline)
    if position.offset > latest:
        return LostOffsets(position.range.end, f"the log ends at {latest}: it was truncated")
    return None


def skip_or_fail(position: Position, lost: LostOffsets, *, fail: bool) -> None:
    """Raise DataLoss, or log a warning and move the position behind the lost offsets."""
    wanted = position.range
    up_to = min(lost.up_to, wanted.end)
    text = (
        f"{wanted.topic}-{wanted.partition}: {up_to - position.offset} offsets from"
        f" {position.offset} to {up_to - 1} cannot be read, {lost.reason}"
    )
    if fail:
        raise DataLoss(f"{text}. {_ADVICE}")
    _logger.warning("%s; continuing without them (failOnDataLoss is false)", text)
    position.offset = up_to
    if up_to >= wanted.end:
        position.finish()


def _list_offset(client: Client, position: Position, timestamp: int, deadline: Deadline) -> int:
    partition = TopicPartition(position.range.topic, position.range.partition)
    answers = list_offsets(client, {partition: position.leader}, timestamp, deadline)
    check(answers[partition].error_code, str(partition))
    return answers[partition].offset
