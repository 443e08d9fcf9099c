"""What coordinators need of the broker they run in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla.config.broker import BrokerConfig
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.steps import Steps
from ottla.ports import Ports
from ottla.replication.partition import Partition
from ottla.replication.timers import Timers
from ottla.replication.topics import HostedTopics


class SlicedWork(Protocol):
    """Runs long work a few milliseconds in each wake-up."""

    def run(self, steps: Steps[Any], is_wanted: Callable[[], bool] = ...) -> bool:
        """Begin with the work; return True if it is done, False if it goes on later."""
        ...


class Broker(Protocol):
    """The broker as a coordinator sees it. Times are those at which this wake-up began."""

    before_write: list[Callable[[], None]]
    """Called once when the wake-up ends, before the logs write what was appended."""
    put_off: list[Callable[[], None]]
    """Called once when the replies of the wake-up are sent."""
    config: BrokerConfig
    image: MetadataImage
    monotonic_ms: float
    node_id: int
    pause_collection: Callable[[bool], None]
    """Called with True before very many objects are made that stay, and with False after it."""
    ports: Ports
    timers: Timers
    topics: HostedTopics
    wall_ms: int

    @property
    def sliced_work(self) -> SlicedWork:
        """Long work that is done in slices."""

    def append_internal(
        self, partition: Partition, batch: bytearray, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append a batch. `done` is called with NONE once it is committed, or with an error.

        The calls for one partition come in the order of the appends. Raise ApiError or
        OSError if the batch cannot be appended at all.
        """

    def clean_log(self, log: Log) -> None:
        """Have the log cleaner clean a log soon, up to its end."""

    def append_transactional(
        self,
        partition: Partition,
        batch: bytearray,
        done: Callable[[ErrorCode], None],
        *,
        guard: int = ...,
        transaction_version: int = ...,
    ) -> None:
        """Append a batch of a client's transaction, or the marker that ends it.

        As `append_internal`. Raise ApiError also if the producer is fenced, or has no such
        transaction. `guard` is what the log gave when the transaction was verified.
        """

    def storage_failed(self, partition: Partition, problem: OSError) -> object:
        """Handle an I/O error of a partition's log."""
