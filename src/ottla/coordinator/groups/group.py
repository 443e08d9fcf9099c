"""What all groups have in common, whichever protocol their members speak.

Requests about offsets, listings and the classic protocol find a group by its id and ask the
group: the two types answer differently. The state of a group that is in the log changes by
`replay` of its records only (see `group_shard`). A method that changes it returns records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from ottla.coordinator.groups.client import Client
from ottla.coordinator.groups.record_serde import GroupRecord
from ottla.coordinator.groups.records import OffsetCommitValue
from ottla.coordinator.runtime.reply import Reply
from ottla.model.errors import ErrorCode
from ottla.model.steps import Steps
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from ottla.coordinator.groups.group_shard import GroupShard


class GroupType(StrEnum):
    """The protocol of a group, as ListGroups names it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(ABC):
    """A group in a shard."""

    __slots__ = ("group_id", "shard")
    TYPE: ClassVar[GroupType]

    def __init__(self, shard: GroupShard, group_id: str) -> None:
        self.shard = shard
        self.group_id = group_id

    # -- life ----------------------------------------------------------------------------

    @abstractmethod
    def loaded(self) -> None:
        """Start the sessions of the members: the shard is loaded."""

    @abstractmethod
    def close(self, code: ErrorCode) -> None:
        """Stop the group's timers, and answer parked requests with `code`."""

    @abstractmethod
    def stored_records(self) -> Iterable[GroupRecord]:
        """Return the records that describe the group as the log has it.

        The group may change between two records. Each is made when its turn comes.
        """

    @abstractmethod
    def tombstones(self) -> list[GroupRecord]:
        """Return the records that delete the group. Its offsets are not among them."""

    # -- what is asked about it ----------------------------------------------------------

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """True if the group has no members."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state, as Kafka names it."""

    @property
    @abstractmethod
    def protocol_type_name(self) -> str:
        """The protocol type that ListGroups shows. Empty if nobody ever joined the group."""

    @abstractmethod
    def describe(self) -> Steps[DescribedGroup]:
        """Return what DescribeGroups answers. Raise GROUP_ID_NOT_FOUND if it has no answer."""

    @abstractmethod
    def subscribed_topics(self) -> Collection[str] | None:
        """Return the topics whose offsets must be kept. None if they are unknown: then keep all."""

    @abstractmethod
    def retention_start(self, offset: OffsetCommitValue) -> int | None:
        """Return since when an offset is no longer needed, in wall time. None if it is needed."""

    # -- what is allowed: raise ApiError if not --------------------------------------------

    @abstractmethod
    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        version: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Check that a client may commit offsets. For a member it counts as a heartbeat."""

    def may_commit_late(
        self, member_id: str, generation_id: int, topic_id: bytes, partition: int
    ) -> bool:
        """Return True if a commit of an earlier generation counts for a partition (KIP-1251)."""
        return False

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check that a client may fetch offsets."""

    @abstractmethod
    def check_offset_delete(self) -> None:
        """Check that offsets of topics without a subscription may be deleted."""

    @abstractmethod
    def check_delete(self) -> None:
        """Check that the group may be deleted."""

    # -- the classic protocol ------------------------------------------------------------

    @abstractmethod
    def join(self, request: JoinGroupRequest, client: Client, reply: Reply) -> list[GroupRecord]:
        """Let a member join the next generation."""

    @abstractmethod
    def sync(self, request: SyncGroupRequest, reply: Reply) -> list[GroupRecord]:
        """Send a member its assignment. The leader brings those of all members."""

    @abstractmethod
    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Extend a member's session. Return an error if the member has to do something."""

    @abstractmethod
    def leave(self, request: LeaveGroupRequest, reply: Reply) -> list[GroupRecord]:
        """Remove members that leave, or that an administrator removes."""
