"""Settings of the broker for groups of the consumer protocol, and what is refused about them."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.definition import ConfigError

PREFIX = "group.consumer."


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig({PREFIX + name.replace("_", "."): text for name, text in settings.items()})


def test_defaults_are_kafka_s() -> None:
    made = config()
    assert made.consumer_groups.group_consumer_session_timeout_ms == 45_000
    assert made.consumer_groups.group_consumer_heartbeat_interval_ms == 5_000
    assert made.consumer_groups.group_consumer_assignors == ("uniform", "range")
    assert made.consumer_groups.group_consumer_migration_policy == "bidirectional"
    assert made.consumer_groups.group_coordinator_rebalance_protocols == (
        "classic",
        "consumer",
        "streams",
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"session_timeout_ms": "1000"}, "group.consumer.min.session.timeout.ms"),
        ({"session_timeout_ms": "70000"}, "group.consumer.max.session.timeout.ms"),
        ({"heartbeat_interval_ms": "100"}, "group.consumer.min.heartbeat.interval.ms"),
        ({"assignment_interval_ms": "20000"}, "group.consumer.max.assignment.interval.ms"),
        (
            {
                "session_timeout_ms": "5000",
                "min_session_timeout_ms": "5000",
            },
            "must be less than group.consumer.session.timeout.ms",
        ),
        ({"assignors": "sticky"}, "group.consumer.assignors"),
        ({"assignors": ""}, "group.consumer.assignors"),
        ({"migration_policy": "sometimes"}, "group.consumer.migration.policy"),
        ({"max_size": "0"}, "group.consumer.max.size"),
    ],
)
def test_what_cannot_be(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        config(**settings)
    assert named in str(refusal.value)


def test_the_classic_protocol_cannot_be_left_out() -> None:
    with pytest.raises(ConfigError):
        BrokerConfig({"group.coordinator.rebalance.protocols": "consumer"})


def test_short_timeouts_go_with_short_minimums() -> None:
    made = config(
        session_timeout_ms="2000",
        min_session_timeout_ms="1000",
        heartbeat_interval_ms="500",
        min_heartbeat_interval_ms="100",
    )
    assert made.consumer_groups.group_consumer_session_timeout_ms == 2_000
