"""ConsumerGroupHeartbeat: joining, staying, changing, being refused."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.groups.consumer import topic_patterns
from ottla.coordinator.groups.consumer.current_assignment import MemberState
from ottla.metadata.records import FeatureLevelRecord
from ottla.model.errors import ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from tests.support.consumer_groups import (
    ASSIGNMENT_MS,
    GROUP,
    INTERVAL_MS,
    PARTITIONS,
    TOPIC,
    Broker,
    Consumer,
    add_partitions,
    consumer_group,
    delete_topic,
    describe,
    settle,
)

EVERYTHING = list(range(PARTITIONS))


def test_a_first_member_gets_everything_at_once(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    assert consumer.heartbeat() is ErrorCode.NONE
    assert consumer.epoch == 1
    consumer.reconcile()
    assert consumer.has() == EVERYTHING
    assert describe(broker).group_state == "Stable"


def test_a_heartbeat_without_news_writes_nothing_and_answers_short(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    log = broker.log
    end = log.log_end_offset
    response = consumer.send()
    assert (response.member_epoch, response.assignment) == (consumer.epoch, None)
    assert log.log_end_offset == end


def test_partitions_move_when_they_were_given_up(broker: Broker) -> None:
    first, second = Consumer(broker, "a"), Consumer(broker, "b")
    settle(broker, first)
    second.heartbeat()
    assert second.target == set()
    assert second.epoch == 2
    first.heartbeat()
    assert (first.epoch, len(first.target), len(first.owned)) == (1, 4, 8)
    second.heartbeat()
    assert second.target == set()
    first.revoke()
    first.heartbeat()
    assert first.epoch == 2
    second.heartbeat()
    second.reconcile()
    assert sorted(first.has() + second.has()) == EVERYTHING


def test_members_that_come_together_are_assigned_to_together(broker: Broker) -> None:
    consumers = [Consumer(broker, f"m{number}") for number in range(4)]
    for consumer in consumers:
        consumer.heartbeat()
    group = consumer_group(broker)
    assert (group.epoch, group.assignment_epoch) == (4, 1)
    assert describe(broker).group_state == "Assigning"
    broker.pass_ms(ASSIGNMENT_MS)
    consumers[2].heartbeat()
    assert group.assignment_epoch == 4
    assert describe(broker).group_state == "Reconciling"
    settle(broker, *consumers)
    assert [len(consumer.has()) for consumer in consumers] == [2, 2, 2, 2]
    assert describe(broker).group_state == "Stable"


def test_without_an_interval_each_is_assigned_to_at_once() -> None:
    broker = Broker(group_consumer_assignment_interval_ms="0")
    consumers = [Consumer(broker, f"m{number}") for number in range(3)]
    for epoch, consumer in enumerate(consumers, 1):
        consumer.heartbeat()
        assert consumer_group(broker).assignment_epoch == epoch


def test_a_group_that_changes_asks_to_come_back_soon(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    assert consumer.send().heartbeat_interval == 500
    consumer.heartbeat()
    intervals = []
    for _ in range(8):
        response = consumer.send()
        intervals.append(response.heartbeat_interval)
        consumer.take(response)
        broker.pass_ms(response.heartbeat_interval)
    assert intervals == sorted(intervals)
    assert intervals[0] == 500
    assert intervals[-1] == INTERVAL_MS


def test_a_group_may_have_settings_of_its_own(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    broker.alter_group(**{"consumer.heartbeat.interval.ms": "7000"})
    settle(broker, consumer)
    broker.pass_ms(20_000)
    assert consumer.send().heartbeat_interval == 7000


def test_an_answer_that_was_lost_is_given_again(broker: Broker) -> None:
    first, second = Consumer(broker, "a"), Consumer(broker, "b")
    settle(broker, first)
    second.heartbeat()
    first.poll()
    lost = second.send()
    assert lost.assignment is not None
    second.lost_track = True
    assert second.heartbeat() is ErrorCode.NONE
    assert len(second.target) == 4


def test_a_member_is_fenced_by_its_epoch(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    assert consumer.send(member_epoch=5).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert consumer.send(member_epoch=1).error_code == ErrorCode.NONE
    other = Consumer(broker, "b")
    other.heartbeat()
    settle(broker, consumer, other)
    assert consumer.epoch == 2
    # One epoch behind is fine for who says what it has, and has nothing else.
    assert consumer.send(member_epoch=1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    consumer.lost_track = True
    assert consumer.send(member_epoch=1).error_code == ErrorCode.NONE
    foreign = RequestTopicPartitions(topic_id=b"?" * 16, partitions=[0])
    response = consumer.send(member_epoch=1, topic_partitions=[foreign])
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_may_start_over_with_the_same_id(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    consumer.abandon()
    assert consumer.heartbeat() is ErrorCode.NONE
    assert (consumer.epoch, len(consumer.target)) == (1, PARTITIONS)


def test_unknown_members_and_groups(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    consumer.epoch = 3
    assert consumer.heartbeat() is ErrorCode.GROUP_ID_NOT_FOUND
    settle(broker, Consumer(broker, "b"))
    assert consumer.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert Consumer(broker, "c").leave() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "  "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (
            {"topic_partitions": [RequestTopicPartitions(topic_id=b"x" * 16, partitions=[0])]},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "a" * 5000}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_requests_that_make_no_sense(
    broker: Broker, changes: dict[str, Any], code: ErrorCode
) -> None:
    response = Consumer(broker, "a").send(**changes)
    assert response.error_code == code
    assert GROUP not in broker.shard().groups


def test_version_0_has_member_ids_made_here(broker: Broker) -> None:
    request = Consumer(broker, "").request()
    response = broker.connect().ask(request, ConsumerGroupHeartbeatResponse, 0)
    assert response.error_code == ErrorCode.NONE
    assert response.member_id
    assert response.member_id in consumer_group(broker).members


def test_the_protocol_can_be_disabled() -> None:
    broker = Broker(group_coordinator_rebalance_protocols="classic")
    assert Consumer(broker, "a").heartbeat() is ErrorCode.UNSUPPORTED_VERSION


def set_level(broker: Broker, level: int) -> None:
    broker.node.controller.write([FeatureLevelRecord(name="group.version", feature_level=level)])


def test_the_protocol_needs_a_level_of_group_version(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    set_level(broker, 0)
    assert consumer.heartbeat() is ErrorCode.UNSUPPORTED_VERSION
    assert describe(broker).error_code == ErrorCode.UNSUPPORTED_VERSION
    set_level(broker, 1)
    assert consumer.heartbeat() is ErrorCode.NONE
    assert describe(broker).group_state == "Stable"


def test_a_full_group_takes_nobody() -> None:
    broker = Broker(group_consumer_max_size="2")
    consumers = [Consumer(broker, name) for name in "ab"]
    settle(broker, *consumers)
    assert Consumer(broker, "c").heartbeat() is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert consumers[0].heartbeat() is ErrorCode.NONE
    consumers[0].abandon()
    assert consumers[0].heartbeat() is ErrorCode.NONE


def test_who_leaves_leaves_its_partitions(broker: Broker) -> None:
    first, second = Consumer(broker, "a"), Consumer(broker, "b")
    settle(broker, first, second)
    assert first.leave() is ErrorCode.NONE
    settle(broker, second)
    assert second.has() == EVERYTHING
    assert second.leave() is ErrorCode.NONE
    assert describe(broker).group_state == "Empty"


# -- subscriptions and topics ------------------------------------------------------------


def test_a_subscription_changes(broker: Broker) -> None:
    broker.create_topic("orders", 3)
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    consumer.subscribe(["orders"])
    settle(broker, consumer)
    assert (consumer.has(), consumer.has("orders")) == ([], [0, 1, 2])
    assert consumer.epoch == 2


def test_members_may_subscribe_unlike(broker: Broker) -> None:
    broker.create_topic("orders", 4)
    one, other = Consumer(broker, "a"), Consumer(broker, "b", ["orders"])
    settle(broker, one, other)
    assert (one.has(), other.has("orders")) == (EVERYTHING, [0, 1, 2, 3])


def test_topics_that_come_grow_and_go(broker: Broker) -> None:
    consumer = Consumer(broker, "a", [TOPIC, "later"])
    settle(broker, consumer)
    broker.create_topic("later", 2)
    settle(broker, consumer)
    assert consumer.has("later") == [0, 1]
    add_partitions(broker, "later", 5)
    settle(broker, consumer)
    assert consumer.has("later") == [0, 1, 2, 3, 4]
    delete_topic(broker, TOPIC)
    settle(broker, consumer)
    assert len(consumer.owned) == 5
    broker.create_topic(TOPIC, 1)
    settle(broker, consumer)
    assert consumer.has() == [0]


def test_a_regular_expression_follows_the_topics(broker: Broker) -> None:
    consumer = Consumer(broker, "a", None, regex="logs-.*")
    settle(broker, consumer)
    assert consumer.owned == set()
    for name in ("logs-a", "logs-b", "other"):
        broker.create_topic(name, 2)
    settle(broker, consumer)
    assert (consumer.has("logs-a"), consumer.has("logs-b")) == ([0, 1], [0, 1])
    assert len(consumer.owned) == 4
    delete_topic(broker, "logs-a")
    settle(broker, consumer)
    assert len(consumer.owned) == 2
    assert consumer_group(broker).regexes["logs-.*"].topics == {"logs-b"}
    consumer.subscribe([TOPIC], None)
    settle(broker, consumer)
    assert (len(consumer.owned), consumer_group(broker).regexes) == (PARTITIONS, {})


def test_a_regular_expression_and_names_together(broker: Broker) -> None:
    broker.create_topic("logs-a", 1)
    consumer = Consumer(broker, "a", [TOPIC], regex="logs-.*")
    settle(broker, consumer)
    assert (consumer.has(), consumer.has("logs-a")) == (EVERYTHING, [0])


def test_a_regular_expression_matches_internal_topics_as_in_kafka(broker: Broker) -> None:
    consumer = Consumer(broker, "a", None, regex=".*")
    settle(broker, consumer)
    assert consumer_group(broker).regexes[".*"].topics == {TOPIC, OFFSETS_TOPIC}
    offsets_partitions = len(broker.node.image.topics[OFFSETS_TOPIC].partitions)
    assert len(consumer.owned) == PARTITIONS + offsets_partitions


def test_topics_found_late_reach_the_group_with_its_next_heartbeat(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        broker.create_topic(f"logs-{number}")
    monkeypatch.setattr(topic_patterns, "BUDGET", 1)
    monkeypatch.setattr(topic_patterns, "_TURN", 1)
    consumer = Consumer(broker, "a", None, regex="logs-.*")
    assert consumer.heartbeat() == ErrorCode.NONE
    assert consumer_group(broker).regexes["logs-.*"].topics == set()
    broker.pass_ms(100)
    settle(broker, consumer)
    assert len(consumer.owned) == 4
    broker.crash_and_restart()  # the stored topics count until they are matched again
    consumer.client = broker.connect("a")
    consumer.heartbeat()
    settle(broker, consumer)
    assert len(consumer.owned) == 4
    assert len(consumer_group(broker).regexes["logs-.*"].topics) == 4


def test_a_bad_regular_expression_changes_nothing(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    response = consumer.send(subscribed_topic_regex="(a")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "missing )" in (response.error_message or "")
    assert consumer.heartbeat() is ErrorCode.NONE
    assert consumer.epoch == 1


def test_members_choose_the_assignor_by_majority(broker: Broker) -> None:
    consumers = [
        Consumer(broker, "a", assignor="range"),
        Consumer(broker, "b", assignor="range"),
        Consumer(broker, "c", assignor="uniform"),
    ]
    settle(broker, *consumers)
    assert describe(broker).assignor_name == "range"
    shares = [consumer.has() for consumer in consumers]
    assert all(share == list(range(share[0], share[-1] + 1)) for share in shares)


def test_a_member_that_must_revoke_is_in_that_state(broker: Broker) -> None:
    first = Consumer(broker, "a")
    settle(broker, first)
    Consumer(broker, "b").heartbeat()
    first.heartbeat()
    state = consumer_group(broker).members["a"].current.state
    assert state is MemberState.UNREVOKED_PARTITIONS


def test_every_field_may_be_null_in_version_0(broker: Broker) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="x", member_epoch=7, topic_partitions=None
    )
    response = broker.connect().ask(request, ConsumerGroupHeartbeatResponse, 0)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
