"""Settings of groups of the new protocol: a broker's, and those a group may have of its own.

A group's own settings (KIP-848) are made while it runs, with the group as the resource. Each
has its default and its range from settings of the broker.
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
        "The protocols groups may use. Without consumer, the new protocol is refused; classic"
        " must be there; streams and share groups are yet to come.",
    ),
    Setting(
        "group.consumer.assignors",
        "list",
        ASSIGNORS,
        OneOf(ASSIGNORS),
        "The assignors members of the new protocol may ask for; the first is the default.",
    ),
    Setting(
        "group.consumer.migration.policy",
        "string",
        "bidirectional",
        OneOf(MIGRATION_POLICIES),
        "Whether a group may go from the classic protocol to the new one (upgrade) and back"
        " (downgrade) while it has members of both.",
    ),
    Setting(
        "group.consumer.max.size",
        "int",
        MAX_INT,
        AtLeast(1),
        "The most members a group of the new protocol may have.",
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        "int",
        45000,
        AtLeast(1),
        "How long a member of the new protocol may be silent before it is taken for dead.",
    ),
    Setting(
        "group.consumer.min.session.timeout.ms",
        "int",
        45000,
        AtLeast(1),
        "The shortest consumer.session.timeout.ms a group may have.",
    ),
    Setting(
        "group.consumer.max.session.timeout.ms",
        "int",
        60000,
        AtLeast(1),
        "The longest consumer.session.timeout.ms a group may have.",
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        "int",
        5000,
        AtLeast(1),
        "How often members of the new protocol are asked to send heartbeats. While their group"
        " changes they are asked to come back sooner.",
    ),
    Setting(
        "group.consumer.min.heartbeat.interval.ms",
        "int",
        5000,
        AtLeast(1),
        "The shortest consumer.heartbeat.interval.ms a group may have.",
    ),
    Setting(
        "group.consumer.max.heartbeat.interval.ms",
        "int",
        15000,
        AtLeast(1),
        "The longest consumer.heartbeat.interval.ms a group may have.",
    ),
    Setting(
        "group.consumer.assignment.interval.ms",
        "int",
        1000,
        AtLeast(0),
        "How far apart two target assignments of a group are at least, so that members that come"
        " one after the other are assigned to together. A group's first is made at once.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "group.consumer.min.assignment.interval.ms",
        "int",
        0,
        AtLeast(0),
        "The shortest consumer.assignment.interval.ms a group may have.",
    ),
    Setting(
        "group.consumer.max.assignment.interval.ms",
        "int",
        15000,
        AtLeast(0),
        "The longest consumer.assignment.interval.ms a group may have.",
    ),
)


def _group_setting(name: str, doc: str) -> Setting:
    return Setting(name, "int", None, AtLeast(0), doc, update=CLUSTER_WIDE)


GROUP_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        _group_setting(
            "consumer.assignment.interval.ms",
            "How far apart two target assignments of the group are at least.",
        ),
        _group_setting(
            "consumer.heartbeat.interval.ms",
            "How often members of the group are asked to send heartbeats.",
        ),
        _group_setting(
            "consumer.session.timeout.ms",
            "How long a member of the group may be silent before it is taken for dead.",
        ),
    )
}
"""What a group of the new protocol may have of its own, by name."""


def default_of(name: str) -> str:
    """The broker setting that is the default of a group's."""
    return f"group.{name}"


def check_consumer_groups(values: Mapping[str, Value]) -> dict[str, object]:
    """Refuse ranges with nothing in them, and defaults outside of them."""
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
        errors.append("group.coordinator.rebalance.protocols must have classic among them")
    if errors:
        raise ConfigError(*errors)
    return {}
