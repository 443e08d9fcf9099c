"""Static members: restarts without a rebalance, and no two under one instance id."""

from __future__ import annotations

from ottla.coordinator.groups.consumer.current_assignment import LEAVING_STATIC
from ottla.model.errors import ErrorCode
from tests.support.consumer_groups import SESSION_MS, Broker, Consumer, consumer_group, settle


def test_a_restart_moves_nothing(broker: Broker) -> None:
    static = Consumer(broker, "a1", instance_id="i")
    other = Consumer(broker, "b")
    settle(broker, static, other)
    had, epoch = static.has(), consumer_group(broker).epoch
    assert static.leave_for_a_while() is ErrorCode.NONE
    assert consumer_group(broker).members["a1"].current.epoch == LEAVING_STATIC
    broker.pass_ms(5_000)
    assert other.poll() is ErrorCode.NONE
    static.member_id = "a2"
    settle(broker, static, other)
    assert static.has() == had
    assert set(consumer_group(broker).members) == {"a2", "b"}
    assert consumer_group(broker).epoch == epoch
    assert consumer_group(broker).targets.keys() == {"a2", "b"}


def test_who_does_not_come_back_loses_its_partitions(broker: Broker) -> None:
    static, other = Consumer(broker, "a", instance_id="i"), Consumer(broker, "b")
    settle(broker, static, other)
    static.leave_for_a_while()
    for _ in range(SESSION_MS // 5_000):
        other.poll()
        broker.pass_ms(5_000)
    settle(broker, other)
    assert len(other.has()) == 8
    assert consumer_group(broker).static_members == {}


def test_an_instance_id_is_not_given_twice(broker: Broker) -> None:
    settle(broker, first := Consumer(broker, "a", instance_id="i"))
    second = Consumer(broker, "b", instance_id="i")
    assert second.heartbeat() is ErrorCode.UNRELEASED_INSTANCE_ID
    assert first.heartbeat() is ErrorCode.NONE
    first.leave_for_a_while()
    assert second.heartbeat() is ErrorCode.NONE
    first.epoch = 1
    assert first.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_the_same_member_may_join_again(broker: Broker) -> None:
    settle(broker, static := Consumer(broker, "a", instance_id="i"))
    static.abandon()
    assert static.heartbeat() is ErrorCode.NONE
    assert len(static.target) == 8


def test_an_unknown_instance_id(broker: Broker) -> None:
    settle(broker, Consumer(broker, "a"))
    stranger = Consumer(broker, "a", instance_id="?")
    stranger.epoch = 1
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave_for_a_while() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_leave_for_good(broker: Broker) -> None:
    static, other = Consumer(broker, "a", instance_id="i"), Consumer(broker, "b")
    settle(broker, static, other)
    assert static.leave() is ErrorCode.NONE
    settle(broker, other)
    assert len(other.has()) == 8


def test_what_a_static_member_was_giving_up_is_free_when_it_leaves(broker: Broker) -> None:
    static, other = Consumer(broker, "a1", instance_id="i"), Consumer(broker, "b")
    settle(broker, static)
    other.heartbeat()
    static.heartbeat()
    assert consumer_group(broker).members["a1"].current.revoking
    static.leave_for_a_while()
    settle(broker, other)
    assert len(other.has()) == 4
    static.member_id = "a2"
    settle(broker, static, other)
    assert (len(static.has()), len(other.has())) == (4, 4)


def test_a_static_member_that_comes_back_with_another_subscription(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    static, other = Consumer(broker, "a1", instance_id="i"), Consumer(broker, "b")
    settle(broker, static, other)
    static.leave_for_a_while()
    static.member_id, static.topics = "a2", ["orders"]
    settle(broker, static, other)
    assert (static.has("orders"), len(static.owned), len(other.has())) == ([0, 1], 2, 8)


def test_a_restart_counts_after_a_restart_of_the_coordinator(broker: Broker) -> None:
    static = Consumer(broker, "a1", instance_id="i")
    settle(broker, static)
    static.leave_for_a_while()
    broker.crash_and_restart()
    static.client = broker.connect()
    static.member_id = "a2"
    assert static.heartbeat() is ErrorCode.NONE
    assert len(static.target) == 8
