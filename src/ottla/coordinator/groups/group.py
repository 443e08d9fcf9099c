"""What every group is, whichever protocol its members speak.

Requests about offsets, listings and the classic protocol find a group by its id and ask the
group itself: the two types answer differently. The state that a group has in the log changes
by `replay` of its records only (see `shard`); a method that wants it changed returns records.
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
    """A group of a shard."""

    __slots__ = ("group_id", "shard")
    TYPE: ClassVar[GroupType]

    def __init__(self, shard: GroupShard, group_id: str) -> None:
        self.shard = shard
        self.group_id = group_id

    # -- life ----------------------------------------------------------------------------

    @abstractmethod
    def loaded(self) -> None:
        """The shard is loaded: members must show signs of life from now on."""

    @abstractmethod
    def close(self, code: ErrorCode) -> None:
        """The group ends here: stop its timers, refuse whoever waits with `code`."""

    @abstractmethod
    def stored_records(self) -> Iterable[GroupRecord]:
        """Records that make the group anew as the log has it; none for a group without any.

        The group may change while they are gone through: each is as it is when its turn comes.
        """

    @abstractmethod
    def tombstones(self) -> list[GroupRecord]:
        """Records that delete the group, but for its offsets."""

    # -- what is asked about it ----------------------------------------------------------

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as Kafka names it."""

    @property
    @abstractmethod
    def protocol_type_name(self) -> str:
        """The protocol type as ListGroups shows it; empty for a group that only has offsets."""

    @abstractmethod
    def describe(self) -> DescribedGroup:
        """What DescribeGroups answers; GROUP_ID_NOT_FOUND for groups it does not serve."""

    @abstractmethod
    def subscribed_topics(self) -> Collection[str] | None:
        """The topics whose offsets must not be removed; None if they cannot be told."""

    @abstractmethod
    def retention_start(self, offset: OffsetCommitValue) -> int | None:
        """Since when an offset is no longer needed, in wall time; None if it is."""

    # -- whether something is allowed; ApiError if not -----------------------------------

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
        """Whether these may commit offsets; a member that does shows a sign of life."""

    def may_commit_late(
        self, member_id: str, generation_id: int, topic_id: bytes, partition: int
    ) -> bool:
        """Whether a commit of an earlier generation counts for this one partition (KIP-1251)."""
        return False

    @abstractmethod
    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Whether these may fetch offsets."""

    @abstractmethod
    def check_offset_delete(self) -> None:
        """Whether offsets of topics nobody subscribes to may be deleted."""

    @abstractmethod
    def check_delete(self) -> None:
        """Whether the group may be deleted."""

    # -- the classic protocol ------------------------------------------------------------

    @abstractmethod
    def join(self, request: JoinGroupRequest, client: Client, reply: Reply) -> list[GroupRecord]:
        """A member wants to be part of the next generation."""

    @abstractmethod
    def sync(self, request: SyncGroupRequest, reply: Reply) -> list[GroupRecord]:
        """A member asks for its assignment; the leader brings everybody's."""

    @abstractmethod
    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """A sign of life; says whether the member has to do something."""

    @abstractmethod
    def leave(self, request: LeaveGroupRequest, reply: Reply) -> list[GroupRecord]:
        """Members leave, of their own will or by an administrator's."""
