"""The resource types that have settings, with their numbers in Kafka's protocol."""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    """The type of a config resource. A broker resource with the name "" means all brokers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
