"""A classic group: its members, what is stored of it, and what it allows.

    EMPTY -> PREPARING_REBALANCE                   a member joins
    PREPARING_REBALANCE -> COMPLETING_REBALANCE    all members joined, or their time is up
    PREPARING_REBALANCE -> EMPTY                   all members left
    COMPLETING_REBALANCE -> STABLE                 the leader brought the assignment
    COMPLETING_REBALANCE, STABLE -> PREPARING_REBALANCE    a member joins, leaves or changes

What survives a restart is in `stored`, the value of the group's last record. Only `install`
sets it, when the record is replayed. A record is written with the leader's assignment, when the
last member is gone, and when a static member returns under a new id. Everything else belongs to
the current rebalance and is lost with the coordinator: members then find their old generation,
or none, and join again.

`join_group`, `rebalance`, `sync_group` and `leave_group` hold what requests do to a group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ottla.coordinator.groups.classic.member import ClassicMember
from ottla.coordinator.groups.classic.subscribed_topics import CONSUMER_PROTOCOL_TYPE, topics_of
from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.group import Group, GroupType
from ottla.coordinator.groups.member_memory import BATCHES_PER_GROUP, LEAST_PER_GROUP, member_bytes
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitValue
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.steps import Steps, in_steps
from ottla.replication.timers import Timer
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard

NO_GENERATION = -1


class State(StrEnum):
    """The states, as Kafka names them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


_EMPTY: Final = State.EMPTY  # a member of an enumeration is looked up slowly


class ClassicGroup(Group):
    """One group. The replay of its first record creates it, or that of an offset for it."""

    __slots__ = (
        "generation_id",
        "is_initial_rebalance",
        "join_timer",
        "joined",
        "leader_id",
        "member_was_added",
        "members",
        "memory_bytes",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "stored",
        "support",
        "sync_timer",
    )
    TYPE = GroupType.CLASSIC

    def __init__(self, shard: GroupShard, group_id: str) -> None:
        super().__init__(shard, group_id)
        self.state = State.EMPTY
        self.stored: GroupMetadataValue | None = None
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.memory_bytes = 0
        """What members and given out ids take. It is counted in `MemberMemory` too."""
        self.static_members: dict[str, str] = {}
        """Member ids of static members by group.instance.id."""
        self.pending_members: dict[str, Timer] = {}
        """Member ids that were given out, each until a client joins with it or the timer fires."""
        self.pending_sync: set[str] = set()
        self.joined = 0
        """How many members are parked in a join."""
        self.support: dict[str, int] = {}
        """How many members support each protocol."""
        self.is_initial_rebalance = False
        self.member_was_added = False
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None

    # -- what the log has ----------------------------------------------------------------

    def install(self, value: GroupMetadataValue) -> None:
        """Replay a record of the group: a generation with its assignments, or an empty one."""
        self.stored = value
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        wanted = {record.member_id for record in value.members}
        for member_id in [member_id for member_id in self.members if member_id not in wanted]:
            self.remove(member_id)
        for record in value.members:
            member = self.members.get(record.member_id)
            if member is None:
                self.add(ClassicMember.stored(record, value.protocol))
            else:
                member.assignment = record.assignment
        self.leader_id = value.leader
        if value.leader not in self.members:
            self.leader_id = next(iter(self.members), None)
        self.is_initial_rebalance = False
        self.state = State.STABLE if self.members else State.EMPTY

    def record(
        self, assignments: Mapping[str, bytes], members: Iterable[ClassicMember] | None = None
    ) -> GroupRecord:
        """Return the record of the current generation with these assignments."""
        if members is None:
            members = self.members.values()
        return GroupMetadataKey(group=self.group_id), GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.shard.broker.wall_ms,
            members=[
                member.record(self.protocol_name, assignments.get(member.member_id, b""))
                for member in members
            ],
        )

    def stored_records(self) -> list[GroupRecord]:
        if self.stored is None:
            return []
        return [(GroupMetadataKey(group=self.group_id), self.stored)]

    def tombstones(self) -> list[GroupRecord]:
        if self.stored is None:
            return []
        return [(GroupMetadataKey(group=self.group_id), None)]

    def loaded(self) -> None:
        from ottla.coordinator.groups.classic import rebalance

        for member in self.members.values():
            rebalance.keep_alive(self, member)
        if len(self.members) > self.shard.broker.config.groups.group_max_size:
            rebalance.prepare_rebalance(self)

    def close(self, code: ErrorCode) -> None:
        self._count_memory(-self.memory_bytes)
        for timer in (self.join_timer, self.sync_timer, *self.pending_members.values()):
            if timer is not None:
                timer.cancel()
        for member in self.members.values():
            self.answer_join(member, JoinGroupResponse(error_code=code, member_id=member.member_id))
            self.answer_sync(member, SyncGroupResponse(error_code=code))
            if member.timer is not None:
                member.timer.cancel()

    # -- members -------------------------------------------------------------------------

    def add(self, member: ClassicMember, reply: Reply | None = None) -> None:
        """Add a member. The first one leads."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_memory(member.memory_bytes)
        self._count_support(member, 1)
        self.set_join(member, reply)
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member. If it led, the oldest of the others leads."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.timer is not None:
            member.timer.cancel()
        self._count_memory(-member.memory_bytes)
        self._count_support(member, -1)
        if member.join is not None:
            self.joined -= 1
            member.join = None
        instance_id = member.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_sync.discard(member_id)

    def update(
        self,
        member: ClassicMember,
        protocols: dict[str, bytes],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Update a member that joins again."""
        self._count_memory(-member.memory_bytes)
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)
        self._count_memory(member.memory_bytes)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        member.former_generation_id = None

    def set_join(self, member: ClassicMember, reply: Reply | None) -> None:
        """Park a member in a join, or with None, note that it is in none."""
        if member.join is not None and reply is not None:
            self.answer_join(
                member,
                JoinGroupResponse(
                    error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id
                ),
            )
        self.joined += (reply is not None) - (member.join is not None)
        member.join = reply

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Answer the parked join of a member, if it has one."""
        reply = member.join
        if reply is not None:
            member.join = None
            self.joined -= 1
            self.shard.answer(reply, response)

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Answer the parked sync of a member. Return False if it has none."""
        reply, member.sync = member.sync, None
        if reply is None:
            return False
        self.shard.answer(reply, response)
        return True

    def add_pending(self, member_id: str, timer: Timer) -> None:
        """Note a member id that was given out."""
        self.pending_members[member_id] = timer
        self._count_memory(member_bytes((member_id,)))

    def forget_pending(self, member_id: str) -> bool:
        """Forget a member id that was given out. Return False if it was not."""
        timer = self.pending_members.pop(member_id, None)
        if timer is None:
            return False
        timer.cancel()
        self._count_memory(-member_bytes((member_id,)))
        return True

    def check_memory(self, more: int) -> None:
        """Raise GROUP_MAX_SIZE_REACHED, or another error, if there is no room for so much more."""
        limit = max(LEAST_PER_GROUP, BATCHES_PER_GROUP * self.shard.max_batch_bytes)
        if more > 0 and self.memory_bytes + more > limit:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The members of the group take {self.memory_bytes} bytes, and may take {limit}.",
            )
        self.shard.member_memory.check(more)

    def _count_memory(self, change: int) -> None:
        self.memory_bytes += change
        self.shard.member_memory.held += change

    def _count_support(self, member: ClassicMember, change: int) -> None:
        support = self.support
        for name in member.protocols:
            count = support.get(name, 0) + change
            if count:
                support[name] = count
            else:
                del support[name]

    # -- questions -----------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type_name(self) -> str:
        return self.protocol_type or ""

    @property
    def everybody_joined(self) -> bool:
        """True if all members have joined the next generation."""
        return self.joined == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join again."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Return True if a member with these protocols could join all others."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.support.get(name, 0) == everybody for name in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol with most votes among those that all members support."""
        everybody = len(self.members)
        candidates = {name for name, count in self.support.items() if count == everybody}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def find_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """Return the member of a request. Raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            known_id = self.static_members.get(group_instance_id)
            if known_id is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known_id != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def describe(self) -> Steps[DescribedGroup]:
        protocol = self.protocol_name if self.state is State.STABLE else None
        described = DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=protocol or "",
        )
        members = list(self.members.values())
        described.members = yield from in_steps(lambda each: each.describe(protocol), members)
        return described

    def subscribed_topics(self) -> Collection[str] | None:
        if not self.uses_consumer_protocol or not self.members:
            return ()
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = topics_of(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            topics.update(subscribed)
        return topics

    def retention_start(self, offset: OffsetCommitValue) -> int | None:
        if self.state is State.EMPTY:
            emptied = self.stored.current_state_timestamp if self.stored is not None else -1
            return max(emptied, offset.commit_timestamp)
        if self.state is State.STABLE and self.uses_consumer_protocol:
            return offset.commit_timestamp  # of a topic that no member subscribes to
        return None

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
        if generation_id < 0:
            if self.state is _EMPTY:
                return  # an administrator, or a consumer that assigns itself
            if not member_id and group_instance_id is None:
                if is_transactional:
                    return
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.find_member(member_id, group_instance_id)
        if generation_id not in (self.generation_id, member.former_generation_id):
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is State.COMPLETING_REBALANCE and not is_transactional:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        # As after a heartbeat, the timer finds that the deadline has moved.
        member.deadline_ms = self.shard.broker.monotonic_ms + member.session_timeout_ms

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Allow everybody to fetch, in every state."""

    def check_offset_delete(self) -> None:
        if self.state is not State.EMPTY and not self.uses_consumer_protocol:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if self.state is not State.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    # -- the protocol --------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, reply: Reply) -> list[GroupRecord]:
        from ottla.coordinator.groups.classic.join_group import join

        return join(self, request, client, reply)

    def sync(self, request: SyncGroupRequest, reply: Reply) -> list[GroupRecord]:
        from ottla.coordinator.groups.classic.sync_group import sync

        return sync(self, request, reply)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        member = self.find_member(request.member_id, request.group_instance_id)
        if request.generation_id not in (self.generation_id, member.former_generation_id):
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        member.deadline_ms = self.shard.broker.monotonic_ms + member.session_timeout_ms
        if self.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, request: LeaveGroupRequest, reply: Reply) -> list[GroupRecord]:
        from ottla.coordinator.groups.classic.leave_group import leave

        return leave(self, request, reply)
