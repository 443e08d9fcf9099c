"""Settings of groups of the new protocol: of the broker, and of single groups.

The settings of a group (KIP-848) are set dynamically, with the group as the config resource.
Their defaults and ranges are settings of the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ottla.config.definition import (
    CLUSTER_WIDE,
    MAX_INT,
    AtLeast,
    ConfigError,
    OneOf,
    Setting,
    Value,
)

PROTOCOLS = ("classic", "consumer", "streams", "share")
ASSIGNORS = ("uniform", "range")
MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")

CONSUMER_GROUPS = (
    Setting(
        "group.coordinator.rebalance.protocols",
        "list",
        ("classic", "consumer", "streams"),
        OneOf(PROTOCOLS),
        "The protocols that groups may use. classic is required. Without consumer, the new"
        " protocol is refused. streams and share are not supported yet.",
    ),
    Setting(
        "group.consumer.assignors",
        "list",
        ASSIGNORS,
        OneOf(ASSIGNORS),
        "The assignors that members of the new protocol may choose. The first is the default.",
    ),
    Setting(
        "group.consumer.migration.policy",
        "string",
        "bidirectional",
        OneOf(MIGRATION_POLICIES),
        "Whether a group with members may change from the classic to the new protocol (upgrade)"
        " and back (downgrade).",
    ),
    Setting(
        "group.consumer.max.size",
        "int",
        MAX_INT,
        AtLeast(1),
        "The maximum number of members of a group of the new protocol.",
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        "int",
        45000,
        AtLeast(1),
        "The session timeout of the new protocol: the broker removes a member that sends no"
        " heartbeat for this long.",
    ),
    Setting(
        "group.consumer.min.session.timeout.ms",
        "int",
        45000,
        AtLeast(1),
        "The minimum of consumer.session.timeout.ms for a group.",
    ),
    Setting(
        "group.consumer.max.session.timeout.ms",
        "int",
        60000,
        AtLeast(1),
        "The maximum of consumer.session.timeout.ms for a group.",
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        "int",
        5000,
        AtLeast(1),
        "The heartbeat interval of members of the new protocol. While their group rebalances,"
        " the broker asks for a shorter one.",
    ),
    Setting(
        "group.consumer.min.heartbeat.interval.ms",
        "int",
        5000,
        AtLeast(1),
        "The minimum of consumer.heartbeat.interval.ms for a group.",
    ),
    Setting(
        "group.consumer.max.heartbeat.interval.ms",
        "int",
        15000,
        AtLeast(1),
        "The maximum of consumer.heartbeat.interval.ms for a group.",
    ),
    Setting(
        "group.consumer.assignment.interval.ms",
        "int",
        1000,
        AtLeast(0),
        "The minimum time between two target assignments of a group, so that members that join"
        " shortly after each other need only one. The first assignment of a group is made at"
        " once.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "group.consumer.min.assignment.interval.ms",
        "int",
        0,
        AtLeast(0),
        "The minimum of consumer.assignment.interval.ms for a group.",
    ),
    Setting(
        "group.consumer.max.assignment.interval.ms",
        "int",
        15000,
        AtLeast(0),
        "The maximum of consumer.assignment.interval.ms for a group.",
    ),
)


def _group_setting(name: str, doc: str) -> Setting:
    return Setting(name, "int", None, AtLeast(0), doc, update=CLUSTER_WIDE)


GROUP_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        _group_setting(
            "consumer.assignment.interval.ms",
            "The minimum time between two target assignments of the group.",
        ),
        _group_setting(
            "consumer.heartbeat.interval.ms",
            "The heartbeat interval of members of the group.",
        ),
        _group_setting(
            "consumer.session.timeout.ms",
            "The session timeout: the broker removes a member that sends no heartbeat for this"
            " long.",
        ),
    )
}
"""The settings that a group of the new protocol may override, by name."""


def default_of(name: str) -> str:
    """Return the broker setting that is the default of a group setting."""
    return f"group.{name}"


def check_consumer_groups(values: Mapping[str, Value]) -> dict[str, object]:
    """Raise ConfigError for empty ranges, and for defaults outside their range."""
    errors = []
    for name in map(default_of, GROUP_SETTINGS):
        least, most = (
            name.replace("consumer.", f"consumer.{bound}.", 1) for bound in ("min", "max")
        )
        if not cast(int, values[least]) <= cast(int, values[name]) <= cast(int, values[most]):
            errors.append(
                f"{name} ({values[name]}) must be between {least} ({values[least]}) and"
                f" {most} ({values[most]})"
            )
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    if cast(int, values[heartbeat]) >= cast(int, values[session]):
        errors.append(
            f"{heartbeat} ({values[heartbeat]}) must be less than {session} ({values[session]})"
        )
    if not values["group.consumer.assignors"]:
        errors.append("group.consumer.assignors must name at least one assignor")
    if "classic" not in cast(tuple[str, ...], values["group.coordinator.rebalance.protocols"]):
        errors.append("group.coordinator.rebalance.protocols must contain classic")
    if errors:
        raise ConfigError(*errors)
    return {}
