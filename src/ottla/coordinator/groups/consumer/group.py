"""A group of the consumer protocol: its members and their assignments (KIP-848).

The group epoch goes up when members, subscriptions or topics change. Then a target assignment
is made for that epoch, and each member moves towards its target step by step
(`current_assignment`). The state changes by `replay` only. `heartbeat`, `member_removal`,
`classic_members` and `migration` decide what to write.

    EMPTY          no members
    ASSIGNING      the group epoch is ahead of the target assignment
    RECONCILING    some member has not reached its target
    STABLE         all members have

Invariant: a partition belongs to one member at a time (`owners`), from the record that assigns
it to the record that takes it back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.consumer import record_builders, sessions
from ottla.coordinator.groups.consumer.assignment import NO_PARTITIONS, Partitions
from ottla.coordinator.groups.consumer.current_assignment import (
    LEAVING,
    Current,
    EpochPartitions,
    Target,
    current_of,
)
from ottla.coordinator.groups.consumer.member import ConsumerMember
from ottla.coordinator.groups.consumer.member_counts import MemberCounts
from ottla.coordinator.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionValue,
)
from ottla.coordinator.groups.group import Group, GroupType
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import OffsetCommitValue
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

FIRST_MEMBER_EPOCH_COMMIT = 9
"""The first version of OffsetCommit whose generation may be a member epoch."""


class ResolvedRegex(NamedTuple):
    """The topics that matched a regular expression, at which metadata version and time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup(Group):
    """One group. The replay of its first record creates it."""

    __slots__ = (
        "assignment_epoch",
        "assignment_ms",
        "changed_ms",
        "emptied_ms",
        "epoch",
        "is_live",
        "member_counts",
        "members",
        "memory_bytes",
        "metadata_hash",
        "owners",
        "regexes",
        "static_members",
        "targets",
        "topics_version",
    )
    TYPE = GroupType.CONSUMER

    def __init__(self, shard: GroupShard, group_id: str, *, is_live: bool = False) -> None:
        super().__init__(shard, group_id)
        self.is_live = is_live
        """True if sessions run: not while the shard is loading."""
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_ms = 0
        """When the target assignment was made, in wall time."""
        self.members: dict[str, ConsumerMember] = {}
        self.memory_bytes = 0
        """What the members take, once the group is live. It is counted in `MemberMemory` too."""
        self.static_members: dict[str, str] = {}
        """Member ids of static members by group.instance.id."""
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[bytes, dict[int, str]] = {}
        self.member_counts = MemberCounts()
        self.topics_version = -1
        """The version of the topics when the group last looked at them."""
        self.changed_ms = float("-inf")
        """When the group epoch last went up, in monotonic time."""
        self.emptied_ms = -1
        """When the last member left, in wall time. -1 if that was before this coordinator."""

    # -- replay --------------------------------------------------------------------------

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Replay a new group epoch."""
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        if self.is_live:
            self.changed_ms = self.shard.broker.monotonic_ms

    def set_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Replay the epoch of the target assignment."""
        self.assignment_epoch = epoch
        self.assignment_ms = timestamp_ms

    def set_target(self, member_id: str, partitions: Partitions | None) -> None:
        """Replay the target of a member."""
        if partitions is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = partitions

    def set_regex(self, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        """Replay the topics of a regular expression."""
        if value is None:
            if self.regexes.pop(regex, None) is not None:
                self.shard.topic_patterns.release(regex)
        else:
            if regex not in self.regexes:
                self.shard.topic_patterns.use(regex)
            topics = frozenset(value.topics)
            self.regexes[regex] = ResolvedRegex(topics, value.version, value.timestamp)

    def set_member(self, member_id: str, metadata: ConsumerGroupMemberMetadataValue) -> None:
        """Replay the metadata of a new or known member."""
        member = self._member(member_id)
        before = member.memory_bytes
        self.member_counts.add(member, -1)
        self._forget_instance(member)
        was_classic = member.classic is not None
        member.set_metadata(metadata)
        self.member_counts.add(member)
        self._count_memory(member.memory_bytes - before)
        if metadata.instance_id is not None:
            self.static_members[metadata.instance_id] = member_id
        if self.is_live and member.session_timer is None:
            sessions.keep_alive(self, member)
            if member.classic is not None:  # it has joined, or is asked to: a sync must follow
                sessions.expect(self, member)
        elif self.is_live and was_classic:
            sessions.expect_revocation(self, member)

    def remove_member(self, member_id: str) -> None:
        """Replay the removal of a member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._disown(member)
            self._count_memory(-member.memory_bytes)
            self.member_counts.add(member, -1)
            self._forget_instance(member)
            member.stop_timers()
            if self.is_live and not self.members:
                self.emptied_ms = self.shard.broker.wall_ms

    def set_current(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """Replay the current assignment of a member."""
        if value is None and member_id not in self.members:
            return
        member = self._member(member_id)
        self._disown(member)
        self.member_counts.add_step(member, -1)
        member.current = Current(LEAVING, LEAVING) if value is None else current_of(value)
        self.member_counts.add_step(member)
        self._own(member_id, member.current.assigned)
        self._own(member_id, member.current.revoking)
        if self.is_live:
            sessions.expect_revocation(self, member)

    def _member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(member_id)
            self.member_counts.add(member)
            self._count_memory(member.memory_bytes)
        return member

    def _count_memory(self, change: int) -> None:
        if self.is_live:
            self.memory_bytes += change
            self.shard.member_memory.held += change

    def _own(self, member_id: str, partitions: EpochPartitions) -> None:
        for topic_id, numbers in partitions.items():
            self.owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member_id))

    def _disown(self, member: ConsumerMember) -> None:
        """Remove the member's ownership. In a compacted log a new owner may have come first."""
        for partitions in (member.current.assigned, member.current.revoking):
            for topic_id, numbers in partitions.items():
                owners = self.owners.get(topic_id, {})
                for number in numbers:
                    if owners.get(number) == member.member_id:
                        del owners[number]
                if not owners:
                    self.owners.pop(topic_id, None)

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    # -- life ----------------------------------------------------------------------------

    def loaded(self) -> None:
        self.is_live = True
        for member in self.members.values():
            self._count_memory(member.memory_bytes)
            sessions.keep_alive(self, member)
            sessions.expect_revocation(self, member)

    def close(self, code: ErrorCode) -> None:
        for member in self.members.values():
            member.stop_timers()
        for regex in self.regexes:
            self.shard.topic_patterns.release(regex)
        self.regexes = {}
        self._count_memory(-self.memory_bytes)

    def stored_records(self) -> Iterator[GroupRecord]:
        group_id, groups = self.group_id, self.shard.groups
        for member_id in list(self.members):
            if (member := self.members.get(member_id)) is not None:
                yield record_builders.member_record(group_id, member_id, member.metadata)
        for regex in list(self.regexes):
            if (resolved := self.regexes.get(regex)) is not None:
                yield record_builders.regex_record(group_id, regex, *resolved)
        if groups.get(group_id) is self:
            yield record_builders.epoch_record(group_id, self.epoch, self.metadata_hash)
        for member_id in list(self.targets):
            if (target := self.targets.get(member_id)) is not None:
                yield record_builders.target_record(group_id, member_id, target)
        if groups.get(group_id) is self:
            yield record_builders.target_epoch_record(
                group_id, self.assignment_epoch, self.assignment_ms
            )
        for member_id in list(self.members):
            if (member := self.members.get(member_id)) is not None:
                yield record_builders.current_record(group_id, member_id, member.current)

    def tombstones(self) -> list[GroupRecord]:
        records: list[GroupRecord] = []
        for member_id in self.members:
            records.extend(record_builders.member_tombstones(self.group_id, member_id))
        records.extend(
            record_builders.regex_tombstone(self.group_id, regex) for regex in self.regexes
        )
        return records + record_builders.group_tombstones(self.group_id)

    # -- questions -----------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if self.member_counts.stable[self.assignment_epoch] < len(self.members):
            return "Reconciling"
        return "Stable"

    @property
    def protocol_type_name(self) -> str:
        return "consumer"

    @property
    def assignor_name(self) -> str | None:
        """The assignor that most members ask for, None if no member does."""
        votes = self.member_counts.assignors
        return max(sorted(votes), key=votes.__getitem__) if votes else None

    def target_of(self, member_id: str) -> Target:
        """Return what a member is to have."""
        return Target(self.assignment_epoch, self.targets.get(member_id, NO_PARTITIONS))

    def find_member(self, member_id: str, instance_id: str | None = None) -> ConsumerMember:
        """Return the member of a request. Raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            known_id = self.static_members.get(instance_id)
            if known_id is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
                )
            if known_id != member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"The instance id {instance_id} is that of another member, {known_id}",
                )
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def describe(self) -> Steps[DescribedGroup]:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a classic group."
        )

    def subscribed_topics(self) -> Collection[str] | None:
        topics = set(self.member_counts.topics)
        for regex in self.member_counts.regexes:
            if regex in self.regexes:
                topics |= self.regexes[regex].topics
        return topics

    def retention_start(self, offset: OffsetCommitValue) -> int | None:
        return max(offset.commit_timestamp, self.emptied_ms)

    # -- what is allowed -----------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        version: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        if generation_id < 0 and not self.members:
            return  # an administrator, or a consumer that assigns itself
        if is_transactional and generation_id < 0 and not member_id and group_instance_id is None:
            return
        member = self.find_member(member_id)
        if not is_transactional and member.classic is None and version < FIRST_MEMBER_EPOCH_COMMIT:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Members of the consumer protocol need OffsetCommit version"
                f" {FIRST_MEMBER_EPOCH_COMMIT} or above",
            )
        self._check_epoch(member, generation_id)

    def may_commit_late(
        self, member_id: str, generation_id: int, topic_id: bytes, partition: int
    ) -> bool:
        """Return True if the member has owned the partition ever since that epoch."""
        member = self.members.get(member_id)
        return (
            member is not None
            and generation_id < member.current.epoch
            and member.current.may_commit(topic_id, partition, generation_id)
        )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if not member_id and member_epoch < 0:
            return
        self._check_epoch(self.find_member(member_id or ""), member_epoch)

    def _check_epoch(self, member: ConsumerMember, epoch: int) -> None:
        if epoch == member.current.epoch:
            return
        if member.classic is not None:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        raise ApiError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"The member is in epoch {member.current.epoch}, not {epoch}",
        )

    def check_offset_delete(self) -> None:
        """Allow it always."""

    def check_delete(self) -> None:
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    # -- members that speak the classic protocol -----------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, reply: Reply) -> list[GroupRecord]:
        from ottla.coordinator.groups.consumer.classic_members import join

        return join(self, request, client, reply)

    def sync(self, request: SyncGroupRequest, reply: Reply) -> list[GroupRecord]:
        from ottla.coordinator.groups.consumer.classic_members import sync

        return sync(self, request, reply)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        from ottla.coordinator.groups.consumer.classic_members import heartbeat

        return heartbeat(self, request)

    def leave(self, request: LeaveGroupRequest, reply: Reply) -> list[GroupRecord]:
        from ottla.coordinator.groups.consumer.classic_members import leave

        return leave(self, request, reply)
