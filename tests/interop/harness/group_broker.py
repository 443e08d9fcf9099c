"""The broker of the tests about groups: no waiting for first members, short sessions, small groups.

An Apache Kafka under test (OTTLA_TEST_BOOTSTRAP) needs these settings too.
"""

from __future__ import annotations

from typing import Final

MAX_GROUP_SIZE: Final = 6
MIN_SESSION_TIMEOUT_MS: Final = 1000
MAX_SESSION_TIMEOUT_MS: Final = 1_800_000
CONSUMER_SESSION_TIMEOUT_MS: Final = 3000

GROUP_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": str(MIN_SESSION_TIMEOUT_MS),
    "group.max.session.timeout.ms": str(MAX_SESSION_TIMEOUT_MS),
    "group.max.size": str(MAX_GROUP_SIZE),
    "group.consumer.max.size": str(MAX_GROUP_SIZE),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(CONSUMER_SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
