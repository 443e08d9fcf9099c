"""The state of one partition of __consumer_offsets: groups and committed offsets.

`replay` is the only way in which what the log holds changes. Commands decide: they look at
the state and return records, which the runtime writes, replays at once, and makes known (by
sending the answers that the commands gave) only when they are committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ottla.coordinator.groups.classic.group import ClassicGroup
from ottla.coordinator.groups.consumer.replay import CONSUMER_GROUP_KEYS, replay
from ottla.coordinator.groups.group import Group
from ottla.coordinator.groups.offsets import Offsets
from ottla.coordinator.groups.record_serde import GroupRecord, encode
from ottla.coordinator.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    RecordKey,
    RecordValue,
)
from ottla.coordinator.runtime.broker import Reply, Surroundings
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, NO_PRODUCER_ID
from ottla.replication.timers import Timer
from ottla.wire.message import Message

Command: TypeAlias = Callable[[], list[GroupRecord]]
"""Looks at the shard, answers who it can, returns the records that make its decision so."""

Replay: TypeAlias = Callable[["GroupShard", RecordKey, RecordValue | None], None]

_BATCH_OVERHEAD = 256  # more than the header of a batch and of a record


class GroupShard:
    """Groups whose ids hash to one partition.

    `run` is the runtime's: it calls a command and writes its records. `max_batch_bytes` is
    the most that one command may write.
    """

    def __init__(
        self, broker: Surroundings, run: Callable[[Command], None], max_batch_bytes: int
    ) -> None:
        self.broker = broker
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.answers: list[tuple[Reply, Message]] = []
        """What commands have answered and the runtime has not fetched yet."""
        self.max_batch_bytes = max_batch_bytes
        self.is_loaded = False
        self._run = run

    # -- what commands use ---------------------------------------------------------------

    def answer(self, reply: Reply, response: Message) -> None:
        """Answer a request, once everything written so far is committed."""
        self.answers.append((reply, response))

    def after(self, delay_ms: float, command: Command) -> Timer:
        """Run a command later."""
        broker = self.broker
        return broker.timers.at(broker.monotonic_ms + delay_ms, lambda: self._run(command))

    def new_member_id(self, prefix: str) -> str:
        """An id that no member had before; it shows whose it is."""
        digits = self.broker.ports.random.uuid().hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return "-".join((prefix, *parts))

    def fits(self, record: GroupRecord) -> bool:
        """Whether a record is small enough to be written."""
        key, value = encode(record)
        return len(key) + len(value or b"") + _BATCH_OVERHEAD <= self.max_batch_bytes

    # -- life ----------------------------------------------------------------------------

    def loaded(self) -> None:
        """All records are replayed: from now on members must show signs of life."""
        self.is_loaded = True
        for group in self.groups.values():
            group.loaded()

    def close(self, code: ErrorCode) -> None:
        """The shard ends here: whoever waits is refused with `code`."""
        for group in self.groups.values():
            group.close(code)

    # -- replay --------------------------------------------------------------------------

    def replay(
        self,
        key: RecordKey,
        value: RecordValue | None,
        record_offset: int = NO_OFFSET,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Take in one record.

        One of a transactional producer counts when its transaction ends, and needs its offset.
        """
        if type(key) is OffsetCommitKey:
            assert value is None or isinstance(value, OffsetCommitValue)
            self._replay_offset(key, value, record_offset, producer_id)
        else:
            REPLAY[type(key)](self, key, value)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Take in the marker that ends a transaction."""
        for key in self.offsets.end_transaction(producer_id, committed=committed):
            if committed and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(self, key.group)

    def remove_group(self, group_id: str) -> None:
        """A group is deleted; its offsets are deleted by records of their own."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _replay_offset(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        record_offset: int,
        producer_id: int,
    ) -> None:
        if value is None:
            self.offsets.remove(key)
            self.forget_if_bare(key.group)
            return
        if key.group not in self.groups:
            # Committed by somebody who is no member: a group that is nothing but its offsets.
            self.groups[key.group] = ClassicGroup(self, key.group)
        if producer_id == NO_PRODUCER_ID:
            self.offsets.put(key, value)
        else:
            self.offsets.put_pending(key, value, producer_id, record_offset)

    def forget_if_bare(self, group_id: str) -> None:
        """A group that was nothing but its offsets ends with the last of them."""
        group = self.groups.get(group_id)
        if (
            isinstance(group, ClassicGroup)
            and group.stored is None
            and group.is_empty
            and not group.pending_members
            and group_id not in self.offsets.by_group
        ):
            self.remove_group(group_id)


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
"""How each kind of record but offset commits changes a shard."""
