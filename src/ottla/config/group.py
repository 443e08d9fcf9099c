"""Group settings: those that a group of the new protocol may override (KIP-848).

They are set dynamically, with the group as the config resource. Their defaults and ranges are
broker settings: broker_settings/consumer_groups.py.
"""

from __future__ import annotations

from ottla.config.definition import CLUSTER_WIDE, AtLeast, Setting


def _group_setting(name: str, doc: str, minimum: int = 1) -> Setting:
    return Setting(name, "int", None, AtLeast(minimum), doc, update=CLUSTER_WIDE)


GROUP_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        _group_setting(
            "consumer.assignment.interval.ms",
            "The minimum time between two target assignments of the group.",
            minimum=0,
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
