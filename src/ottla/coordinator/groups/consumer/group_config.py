"""The settings of a group: its own where it has any, else the broker's (KIP-848, KIP-1240)."""

from __future__ import annotations

from ottla.coordinator.runtime.broker import Broker
from ottla.model.resources import ResourceType


def session_timeout_ms(broker: Broker, group_id: str) -> int:
    """How long a member may be silent."""
    own = _own(broker, group_id, "consumer.session.timeout.ms")
    return broker.config.group_consumer_session_timeout_ms if own is None else own


def heartbeat_interval_ms(broker: Broker, group_id: str) -> int:
    """How often members are asked to show signs of life."""
    own = _own(broker, group_id, "consumer.heartbeat.interval.ms")
    return broker.config.group_consumer_heartbeat_interval_ms if own is None else own


def assignment_interval_ms(broker: Broker, group_id: str) -> int:
    """How far apart two target assignments are at least."""
    own = _own(broker, group_id, "consumer.assignment.interval.ms")
    return broker.config.group_consumer_assignment_interval_ms if own is None else own


def _own(broker: Broker, group_id: str, name: str) -> int | None:
    configs = broker.image.configs.get((ResourceType.GROUP, group_id))
    if configs is None or name not in configs:
        return None
    return int(configs[name])
