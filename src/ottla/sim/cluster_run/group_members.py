"""Members of groups in a cluster: they look for the coordinator, join, commit, leave, fall silent.

Both protocols. A member commits only offsets of partitions that it has, one request at a time.
"""

from __future__ import annotations

from random import Random as Generator
from struct import pack
from typing import Final

from ottla.model.errors import ErrorCode
from ottla.sim.cluster_run.clients import ClusterClient, ClusterRunOfClients
from ottla.sim.cluster_run.topics import LASTING
from ottla.sim.network.exchange import Exchange, Violation
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

LEAVE_EPOCH: Final = -1
SESSION_MS: Final = 2000
_REBALANCE_MS: Final = 1500
_PROTOCOL: Final = "range"
_SILENCE_MS: Final = 4000.0
_AWAY = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Answers after which a member looks for its coordinator again."""
_OUT = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Answers after which a member begins again."""
_NO_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class GroupMember(ClusterClient):
    """What members of both kinds share."""

    THINK_MS = (5.0, 20.0, 50.0, 100.0, 300.0)
    GROUP_ID = ""

    def __init__(self, name: str, environment: ClusterRunOfClients, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self._coordinator = -1
        self._silent_until_ms = 0.0
        self.commits = 0
        """How many commits were acknowledged."""
        self.is_steady = False
        """Set when the member is not to leave or to fall silent any more."""

    @property
    def owned(self) -> list[tuple[str, int]]:
        """Return the partitions that the member believes to have."""
        raise NotImplementedError

    def act(self) -> None:
        if self.environment.monotonic_ms() < self._silent_until_ms and not self.is_steady:
            return
        if self._coordinator < 0:
            self.ask(FindCoordinatorRequest(key=self.GROUP_ID), 3)
        elif not self.is_steady and self.chance.random() < 0.02:
            self._silent_until_ms = self.environment.monotonic_ms() + _SILENCE_MS
        else:
            self.take_turn()

    def take_turn(self) -> None:
        """Do what a member does that knows its coordinator."""
        raise NotImplementedError

    def start_over(self) -> None:
        """Join again as a new member."""
        raise NotImplementedError

    # -- the coordinator -----------------------------------------------------------------

    def choose(self) -> None:
        if self._coordinator > 0:
            self.broker = self._coordinator
        else:
            super().choose()

    def hang_up(self) -> None:
        """Close the connection; nothing that is still on its way arrives."""
        stream = self.connection
        super().hang_up()
        if stream is not None:
            stream.lose()

    def disconnected(self, lost: list[Exchange]) -> None:
        self._coordinator = -1

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        reply = exchange.reply
        if isinstance(reply, FindCoordinatorResponse):
            if reply.error_code:
                self.refused(exchange, reply.error_code)
            else:
                self.hang_up()
                self._coordinator = self.broker = reply.node_id
        elif isinstance(reply, OffsetCommitResponse):
            code = reply.topics[0].partitions[0].error_code
            self.commits += not code
            self.refused(exchange, code)

    def refused(self, exchange: Exchange, code: int) -> None:
        """Take an error; 0 is none."""
        if code in _AWAY:
            self._coordinator = -1
            self.try_elsewhere()
        elif code in _OUT:
            self.start_over()
        elif code and code not in _NO_TOPIC:
            raise Violation(f"{exchange!r}: answered with {ErrorCode(code).name}")

    # -- offsets -------------------------------------------------------------------------

    def all_partitions(self) -> list[tuple[str, int]]:
        """Return the partitions of the subscribed topics."""
        topics = self.environment.image.topics
        return [
            (name, partition.partition_id)
            for name in self.subscribed()
            for partition in topics[name].partitions
        ]

    def subscribed(self) -> list[str]:
        return [name for name in sorted(self.environment.image.topics) if name.startswith(LASTING)]

    def commit(self, generation_id: int, member_id: str) -> None:
        """Commit a new offset of a partition that this member has."""
        if not self.owned:
            return
        name, index = self.chance.choice(self.owned)
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=self.environment.new_uid()
        )
        request = OffsetCommitRequest(
            group_id=self.GROUP_ID,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=[partition])],
        )
        self.ask(request, 9)

    def fetch_offset(self) -> None:
        """Ask for the committed offset of a partition."""
        places = self.all_partitions()
        if places:
            name, index = self.chance.choice(places)
            topic = OffsetFetchRequestTopic(name=name, partition_indexes=[index])
            self.ask(OffsetFetchRequest(group_id=self.GROUP_ID, topics=[topic]), 7)


class ClassicMember(GroupMember):
    """A member whose leader gives every partition to one member of the generation."""

    GROUP_ID = "classic"

    def __init__(self, name: str, environment: ClusterRunOfClients, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self._member_id = ""
        self._generation_id = -1
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._has_joined = False
        self._is_stable = False
        self._partitions: list[tuple[str, int]] = []
        self._known: list[tuple[str, int]] = []
        """The partitions that there were when the member joined."""

    @property
    def owned(self) -> list[tuple[str, int]]:
        return self._partitions if self._has_joined and self._is_stable else []

    def take_turn(self) -> None:
        if not self._has_joined or self._known != self.all_partitions():
            self._known = self.all_partitions()
            self._has_joined = False
            self._join()
        elif not self._is_stable:
            self._sync()
        else:
            self._work()

    def _join(self) -> None:
        topics = self.subscribed()
        names = b"".join(pack(">h", len(name)) + name.encode() for name in topics)
        subscription = pack(">hi", 0, len(topics)) + names + pack(">i", -1)
        request = JoinGroupRequest(
            group_id=self.GROUP_ID,
            session_timeout=SESSION_MS,
            rebalance_timeout=_REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=subscription)],
        )
        self.ask(request, 7)

    def _sync(self) -> None:
        request = SyncGroupRequest(
            group_id=self.GROUP_ID,
            generation_id=self._generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=self._assignments,
        )
        self.ask(request, 5)

    def _work(self) -> None:
        dice = self.chance.random()
        if dice < 0.4:
            request = HeartbeatRequest(
                group_id=self.GROUP_ID,
                generation_id=self._generation_id,
                member_id=self._member_id,
            )
            self.ask(request, 4)
        elif dice < 0.6:
            self.fetch_offset()
        elif dice < 0.93 or self.is_steady:
            self.commit(self._generation_id, self._member_id)
        else:
            member = MemberIdentity(member_id=self._member_id)
            self.ask(LeaveGroupRequest(group_id=self.GROUP_ID, members=[member]), 4)

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        reply = exchange.reply
        if isinstance(reply, JoinGroupResponse):
            self._joined(exchange, reply)
        elif isinstance(reply, SyncGroupResponse):
            self._is_stable = not reply.error_code
            self._partitions = partitions_of(reply.assignment) if self._is_stable else []
            self.refused(exchange, reply.error_code)
        elif isinstance(reply, HeartbeatResponse):
            self.refused(exchange, reply.error_code)
        elif isinstance(reply, LeaveGroupResponse):
            self.start_over()

    def _joined(self, exchange: Exchange, reply: JoinGroupResponse) -> None:
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
        elif reply.error_code:
            self.refused(exchange, reply.error_code)
        else:
            self._member_id, self._generation_id = reply.member_id, reply.generation_id
            self._has_joined, self._is_stable = True, False
            self._assignments = self._assign([each.member_id for each in reply.members])

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """Give each partition to one member; nothing, for those that do not lead."""
        parts: dict[str, list[str]] = {member: [] for member in members}
        for number, (name, index) in enumerate(self.all_partitions() if members else ()):
            parts[members[number % len(members)]].append(f"{name}:{index}")
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=",".join(names).encode())
            for member, names in parts.items()
        ]

    def refused(self, exchange: Exchange, code: int) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._has_joined = False
        else:
            super().refused(exchange, code)

    def start_over(self) -> None:
        self._member_id = ""
        self._has_joined = self._is_stable = False
        self._partitions = []

    def disconnected(self, lost: list[Exchange]) -> None:
        super().disconnected(lost)
        if any(isinstance(each.request, SyncGroupRequest | JoinGroupRequest) for each in lost):
            self._has_joined = False


class ConsumerMember(GroupMember):
    """A member of a KIP-848 group: takes what it is assigned, and gives up the rest."""

    GROUP_ID = "consumer"

    def __init__(self, name: str, environment: ClusterRunOfClients, chance: Generator) -> None:
        super().__init__(name, environment, chance)
        self._numbers = 0
        self._begin_as_new()

    def _begin_as_new(self) -> None:
        self._numbers += 1
        self._member_id = f"{self.name}.{self._numbers}"
        self.start_over()

    def start_over(self) -> None:
        self._epoch = 0
        self._owned: list[RequestTopicPartitions] = []
        self._reports = True

    @property
    def owned(self) -> list[tuple[str, int]]:
        topics = self.environment.image.topics_by_id
        return [
            (topics[each.topic_id].name, index)
            for each in self._owned
            for index in each.partitions
            if each.topic_id in topics
        ]

    def take_turn(self) -> None:
        dice = self.chance.random()
        if self._epoch <= 0 or dice < 0.6:
            self._send_heartbeat()
        elif dice < 0.75:
            self.fetch_offset()
        elif dice < 0.97 or self.is_steady:
            self.commit(self._epoch, self._member_id)
        else:
            self._send_heartbeat(leaves=True)

    def _send_heartbeat(self, *, leaves: bool = False) -> None:
        is_full = self._reports or self.chance.random() < 0.1
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.GROUP_ID,
            member_id=self._member_id,
            member_epoch=LEAVE_EPOCH if leaves else self._epoch,
            rebalance_timeout=_REBALANCE_MS if is_full else -1,
            subscribed_topic_names=self.subscribed() if is_full else None,
            topic_partitions=self._owned if is_full else None,
        )
        self._reports = False
        self.ask(request, 1)

    def received(self, exchange: Exchange) -> None:
        super().received(exchange)
        reply, request = exchange.reply, exchange.request
        if not isinstance(reply, ConsumerGroupHeartbeatResponse):
            return
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        if reply.error_code:
            self.refused(exchange, reply.error_code)
        elif request.member_epoch == LEAVE_EPOCH:
            self._begin_as_new()
        else:
            self._epoch = reply.member_epoch
            if reply.assignment is not None:
                self._reports = True
                self._owned = [
                    RequestTopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                    for topic in reply.assignment.topic_partitions
                ]

    def refused(self, exchange: Exchange, code: int) -> None:
        self._reports = self._reports or bool(code)
        super().refused(exchange, code)

    def disconnected(self, lost: list[Exchange]) -> None:
        super().disconnected(lost)
        self._reports = True


def partitions_of(assignment: bytes) -> list[tuple[str, int]]:
    """Return the partitions in an assignment of a simulated leader."""
    found = []
    for each in assignment.decode().split(",") if assignment else []:
        name, _, index = each.rpartition(":")
        found.append((name, int(index)))
    return found
