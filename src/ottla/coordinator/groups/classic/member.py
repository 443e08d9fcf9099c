"""A member of a classic group, and its session.

A heartbeat moves `deadline_ms` and touches no timer. The member's one timer looks at the
deadline when it fires, and is set again if that has moved. A member that is parked in a join
or a sync needs no heartbeats, unless it is new: then its client may be gone for good.
"""

from __future__ import annotations

from collections.abc import Container

from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.member_memory import member_bytes
from ottla.coordinator.groups.records import MemberMetadata
from ottla.coordinator.runtime.reply import Reply
from ottla.replication.timers import Timer
from ottla.wire.messages.describe_groups import DescribedGroupMember
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponseMember


class ClassicMember:
    """One consumer, or a worker of whatever the protocol type is."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "former_generation_id",
        "group_instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
        "timer",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        """Metadata by protocol name, in the order of the member's preference."""
        self.assignment = assignment
        self.join: Reply | None = None
        """The reply to its JoinGroup, while that is parked."""
        self.sync: Reply | None = None
        self.is_new = False
        self.former_generation_id: int | None = None
        """The generation it is in until it joins, if the group was of the other type."""
        self.deadline_ms = 0.0
        self.timer: Timer | None = None

    @classmethod
    def joining(cls, member_id: str, request: JoinGroupRequest, client: Client) -> ClassicMember:
        """Return a new member."""
        member = cls(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.client_host,
            rebalance_timeout_of(request, client.version),
            request.session_timeout,
            protocols_of(request),
        )
        member.is_new = True
        return member

    @classmethod
    def stored(cls, record: MemberMetadata, protocol: str | None) -> ClassicMember:
        """Return a member from its record, which has the metadata of the chosen protocol only."""
        timeout_ms = record.rebalance_timeout
        return cls(
            record.member_id,
            record.group_instance_id,
            record.client_id,
            record.client_host,
            record.session_timeout if timeout_ms == -1 else timeout_ms,
            record.session_timeout,
            {protocol or "": record.subscription},
            record.assignment,
        )

    def record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """Return the record of the member."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @property
    def memory_bytes(self) -> int:
        """About how much memory the member takes."""
        return member_bytes(
            (self.member_id, self.client_id, *self.protocols, *self.protocols.values())
        )

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_alive_without_heartbeat(self) -> bool:
        """True if a parked request shows that the member is alive."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol."""
        return self.protocols.get(protocol or "", b"")

    def vote(self, candidates: Container[str]) -> str:
        """Return the protocol that the member prefers among those that all support."""
        return next(name for name in self.protocols if name in candidates)

    def matches(self, protocols: dict[str, bytes]) -> bool:
        """Return True if the member joined with the same protocols in the same order."""
        return list(self.protocols.items()) == list(protocols.items())

    def as_joined(self, protocol: str | None) -> JoinGroupResponseMember:
        """Return the member as the group's leader gets it."""
        return JoinGroupResponseMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            metadata=self.metadata(protocol),
        )

    def describe(self, protocol: str | None) -> DescribedGroupMember:
        """Return the member for DescribeGroups, without metadata if there is no protocol."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol is None else self.metadata(protocol),
            member_assignment=self.assignment,
        )


def protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    """Return the protocols of a request by name. Of two with the same name the first counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def rebalance_timeout_of(request: JoinGroupRequest, version: int) -> int:
    """Return how long the member may take to rejoin. Version 0 has only the session timeout."""
    return request.session_timeout if version == 0 else request.rebalance_timeout
