"""The kinds of things that have settings, as numbered in Kafka's protocol."""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    """What a setting is for; a broker resource named "" means all brokers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
