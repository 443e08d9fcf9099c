"""Broker settings of groups of the new protocol (KIP-848).

Some of them are the defaults and ranges of the settings of a single group: config/group.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.config.component import Component, setting
from ottla.config.definition import CLUSTER_WIDE, MAX_INT, AtLeast, OneOf

PROTOCOLS = ("classic", "consumer", "streams", "share")
ASSIGNORS = ("uniform", "range")
MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")


class ConsumerGroupConfig(Component):
    """The protocols, assignors, limits and timeouts of groups of the new protocol."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        "list",
        default=("classic", "consumer", "streams"),
        validator=OneOf(PROTOCOLS),
        doc=(
            "The protocols that groups may use. classic is required. Without consumer, the new"
            " protocol is refused. streams and share are not supported yet."
        ),
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        "list",
        default=ASSIGNORS,
        validator=OneOf(ASSIGNORS),
        doc="The assignors that members of the new protocol may choose. The first is the default.",
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        "string",
        default="bidirectional",
        validator=OneOf(MIGRATION_POLICIES),
        doc=(
            "Whether a group with members may change from the classic to the new protocol (upgrade)"
            " and back (downgrade)."
        ),
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        "int",
        default=MAX_INT,
        validator=AtLeast(1),
        doc="The maximum number of members of a group of the new protocol.",
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        "int",
        default=45000,
        validator=AtLeast(1),
        doc=(
            "The session timeout of the new protocol: the broker removes a member that sends no"
            " heartbeat for this long."
        ),
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        "int",
        default=45000,
        validator=AtLeast(1),
        doc="The minimum of consumer.session.timeout.ms for a group.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        "int",
        default=60000,
        validator=AtLeast(1),
        doc="The maximum of consumer.session.timeout.ms for a group.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        "int",
        default=5000,
        validator=AtLeast(1),
        doc=(
            "The heartbeat interval of members of the new protocol. While their group rebalances,"
            " the broker asks for a shorter one."
        ),
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        "int",
        default=5000,
        validator=AtLeast(1),
        doc="The minimum of consumer.heartbeat.interval.ms for a group.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        "int",
        default=15000,
        validator=AtLeast(1),
        doc="The maximum of consumer.heartbeat.interval.ms for a group.",
    )
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        "int",
        default=1000,
        validator=AtLeast(0),
        doc=(
            "The minimum time between two target assignments of a group, so that members that join"
            " shortly after each other need only one. The first assignment of a group is made at"
            " once."
        ),
        update=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        "group.consumer.min.assignment.interval.ms",
        "int",
        default=0,
        validator=AtLeast(0),
        doc="The minimum of consumer.assignment.interval.ms for a group.",
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        "group.consumer.max.assignment.interval.ms",
        "int",
        default=15000,
        validator=AtLeast(0),
        doc="The maximum of consumer.assignment.interval.ms for a group.",
    )

    def check(self) -> Iterator[str]:
        yield from _check_range(
            "assignment.interval.ms",
            self.group_consumer_min_assignment_interval_ms,
            self.group_consumer_assignment_interval_ms,
            self.group_consumer_max_assignment_interval_ms,
        )
        yield from _check_range(
            "heartbeat.interval.ms",
            self.group_consumer_min_heartbeat_interval_ms,
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_max_heartbeat_interval_ms,
        )
        yield from _check_range(
            "session.timeout.ms",
            self.group_consumer_min_session_timeout_ms,
            self.group_consumer_session_timeout_ms,
            self.group_consumer_max_session_timeout_ms,
        )
        heartbeat_ms = self.group_consumer_heartbeat_interval_ms
        if heartbeat_ms >= self.group_consumer_session_timeout_ms:
            yield (
                f"group.consumer.heartbeat.interval.ms ({heartbeat_ms}) must be less than"
                f" group.consumer.session.timeout.ms ({self.group_consumer_session_timeout_ms})"
            )
        if not self.group_consumer_assignors:
            yield "group.consumer.assignors must name at least one assignor"
        if "classic" not in self.group_coordinator_rebalance_protocols:
            yield "group.coordinator.rebalance.protocols must contain classic"


def _check_range(name: str, least: int, value: int, most: int) -> Iterator[str]:
    if not least <= value <= most:
        yield (
            f"group.consumer.{name} ({value}) must be between group.consumer.min.{name} ({least})"
            f" and group.consumer.max.{name} ({most})"
        )
