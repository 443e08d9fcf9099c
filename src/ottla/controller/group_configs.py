"""Checks of the settings of a consumer group against the broker's ranges (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ottla.config.broker import BrokerConfig
from ottla.config.definition import ConfigError, parse_all
from ottla.config.group import GROUP_SETTINGS
from ottla.model.errors import ApiError, ErrorCode


def check_group_name(name: str) -> None:
    """Raise INVALID_REQUEST if there is no name; the group need not exist."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


def check_group_config(config: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG unless a group may have these settings."""
    try:
        values = parse_all(GROUP_SETTINGS, settings, "Unknown group config name:")
    except ConfigError as error:
        raise _invalid(error.errors) from error
    errors = []
    for name, (least, most) in _ranges(config).items():
        value = cast(int, values.get(name, least))
        kind, _, rest = name.partition(".")
        if value < least:
            errors.append(f"{name} must be greater than or equal to group.{kind}.min.{rest}")
        if value > most:
            errors.append(f"{name} must be less than or equal to group.{kind}.max.{rest}")
    errors.extend(_check_interval(config, cast(Mapping[str, int], values)))
    if errors:
        raise _invalid(errors)


def _ranges(config: BrokerConfig) -> dict[str, tuple[int, int]]:
    return {
        "consumer.assignment.interval.ms": (
            config.consumer_groups.group_consumer_min_assignment_interval_ms,
            config.consumer_groups.group_consumer_max_assignment_interval_ms,
        ),
        "consumer.heartbeat.interval.ms": (
            config.consumer_groups.group_consumer_min_heartbeat_interval_ms,
            config.consumer_groups.group_consumer_max_heartbeat_interval_ms,
        ),
        "consumer.session.timeout.ms": (
            config.consumer_groups.group_consumer_min_session_timeout_ms,
            config.consumer_groups.group_consumer_max_session_timeout_ms,
        ),
    }


def _check_interval(config: BrokerConfig, values: Mapping[str, int]) -> list[str]:
    """Return an error unless a member can send a heartbeat before its session ends."""
    interval_ms = values.get(
        "consumer.heartbeat.interval.ms",
        config.consumer_groups.group_consumer_heartbeat_interval_ms,
    )
    timeout_ms = values.get(
        "consumer.session.timeout.ms", config.consumer_groups.group_consumer_session_timeout_ms
    )
    if interval_ms < timeout_ms:
        return []
    return [
        f"consumer.heartbeat.interval.ms ({interval_ms}) must be less than"
        f" consumer.session.timeout.ms ({timeout_ms})"
    ]


def _invalid(errors: list[str] | tuple[str, ...]) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, "; ".join(errors))
