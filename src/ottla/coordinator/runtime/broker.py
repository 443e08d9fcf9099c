"""What coordinators need of the broker they run in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.config.broker import BrokerConfig
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.ports import Ports
from ottla.replication.partition import Partition
from ottla.replication.timers import Timers
from ottla.replication.topics import HostedTopics


class Broker(Protocol):
    """The broker as a coordinator sees it. Times are those at which this wake-up began."""

    before_write: list[Callable[[], None]]
    """Called once when the wake-up ends, before the logs write what was appended."""
    config: BrokerConfig
    image: MetadataImage
    monotonic_ms: float
    node_id: int
    ports: Ports
    timers: Timers
    topics: HostedTopics
    wall_ms: int

    def append_internal(
        self, partition: Partition, batch: bytearray, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append a batch. `done` is called with NONE once it is committed, or with an error.

        The calls for one partition come in the order of the appends. Raise ApiError or
        OSError if the batch cannot be appended at all.
        """

    def storage_failed(self, partition: Partition, problem: OSError) -> object:
        """Handle an I/O error of a partition's log."""
