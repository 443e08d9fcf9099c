"""Settings of a group: its own, or else the broker's (KIP-848, KIP-1240)."""

from __future__ import annotations

from ottla.coordinator.runtime.broker import Broker
from ottla.model.config_resources import ResourceType


def session_timeout_ms(broker: Broker, group_id: str) -> int:
    """Return how long a member may send no heartbeat."""
    own = _own(broker, group_id, "consumer.session.timeout.ms")
    return broker.config.consumer_groups.group_consumer_session_timeout_ms if own is None else own


def heartbeat_interval_ms(broker: Broker, group_id: str) -> int:
    """Return the interval at which members send heartbeats."""
    own = _own(broker, group_id, "consumer.heartbeat.interval.ms")
    return (
        broker.config.consumer_groups.group_consumer_heartbeat_interval_ms if own is None else own
    )


def assignment_interval_ms(broker: Broker, group_id: str) -> int:
    """Return the least time between two target assignments."""
    own = _own(broker, group_id, "consumer.assignment.interval.ms")
    return (
        broker.config.consumer_groups.group_consumer_assignment_interval_ms if own is None else own
    )


def _own(broker: Broker, group_id: str, name: str) -> int | None:
    configs = broker.image.configs.get((ResourceType.GROUP, group_id))
    if configs is None or name not in configs:
        return None
    try:
        return int(configs[name])
    except ValueError:  # what a newer controller has checked may be no number
        return None
