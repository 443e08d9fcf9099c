"""A group in migration under any sequence of events: members of both protocols at once.

One member of the consumer protocol is always there, so that the group stays what it is. The others
come and go in both ways; those of the classic protocol rejoin when they are told to, lose
answers, do not sync, or die. What must hold is what must hold of every group.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.model.errors import ErrorCode
from tests.support.consumer_groups import (
    TOPIC,
    Broker,
    Consumer,
    add_partitions,
    consumer_group,
    snapshot,
)
from tests.support.old_consumer import OldConsumer

REFUSED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
)


class MixedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.old: list[OldConsumer] = []
        self.new = [Consumer(self.broker, "anchor")]
        self.count = 0
        self.new[0].poll()

    @rule(joins_old=st.booleans(), poll=st.booleans())
    def join(self, joins_old: bool, poll: bool) -> None:
        self.count += 1
        if joins_old:
            member = OldConsumer(self.broker, f"o{self.count}", rebalance_ms=20_000)
            self.old.append(member)
            if poll:
                self.take_part(member)
        else:
            consumer = Consumer(self.broker, f"n{self.count}", rebalance_ms=20_000)
            self.new.append(consumer)
            consumer.poll() if poll else consumer.heartbeat()

    @rule(number=st.integers(0, 5), how=st.sampled_from(("beat", "join only", "no answer")))
    def old_member_acts(self, number: int, how: str) -> None:
        if number >= len(self.old):
            return
        member = self.old[number]
        if how == "beat":
            self.beat(member)
        elif how == "no answer":
            member.heartbeat()
        else:  # it joins and is not heard of for a while
            member.say()
            member.join()
            if member.joined.error_code in REFUSED:
                self.start_over(member)

    @rule(number=st.integers(0, 5), work=st.sampled_from(("nothing", "revoke", "all")))
    def new_member_acts(self, number: int, work: str) -> None:
        if number < len(self.new):
            consumer = self.new[number]
            if work == "revoke":
                consumer.revoke()
            elif work == "all":
                consumer.reconcile()
            consumer.heartbeat()

    @rule(is_old=st.booleans(), number=st.integers(0, 4), dies=st.booleans())
    def go(self, is_old: bool, number: int, dies: bool) -> None:
        members = self.old if is_old else self.new[1:]
        if number >= len(members):
            return
        member = members[number]
        if isinstance(member, OldConsumer):
            self.old.remove(member)
        else:
            self.new.remove(member)
        if not dies:
            member.leave()

    @rule(duration_ms=st.sampled_from((100, 1_000, 5_000)))
    def everybody_beats(self, duration_ms: int) -> None:
        for consumer in self.new:
            consumer.poll()
        for member in self.old:
            self.beat(member)
        self.broker.pass_ms(duration_ms)

    @rule()
    def grow(self) -> None:
        have = len(self.broker.node.image.topics[TOPIC].partitions)
        if have < 12:
            add_partitions(self.broker, TOPIC, have + 1)

    @rule(duration_ms=st.sampled_from((1_000, 12_000)))
    def let_time_pass(self, duration_ms: int) -> None:
        self.broker.pass_ms(duration_ms)
        self.new[0].poll()

    @rule()
    def restart_the_coordinator(self) -> None:
        before = snapshot(consumer_group(self.broker))
        self.broker.crash_and_restart()
        members: list[OldConsumer | Consumer] = [*self.old, *self.new]
        for member in members:
            member.client = self.broker.connect()
        assert snapshot(consumer_group(self.broker)) == before

    # -- what members do -----------------------------------------------------------------

    def beat(self, member: OldConsumer) -> None:
        if member.generation_id < 0:
            self.take_part(member)
            return
        code = member.heartbeat()
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.take_part(member)
        elif code in REFUSED:
            self.start_over(member)
        else:
            assert code is ErrorCode.NONE

    def take_part(self, member: OldConsumer) -> None:
        code = member.take_part()
        if code in REFUSED:
            self.start_over(member)
        else:
            assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

    def start_over(self, member: OldConsumer) -> None:
        member.member_id, member.generation_id, member.owned = "", -1, []

    # -- what must hold ------------------------------------------------------------------

    @invariant()
    def a_partition_is_with_one_member(self) -> None:
        group = consumer_group(self.broker)
        topic_id = self.broker.node.image.topics[TOPIC].topic_id
        owners = group.owners.get(topic_id, {})
        held = [
            number
            for member in group.members.values()
            for partitions in (member.current.assigned, member.current.revoking)
            for number in partitions.get(topic_id, ())
        ]
        assert sorted(held) == sorted(owners)
        for consumer in self.new:
            if consumer.member_id in group.members:
                assert all(owners.get(p) == consumer.member_id for _, p in consumer.owned)
        for member in self.old:
            if member.member_id in group.members:
                assert all(owners.get(p) == member.member_id for p in member.owned)

    @invariant()
    def classic_members_are_counted(self) -> None:
        group = consumer_group(self.broker)
        classic = [m for m in group.members.values() if m.classic is not None]
        assert group.member_counts.classic == len(classic)

    def teardown(self) -> None:
        for _ in range(60):
            self.everybody_beats(1_000)
        group = consumer_group(self.broker)
        assert group.state_name == "Stable"
        mine = [p for consumer in self.new for _, p in consumer.owned]
        mine += [p for member in self.old for p in member.owned]
        assert sorted(mine) == list(range(len(self.broker.node.image.topics[TOPIC].partitions)))


MixedMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestMixedGroup = MixedMachine.TestCase
