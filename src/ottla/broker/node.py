"""The broker without its sockets: every request, every timer, the group commit.

`server` drives a node with epoll, `sim` with a virtual clock: both hand it request frames
(`handle`), let it settle (`settle`) and tell it that time has passed (`advance`). A node
reads no clock but its port's, and only once per wake-up.

In one wake-up requests are handled first, then `settle` writes what they appended, moves
high watermarks and answers who waited for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EDQUOT, ENOSPC
from typing import TYPE_CHECKING, Protocol

from ottla.broker.connection import Connection
from ottla.broker.hosting import Hosting
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.pipeline import Pipeline
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Endpoint
from ottla.controller.quorum_controller import QuorumController
from ottla.log.append_rules import NeedsValidation
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.model.resources import ResourceType
from ottla.ports import Ports
from ottla.replication.delayed_appends import DelayedAppend, append_later
from ottla.replication.fetch_session import FetchSessions
from ottla.replication.partition import Partition
from ottla.replication.partition_leader import OwnAppend, PartitionLeader
from ottla.replication.timers import Timers

if TYPE_CHECKING:
    from ottla.broker.producer_ids import ProducerIds
    from ottla.coordinator.groups.group_coordinator import GroupCoordinator


class ParkedRequest(Protocol):
    """A parked request whose time has come."""

    def finish(self) -> None: ...


class Node:
    """One broker."""

    def __init__(
        self,
        config: BrokerConfig,
        advertised: Sequence[Endpoint],
        ports: Ports,
        *,
        max_open_files: int = 512,
    ) -> None:
        self.config = config
        self.advertised = {endpoint.listener_name: endpoint for endpoint in advertised}
        self.ports = ports
        self.clock = ports.clock
        self.report = ports.report
        self.node_id = config.node.node_id
        self.wall_ms = ports.clock.wall_ms()
        self.monotonic_ms = ports.clock.monotonic_ms()
        self.timers = Timers()
        self.fetch_sessions = FetchSessions(
            config.fetch.max_incremental_fetch_session_cache_slots, ports.random
        )
        self.fetch_max_bytes = config.fetch.fetch_max_bytes
        self.before_write: list[Callable[[], None]] = []
        """Who has collected something to append, and does so when the wake-up ends."""
        self.appended: list[PartitionLeader] = []
        """The leaders whose logs have batches queued, for the write that ends the wake-up."""
        self.delayed_bytes = 0
        """The bytes of all batches that wait for a helper process, or behind one that does."""
        self.completed: list[ParkedRequest] = []
        """Parked requests that can be answered once everything is written."""
        self.ready: list[Connection] = []
        """Connections that may have something to send, or take requests again."""
        self.image = MetadataImage()
        """The cluster as of the last committed metadata; replaced by `metadata_publisher`."""
        self.pipeline = Pipeline(self)
        self.handle = self.pipeline.handle
        self.metadata_cache = MetadataCache()
        self.hosting = Hosting(self, max_open_files)
        self.topics = self.hosting.topics
        self.store = self.hosting.store
        self.on_config: list[Callable[[BrokerConfig], None]] = []
        """Parts of the edge that follow settings changed while running."""
        self._producer_ids: ProducerIds | None = None
        self._groups: GroupCoordinator | None = None

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        """Load the logs, replay the metadata, host what is ours."""
        self.hosting.start()
        if OFFSETS_TOPIC in self.image.topics:
            self.timers.at(self.monotonic_ms, self._load_groups)

    def _load_groups(self) -> None:
        self.groups.load()

    def shutdown(self) -> None:
        """Stop cleanly: everything written, checkpointed and marked as such."""
        self.hosting.shutdown()

    # -- the wake-up ---------------------------------------------------------------------

    def advance(self) -> None:
        """A wake-up begins: read the clock and do what is due."""
        self.wall_ms = self.clock.wall_ms()
        self.monotonic_ms = now_ms = self.clock.monotonic_ms()
        deadline_ms = self.timers.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self.timers.run(now_ms)

    def next_deadline_ms(self) -> float | None:
        """When `advance` should be called at the latest, in monotonic time."""
        return self.timers.next_deadline_ms()

    def settle(self) -> None:
        """Write what was appended, then answer who waited for it."""
        while self.before_write or self.appended or self.completed:
            collected, self.before_write = self.before_write, []
            for append in collected:
                append()
            appended, self.appended = self.appended, []
            for leader in appended:
                try:
                    leader.write()
                except OSError as problem:
                    leader.refuse_unwritten(*self.storage_failed(leader.partition, problem))
            requests, self.completed = self.completed, []
            for request in requests:
                request.finish()

    def append_internal(
        self, partition: Partition, batch: bytearray, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append a batch of the broker's own; `done` hears NONE once it is committed.

        ApiError or OSError when it cannot even be queued.
        """
        leader = partition.as_leader()
        needed = None
        if leader.delayed is None:
            is_first = not leader.unwritten
            try:
                leader.append_own(batch, self.wall_ms, done)
            except NeedsValidation as problem:
                needed = problem
            else:
                if is_first:
                    self.appended.append(leader)
                return
        append = DelayedAppend(OwnAppend(done), has_keys=True)
        append_later(self, leader, append, batch, memoryview(batch), 0, len(batch), needed)

    def close_connection(self, connection: Connection) -> None:
        """Forget what the peer waited for: it is gone."""
        connection.abandon()

    # -- what handlers ask ---------------------------------------------------------------

    @property
    def controller(self) -> QuorumController:
        return self.hosting.controller

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator, made when it is first needed."""
        if self._groups is None:
            from ottla.broker.groups import start_group_coordinator

            self._groups = start_group_coordinator(self)
        return self._groups

    @property
    def started_groups(self) -> GroupCoordinator | None:
        """The group coordinator, if anything has needed it yet."""
        return self._groups

    @property
    def producer_ids(self) -> ProducerIds:
        """The producer ids this broker gives out, made when they are first needed."""
        if self._producer_ids is None:
            from ottla.broker.producer_ids import ProducerIds

            self._producer_ids = ProducerIds(self)
        return self._producer_ids

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    def apply_dynamic_config(self) -> None:
        """Follow the broker settings that were changed while running."""
        self.config = self.config.with_dynamic(
            self.image.config_of(ResourceType.BROKER, ""),
            self.image.config_of(ResourceType.BROKER, str(self.node_id)),
        )
        self.fetch_max_bytes = self.config.fetch.fetch_max_bytes
        self.store.producer_expiration_ms = self.config.producer_ids.producer_id_expiration_ms
        for follow in self.on_config:
            follow(self.config)

    def brokers_for(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """(id, host, port, rack) of the brokers, by the listener a client came in through."""
        found = []
        for broker in self.image.brokers.values():
            for endpoint in broker.endpoints:
                if endpoint.listener_name == listener:
                    found.append((broker.broker_id, endpoint.host, endpoint.port, broker.rack))
        return found

    def storage_failed(self, partition: Partition, problem: OSError) -> tuple[ErrorCode, str]:
        """A log could not be read or written: what to tell the client.

        A full disk refuses writes until there is room; anything else takes the log's
        directory offline.
        """
        name = f"{partition.topic.name}-{partition.index}"
        self.hosting.storage_failed(partition, problem)
        if problem.errno in (ENOSPC, EDQUOT):
            return ErrorCode.KAFKA_STORAGE_ERROR, f"no space left for {name}; retry later"
        return ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} failed: {problem.strerror}"
