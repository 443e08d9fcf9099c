"""The state of one partition of __consumer_offsets: groups and committed offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias

from ottla.coordinator.groups import record_serde
from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer.replay import CONSUMER_GROUP_KEYS, replay
from ottla.coordinator.groups.consumer.topic_patterns import TopicPatterns
from ottla.coordinator.groups.error_response import error_response
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.member_memory import MemberMemory
from ottla.coordinator.groups.offsets import Offsets
from ottla.coordinator.groups.record_serde import OFFSET_COMMIT_PREFIX
from ottla.coordinator.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.runtime.record import RecordKey, RecordValue
from ottla.coordinator.runtime.shard import Command, Shard
from ottla.model.errors import ErrorCode
from ottla.model.steps import Steps

Replay: TypeAlias = Callable[["GroupShard", RecordKey, RecordValue | None], None]


class GroupShard(Shard):
    """The groups whose ids belong to one partition."""

    LATEST_ONLY: ClassVar[tuple[bytes, ...]] = (OFFSET_COMMIT_PREFIX,)
    encode = staticmethod(record_serde.encode)
    decode = staticmethod(record_serde.decode)
    refuse = staticmethod(error_response)

    def __init__(
        self,
        broker: Broker,
        run: Callable[[Command], None],
        max_batch_bytes: int,
        topic_patterns: TopicPatterns,
        member_memory: MemberMemory,
    ) -> None:
        super().__init__(broker, run, max_batch_bytes)
        self.topic_patterns = topic_patterns
        self.member_memory = member_memory
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.is_loaded = False

    def new_member_id(self, prefix: str) -> str:
        """Return an id that no member had before. The prefix shows whose it is."""
        digits = self.broker.ports.random.uuid().hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return "-".join((prefix, *parts))

    # -- loading and unloading -----------------------------------------------------------

    def loaded(self) -> None:
        """Start the sessions of all members."""
        self.is_loaded = True
        for group in self.groups.values():
            group.loaded()

    def close(self, code: ErrorCode) -> None:
        """Stop all timers, and answer parked joins and syncs with `code`."""
        for group in self.groups.values():
            group.close(code)

    # -- replay --------------------------------------------------------------------------

    def replay(self, key: RecordKey, value: RecordValue | None) -> None:
        """Apply one record."""
        if type(key) is OffsetCommitKey:
            if value is None:
                self.offsets.remove(key)
                self.remove_if_unused(key.group)
                return
            assert isinstance(value, OffsetCommitValue)
            if key.group not in self.groups:
                self._add_group_of_offsets(key.group)
            self.offsets.put(key, value)
        else:
            REPLAY[type(key)](self, key, value)

    def replay_transactional(
        self, key: RecordKey, value: RecordValue | None, producer_id: int, record_offset: int
    ) -> None:
        """Apply one record of a transaction. An offset counts when the transaction commits."""
        if type(key) is not OffsetCommitKey or value is None:
            self.replay(key, value)
            return
        assert isinstance(value, OffsetCommitValue)
        if key.group not in self.groups:
            self._add_group_of_offsets(key.group)
        self.offsets.put_pending(key, value, producer_id, record_offset)

    def end_transaction(self, producer_id: int, *, committed: bool) -> Steps[None]:
        """Return the steps that apply the marker of a transaction."""

        def ended(key: OffsetCommitKey) -> None:
            if committed and key.group not in self.groups:
                self._add_group_of_offsets(key.group)
            elif not committed:
                self.remove_if_unused(key.group)

        return self.offsets.end_transaction(producer_id, committed=committed, ended=ended)

    def remove_group(self, group_id: str) -> None:
        """Remove a group. Its offsets are removed by records of their own."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def remove_if_unused(self, group_id: str) -> None:
        """Remove a group that nobody ever joined if it has no offsets left."""
        group = self.groups.get(group_id)
        if (
            isinstance(group, ClassicGroup)
            and group.stored is None
            and group.is_empty
            and not group.pending_members
            and group_id not in self.offsets.by_group
            and not self.offsets.has_open_transactions(group_id)
        ):
            self.remove_group(group_id)

    def _add_group_of_offsets(self, group_id: str) -> None:
        """Add a group that nobody joined: a client without membership commits offsets for it."""
        self.groups[group_id] = ClassicGroup(self, group_id)

    # -- the log -------------------------------------------------------------------------

    @property
    def compression_codec(self) -> int:
        return self.broker.config.offsets.offsets_topic_compression_codec

    @property
    def has_open_transactions(self) -> bool:
        return self.offsets.has_pending


def _replay_classic_group(shard: GroupShard, key: RecordKey, value: RecordValue | None) -> None:
    assert isinstance(key, GroupMetadataKey)
    if value is None:
        if isinstance(shard.groups.get(key.group), ClassicGroup):
            shard.remove_group(key.group)
        return
    assert isinstance(value, GroupMetadataValue)
    group = shard.groups.get(key.group)
    if not isinstance(group, ClassicGroup):
        shard.remove_group(key.group)
        group = shard.groups[key.group] = ClassicGroup(shard, key.group)
    group.install(value)


REPLAY: dict[type[RecordKey], Replay] = {
    GroupMetadataKey: _replay_classic_group,
    **dict.fromkeys(CONSUMER_GROUP_KEYS, replay),
}
"""How each kind of record except offset commits changes a shard."""
