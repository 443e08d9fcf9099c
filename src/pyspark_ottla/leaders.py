"""Who leads the partitions of positions, looked up again when that changes.

A topic that is gone, or that has another id than the planned one, has lost what was planned to
be read of it. One that is only missing may be a broker that has not heard of it yet, and is
waited for.
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
from pyspark_ottla.lost import lose
from pyspark_ottla.position import Position

MISSING_TOPIC_TIMEOUT_MS: Final = 5_000
PASSING: Final = (Unreachable, ConnectionLost, TimedOut, Refused)
"""Failures of the way to a broker, or of a broker that is just starting or ending."""


class Leaders:
    """Sets the leader of positions; keeps the ids of their topics for requests."""

    def __init__(self, client: Client, *, timeout_ms: float, fail_on_data_loss: bool) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._fail = fail_on_data_loss
        self.topic_ids: dict[str, bytes] = {}

    def look_up(self, positions: Sequence[Position]) -> None:
        """Give each position its leader; those that have none yet keep NO_NODE."""
        topics = {position.range.topic for position in positions}
        deadline = Deadline(self._timeout_ms, f"finding the leaders of {', '.join(topics)}")
        try:
            found = {topic.name: topic for topic in self._client.metadata(topics, deadline)}
        except PASSING as error:
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
            self._take(position, topic)

    def _take(self, position: Position, topic: MetadataResponseTopic) -> None:
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
        error = DataLoss(f"there is no topic {wanted.topic} any more")
        try:
            position.failed(error, min(MISSING_TOPIC_TIMEOUT_MS, self._timeout_ms))
        except DataLoss:
            lose(position, wanted.end, "the topic was deleted", fail=self._fail)

    def _recreated(self, position: Position, topic_id: bytes) -> None:
        why = (
            "the topic was deleted and created anew"
            f" (its id is {topic_id.hex()}, not {position.range.topic_id.hex()})"
        )
        lose(position, position.range.end, why, fail=self._fail)


def without_leader(positions: Iterable[Position]) -> list[Position]:
    """The unfinished positions whose leader has to be looked up."""
    return [each for each in positions if not each.done and each.leader == NO_NODE]


def _differ(planned: bytes, found: bytes) -> bool:
    return planned != found and ZERO_UUID not in (planned, found)
