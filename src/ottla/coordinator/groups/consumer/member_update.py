"""What a heartbeat of the consumer protocol or a JoinGroup does to a group, as records.

1. The member is added or changed. If that changes what the group subscribes to, or topics
   have changed meanwhile, the group epoch goes up.
2. If the group epoch is ahead of the target assignment, a new target assignment is made,
   unless the last one is too recent.
3. The member takes its next step towards its target.

Nothing here changes the group: all changes are in `records`.
"""

from __future__ import annotations

from ottla.coordinator.groups.consumer import record_builders
from ottla.coordinator.groups.consumer.assignment import NO_PARTITIONS, Partitions
from ottla.coordinator.groups.consumer.current_assignment import JOINING, Current, Target, reconcile
from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.coordinator.groups.consumer.member import NOBODY, ConsumerMember, metadata_bytes
from ottla.coordinator.groups.consumer.records import ConsumerGroupMemberMetadataValue
from ottla.coordinator.groups.consumer.subscription_metadata import (
    Subscribed,
    known_regexes,
    subscribed,
)
from ottla.coordinator.groups.consumer.target_assignment import (
    Subscriber,
    is_due,
    make_targets,
    subscribers_of,
)
from ottla.coordinator.groups.record_serde import GroupRecord


class MemberUpdate:
    """The update of one member: new, known, or one that replaces a static member."""

    __slots__ = (
        "_now",
        "current",
        "epoch",
        "group",
        "member_id",
        "metadata",
        "old",
        "records",
        "replaces",
        "target",
    )

    def __init__(
        self, group: ConsumerGroup, member_id: str, replaces: ConsumerMember | None = None
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.replaces = replaces
        """The static member that had the instance id until now, under another member id."""
        self.old = replaces if replaces is not None else group.members.get(member_id)
        self.metadata = NOBODY if self.old is None else self.old.metadata
        self.current = Current() if self.old is None else self.old.current
        if replaces is not None:
            self.current = self.current._replace(epoch=JOINING, previous_epoch=JOINING)
        self.epoch = group.epoch
        self.target = group.target_of(member_id if replaces is None else replaces.member_id)
        self.records: list[GroupRecord] = []
        self._now: Subscribed | None = None
        """What the group subscribes to now, if that had to be computed."""

    # -- the three steps -----------------------------------------------------------------

    def set_metadata(self, metadata: ConsumerGroupMemberMetadataValue) -> None:
        """Step 1: set the member's metadata.

        Raise INVALID_REGULAR_EXPRESSION, or COORDINATOR_NOT_AVAILABLE if it takes too much memory.
        """
        changed = self.old is None or _subscribes_otherwise(metadata, self.metadata)
        group, topics_version = self.group, self.group.shard.topic_patterns.version
        self._take_place()
        if self.replaces is not None or self.old is None or metadata != self.metadata:
            before = 0 if self.old is None else self.old.memory_bytes
            group.shard.member_memory.check(metadata_bytes(metadata) - before)
            self.records.append(
                record_builders.member_record(group.group_id, self.member_id, metadata)
            )
        self.metadata = metadata
        if changed or group.topics_version != topics_version:
            self._look_at_topics(changed)

    def assign_target(self) -> None:
        """Step 2: make a target assignment for the group epoch, if it is due."""
        group = self.group
        if self.epoch > group.assignment_epoch and is_due(group):
            targets, records = make_targets(
                group,
                self.epoch,
                [*subscribers_of(group, self._known_as()), self._subscriber()],
                known_regexes(group) if self._now is None else self._now.regexes,
                self.assignor(),
            )
            self.records.extend(records)
            self.target = Target(self.epoch, targets.get(self.member_id, NO_PARTITIONS))
        elif self.replaces is not None:
            partitions = self.target.partitions
            self.records.append(
                record_builders.target_record(group.group_id, self.member_id, partitions)
            )

    def reconcile(self, owned: Partitions | None) -> None:
        """Step 3: move towards the target. Raise FENCED_MEMBER_EPOCH if the member must restart."""
        group = self.group
        current = reconcile(self.member_id, self.current, self.target, owned, group.owners)
        if self._now is not None and self._now.is_complete:
            group.topics_version = group.shard.topic_patterns.version
        if current is not self.current or self.replaces is not None or self.old is None:
            self.current = current
            self.records.append(
                record_builders.current_record(group.group_id, self.member_id, current)
            )

    # -- details -------------------------------------------------------------------------

    @property
    def has_other_partitions(self) -> bool:
        """True if the member's partitions have changed."""
        before = Current() if self.old is None else self.old.current
        if before.assigned is self.current.assigned:
            return False
        return {topic_id: epochs.keys() for topic_id, epochs in before.assigned.items()} != {
            topic_id: epochs.keys() for topic_id, epochs in self.current.assigned.items()
        }

    def assignor(self) -> str:
        """Return the assignor that most members ask for, else the first one configured."""
        votes = self.group.member_counts.assignors.copy()
        if self.old is not None and self.old.metadata.server_assignor is not None:
            votes[self.old.metadata.server_assignor] -= 1
        if self.metadata.server_assignor is not None:
            votes[self.metadata.server_assignor] += 1
        configured = self.group.shard.broker.config.consumer_groups.group_consumer_assignors
        known = [name for name in sorted(+votes) if name in configured]
        return max(known, key=votes.__getitem__) if known else configured[0]

    def _take_place(self) -> None:
        if self.replaces is not None:
            gone = record_builders.member_tombstones(self.group.group_id, self.replaces.member_id)
            self.records.extend(gone)

    def _look_at_topics(self, changed: bool) -> None:
        group, gone = self.group, () if self.old is None else (self.old,)
        now = self._now = subscribed(group, gone, self.metadata)
        self.records.extend(now.records)
        if changed or now.differs_from(group):
            self.epoch += 1
            self.records.append(
                record_builders.epoch_record(group.group_id, self.epoch, now.metadata_hash)
            )

    def _subscriber(self) -> Subscriber:
        return Subscriber(
            self.member_id,
            self.metadata.instance_id,
            frozenset(self.metadata.subscribed_topic_names),
            self.metadata.subscribed_topic_regex,
            self.target.partitions,
        )

    def _known_as(self) -> tuple[str, ...]:
        if self.replaces is None:
            return (self.member_id,)
        return (self.member_id, self.replaces.member_id)


def _subscribes_otherwise(
    one: ConsumerGroupMemberMetadataValue, other: ConsumerGroupMemberMetadataValue
) -> bool:
    return (
        one.subscribed_topic_names != other.subscribed_topic_names
        or one.subscribed_topic_regex != other.subscribed_topic_regex
    )
