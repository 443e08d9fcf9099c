"""Looks up the leaders of the partitions that are fetched.

If a topic was deleted, or has another id than in the plan, its records are lost. A missing
topic is looked up again for MISSING_TOPIC_TIMEOUT_MS before it counts as deleted, because a
broker may not know of it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.client.cluster import NO_NODE, Client
from ottla.client.deadline import Deadline
from ottla.client.errors import ConnectionLost, Refused, TimedOut, Unreachable
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.metadata import MetadataResponseTopic
from pyspark_ottla.errors import DataLoss
from pyspark_ottla.fetch.out_of_range import LostOffsets, skip_or_fail
from pyspark_ottla.fetch.position import Position

MISSING_TOPIC_TIMEOUT_MS: Final = 5_000
TEMPORARY: Final = (Unreachable, ConnectionLost, TimedOut, Refused)
"""Errors of the connection to a broker, or of a broker that is starting or stopping."""


class Leaders:
    """Sets the leaders of positions, and keeps the ids of their topics for requests."""

    def __init__(self, client: Client, *, timeout_ms: float, fail_on_data_loss: bool) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._fail = fail_on_data_loss
        self.topic_ids: dict[str, bytes] = {}

    def look_up(self, positions: Sequence[Position]) -> None:
        """Set the leader of each position. It stays NO_NODE if the partition has none."""
        topics = {position.range.topic for position in positions}
        deadline = Deadline(self._timeout_ms, f"finding the leaders of {', '.join(topics)}")
        try:
            found = {topic.name: topic for topic in self._client.metadata(topics, deadline)}
        except TEMPORARY as error:
            for position in positions:
                position.failed(error, self._timeout_ms)
            return
        for position in positions:
            self._set_leader(position, found.get(position.range.topic))

    def _set_leader(self, position: Position, topic: MetadataResponseTopic | None) -> None:
        wanted = position.range
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
        if topic is None or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._missing(position)
        elif code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            self._refused(position, code)
        elif _differ(wanted.topic_id, topic.topic_id):
            self._recreated(position, topic.topic_id)
        else:
            self._set_from(position, topic)

    def _set_from(self, position: Position, topic: MetadataResponseTopic) -> None:
        self.topic_ids[position.range.topic] = topic.topic_id
        leaders = {found.partition_index: found.leader_id for found in topic.partitions}
        position.leader = leaders.get(position.range.partition, NO_NODE)
        if position.leader == NO_NODE:
            self._refused(position, ErrorCode.LEADER_NOT_AVAILABLE)

    def _refused(self, position: Position, code: int) -> None:
        wanted = position.range
        error = Refused(code, f"{wanted.topic}-{wanted.partition}")
        position.failed(error, self._timeout_ms if error.retriable else 0)
        if not error.retriable:
            raise error

    def _missing(self, position: Position) -> None:
        wanted = position.range
        error = DataLoss(f"topic {wanted.topic} does not exist any more")
        try:
            position.failed(error, min(MISSING_TOPIC_TIMEOUT_MS, self._timeout_ms))
        except DataLoss:
            self._lose_rest(position, "the topic was deleted")

    def _recreated(self, position: Position, topic_id: bytes) -> None:
        self._lose_rest(
            position,
            "the topic was deleted and created again"
            f" (its id is {topic_id.hex()}, not {position.range.topic_id.hex()})",
        )

    def _lose_rest(self, position: Position, reason: str) -> None:
        skip_or_fail(position, LostOffsets(position.range.end, reason), fail=self._fail)


def without_leader(positions: Iterable[Position]) -> list[Position]:
    """Return the unfinished positions without a leader."""
    return [each for each in positions if not each.done and each.leader == NO_NODE]


def _differ(planned: bytes, found: bytes) -> bool:
    return planned != found and ZERO_UUID not in (planned, found)
