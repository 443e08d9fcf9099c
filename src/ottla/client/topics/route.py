"""The route to a topic: its id, and the leaders of its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.cluster import NO_NODE, Client
from ottla.client.deadline import Deadline
from ottla.client.errors import ClientError, ProtocolViolation, Refused, check
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.model.topic_names import reason_invalid
from ottla.wire.messages.metadata import MetadataResponseTopic

CREATION_TIMEOUT_MS = 5_000
LAST_VERSION_WITH_NAMES = 12


class TopicRoute(NamedTuple):
    """A topic's id and the leader of each partition (NO_NODE if it has none)."""

    topic: str
    topic_id: bytes
    leaders: dict[int, int]

    @property
    def highest_version(self) -> int | None:
        """The highest usable version of Produce and Fetch: from 13 on they need a topic id."""
        return LAST_VERSION_WITH_NAMES if self.topic_id == ZERO_UUID else None


class _NotCreatedYet(Refused):
    """The broker was asked to create the topic and does not return it yet."""

    @property
    def retriable(self) -> bool:
        return True


def find_route(
    client: Client, topic: str, deadline: Deadline, *, create: bool = False
) -> TopicRoute:
    """Look up a topic. With `create`, let the broker create it and wait for it."""

    def ask() -> TopicRoute:
        found = _only(client.metadata([topic], deadline, create=create), topic)
        if create and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise _NotCreatedYet(found.error_code, topic)
        return _route(topic, found)

    try:
        limit = deadline.at_most(CREATION_TIMEOUT_MS) if create else deadline
        return client.retry(ask, limit, harmless_twice=True)
    except Refused as error:
        raise _with_advice(error, topic) from None


def _with_advice(error: Refused, topic: str) -> Refused:
    """Add advice to an error: a Metadata response has no error messages."""
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        advice = f"create it with `ottla topics create {topic}`"
        return Refused(error.code, f"there is no topic {topic}", advice)
    if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        advice = reason_invalid(topic) or "another topic's name differs only in '.' and '_'"
        return Refused(error.code, f"{topic!r} is not a valid topic name", advice)
    return error


def check_partition(route: TopicRoute, partition: int) -> None:
    """Raise ClientError if the topic does not have this partition."""
    if partition not in route.leaders:
        last = len(route.leaders) - 1
        raise ClientError(
            f"topic {route.topic} has no partition {partition}: its partitions are 0 to {last}"
        )


def _only(found: Sequence[MetadataResponseTopic], topic: str) -> MetadataResponseTopic:
    if len(found) != 1 or found[0].name != topic:
        raise ProtocolViolation(f"the broker did not return the metadata of {topic}")
    return found[0]


def _route(topic: str, found: MetadataResponseTopic) -> TopicRoute:
    if found.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
        check(found.error_code, f"topic {topic}")
    leaders = {partition.partition_index: partition.leader_id for partition in found.partitions}
    if all(leader == NO_NODE for leader in leaders.values()):
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic}")
    return TopicRoute(topic, found.topic_id, leaders)
