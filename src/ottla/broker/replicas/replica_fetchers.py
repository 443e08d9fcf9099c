"""Replication on a broker of a cluster: a fetcher for each leader, and changes of ISRs.

It follows the metadata: partitions that other brokers lead are fetched from them. It is also what
fetchers and leaders need of their broker (FetcherHost, IsrHost).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.membership.unreachable_brokers import UnreachableBrokers
from ottla.broker.replicas.follower_waits import FollowerWaits
from ottla.config.broker_settings.replication import ReplicationConfig
from ottla.metadata.delta import MetadataDelta
from ottla.model.errors import ErrorCode
from ottla.ports import Clock, Peer, Response
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partition import Partition, QueuedWrite
from ottla.replication.partition_leader import PartitionLeader
from ottla.replication.replica_fetcher import FetcherHost, ReplicaFetcher
from ottla.replication.timers import Timers
from ottla.wire.api_table import ApiKey
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

EARLIEST = -2
_LIST_OFFSETS_VERSION = 8
_REQUEST_TIMEOUT_MS = 10_000


class ReplicaFetchers(FetcherHost):
    """The fetchers of one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self.unreachable = UnreachableBrokers(node)
        self.follower_waits = FollowerWaits()
        self._leaders: dict[Partition, tuple[int, int]] = {}
        """From whom each followed partition is fetched: broker and leader epoch."""
        self.isr_changes = IsrChanges(self)
        node.topics.propose_through(self.isr_changes)
        node.hosted_logs.on_moved_away.append(self._follow_partition)
        self._check_lag()

    def __len__(self) -> int:
        """Return how many partitions are fetched."""
        return len(self._leaders)

    # -- what is fetched -----------------------------------------------------------------

    def follow(self, delta: MetadataDelta) -> None:
        """Fetch what the metadata says, after the hosted logs have followed it."""
        for topic_id in delta.topics.deleted:
            self._forget_topic(topic_id)
        if delta.brokers.changed:
            self._follow_brokers()
            for broker_id in delta.brokers.changed:
                self.unreachable.found(broker_id)
        topics = self._node.topics.by_id
        is_awaited = False
        for topic_id, changed in delta.topics.changed.items():
            topic = topics.get(topic_id)
            if topic is not None:
                for index in changed.partitions:
                    partition = topic.partitions.get(index)
                    if partition is not None:
                        self._follow_partition(partition)
                        if partition.leader is not None:
                            # A follower that caught up meanwhile may not fetch again soon.
                            self.isr_changes.consider_all(partition.leader)
                            is_awaited = is_awaited or partition.leader.is_awaiting_followers
        if is_awaited:
            self.follower_waits.leadership_began(self._node.clock.monotonic_ms())

    def _follow_brokers(self) -> None:
        """Use the present address of each broker; fetch again from those that came back."""
        for broker_id in list(self._fetchers):
            if self._node.inter_broker_address(broker_id) != self._addresses.get(broker_id):
                self._fetchers.pop(broker_id).close()
                for partition, (leader_id, _) in list(self._leaders.items()):
                    if leader_id == broker_id:
                        del self._leaders[partition]
        for partition in self._node.topics:
            if partition.leader is not None:
                self.isr_changes.consider_all(partition.leader)  # a follower may be active again
            elif partition not in self._leaders:
                self._follow_partition(partition)

    def _follow_partition(self, partition: Partition) -> None:
        wanted = self._wanted(partition)
        current = self._leaders.get(partition)
        if wanted == current:
            return
        if current is not None:
            del self._leaders[partition]
            self._fetchers[current[0]].forget(partition)
        if wanted is not None:
            fetcher = self._fetcher(wanted[0])
            if fetcher is not None:
                self._leaders[partition] = wanted
                fetcher.follow(partition)

    def _wanted(self, partition: Partition) -> tuple[int, int] | None:
        """Return from whom to fetch a partition, and in which leader epoch.

        Return nobody as long as the metadata is older than the start of this broker: its leader
        epochs are out of date, and every leader would refuse them again and again.
        """
        if not self._node.hosted_logs.is_current:
            return None
        if partition.removed or partition.leader is not None or partition.leader_id < 0:
            return None
        return partition.leader_id, partition.leader_epoch

    def _forget_topic(self, topic_id: bytes) -> None:
        for partition in [each for each in self._leaders if each.topic.topic_id == topic_id]:
            leader_id, _ = self._leaders.pop(partition)
            self._fetchers[leader_id].forget(partition)

    def _fetcher(self, broker_id: int) -> ReplicaFetcher | None:
        fetcher = self._fetchers.get(broker_id)
        address = self._node.inter_broker_address(broker_id)
        if fetcher is None and address is not None:
            client_id = f"broker-{self._node.node_id}-fetcher"
            peer = self._node.ports.network.connect(*address, client_id)
            peer.on_lost = lambda: self.unreachable.lost(broker_id)
            fetcher = self._fetchers[broker_id] = ReplicaFetcher(self, peer)
            self._addresses[broker_id] = address
        return fetcher

    def close(self) -> None:
        """Stop fetching."""
        for fetcher in self._fetchers.values():
            fetcher.close()

    # -- FetcherHost ---------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        return self._node.node_id

    @property
    def timers(self) -> Timers:
        return self._node.timers

    @property
    def clock(self) -> Clock:
        return self._node.clock

    @property
    def wall_ms(self) -> int:
        return self._node.wall_ms

    @property
    def broker_epoch(self) -> int:
        lifecycle = self._node.lifecycle
        return -1 if lifecycle is None else lifecycle.epoch

    @property
    def replication(self) -> ReplicationConfig:
        return self._node.config.replication

    def write_later(self, write: QueuedWrite) -> None:
        """Have something written when the wake-up ends."""
        self._node.appended.append(write)

    def when_written(self, fetcher: ReplicaFetcher) -> None:
        """Call `finish` of a fetcher after everything of this wake-up is written."""
        self._node.completed.append(fetcher)

    @property
    def is_throttled(self) -> bool:
        """True if fetches of some replicas are limited."""
        return self._node.follower_throttle is not None

    def throttle_ms(self, partition: Partition) -> float:
        """Return for how long a partition must not be fetched; 0 if it may be."""
        throttle = self._node.follower_throttle
        if throttle is None or not self._is_limited(partition) or self._is_in_sync(partition):
            return 0.0
        return throttle.wait_ms(self._node.clock.monotonic_ms())

    def charge(self, partition: Partition, size: int) -> None:
        """Count what was fetched."""
        throttle = self._node.follower_throttle
        if throttle is not None and self._is_limited(partition):
            throttle.charge(size, self._node.clock.monotonic_ms())

    def _is_limited(self, partition: Partition) -> bool:
        return partition.log is not None and self._node.throttled_followers.has(
            partition, partition.log.config.follower_replication_throttled_replicas
        )

    def _is_in_sync(self, partition: Partition) -> bool:
        topic = self._node.image.topics_by_id.get(partition.topic.topic_id)
        if topic is None or partition.index >= len(topic.partitions):
            return False
        return self._node.node_id in topic.partitions[partition.index].isr

    def storage_failed(self, partition: Partition, problem: OSError) -> object:
        """Handle a storage error of a log."""
        return self._node.storage_failed(partition, problem)

    def rebuild_from_tier(
        self, peer: Peer, partition: Partition, done: Callable[[bool], None]
    ) -> None:
        """Let a log begin where the leader's local segments do; False if that is not possible."""
        if self._node.tier is None:
            self._node.report(
                f"{partition.name} needs the remote tier, which this broker does not have"
            )
            done(False)
            return
        from ottla.broker.remote_tier.follower_rebuild import FollowerRebuild

        FollowerRebuild(self._node.tier, peer, partition, self.find_offset, done).begin()

    def find_log_start(
        self, peer: Peer, partition: Partition, done: Callable[[int | None], None]
    ) -> None:
        """Ask the leader where its log begins; None if it does not say."""
        self.find_offset(peer, partition, EARLIEST, done)

    def find_offset(
        self,
        peer: Peer,
        partition: Partition,
        timestamp: int,
        done: Callable[[int | None], None],
    ) -> None:
        """Ask the leader for an offset, as ListOffsets does; None if it does not say."""
        asked = ListOffsetsPartition(
            partition_index=partition.index,
            current_leader_epoch=partition.leader_epoch,
            timestamp=timestamp,
        )
        topic = ListOffsetsTopic(name=partition.topic.name, partitions=[asked])
        request = ListOffsetsRequest(replica_id=self._node.node_id, topics=[topic])
        body = encoder(ListOffsetsRequest, _LIST_OFFSETS_VERSION)(request)

        def answered(result: Response | OSError) -> None:
            done(None if isinstance(result, OSError) else _log_start(result))

        try:
            peer.send(
                ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, body, _REQUEST_TIMEOUT_MS, answered
            )
        except BlockingIOError:
            done(None)

    # -- IsrHost -------------------------------------------------------------------------

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Return True if a broker is active, and has not restarted since it had this epoch."""
        broker = self._node.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_epoch in (-1, broker.broker_epoch)

    def propose(
        self, leaders: list[PartitionLeader], done: Callable[[dict[PartitionLeader, int]], None]
    ) -> None:
        """Ask the controller for the proposed ISRs."""
        by_key = {(each.partition.topic.topic_id, each.partition.index): each for each in leaders}
        topics: dict[bytes, list[RequestPartitionData]] = {}
        for (topic_id, _), leader in by_key.items():
            topics.setdefault(topic_id, []).append(self._proposal(leader))
        request = AlterPartitionRequest(
            broker_id=self._node.node_id,
            broker_epoch=self.broker_epoch,
            topics=[
                RequestTopicData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

        def answered(result: AlterPartitionResponse | TimeoutError) -> None:
            codes = dict.fromkeys(leaders, int(ErrorCode.REQUEST_TIMED_OUT))
            if isinstance(result, AlterPartitionResponse):
                codes = dict.fromkeys(leaders, result.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
                for topic in result.topics:
                    for partition in topic.partitions:
                        leader = by_key.get((topic.topic_id, partition.partition_index))
                        if leader is not None:
                            codes[leader] = partition.error_code
            done(codes)

        self._node.channel.send(request, 3, AlterPartitionResponse, answered, _REQUEST_TIMEOUT_MS)

    def _proposal(self, leader: PartitionLeader) -> RequestPartitionData:
        partition = leader.partition
        return RequestPartitionData(
            partition_index=partition.index,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=broker_id, broker_epoch=self._epoch_of(leader, broker_id))
                for broker_id in leader.proposed_isr or leader.isr
            ],
            partition_epoch=partition.partition_epoch,
        )

    def _epoch_of(self, leader: PartitionLeader, broker_id: int) -> int:
        follower = leader.followers.get(broker_id)
        return self.broker_epoch if follower is None else follower.broker_epoch

    def at_wake_up_end(self, action: Callable[[], None]) -> None:
        """Call a function when the wake-up ends."""
        self._node.before_write.append(action)

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call a function after a while."""
        self._node.timers.at(self._node.clock.monotonic_ms() + delay_ms, action)

    def _check_lag(self) -> None:
        """Look for followers that lag, twice in replica.lag.time.max.ms."""
        lag_max_ms = self._node.config.replication.replica_lag_time_max_ms
        self.isr_changes.remove_lagging(self._node.clock.monotonic_ms(), lag_max_ms)
        self.later(lag_max_ms / 2, self._check_lag)


def _log_start(result: Response) -> int | None:
    view = result.view[result.start : result.end].toreadonly()
    response, _ = decoder(ListOffsetsResponse, _LIST_OFFSETS_VERSION)(view, 0, len(view))
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.NONE:
                return partition.offset
    return None
