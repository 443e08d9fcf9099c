"""What coordinators need of the broker around them, and how they answer requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.config.broker import BrokerConfig
from ottla.coordinator.groups.consumer.topic_patterns import TopicPatterns
from ottla.metadata.image import MetadataImage
from ottla.ports import Ports
from ottla.replication.timers import Timers
from ottla.wire.message import Message


class Surroundings(Protocol):
    """The broker, as far as a coordinator knows it. Times are those of the present wake-up."""

    before_commit: list[Callable[[], None]]
    """Called when a wake-up ends, before logs are committed; for this once."""
    config: BrokerConfig
    image: MetadataImage
    monotonic_ms: float
    ports: Ports
    timers: Timers
    wall_ms: int

    @property
    def topic_patterns(self) -> TopicPatterns: ...


class Reply(Protocol):
    """An answer that is owed to a client; sent once, and in vain if the client is gone."""

    def send(self, response: Message) -> None: ...


class Client(NamedTuple):
    """Who sent a request, and in which version."""

    client_id: str
    client_host: str
    version: int
