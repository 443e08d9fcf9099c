"""New offsets for a group: a plan of what would be committed, made before anything is.

A target outside of what the log holds is moved to its nearest end, as Kafka's tools do.
If one partition's target cannot be found there is no plan at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.admin.client import Client
from ottla.admin.deadline import Deadline
from ottla.admin.errors import AdminError, Refused, check
from ottla.admin.group_lag import leaders_of
from ottla.admin.group_offsets import Committed, fetch_offsets
from ottla.admin.groups import describe_groups
from ottla.admin.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from ottla.admin.route import check_partition, find_route
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, TopicPartition


class ToTime(NamedTuple):
    """The first record at or after a timestamp, or the end; or EARLIEST or LATEST_TIMESTAMP."""

    timestamp: int


class ToOffset(NamedTuple):
    """The same offset everywhere."""

    offset: int


class ToOffsets(NamedTuple):
    """An offset for each partition."""

    offsets: Mapping[TopicPartition, int]


class ShiftBy(NamedTuple):
    """So many records on from what is committed, or back if negative."""

    records: int


class ToCurrent(NamedTuple):
    """What is committed already; the end where nothing is."""


Target: TypeAlias = ToTime | ToOffset | ToOffsets | ShiftBy | ToCurrent


class TopicScope(NamedTuple):
    """Some partitions of a topic, or all when none are named."""

    topic: str
    partitions: Sequence[int] = ()


class Step(NamedTuple):
    """One partition of a plan; `was_moved` if the target was outside of the log."""

    partition: TopicPartition
    committed_offset: int | None
    new_offset: int
    was_moved: bool


def require_empty(client: Client, group: str) -> None:
    """Raise unless nobody consumes in this group; one that is not there yet is fine."""
    try:
        (found,) = describe_groups(client, [group])
    except Refused as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if not found.is_empty:
        count = len(found.members)
        members = "1 member" if count == 1 else f"{count} members"
        raise AdminError(
            f"group {group} is active ({found.state}, {members}); stop its consumers first:"
            " offsets are set from outside only while a group is empty"
        )


def scope_of_topics(client: Client, scopes: Sequence[TopicScope]) -> list[TopicPartition]:
    """The partitions of these topics; raises if one is not there."""
    deadline = client.deadline("looking topics up")
    found: dict[TopicPartition, None] = {}
    for topic, partitions in scopes:
        route = find_route(client, topic, deadline)
        for partition in partitions:
            check_partition(route, partition)
        found |= dict.fromkeys(TopicPartition(topic, p) for p in partitions or route.leaders)
    return sorted(found)


def scope_of_group(client: Client, group: str) -> list[TopicPartition]:
    """The partitions that the group has committed, of topics that are still there."""
    deadline = client.deadline("looking topics up")
    return sorted(leaders_of(client, fetch_offsets(client, group), deadline))


def plan_reset(
    client: Client, group: str, partitions: Sequence[TopicPartition], target: Target
) -> list[Step]:
    """What to commit for each partition."""
    deadline = client.deadline(f"planning new offsets of group {group}")
    committed = fetch_offsets(client, group)
    leaders = leaders_of(client, partitions, deadline)
    for partition in partitions:
        if partition not in leaders:
            raise AdminError(f"there is no partition {partition}")
    logs = _Logs(client, leaders, deadline)
    wanted = _wanted(target, partitions, committed, logs)
    return [
        _step(partition, committed.get(partition), wanted[partition], logs)
        for partition in partitions
    ]


class _Logs:
    """Where the logs begin and end, and offsets by time in them."""

    def __init__(
        self, client: Client, leaders: Mapping[TopicPartition, int], deadline: Deadline
    ) -> None:
        self._client = client
        self._leaders = leaders
        self._deadline = deadline
        self.earliest = self.at_time(EARLIEST_TIMESTAMP)
        self.latest = self.at_time(LATEST_TIMESTAMP)

    def at_time(self, timestamp: int) -> dict[TopicPartition, int]:
        """An offset for each partition; NO_OFFSET where no record is as late as that."""
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
                    raise AdminError(f"nothing is committed for {partition}: nothing to shift")
            return {p: committed[p].offset + records for p in partitions}


def _step(partition: TopicPartition, before: Committed | None, wanted: int, logs: _Logs) -> Step:
    reachable = max(logs.earliest[partition], min(wanted, logs.latest[partition]))
    at = None if before is None else before.offset
    return Step(partition, at, reachable, reachable != wanted)
