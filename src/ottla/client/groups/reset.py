"""Plans new offsets for a group. Nothing is committed here.

If a target is outside the log, the plan uses the nearest end of the log, as Kafka's tools do.
If the target of one partition cannot be found, there is no plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.client.cluster import Client
from ottla.client.deadline import Deadline
from ottla.client.errors import ClientError, Refused, check
from ottla.client.groups.groups import describe_groups
from ottla.client.groups.lag import leaders_of
from ottla.client.groups.offsets import Committed, fetch_offsets
from ottla.client.topics.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from ottla.client.topics.route import check_partition, find_route
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, TopicPartition


class ToTime(NamedTuple):
    """The first record at or after a timestamp, else the end. Also EARLIEST or LATEST_TIMESTAMP."""

    timestamp: int


class ToOffset(NamedTuple):
    """The same offset in every partition."""

    offset: int


class ToOffsets(NamedTuple):
    """An offset for each partition."""

    offsets: Mapping[TopicPartition, int]


class ShiftBy(NamedTuple):
    """This many offsets after the committed one, or before it if negative."""

    records: int


class ToCurrent(NamedTuple):
    """The committed offset; the end of the log if there is none."""


Target: TypeAlias = ToTime | ToOffset | ToOffsets | ShiftBy | ToCurrent


class TopicScope(NamedTuple):
    """Some partitions of a topic, or all partitions if none are named."""

    topic: str
    partitions: Sequence[int] = ()


class Step(NamedTuple):
    """One partition of a plan. `was_moved` is true if the target was outside the log."""

    partition: TopicPartition
    committed_offset: int | None
    new_offset: int
    was_moved: bool


def require_empty(client: Client, group: str) -> None:
    """Raise ClientError if the group has members. It need not exist."""
    try:
        (found,) = describe_groups(client, [group])
    except Refused as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if not found.is_empty:
        count = len(found.members)
        members = "1 member" if count == 1 else f"{count} members"
        raise ClientError(
            f"group {group} is active ({found.state}, {members}); stop its consumers first:"
            " offsets can be set only while a group has no members"
        )


def scope_of_topics(client: Client, scopes: Sequence[TopicScope]) -> list[TopicPartition]:
    """Return the partitions of these topics. Raise an error if one does not exist."""
    deadline = client.deadline("looking up topics")
    found: dict[TopicPartition, None] = {}
    for topic, partitions in scopes:
        route = find_route(client, topic, deadline)
        for partition in partitions:
            check_partition(route, partition)
        found |= dict.fromkeys(TopicPartition(topic, p) for p in partitions or route.leaders)
    return sorted(found)


def scope_of_group(client: Client, group: str) -> list[TopicPartition]:
    """Return the partitions for which the group has offsets, without deleted topics."""
    deadline = client.deadline("looking up topics")
    return sorted(leaders_of(client, fetch_offsets(client, group), deadline))


def plan_reset(
    client: Client, group: str, partitions: Sequence[TopicPartition], target: Target
) -> list[Step]:
    """Return the offset to commit for each partition."""
    deadline = client.deadline(f"planning new offsets of group {group}")
    committed = fetch_offsets(client, group)
    leaders = leaders_of(client, partitions, deadline)
    for partition in partitions:
        if partition not in leaders:
            raise ClientError(f"partition {partition} does not exist")
    logs = _Logs(client, leaders, deadline)
    wanted = _wanted(target, partitions, committed, logs)
    return [
        _step(partition, committed.get(partition), wanted[partition], logs)
        for partition in partitions
    ]


class _Logs:
    """The earliest and latest offsets of partitions, and offsets by time."""

    def __init__(
        self, client: Client, leaders: Mapping[TopicPartition, int], deadline: Deadline
    ) -> None:
        self._client = client
        self._leaders = leaders
        self._deadline = deadline
        self.earliest = self.at_time(EARLIEST_TIMESTAMP)
        self.latest = self.at_time(LATEST_TIMESTAMP)

    def at_time(self, timestamp: int) -> dict[TopicPartition, int]:
        """Return an offset for each partition; NO_OFFSET if no record is that late."""
        answers = list_offsets(self._client, self._leaders, timestamp, self._deadline)
        for partition, answer in answers.items():
            check(answer.error_code, f"the offsets of {partition}")
        return {partition: answer.offset for partition, answer in answers.items()}


def _wanted(
    target: Target,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    logs: _Logs,
) -> Mapping[TopicPartition, int]:
    match target:
        case ToTime(timestamp):
            found = logs.at_time(timestamp)
            return {p: logs.latest[p] if at == NO_OFFSET else at for p, at in found.items()}
        case ToOffset(offset):
            return dict.fromkeys(partitions, offset)
        case ToOffsets(offsets):
            return offsets
        case ToCurrent():
            return {
                p: committed[p].offset if p in committed else logs.latest[p] for p in partitions
            }
        case ShiftBy(records):
            for partition in partitions:
                if partition not in committed:
                    raise ClientError(
                        f"{partition} has no committed offset: there is nothing to shift"
                    )
            return {p: committed[p].offset + records for p in partitions}


def _step(partition: TopicPartition, before: Committed | None, wanted: int, logs: _Logs) -> Step:
    reachable = max(logs.earliest[partition], min(wanted, logs.latest[partition]))
    at = None if before is None else before.offset
    return Step(partition, at, reachable, reachable != wanted)
