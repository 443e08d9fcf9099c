"""Brokers that were fenced a moment ago: answers to Metadata still list them.

librdkafka ends its connection to a broker that is not listed any more. If the same answer also
names a new leader for one of that broker's partitions, both happen at once, and the partition may
be left without a broker until librdkafka asks again, a second later. So a broker that is fenced
stays in the list until clients have followed the leaders. It leads nothing and counts as
offline from the beginning. Kafka lists a broker that has died for longer: until its session ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.replication.timers import Timer

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.metadata.delta import MetadataDelta

LISTED_MS: Final = 2_000
"""Longer than the second after which librdkafka asks again."""


class RecentlyFenced:
    """The brokers that were fenced within the last two seconds."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._brokers: dict[int, BrokerImage] = {}
        self._timers: dict[int, Timer] = {}

    @property
    def brokers(self) -> list[BrokerImage]:
        """The brokers as they are now in the metadata."""
        return list(self._brokers.values())

    def follow(self, before: MetadataImage, delta: MetadataDelta) -> None:
        """Take note of brokers that are fenced from now on, and of those that are back."""
        for broker_id, broker in delta.brokers.changed.items():
            old = before.brokers.get(broker_id)
            self._forget(broker_id)
            if broker is None or old is None or old.fenced or not broker.fenced:
                continue
            if broker.broker_epoch == old.broker_epoch:  # and it has not registered again
                self._list(broker)

    def _list(self, broker: BrokerImage) -> None:
        broker_id, node = broker.broker_id, self._node
        self._brokers[broker_id] = broker
        ends_ms = node.clock.monotonic_ms() + LISTED_MS
        self._timers[broker_id] = node.timers.at(ends_ms, lambda: self._leave(broker_id))

    def _leave(self, broker_id: int) -> None:
        self._forget(broker_id)
        self._node.metadata_cache.clear()

    def _forget(self, broker_id: int) -> None:
        self._brokers.pop(broker_id, None)
        timer = self._timers.pop(broker_id, None)
        if timer is not None:
            timer.cancel()
