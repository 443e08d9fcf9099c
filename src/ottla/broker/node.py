"""The broker without its sockets: requests, timers, and the write that ends a wake-up.

`server` drives a node with epoll, `sim` with a virtual clock: both hand it request frames
(`handle`), let it settle (`settle_replies`) and tell it that time has passed (`advance`). A node
reads no clock but its port's, and only once per wake-up.

In one wake-up requests are handled first, then `settle_replies` writes what they appended, moves
high watermarks and answers the requests that waited for it. When the replies are sent, what was put
off until then is done (`run_put_off`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from errno import EDQUOT, ENOSPC
from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.connection import Connection
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.metrics.loop_stalls import NOTED_MS, TIMER, LoopStalls, names_of
from ottla.broker.pipeline import Pipeline
from ottla.broker.replicas.hosted_logs import HostedLogs
from ottla.broker.sliced_work import SlicedWork
from ottla.broker.step_imports import GROUPS, TRANSACTIONS, import_in_steps
from ottla.config.broker import BrokerConfig
from ottla.config.broker_settings.replication import RACK_AWARE
from ottla.config.definition import ConfigError
from ottla.config.listeners import Endpoint
from ottla.controller.quorum_controller import QuorumController
from ottla.log.append_rules import WITH_KEYS, AppendLater
from ottla.log.log import Log
from ottla.log.state.verifications import UNVERIFIED
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.model.config_resources import ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.model.steps import Steps
from ottla.ports import Ports
from ottla.replication.delayed_appends import (
    DelayedAppend,
    DelayedCoordinatorAppend,
    append_later,
)
from ottla.replication.fetch_session import FetchSessions
from ottla.replication.partition import Partition, QueuedWrite
from ottla.replication.partition_leader import OwnAppend
from ottla.replication.throttle import RateLimit, ThrottledReplicas, rate_limit
from ottla.replication.timers import Timers

if TYPE_CHECKING:
    from ottla.broker.controller_channel import ControllerChannel
    from ottla.broker.membership.broker_connections import BrokerConnections
    from ottla.broker.membership.controller_registration import ControllerRegistration
    from ottla.broker.membership.directory_assignments import DirectoryAssignments
    from ottla.broker.membership.lifecycle import BrokerLifecycle
    from ottla.broker.producer_ids import ProducerIds
    from ottla.broker.remote_tier.remote_tier import RemoteTier
    from ottla.broker.replicas.log_moves import LogMoves
    from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
    from ottla.broker.transaction_markers import MarkerWriter
    from ottla.broker.transaction_verification import TransactionVerifier
    from ottla.controller.broker_membership import BrokerMembership
    from ottla.coordinator.groups.group_coordinator import GroupCoordinator
    from ottla.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from ottla.raft.voters import Endpoint as QuorumEndpoint


Handler = Callable[[Connection, bytearray, memoryview, int, int], None]
"""Takes the request frame in [start, end) of a buffer."""


LONGEST_HAND_OVER_MS: Final = 2_000
"""How long a voter that stops waits for another one to lead the quorum."""

MOST_COMPLETED: Final = 200
"""How many parked requests are answered at a time."""

MOST_APPEND_MS: Final = 3.0
"""Appends begin new segments, which takes up to 2 ms, only in a wake-up younger than this."""

_PAUSE_MS: Final = 0.05


class ParkedRequest(Protocol):
    """A parked request that can be answered now."""

    def finish(self) -> None: ...


class Node:
    """One broker."""

    def __init__(
        self,
        config: BrokerConfig,
        advertised: Sequence[Endpoint],
        ports: Ports,
        *,
        controller_endpoints: Sequence[QuorumEndpoint] = (),
        max_open_files: int = 512,
    ) -> None:
        self.config = config
        self.controller_endpoints = controller_endpoints
        """Where other nodes reach this controller."""
        self.controller_listeners = frozenset(each.listener for each in controller_endpoints)
        self.advertised = {endpoint.listener_name: endpoint for endpoint in advertised}
        self.ports = ports
        self.clock = ports.clock
        self.report = ports.report
        self.node_id = config.node.node_id
        self.wall_ms = ports.clock.wall_ms()
        self.monotonic_ms = ports.clock.monotonic_ms()
        self.timers = Timers()
        self.loop_stalls = LoopStalls(ports.report)
        self.sliced_work = SlicedWork(self)
        """Work that may take long: it is done a few milliseconds in each wake-up."""
        self.fetch_sessions = FetchSessions(
            config.fetch.max_incremental_fetch_session_cache_slots,
            ports.random,
            self.sliced_work.run,
        )
        self.fetch_max_bytes = config.fetch.fetch_max_bytes
        self.leader_throttle: RateLimit | None = None
        self.follower_throttle: RateLimit | None = None
        """Limits of replication, if any are set."""
        self.throttled_leaders = ThrottledReplicas(self.node_id)
        self.throttled_followers = ThrottledReplicas(self.node_id)
        self.is_rack_aware = config.replication.replica_selector_class == RACK_AWARE
        """True if consumers are sent to a replica in their own rack."""
        self.before_write: list[Callable[[], None]] = []
        """Functions that append what they have collected. They are called when the wake-up ends."""
        self.appended: list[QueuedWrite] = []
        """What has batches queued in logs, for the write that ends the wake-up."""
        self.writes = 0
        """How often batches were written to partitions. The metadata log is not counted."""
        self.delayed_bytes = 0
        """The bytes of all batches that wait for a helper process, or behind one that does."""
        self.completed: list[ParkedRequest] = []
        """Parked requests that can be answered once everything is written."""
        self._to_complete: deque[ParkedRequest] = deque()
        """Those for which this wake-up has no time."""
        self.put_off: list[Callable[[], None]] = []
        """Functions that are called when the replies of this wake-up are sent: no reply waits for
        what they do."""
        self.ready: list[Connection] = []
        """Connections that may have something to send, or take requests again."""
        self.image = MetadataImage()
        """The cluster as of the last committed metadata; replaced by `metadata_publisher`."""
        self.pipeline = Pipeline(self)
        self.handle: Handler = self.pipeline.handle if config.is_alone else self._handle
        self.started_controller_pipeline: Pipeline | None = None
        """The pipeline of requests to the controller, if there ever was one."""
        self.metadata_cache = MetadataCache()
        self.on_config: list[Callable[[BrokerConfig], None]] = []
        """Parts that follow settings changed while running."""
        self.hosted_logs = HostedLogs(self, max_open_files)
        self.topics = self.hosted_logs.topics
        self.store = self.hosted_logs.store
        self.store.resources.has_time = self.has_time
        self._producer_ids: ProducerIds | None = None
        self.started_log_moves: LogMoves | None = None
        """The moves of replicas between log directories, if there ever were some."""
        self.lifecycle: BrokerLifecycle | None = None
        """The membership of this broker in a cluster of several nodes, if it has one."""
        self.replica_fetchers: ReplicaFetchers | None = None
        self.controller_registration: ControllerRegistration | None = None
        """The registration of this node as a controller of a cluster, if it is one."""
        self._groups: GroupCoordinator | None = None
        self._transaction_verifier: TransactionVerifier | None = None
        self.marker_writers: dict[str, MarkerWriter] = {}
        """Who writes the markers of internal topics, because it must know of them."""
        self._transactions: TransactionCoordinator | None = None
        self.tier: RemoteTier | None = None
        """The remote tier, if this broker has one."""
        self.pause_collection: Callable[[bool], None] = lambda is_paused: None
        """Called with True before a large request is handled, and with False after it."""
        self.refuse: Callable[[str], None] = self.report
        """Called with the reason if this node cannot be part of its cluster."""

    channel: ControllerChannel
    membership: BrokerMembership
    directory_assignments: DirectoryAssignments
    broker_connections: BrokerConnections

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        """Load the logs, replay the metadata, host the replicas of this broker."""
        self.hosted_logs.start()
        if not self.config.is_alone:
            from ottla.broker.membership.joining import join

            join(self)
        if self.store.interrupted_moves:
            self.timers.at(self.monotonic_ms, self.log_moves.resume)
        if OFFSETS_TOPIC in self.image.topics:
            self.timers.at(self.monotonic_ms, lambda: self._run(self._load_groups()))
        if TRANSACTIONS_TOPIC in self.image.topics:
            self.timers.at(self.monotonic_ms, lambda: self._run(self._load_transactions()))
        if self.ports.object_store is not None:
            from ottla.broker.remote_tier.remote_tier import RemoteTier

            self.tier = RemoteTier(self, self.ports.object_store)

    def _run(self, steps: Steps[None]) -> None:
        self.sliced_work.run(steps)

    def _load_groups(self) -> Steps[None]:
        yield from import_in_steps(GROUPS)
        self.groups.load()

    def _load_transactions(self) -> Steps[None]:
        yield from import_in_steps(TRANSACTIONS)
        self.start_transactions()

    def start_transactions(self) -> None:
        """Load the transactions that this broker coordinates."""
        self.transactions.host.refresh()

    def when_ready(
        self, ready: Callable[[], None], refused: Callable[[str], None], brokers: int = 1
    ) -> None:
        """Call `ready` once this node takes requests, or `refused` with the reason why not.

        A broker of a cluster is ready when it is unfenced and knows of `brokers` that are, itself
        among them. A node of controllers only is ready when there is a leader and it is registered.
        """
        self.refuse = refused
        if self.config.is_alone:
            ready()
        elif self.lifecycle is not None:
            self.lifecycle.on_ready = ready
            self.lifecycle.awaited_brokers = brokers
            self.lifecycle.on_refused = refused
        else:
            from ottla.broker.membership.joining import wait_for_leader

            wait_for_leader(self, ready)

    def leave(self, done: Callable[[], None]) -> None:
        """Leave the cluster: others take over partitions and the quorum. Then call `done`."""
        member = self.controller.member
        if member is None:
            done()
            return

        def leave_quorum() -> None:
            self.timers.at(self.clock.monotonic_ms() + LONGEST_HAND_OVER_MS, done)
            member.driver.shut_down(done)

        if self.lifecycle is None:
            leave_quorum()
        else:
            self.lifecycle.shut_down(leave_quorum)

    def shutdown(self) -> None:
        """Stop cleanly: write everything, the checkpoints and the mark of a clean shutdown.

        What was appended since the last wake-up ended is written first: the end of work in the
        background, and the last calls of the loop, may append.
        """
        self.settle()
        self.hosted_logs.shutdown()

    def _handle(
        self, connection: Connection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> None:
        """Take a request of a client, or of another node if it came on a controller's listener."""
        if connection.listener in self.controller_listeners:
            self.controller_pipeline.handle(connection, buffer, view, start, end)
        else:
            self.pipeline.handle(connection, buffer, view, start, end)

    @property
    def controller_pipeline(self) -> Pipeline:
        """The pipeline of requests to the controller, made when it is first needed."""
        if self.started_controller_pipeline is None:
            from ottla.broker.controller_handlers import CONTROLLER_SERVED

            self.started_controller_pipeline = Pipeline(
                self, CONTROLLER_SERVED, "ottla.broker.controller_handlers"
            )
            self.pipeline.share_authorizer(self.started_controller_pipeline)
        return self.started_controller_pipeline

    # -- the wake-up ---------------------------------------------------------------------

    def advance(self) -> None:
        """Begin a wake-up: read the clock and run the timers that are due."""
        self.wall_ms = self.clock.wall_ms()
        self.monotonic_ms = now_ms = self.clock.monotonic_ms()
        if now_ms >= self.timers.due_ms:
            called = self.timers.run(now_ms)
            took_ms = self.clock.monotonic_ms() - now_ms
            if took_ms > NOTED_MS:
                self.loop_stalls.note(TIMER, took_ms, now_ms, names_of(called))

    def has_time(self) -> bool:
        """Return True if this wake-up may still do what takes a millisecond or two."""
        return self.clock.monotonic_ms() - self.monotonic_ms < MOST_APPEND_MS

    def next_deadline_ms(self) -> float | None:
        """Return when `advance` must be called at the latest, in monotonic time."""
        return self.timers.next_deadline_ms()

    def settle(self) -> None:
        """Settle the replies, then do what was put off until they are sent.

        This is for drivers that send nothing in between. The engine does.
        """
        self.settle_replies()
        while self.put_off:
            self.run_put_off()
            self.settle_replies()

    def run_put_off(self) -> None:
        """Do what was put off. `settle_replies` must follow."""
        put_off = list(self.put_off)
        self.put_off.clear()
        for action in put_off:
            action()

    def settle_replies(self) -> None:
        """Write what was appended, then answer the requests that waited for it."""
        while self.before_write or self.appended or self.completed:
            if self.before_write:
                collected, self.before_write = self.before_write, []
                for append in collected:
                    append()
            if self.appended:
                self.write_appended()
            if self.completed:
                requests, self.completed = self.completed, []
                if len(requests) > MOST_COMPLETED:
                    self._complete_later(requests[MOST_COMPLETED:])
                    del requests[MOST_COMPLETED:]
                ready = self.ready
                answered = len(ready)
                for request in requests:
                    request.finish()
                if answered:
                    # Consumers and followers come before producers, whose writes they waited for.
                    ready[:] = ready[answered:] + ready[:answered]

    def write_appended(self) -> None:
        """Write what was appended until now.

        Work in slices that appends to many logs calls this with each step. So the time that the
        writes take is part of the slice, and the end of the wake-up has only a few to do.
        """
        appended, self.appended = self.appended, []
        self.writes += 1
        for leader in appended:
            try:
                leader.write()
            except OSError as problem:
                leader.refuse_unwritten(*self.storage_failed(leader.partition, problem))

    def _complete_later(self, requests: list[ParkedRequest]) -> None:
        """Answer requests in the next wake-ups: one append may be what thousands wait for."""
        if not self._to_complete:
            self.timers.at(self.monotonic_ms + _PAUSE_MS, self._complete_some)
        self._to_complete.extend(requests)

    def _complete_some(self) -> None:
        waiting = self._to_complete
        for _ in range(min(MOST_COMPLETED, len(waiting))):
            self.completed.append(waiting.popleft())
        if waiting:
            self.timers.at(self.monotonic_ms + _PAUSE_MS, self._complete_some)

    def append_internal(
        self, partition: Partition, batch: bytearray, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append a batch of the broker's own; `done` gets NONE once it is committed.

        Raise ApiError or OSError if it cannot be queued.
        """
        leader = partition.as_leader()
        needed = None
        if leader.delayed is None:
            is_first = not leader.unwritten
            try:
                leader.append_own(batch, self.wall_ms, done)
            except AppendLater as problem:
                needed = problem
            else:
                if is_first:
                    self.appended.append(leader)
                return
        append = DelayedAppend(OwnAppend(done), checked=WITH_KEYS)
        append_later(self, leader, append, batch, memoryview(batch), 0, len(batch), needed)

    def clean_log(self, log: Log) -> None:
        """Have the log cleaner clean a log soon, up to its end."""
        self.hosted_logs.cleaning.request(log)

    def append_transactional(
        self,
        partition: Partition,
        batch: bytearray,
        done: Callable[[ErrorCode], None],
        *,
        guard: int = UNVERIFIED,
        transaction_version: int = 0,
    ) -> None:
        """Append a marker, or offsets of a transaction; `done` gets NONE once it is committed.

        Raise ApiError or OSError if it cannot be queued.
        """
        leader, log = partition.as_leader(), partition.online_log()
        leader.check_in_sync()
        if leader.delayed is not None:
            delayed = DelayedCoordinatorAppend(OwnAppend(done), guard, transaction_version)
            append_later(self, leader, delayed, batch, memoryview(batch), 0, len(batch), None)
            return
        try:
            log.append_from_coordinator(
                batch, partition.leader_epoch, self.wall_ms,
                guard=guard, transaction_version=transaction_version,
            )  # fmt: skip
        except AppendLater as needed:
            delayed = DelayedCoordinatorAppend(OwnAppend(done), guard, transaction_version)
            append_later(self, leader, delayed, batch, memoryview(batch), 0, len(batch), needed)
            return
        if not leader.unwritten:
            self.appended.append(leader)
        leader.unwritten.append((log.log_end_offset, OwnAppend(done), None, 0))

    def close_connection(self, connection: Connection) -> None:
        """Drop the requests of a connection that was closed."""
        connection.abandon()
        if connection.listener in self.controller_listeners:
            self.broker_connections.closed(connection)

    # -- what handlers ask ---------------------------------------------------------------

    @property
    def controller(self) -> QuorumController:
        return self.hosted_logs.controller

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
    def transaction_verifier(self) -> TransactionVerifier:
        """Asks transaction coordinators about transactions; made when it is first needed."""
        if self._transaction_verifier is None:
            from ottla.broker.transaction_verification import TransactionVerifier

            self._transaction_verifier = TransactionVerifier(self)
        return self._transaction_verifier

    @property
    def started_transaction_verifier(self) -> TransactionVerifier | None:
        """The transaction verifier, if anything has needed it yet."""
        return self._transaction_verifier

    @property
    def log_moves(self) -> LogMoves:
        """The moves of replicas between log directories, made when they are first needed."""
        if self.started_log_moves is None:
            from ottla.broker.replicas.log_moves import LogMoves

            self.started_log_moves = LogMoves(self)
        return self.started_log_moves

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator, made when it is first needed."""
        if self._transactions is None:
            from ottla.broker.transactions import start_transaction_coordinator

            self._transactions = start_transaction_coordinator(self)
        return self._transactions

    @property
    def started_transactions(self) -> TransactionCoordinator | None:
        """The transaction coordinator, if anything has needed it yet."""
        return self._transactions

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

    def apply_dynamic_config(self, image: MetadataImage) -> None:
        """Follow the broker settings that were changed while running.

        A controller has checked them, but not with the file of this broker.
        """
        cluster_wide = image.config_of(ResourceType.BROKER, "")
        per_broker = image.config_of(ResourceType.BROKER, str(self.node_id))
        try:
            self.config = self.config.with_dynamic(cluster_wide, per_broker)
        except ConfigError as error:
            self.report(f"dynamic broker settings cannot be used: {'; '.join(error.errors)}")
            self.config = self.config.with_usable(cluster_wide, per_broker)
        self.fetch_max_bytes = self.config.fetch.fetch_max_bytes
        replication, now_ms = self.config.replication, self.clock.monotonic_ms()
        self.leader_throttle = rate_limit(
            self.leader_throttle, replication.leader_replication_throttled_rate, now_ms
        )
        self.follower_throttle = rate_limit(
            self.follower_throttle, replication.follower_replication_throttled_rate, now_ms
        )
        self.store.producer_expiration_ms = self.config.producer_ids.producer_id_expiration_ms
        for follow in self.on_config:
            follow(self.config)

    def brokers_for(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """Return (id, host, port, rack) of the brokers that clients of a listener can reach.

        Fenced brokers are left out: they serve nobody. So is this one while it is cut off.
        """
        away = self.node_id if self.is_cut_off else None
        brokers = self.image.brokers.values()
        return _addresses(
            [each for each in brokers if not each.fenced and each.broker_id != away], listener
        )

    def recently_fenced_for(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """Return (id, host, port, rack) of brokers that are listed although they are fenced."""
        lifecycle = self.lifecycle
        return [] if lifecycle is None else _addresses(lifecycle.recently_fenced.brokers, listener)

    def inter_broker_address(self, broker_id: int) -> tuple[str, int] | None:
        """Return where a broker takes requests of others, None if it is not registered."""
        broker = self.image.brokers.get(broker_id)
        name = self.config.network.inter_broker_listener_name
        for endpoint in () if broker is None else broker.endpoints:
            if endpoint.listener_name == name:
                return endpoint.host, endpoint.port
        return None

    @property
    def is_cut_off(self) -> bool:
        """True while this broker has no contact, and others probably lead its partitions by now."""
        return self.lifecycle is not None and self.lifecycle.lost_contact.is_cut_off

    def any_broker(self, broker_ids: Sequence[int]) -> int:
        """Return the broker to name as the controller: any one, since all pass requests on.

        -1 if there is none. Clients learn nothing about the real controllers, as with Kafka.
        """
        if len(broker_ids) < 2:
            return broker_ids[0] if broker_ids else -1
        return broker_ids[self.ports.random.below(len(broker_ids))]

    def storage_failed(self, partition: Partition, problem: OSError) -> tuple[ErrorCode, str]:
        """Handle a storage error of a log, and return what to tell the client.

        A full disk refuses writes until there is room; anything else takes the log's
        directory offline.
        """
        name = f"{partition.topic.name}-{partition.index}"
        self.hosted_logs.storage_failed(partition, problem)
        if problem.errno in (ENOSPC, EDQUOT):
            return ErrorCode.KAFKA_STORAGE_ERROR, f"no space left for {name}; retry later"
        return ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} failed: {problem.strerror}"


def _addresses(
    brokers: Iterable[BrokerImage], listener: str
) -> list[tuple[int, str, int, str | None]]:
    return [
        (broker.broker_id, endpoint.host, endpoint.port, broker.rack)
        for broker in brokers
        for endpoint in broker.endpoints
        if endpoint.listener_name == listener
    ]
