"""A whole node in memory with a clock of its own, and members of groups that talk to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from struct import pack, unpack_from
from typing import TypeVar

from ottla.broker.connection import Connection
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.controller.topics import NewTopic
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.group_shard import GroupShard
from ottla.coordinator.groups.records import GroupMetadataValue, OffsetCommitValue
from ottla.log.log import Log
from ottla.memory_files import MemoryFiles
from ottla.model.errors import ErrorCode
from ottla.model.ids import OFFSETS_TOPIC, TopicPartition
from ottla.ports import Ports
from ottla.testing.fakes import FakeClock, FakeRandom, InlineBackground
from ottla.testing.faulty_files import FaultyFiles
from ottla.wire.apis import response_class
from ottla.wire.codec import decoder, encoder
from ottla.wire.header import response_header
from ottla.wire.message import Message
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
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
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.support.cleaner import InlineHelpers
from tests.support.decisions import create_topics

M = TypeVar("M", bound=Message)

GROUP = "group"
TOPIC = "events"
PARTITIONS = 8
SESSION_MS = 10_000
REBALANCE_MS = 30_000
DELAY_MS = 3_000


def subscription(*topics: str) -> bytes:
    """Return what a consumer says about itself: version 0, topics, no user data."""
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 0, len(topics)) + names + pack(">i", -1)


class Pending:
    """A request that was sent; `response` is None until the answer comes."""

    def __init__(self) -> None:
        self.response: Message | None = None

    def of(self, kind: type[M]) -> M:
        """Return the answer, which must have come."""
        assert isinstance(self.response, kind), self.response
        return self.response


class Client:
    """A connection to a node."""

    def __init__(self, broker: Broker, client_id: str = "client") -> None:
        self.broker = broker
        self.client_id = client_id.encode()
        self.connection = Connection("127.0.0.1", "PLAINTEXT")
        self._sent: list[tuple[int, int, Pending]] = []

    def send(self, request: Message, version: int | None = None) -> Pending:
        """Send a request in this version, by default the newest; the node settles after it."""
        pending = self.queue(request, version)
        self.broker.settle()
        sliced_work = self.broker.node.sliced_work
        while sliced_work and sliced_work.slice_ms:  # with 0, the test makes the wake-ups itself
            self.broker.pass_ms(1)
        return pending

    def queue(self, request: Message, version: int | None = None) -> Pending:
        """Have a request handled without settling: others may come in the same wake-up."""
        assert self.connection.parked is None, "the connection waits for an answer"
        version = request.MAX_VERSION if version is None else version
        flexible = request.FIRST_FLEXIBLE_VERSION
        tags = b"\0" if flexible is not None and version >= flexible else b""
        head = pack(">hhih", request.API_KEY, version, 7, len(self.client_id))
        frame = bytearray(head + self.client_id + tags + encoder(type(request), version)(request))
        pending = Pending()
        self._sent.append((request.API_KEY, version, pending))
        self.broker.node.handle(self.connection, frame, memoryview(frame), 0, len(frame))
        return pending

    def ask(self, request: Message, kind: type[M], version: int | None = None) -> M:
        """Return the answer to a request, which may wait for the disk only."""
        return self.send(request, version).of(kind)

    def receive(self) -> None:
        """Match what the node has sent with what was asked."""
        parts = self.connection.out
        data = b"".join(part for part in parts if isinstance(part, bytes))
        assert len(data) == sum(map(len, parts)), "records are not asked for here"
        parts.clear()
        while data:
            reply_end = 4 + unpack_from(">i", data)[0]
            reply, data = data[:reply_end], data[reply_end:]
            key, version, pending = self._sent.pop(0)
            start = 4 + len(response_header(key, version, 7))
            response, end = decoder(response_class(key), version)(reply, start, len(reply))
            assert end == len(reply) == reply_end
            pending.response = response

    def hang_up(self) -> None:
        """Close the connection."""
        self.broker.node.close_connection(self.connection)
        self.broker.clients.remove(self)


class Broker:
    """A node on files that outlive it; time passes when it is told to."""

    def __init__(self, **settings: str) -> None:
        self.files = FaultyFiles(MemoryFiles())
        self.clock = FakeClock()
        self.random = FakeRandom(lambda limit: limit - 1)
        self.reports: list[str] = []
        self.clients: list[Client] = []
        self.settings = {
            "log.dirs": "/data",
            "offsets.topic.num.partitions": "1",
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
        self.start()
        self.create_topic(TOPIC, PARTITIONS)
        self.connect().ask(FindCoordinatorRequest(key=GROUP), Message, 0)

    def start(self) -> None:
        self.start_without_loading()
        self.pass_ms(100)

    def start_without_loading(self) -> None:
        """Start, up to the first wake-up: the coordinator has yet to load its shards."""
        config = BrokerConfig(self.settings)
        ports = Ports(
            self.files,
            self.clock,
            self.random,
            InlineBackground(),
            self.reports.append,
            helpers=InlineHelpers(),
        )
        endpoints = [
            endpoint._replace(host=endpoint.host or "localhost")
            for endpoint in config.network.advertised_listeners
        ]
        self.node = Node(config, endpoints, ports)
        self.node.start()
        self.node.advance()

    def crash_and_restart(self) -> None:
        """Kill the process and start it again; all that was written is there again."""
        self.clients.clear()
        self.start()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        decision = create_topics(
            self.node.image, self.node.config, self.random, [NewTopic(name, partitions, 1)]
        )
        self.node.controller.write(decision.records)

    def connect(self, client_id: str = "client") -> Client:
        client = Client(self, client_id)
        self.clients.append(client)
        return client

    def settle(self) -> None:
        self.node.settle()
        for client in self.clients:
            client.receive()

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, with a wake-up for each timer that is due."""
        end_ms = self.clock.monotonic_ms() + duration_ms
        while True:
            due_ms = self.node.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.clock.now_ms += max(0, ceil(due_ms - self.clock.monotonic_ms()))
            self.node.advance()
            self.settle()
        self.clock.now_ms += int(end_ms - self.clock.monotonic_ms())
        self.node.advance()
        self.settle()

    def shard(self, group_id: str = GROUP) -> GroupShard:
        return self.node.groups.runtime_of(group_id).shard

    @property
    def log(self) -> Log:
        """The log of the only partition of the topic for groups."""
        log = self.node.store.get(TopicPartition(OFFSETS_TOPIC, 0))
        assert log is not None
        return log

    def committed(self, topic: str, partition: int) -> OffsetCommitValue:
        """Return the value of the group's last commit for a partition."""
        value = self.shard().offsets.get(GROUP, topic, partition)
        assert value is not None
        return value

    def stored(self, group_id: str = GROUP) -> GroupMetadataValue:
        """Return the value of the group's last record."""
        stored = self.group(group_id).stored
        assert stored is not None
        return stored

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.shard(group_id).groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group


class Member:
    """A member of a classic group, driven step by step."""

    def __init__(
        self,
        broker: Broker,
        name: str = "client",
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", subscription(TOPIC)),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        join_version: int = JoinGroupRequest.MAX_VERSION,
    ) -> None:
        self.broker = broker
        self.client = broker.connect(name)
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = list(protocols)
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.join_version = join_version
        self.member_id = ""
        self.generation_id = -1
        self.joining: Pending | None = None
        self.syncing: Pending | None = None

    # -- joining -------------------------------------------------------------------------

    def send_join(self) -> Pending:
        """Send one JoinGroup, and do not follow its answer."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout=self.session_ms,
            rebalance_timeout=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self.protocols
            ],
        )
        return self.client.send(request, self.join_version)

    def join(self) -> Member:
        """Join as a client does: with a second request once there is a member id."""
        pending = self.send_join()
        response = pending.response
        if (
            isinstance(response, JoinGroupResponse)
            and response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        ):
            self.member_id = response.member_id
            pending = self.send_join()
        self.joining = pending
        return self

    @property
    def is_parked(self) -> bool:
        return self.client.connection.parked is not None

    @property
    def joined(self) -> JoinGroupResponse:
        """The answer to the join, good or bad; a good one is remembered."""
        assert self.joining is not None
        response = self.joining.of(JoinGroupResponse)
        if response.error_code == ErrorCode.NONE:
            self.member_id = response.member_id
            self.generation_id = response.generation_id
        return response

    @property
    def leads(self) -> bool:
        return self.joined.leader == self.member_id

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: object) -> Pending:
        """Ask for the assignment, or bring it."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocols[0][0],
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        self.syncing = self.client.send(request)
        return self.syncing

    @property
    def synced(self) -> SyncGroupResponse:
        assert self.syncing is not None
        return self.syncing.of(SyncGroupResponse)

    # -- afterwards ----------------------------------------------------------------------

    def heartbeat(self, **changes: object) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return ErrorCode(self.client.ask(request, HeartbeatResponse).error_code)

    def leave(self) -> ErrorCode:
        return self.leave_by(self.client)

    def leave_by(self, client: Client) -> ErrorCode:
        """Leave by another connection, while this one waits for something."""
        request = LeaveGroupRequest(
            group_id=self.group_id,
            members=[MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)],
        )
        response = client.ask(request, LeaveGroupResponse)
        return ErrorCode(response.error_code or response.members[0].error_code)

    def commit(self, offset: int, partition: int = 0, **changes: object) -> ErrorCode:
        request = commit_request(
            {(TOPIC, partition): offset},
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        response = self.client.ask(request, OffsetCommitResponse, 9)
        return ErrorCode(response.topics[0].partitions[0].error_code)


def commit_request(
    offsets: dict[tuple[str, int], int],
    *,
    group_id: str = GROUP,
    generation_id: int = -1,
    member_id: str = "",
    group_instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    """Return a commit of offsets by topic and partition."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=group_instance_id,
        retention_time=retention_ms,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def commit(client: Client, offsets: dict[tuple[str, int], int], **fields: object) -> list[int]:
    """Commit without membership; the error codes."""
    request = commit_request(offsets, **fields)  # type: ignore[arg-type]
    response = client.ask(request, OffsetCommitResponse, 9)
    return [p.error_code for topic in response.topics for p in topic.partitions]


def fetch(
    client: Client, places: Sequence[tuple[str, int]] | None = None, group_id: str = GROUP
) -> dict[tuple[str, int], int]:
    """Return committed offsets, all by default, without those that are not there."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places or ():
        topics.setdefault(topic, []).append(partition)
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=None
                if places is None
                else [
                    OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
            )
        ]
    )
    (group,) = client.ask(request, OffsetFetchResponse, 9).groups
    assert group.error_code == ErrorCode.NONE
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }


def stable_group(
    broker: Broker, *members: Member, assignments: Callable[[Member], bytes] | None = None
) -> Member:
    """Let members form a generation; each gets its own name, or what is given. The leader."""
    for member in members:
        member.join()
    broker.pass_ms(DELAY_MS)
    for _ in range(100):
        if not any(member.is_parked for member in members):
            break
        broker.pass_ms(DELAY_MS)
    return sync_all(members, assignments)


def sync_all(
    members: Sequence[Member], assignments: Callable[[Member], bytes] | None = None
) -> Member:
    """Bring the assignment of a generation that everybody has joined. The leader."""
    assert {member.joined.error_code for member in members} == {ErrorCode.NONE}
    (leader,) = (member for member in members if member.leads)
    what = assignments or (lambda member: member.name.encode())
    for member in members:
        if member is not leader:
            member.sync()
    leader.sync({member.member_id: what(member) for member in members})
    for member in members:
        assert member.synced.error_code == ErrorCode.NONE
    return leader


def clean_groups(broker: Broker) -> None:
    """Have the log of the groups cleaned, up to its end."""
    log = broker.node.groups.runtimes[0].partition.online_log()
    broker.node.clean_log(log)
    broker.pass_ms(1)
