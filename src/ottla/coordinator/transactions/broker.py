"""What the transaction coordinator needs of the broker, beside what all coordinators need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ottla.coordinator.runtime.broker import Broker
from ottla.model.errors import ApiError
from ottla.model.ids import TopicPartition
from ottla.ports import Peer
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest


class ProducerIds(Protocol):
    """Gives out producer ids."""

    def next(self, take: Callable[[int | ApiError], None]) -> None:
        """Call `take` with an id that nobody had before, or with the error, at once or later."""


class TransactionBroker(Broker, Protocol):
    """The broker as the transaction coordinator sees it."""

    @property
    def producer_ids(self) -> ProducerIds:
        """The producer ids of this broker."""


MarkerCodes: TypeAlias = dict[tuple[int, TopicPartition], int]
"""The error code of each marker that was to be written, by producer id and partition."""


class MarkerRoutes(Protocol):
    """The ways to the leaders of partitions."""

    def write_here(
        self, request: WriteTxnMarkersRequest, done: Callable[[MarkerCodes], None]
    ) -> None:
        """Write markers to partitions that this broker leads. `done` is called at once or later."""

    def peer(self, broker_id: int) -> Peer | None:
        """Return the connection to a broker, None while its address is not known."""

    def version(self, broker_id: int) -> int:
        """Return the version of WriteTxnMarkers that a broker understands."""
