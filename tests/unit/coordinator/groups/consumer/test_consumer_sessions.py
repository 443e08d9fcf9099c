"""Members that fall silent, take too long, or come back after a restart of the coordinator."""

from __future__ import annotations

from ottla.model.errors import ErrorCode
from tests.support.consumer_groups import (
    REBALANCE_MS,
    SESSION_MS,
    Broker,
    Consumer,
    consumer_group,
    describe,
    settle,
    snapshot,
)
from tests.support.groups import clean_groups


def keep_beating(broker: Broker, duration_ms: int, *consumers: Consumer) -> None:
    """Let time pass while some members send heartbeats."""
    for _ in range(duration_ms // 5_000):
        for consumer in consumers:
            consumer.poll()
        broker.pass_ms(5_000)


def test_who_is_silent_too_long_is_out(broker: Broker) -> None:
    silent, lively = Consumer(broker, "a"), Consumer(broker, "b")
    settle(broker, silent, lively)
    keep_beating(broker, SESSION_MS - 5_000, lively)
    assert set(consumer_group(broker).members) == {"a", "b"}
    keep_beating(broker, 10_000, lively)
    assert set(consumer_group(broker).members) == {"b"}
    settle(broker, lively)
    assert len(lively.has()) == 8
    assert silent.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_of_the_silent_becomes_empty(broker: Broker) -> None:
    settle(broker, Consumer(broker, "a"), Consumer(broker, "b"))
    broker.pass_ms(SESSION_MS)
    assert describe(broker).group_state == "Empty"
    assert consumer_group(broker).owners == {}


def test_the_session_timeout_of_a_group_counts_from_the_next_heartbeat(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    assert broker.alter_group(**{"consumer.session.timeout.ms": "60000"}) is ErrorCode.NONE
    consumer.heartbeat()
    broker.pass_ms(SESSION_MS + 10_000)
    assert "a" in consumer_group(broker).members
    consumer.heartbeat()
    broker.alter_group(**{"consumer.session.timeout.ms": None})
    consumer.heartbeat()
    broker.pass_ms(SESSION_MS)
    assert consumer_group(broker).is_empty


def test_who_does_not_give_up_in_time_is_out(broker: Broker) -> None:
    slow, other = Consumer(broker, "a", rebalance_ms=20_000), Consumer(broker, "b")
    settle(broker, slow)
    other.heartbeat()
    slow.heartbeat()
    for _ in range(4):
        broker.pass_ms(4_999)
        slow.send()
        other.heartbeat()
    assert "a" in consumer_group(broker).members
    broker.pass_ms(5)
    assert set(consumer_group(broker).members) == {"b"}
    settle(broker, other)
    assert len(other.has()) == 8


def test_who_gives_up_in_time_stays(broker: Broker) -> None:
    slow, other = Consumer(broker, "a", rebalance_ms=20_000), Consumer(broker, "b")
    settle(broker, slow)
    other.heartbeat()
    slow.heartbeat()
    broker.pass_ms(15_000)
    settle(broker, slow, other)
    keep_beating(broker, 30_000, slow, other)
    assert set(consumer_group(broker).members) == {"a", "b"}


# -- restarts of the coordinator ---------------------------------------------------------


def reconnect(broker: Broker, *consumers: Consumer) -> None:
    broker.crash_and_restart()
    for consumer in consumers:
        consumer.client = broker.connect(consumer.member_id)


def test_a_restart_goes_unnoticed(broker: Broker) -> None:
    consumers = [Consumer(broker, name) for name in "abc"]
    settle(broker, *consumers)
    had = [consumer.has() for consumer in consumers]
    before = snapshot(consumer_group(broker))
    reconnect(broker, *consumers)
    assert snapshot(consumer_group(broker)) == before
    assert [consumer.heartbeat() for consumer in consumers] == [ErrorCode.NONE] * 3
    assert [consumer.has() for consumer in consumers] == had
    assert snapshot(consumer_group(broker)) == before


def test_after_a_restart_sessions_begin_anew(broker: Broker) -> None:
    consumer = Consumer(broker, "a")
    settle(broker, consumer)
    broker.pass_ms(SESSION_MS - 5_000)
    reconnect(broker, consumer)
    broker.pass_ms(SESSION_MS - 5_000)
    assert consumer.heartbeat() is ErrorCode.NONE
    broker.pass_ms(SESSION_MS)
    assert consumer_group(broker).is_empty


def test_after_a_restart_there_is_time_to_give_up_again(broker: Broker) -> None:
    slow = Consumer(broker, "a")
    settle(broker, slow)
    Consumer(broker, "b").heartbeat()
    slow.heartbeat()
    reconnect(broker, slow)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        broker.pass_ms(5_000)
        slow.send()
    assert "a" in consumer_group(broker).members
    broker.pass_ms(5_000)
    assert consumer_group(broker).is_empty


def test_topics_may_change_while_nobody_coordinates(broker: Broker) -> None:
    consumer = Consumer(broker, "a", None, regex=".*")
    settle(broker, consumer)
    broker.create_topic("later", 2)
    reconnect(broker, consumer)
    settle(broker, consumer)
    assert consumer.has("later") == [0, 1]


def test_an_expired_member_stays_expired(broker: Broker) -> None:
    settle(broker, Consumer(broker, "a"), lively := Consumer(broker, "b"))
    keep_beating(broker, SESSION_MS + 5_000, lively)
    reconnect(broker, lively)
    assert set(consumer_group(broker).members) == {"b"}


# -- cleaning the log --------------------------------------------------------------------


def test_a_group_survives_the_cleaning_of_its_log(broker: Broker) -> None:
    consumers = [Consumer(broker, f"m{number}", [], regex=".*") for number in range(6)]
    settle(broker, *consumers)
    consumers[5].leave()
    settle(broker, *consumers[:5], Consumer(broker, "late"))
    clean_groups(broker)
    assert broker.log.cleaned_upto == broker.log.log_end_offset
    before = snapshot(consumer_group(broker))
    broker.crash_and_restart()
    assert snapshot(consumer_group(broker)) == before
