"""Broker settings of idempotent producers."""

from __future__ import annotations

from ottla.config.component import Component, setting
from ottla.config.definition import CLUSTER_WIDE, AtLeast


class ProducerIdConfig(Component):
    """How long partitions keep the state of idempotent producers."""

    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        "int",
        default=86400000,
        validator=AtLeast(1),
        doc=(
            "How long a partition keeps the last sequences of an idempotent producer that sends"
            " nothing."
        ),
        importance="low",
        update=CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        "int",
        default=600000,
        validator=AtLeast(1),
        doc="How often the broker checks for idempotent producers to expire.",
        importance="low",
        internal=True,
    )
