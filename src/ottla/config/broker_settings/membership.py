"""Broker settings of membership in a cluster: heartbeats, sessions and the way out."""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import AtLeast


class MembershipConfig(Component):
    """How often a broker sends heartbeats, and after how long without any it is fenced."""

    broker_heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        "int",
        default=2000,
        validator=AtLeast(1),
        doc="How often a broker sends a heartbeat to the active controller.",
    )
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        "int",
        default=9000,
        validator=AtLeast(1),
        doc="The controller fences a broker that sends no heartbeat for this long.",
    )
    broker_connection_loss_grace_ms: int = setting(
        "broker.connection.loss.grace.ms",
        "int",
        default=100,
        validator=AtLeast(0),
        doc=(
            "The controller fences a broker whose connection to it was closed, if the broker does"
            " not come back within this time: its process has ended. Kafka has no such setting."
        ),
        internal=True,
    )
    initial_broker_registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms",
        "int",
        default=60000,
        validator=AtLeast(1),
        doc="A broker that cannot register for this long gives up.",
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable",
        "boolean",
        default=True,
        doc="A broker that is stopped lets others lead its partitions first.",
    )
