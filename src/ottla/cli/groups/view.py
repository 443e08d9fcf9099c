"""Groups as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.cli.output import Column, JsonValue, counted, print_headline, print_table
from ottla.client.groups.groups import GroupListing
from ottla.client.groups.lag import PartitionLag
from ottla.client.groups.members import GroupDescription, GroupMember
from ottla.client.groups.reset import Step
from ottla.model.ids import TopicPartition

_NONE = "-"
_UNKNOWN = "?"
LISTING_COLUMNS = [
    Column("group"),
    Column("type"),
    Column("state"),
    Column("protocol"),
    Column("coordinator", True),
]
_LAG_COLUMNS = [
    Column("topic"),
    Column("partition", True),
    Column("committed", True),
    Column("log end", True),
    Column("lag", True),
    Column("member", is_id=True),
    Column("client", is_id=True, is_extra=True),
    Column("host", is_extra=True),
]
_NUMBERS = ("epoch", "count")
_IDS = ("member", "instance", "client")
_EXTRAS = ("epoch", "subscribed", "host", "client")
_STEP_COLUMNS = [
    Column("topic"),
    Column("partition", True),
    Column("committed", True),
    Column("new", True),
    Column("change", True),
]


def listing_row(listing: GroupListing) -> list[str]:
    """Return a group of a list as the cells of LISTING_COLUMNS."""
    return [
        listing.group,
        listing.group_type or _UNKNOWN,
        listing.state or _UNKNOWN,
        listing.protocol_type or _NONE,
        str(listing.coordinator),
    ]


def listing_as_json(listing: GroupListing) -> JsonValue:
    """Return a group of a list as JSON."""
    return {
        "group": listing.group,
        "type": listing.group_type,
        "state": listing.state,
        "protocol_type": listing.protocol_type,
        "coordinator": listing.coordinator,
    }


def print_lag(group: GroupDescription, partitions: Sequence[PartitionLag]) -> None:
    """Print a group: one line about it, then its partitions with lag and assigned members."""
    lag = _lag_of(partitions)
    print_headline([*_headline(group), f"lag {_NONE if lag is None else lag}"])
    rows = [_lag_row(partition) for partition in partitions]
    print_table(_LAG_COLUMNS, rows, empty=f"Group {group.group} has no offsets and no partitions.")


def lag_as_json(group: GroupDescription, partitions: Sequence[PartitionLag]) -> JsonValue:
    """Return a group with its partitions as JSON. Unknown values are null."""
    return _group_as_json(group) | {
        "members": len(group.members),
        "lag": _lag_of(partitions),
        "partitions": [_lag_json(partition) for partition in partitions],
    }


def print_members(group: GroupDescription) -> None:
    """Print a group: one line about it, then its members with their partitions."""
    print_headline(_headline(group))
    columns, rows = _member_table(group.members)
    print_table(columns, rows, empty=f"Group {group.group} has no members.")


def members_as_json(group: GroupDescription) -> JsonValue:
    """Return a group with its members as JSON."""
    members: list[JsonValue] = [_member_json(member) for member in group.members]
    return _group_as_json(group) | {"members": members}


def print_steps(steps: Iterable[Step]) -> None:
    """Print the steps of a plan. A star marks targets that were outside the log."""
    print_table(_STEP_COLUMNS, [_step_row(step) for step in steps])


def step_as_json(step: Step) -> dict[str, JsonValue]:
    """Return one step of a plan as JSON."""
    return {
        "topic": step.partition.topic,
        "partition": step.partition.partition,
        "committed_offset": step.committed_offset,
        "new_offset": step.new_offset,
        "was_moved": step.was_moved,
    }


def partitions_text(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions by topic as text, with ranges: events:0-3,7 logs:1."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{_runs(found)}" for topic, found in by_topic.items()) or _NONE


def _headline(group: GroupDescription) -> list[str]:
    parts = [group.group, group.state, f"type {group.group_type}"]
    if group.protocol_type not in ("", "consumer"):
        parts.append(f"protocol {group.protocol_type}")
    if group.assignor:
        parts.append(f"assignor {group.assignor}")
    if group.epoch is not None:
        parts.append(f"epoch {group.epoch}")
    node_id, address = group.coordinator
    parts.append(f"coordinator {node_id} ({address})")
    parts.append(counted(len(group.members), "member"))
    return parts


def _lag_of(partitions: Sequence[PartitionLag]) -> int | None:
    """Return the sum of all lags that are known; None if there are partitions, but no such lag.

    A group that has not committed anything may have everything to read: its lag is not 0.
    """
    known = [partition.lag for partition in partitions if partition.lag is not None]
    return sum(known) if known or not partitions else None


def _lag_row(found: PartitionLag) -> list[str]:
    member = found.member
    return [
        found.partition.topic,
        str(found.partition.partition),
        _NONE if found.committed is None else str(found.committed.offset),
        _UNKNOWN if found.log_end_offset is None else str(found.log_end_offset),
        _NONE if found.lag is None else str(found.lag),
        _NONE if member is None else _name(member),
        _NONE if member is None else member.client_id,
        _NONE if member is None else member.host,
    ]


def _name(member: GroupMember) -> str:
    """Return the instance id of a static member, or the member id of any other."""
    return member.instance_id or member.member_id


def _member_table(members: Sequence[GroupMember]) -> tuple[list[Column], list[list[str]]]:
    """Return the columns and rows for members, without columns that would be empty."""
    cells = {
        "member": [member.member_id for member in members],
        "instance": [member.instance_id or "" for member in members],
        "client": [member.client_id for member in members],
        "host": [member.host for member in members],
        "epoch": ["" if member.epoch is None else str(member.epoch) for member in members],
        "subscribed": [_subscription(member) for member in members],
        "count": [str(len(member.assignment)) for member in members],
        "partitions": [partitions_text(member.assignment) for member in members],
        "to come": [_to_come(member) for member in members],
    }
    shown = {title: column for title, column in cells.items() if any(column)}
    columns = [Column(title, title in _NUMBERS, title in _IDS, title in _EXTRAS) for title in shown]
    return columns, [list(row) for row in zip(*shown.values(), strict=True)]


def _subscription(member: GroupMember) -> str:
    regex = [] if member.subscribed_regex is None else [f"/{member.subscribed_regex}/"]
    return " ".join([*member.subscribed_topics, *regex])


def _to_come(member: GroupMember) -> str:
    """Return the partitions that the member will get (+) and give up (-), as text."""
    if member.target is None or member.target == member.assignment:
        return ""
    have, want = set(member.assignment), set(member.target)
    signs = (("+", want - have), ("-", have - want))
    return "  ".join(f"{sign} {partitions_text(sorted(some))}" for sign, some in signs if some)


def _runs(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def _group_as_json(group: GroupDescription) -> dict[str, JsonValue]:
    node_id, address = group.coordinator
    return {
        "group": group.group,
        "type": group.group_type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "coordinator": {"id": node_id, "host": address.host, "port": address.port},
    }


def _lag_json(found: PartitionLag) -> JsonValue:
    committed, member = found.committed, found.member
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "committed_offset": None if committed is None else committed.offset,
        "committed_leader_epoch": None if committed is None else committed.leader_epoch,
        "metadata": None if committed is None else committed.metadata,
        "log_end_offset": found.log_end_offset,
        "lag": found.lag,
        "member_id": None if member is None else member.member_id,
        "instance_id": None if member is None else member.instance_id,
        "client_id": None if member is None else member.client_id,
        "host": None if member is None else member.host,
    }


def _member_json(member: GroupMember) -> dict[str, JsonValue]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "type": member.member_type,
        "epoch": member.epoch,
        "subscribed_topics": member.subscribed_topics,
        "subscribed_regex": member.subscribed_regex,
        "assignment": _partitions_json(member.assignment),
        "target": None if member.target is None else _partitions_json(member.target),
    }


def _partitions_json(partitions: Iterable[TopicPartition]) -> JsonValue:
    return [{"topic": topic, "partition": partition} for topic, partition in partitions]


def _step_row(step: Step) -> list[str]:
    before = step.committed_offset
    return [
        step.partition.topic,
        str(step.partition.partition),
        _NONE if before is None else str(before),
        f"{'*' if step.was_moved else ''}{step.new_offset}",
        _NONE if before is None else f"{step.new_offset - before:+d}",
    ]
