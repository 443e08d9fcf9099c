"""A group of the consumer protocol under any sequence of events, against what must always hold.

Members join, leave, die, come back, lose answers, take their time to give partitions up and
change what they subscribe to, while topics come, grow and go and the coordinator restarts.
Always: no partition is with two members, a member has nothing it was not given, epochs only
go up, and what a restart loads is what there was. In the end, when everybody who is left
sends heartbeats, every partition has exactly one owner and the group is stable.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ottla.coordinator.groups.consumer.group import ConsumerGroup
from ottla.model.errors import ErrorCode
from tests.support.consumer_groups import (
    ASSIGNMENT_MS,
    GROUP,
    Broker,
    Consumer,
    add_partitions,
    consumer_group,
    delete_topic,
    snapshot,
)

TOPICS = ("events", "orders", "logs-a", "logs-b")
SUBSCRIPTIONS: st.SearchStrategy[tuple[list[str], str | None]] = st.one_of(
    st.tuples(st.sets(st.sampled_from(TOPICS), min_size=1, max_size=3).map(sorted), st.none()),
    st.tuples(st.just([]), st.sampled_from(("logs-.*", "events|orders", ".*"))),
    st.tuples(st.just(["events"]), st.just("logs-.*")),
)


class GroupMachine(RuleBasedStateMachine):
    """Consumers, some of which are dead, and the coordinator they talk to."""

    consumers = Bundle("consumers")

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.alive: list[Consumer] = []
        self.count = 0
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0

    # -- members -------------------------------------------------------------------------

    @rule(
        target=consumers,
        subscription=SUBSCRIPTIONS,
        instance=st.sampled_from((None, None, "i1", "i2")),
        assignor=st.sampled_from((None, None, "uniform", "range")),
    )
    def join(
        self, subscription: tuple[list[str], str | None], instance: str | None, assignor: str | None
    ) -> Consumer:
        self.count += 1
        topics, regex = subscription
        consumer = Consumer(
            self.broker,
            f"m{self.count}",
            topics,
            regex=regex,
            instance_id=instance,
            assignor=assignor,
        )
        self.alive.append(consumer)
        code = consumer.heartbeat()
        assert code in (ErrorCode.NONE, ErrorCode.UNRELEASED_INSTANCE_ID)
        return consumer

    @rule(consumer=consumers, work=st.sampled_from(("nothing", "revoke", "all")))
    def heartbeat(self, consumer: Consumer, work: str) -> None:
        if consumer not in self.alive:
            return
        if work == "revoke":
            consumer.revoke()
        elif work == "all":
            consumer.reconcile()
        self.check(consumer, consumer.heartbeat())

    @rule(duration_ms=st.sampled_from((100, 1_000, 5_000)))
    def everybody_sends_heartbeats(self, duration_ms: int) -> None:
        for consumer in list(self.alive):
            self.check(consumer, consumer.poll())
            self.a_partition_is_with_one_member()
        self.broker.pass_ms(duration_ms)

    @rule(consumer=consumers, work=st.sampled_from(("nothing", "all")))
    def lose_the_answer(self, consumer: Consumer, work: str) -> None:
        if consumer not in self.alive:
            return
        if work == "all":
            consumer.reconcile()
        consumer.send()
        consumer.lost_track = True

    @rule(consumer=consumers, subscription=SUBSCRIPTIONS)
    def change_subscription(
        self, consumer: Consumer, subscription: tuple[list[str], str | None]
    ) -> None:
        if consumer in self.alive and consumer.epoch > 0:
            self.check(consumer, consumer.subscribe(*subscription))

    @rule(consumer=consumes(consumers), dies=st.booleans())
    def go(self, consumer: Consumer, dies: bool) -> None:
        if consumer in self.alive:
            self.alive.remove(consumer)
            if not dies:
                consumer.leave()

    @rule(consumer=consumers)
    def restart(self, consumer: Consumer) -> None:
        """Let a static member leave for a while and come back under another id."""
        if consumer not in self.alive or consumer.instance_id is None or consumer.epoch == 0:
            return
        if consumer.leave_for_a_while() is not ErrorCode.NONE:
            return
        self.count += 1
        consumer.member_id = f"m{self.count}"
        self.check(consumer, consumer.heartbeat())

    @rule(consumer=consumers)
    def start_over(self, consumer: Consumer) -> None:
        """Let a consumer give everything up and join again under the same id."""
        if consumer in self.alive:
            consumer.abandon()
            self.check(consumer, consumer.heartbeat())

    def check(self, consumer: Consumer, code: ErrorCode) -> None:
        allowed = {
            ErrorCode.NONE,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert code in allowed, code
        if code is ErrorCode.FENCED_INSTANCE_ID and consumer in self.alive:
            self.alive.remove(consumer)

    # -- the world -----------------------------------------------------------------------

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(-1, 5))
    def change_a_topic(self, name: str, partitions: int) -> None:
        topic = self.broker.node.image.topics.get(name)
        if topic is None:
            self.broker.create_topic(name, max(1, partitions))
        elif partitions <= 0:
            delete_topic(self.broker, name)
        elif len(topic.partitions) < 12:
            add_partitions(self.broker, name, len(topic.partitions) + partitions)

    @rule(duration_ms=st.sampled_from((1_000, 30_000, 61_000)))
    def let_time_pass(self, duration_ms: int) -> None:
        self.broker.pass_ms(duration_ms)

    @rule()
    def restart_the_coordinator(self) -> None:
        group = self.group()
        before = None if group is None else snapshot(group)
        self.broker.crash_and_restart()
        for consumer in self.alive:
            consumer.client = self.broker.connect(consumer.member_id)
        group = self.group()
        assert (None if group is None else snapshot(group)) == before

    # -- what must hold ------------------------------------------------------------------

    def group(self) -> ConsumerGroup | None:
        group = self.broker.shard().groups.get(GROUP)
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    @invariant()
    def a_partition_is_with_one_member(self) -> None:
        group = self.group()
        if group is None:
            return
        owners: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for partitions in (member.current.assigned, member.current.revoking):
                for topic_id, numbers in partitions.items():
                    for number in numbers:
                        assert owners.setdefault((topic_id, number), member.member_id) == (
                            member.member_id
                        )
                        assert group.owners[topic_id][number] == member.member_id
        assert len(owners) == sum(map(len, group.owners.values()))
        for consumer in self.alive:
            if consumer.member_id in group.members:
                for place in consumer.owned:
                    assert owners.get(place) == consumer.member_id

    @invariant()
    def epochs_go_up(self) -> None:
        group = self.group()
        if group is None:  # it was empty for long enough to be removed: the next one begins anew
            self.group_epoch = 0
            self.epochs.clear()
            return
        assert group.epoch >= self.group_epoch
        assert group.assignment_epoch <= group.epoch
        self.group_epoch = group.epoch
        for member in group.members.values():
            epoch = member.current.epoch
            if epoch >= 0:
                assert self.epochs.get(member.member_id, 0) <= epoch <= group.epoch
                self.epochs[member.member_id] = epoch

    @invariant()
    def numbers_add_up(self) -> None:
        group = self.group()
        if group is None:
            return
        assert +group.member_counts.topics == group.member_counts.topics
        assert sum(group.member_counts.stable.values()) == sum(
            member.current.state == 0 for member in group.members.values()
        )
        assert set(group.regexes) == set(group.member_counts.regexes)
        assert group.targets.keys() <= group.members.keys()

    def teardown(self) -> None:
        """Send heartbeats for all members that are left, until nothing changes any more."""
        for _ in range(60):
            for consumer in self.alive:
                consumer.poll()
            self.broker.pass_ms(ASSIGNMENT_MS)
        joined = [consumer for consumer in self.alive if consumer.epoch > 0]
        if not joined:
            return
        group = consumer_group(self.broker)
        assert group.members.keys() == {consumer.member_id for consumer in joined}
        assert group.state_name == "Stable"
        self.check_everything_is_consumed(group, joined)

    def check_everything_is_consumed(self, group: ConsumerGroup, joined: list[Consumer]) -> None:
        image = self.broker.node.image
        owned = [place for consumer in joined for place in consumer.owned]
        subscribed = {name for name in group.subscribed_topics() or () if name in image.topics}
        assert sorted(owned) == sorted(
            (image.topics[name].topic_id, partition.partition_id)
            for name in subscribed
            for partition in image.topics[name].partitions
        )


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestGroup = GroupMachine.TestCase
