"""The broker of the tests about groups: no waiting for first members, short sessions, small groups.

An Apache Kafka under test (OTTLA_TEST_BOOTSTRAP) needs these settings too.
"""

from __future__ import annotations

from typing import Final

from tests.harness.deadline import eventually
from tests.harness.raw import RawConnection

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


def await_coordinator(bootstrap_servers: str, group: str = "first") -> None:
    """Ask for a coordinator, which creates the topic of the offsets, until there is one."""
    with RawConnection(bootstrap_servers) as connection:

        def found() -> bool:
            answer = connection.request("find_coordinator", 4, coordinator_keys=[group])
            fetched = connection.request("offset_fetch", 8, groups=[{"group_id": group}])
            return (answer.coordinators[0].error_code, fetched.groups[0].error_code) == (0, 0)

        eventually(found, "a coordinator")
