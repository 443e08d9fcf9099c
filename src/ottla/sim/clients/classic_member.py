"""Members of a classic group: they join, sync, send heartbeats, commit offsets, and leave."""

from __future__ import annotations

from random import Random as Generator
from struct import pack
from typing import Final

from ottla.model.errors import ErrorCode
from ottla.sim.clients.client import Environment
from ottla.sim.clients.group_member import SUBSCRIBED, GroupMember
from ottla.sim.judges.groups import partitions_of
from ottla.sim.network.exchange import Exchange
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.offset_commit import OffsetCommitResponse
from ottla.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

_SESSION_MS: Final = 2000
_REBALANCE_MS: Final = 1000
_PROTOCOL: Final = "range"
_OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


class ClassicMember(GroupMember):
    """A member whose leader gives every partition to one member of the generation."""

    GROUP_ID = "classic"

    def __init__(self, name: str, environment: Environment, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self._member_id = ""
        self._generation_id = -1
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._has_joined = False
        self._is_stable = False
        self._partitions: list[str] = []

    def take_turn(self) -> None:
        if not self._has_joined:
            self._join()
        elif not self._is_stable:
            self._sync()
        else:
            self._work()

    def _join(self) -> None:
        names = b"".join(pack(">h", len(name)) + name.encode() for name in SUBSCRIBED)
        subscription = pack(">hi", 0, len(SUBSCRIBED)) + names + pack(">i", -1)
        request = JoinGroupRequest(
            group_id=self.GROUP_ID,
            session_timeout=_SESSION_MS,
            rebalance_timeout=_REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=subscription)],
        )
        self.ask(request, self.chance.choice((2, 4, 5, 7, 9)))

    def _sync(self) -> None:
        groups = self.environment.model.groups
        for each in self._assignments:
            key = self.GROUP_ID, self._generation_id, each.member_id
            groups.planned.setdefault(key, []).append(each.assignment)
        request = SyncGroupRequest(
            group_id=self.GROUP_ID,
            generation_id=self._generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=self._assignments,
        )
        self.ask(request, self.chance.choice((1, 3, 5)))

    def _work(self) -> None:
        dice = self.chance.random()
        place = self.pick_partition()
        if dice < 0.4 or place is None:
            request = HeartbeatRequest(
                group_id=self.GROUP_ID,
                generation_id=self._generation_id,
                member_id=self._member_id,
            )
            self.ask(request, self.chance.choice((0, 3, 4)))
        elif dice < 0.6:
            self.fetch_offset(place)
        elif dice < 0.93:
            self._commit()
        else:
            member = MemberIdentity(member_id=self._member_id)
            self.ask(LeaveGroupRequest(group_id=self.GROUP_ID, members=[member]), 4)

    def _commit(self) -> None:
        """Commit an offset of a partition this member has, if it still exists."""
        if self._partitions:
            name, _, index = self.chance.choice(self._partitions).rpartition("-")
            if self.environment.model.place(name, int(index)) is not None:
                self.commit((name, int(index)), self._generation_id, self._member_id)

    def commit_versions(self) -> tuple[int, ...]:
        return (2, 5, 7, 8, 9)

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        reply = exchange.reply
        if isinstance(reply, JoinGroupResponse):
            self._joined(reply)
        elif isinstance(reply, SyncGroupResponse):
            self._is_stable = not reply.error_code
            self._partitions = partitions_of(reply.assignment) if self._is_stable else []
            self._refused(reply.error_code)
        elif isinstance(reply, HeartbeatResponse):
            self._refused(reply.error_code)
        elif isinstance(reply, OffsetCommitResponse):
            self._refused(reply.topics[0].partitions[0].error_code)
        elif isinstance(reply, LeaveGroupResponse):
            self._start_over()

    def _joined(self, reply: JoinGroupResponse) -> None:
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
        elif reply.error_code:
            self._refused(reply.error_code)
        else:
            self._member_id, self._generation_id = reply.member_id, reply.generation_id
            self._has_joined, self._is_stable = True, False
            self._assignments = self._assign([each.member_id for each in reply.members])

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """Give each partition to one member; nothing, for those that do not lead."""
        parts: dict[str, list[str]] = {member: [] for member in members}
        partitions = [
            f"{place.topic.name}-{place.partition_index}"
            for place in self.environment.model.places()
            if place.topic.name in SUBSCRIBED
        ]
        for number, partition in enumerate(partitions if members else ()):
            parts[members[number % len(members)]].append(partition)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=",".join(names).encode())
            for member, names in parts.items()
        ]

    def _refused(self, code: int) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._has_joined = False
        elif code in _OUT:
            self._start_over()
        elif code == ErrorCode.NOT_COORDINATOR:
            self._knows_coordinator = False

    def _start_over(self) -> None:
        self._member_id = ""
        self._has_joined = self._is_stable = False
        self._partitions = []

    def disconnected(self, lost: list[Exchange]) -> None:
        if any(isinstance(each.request, SyncGroupRequest | JoinGroupRequest) for each in lost):
            self._has_joined = False
