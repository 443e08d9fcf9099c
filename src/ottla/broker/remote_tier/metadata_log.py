"""`__remote_log_metadata` as this broker reads and writes it.

A broker reads the partitions of the topic that have records about its own tiered replicas, and
those that it leads. What it has read is the only state: a write changes the state when it comes
back with what is read. All brokers see the same records in the same order, so they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.auto_topic_creation import auto_create
from ottla.broker.remote_tier.metadata_readers import LeaderFetcher, LocalReader
from ottla.broker.remote_tier.metadata_state import MetadataState
from ottla.metadata.image import TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import REMOTE_LOG_METADATA_TOPIC
from ottla.ports import Peer, Response
from ottla.records.record import build_batch
from ottla.replication.partition import Partition
from ottla.tiered.metadata_records import (
    MetadataRecord,
    RemotePartition,
    encode_metadata,
    metadata_partition,
)
from ottla.tiered.remote_segments import RemoteSegments
from ottla.wire.api_table import ApiKey
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

_PRODUCE_VERSION: Final = 9
_TIMEOUT_MS: Final = 10_000
_ALL: Final = -1


class RemoteMetadataLog:
    """The topic, its readers and its writers."""

    def __init__(self, node: Node, changed: Callable[[RemotePartition], None]) -> None:
        self._node = node
        self._changed = changed
        self._topic_id = b""
        self.states: dict[int, MetadataState] = {}
        """What is known of each partition of the topic that is read."""
        self._local: dict[int, tuple[Partition, LocalReader]] = {}
        self._fetchers: dict[int, tuple[tuple[str, int], LeaderFetcher]] = {}
        self._writers: dict[int, tuple[tuple[str, int], Peer]] = {}
        self._is_creating = False

    @property
    def _topic(self) -> TopicImage | None:
        return self._node.image.topics.get(REMOTE_LOG_METADATA_TOPIC)

    def create(self) -> None:
        """Have the topic created, if that was not done yet."""
        if self._topic is not None or self._is_creating:
            return
        self._is_creating = True

        def done(errors: object) -> None:
            self._is_creating = False

        auto_create(self._node, [REMOTE_LOG_METADATA_TOPIC], done)

    # -- reading -------------------------------------------------------------------------

    def index_of(self, partition: RemotePartition) -> int | None:
        """Return the partition of the topic that has a partition's records."""
        topic = self._topic
        if topic is None:
            return None
        return metadata_partition(partition.topic_id, partition.partition, len(topic.partitions))

    def segments_of(self, partition: RemotePartition) -> RemoteSegments | None:
        """Return a partition's remote segments; None as long as not all of them are known."""
        index = self.index_of(partition)
        state = None if index is None else self.states.get(index)
        if state is None or not state.is_caught_up:
            return None
        found = state.partitions.get(partition)
        if found is None:
            found = state.partitions[partition] = RemoteSegments()
        return found

    def led(self) -> list[MetadataState]:
        """Return the states of the partitions that this broker leads, if they are complete."""
        return [self.states[index] for index in self._local if self.states[index].is_caught_up]

    def follow(self, wanted: Iterable[RemotePartition]) -> None:
        """Read what belongs to these partitions, and all partitions that this broker leads."""
        topic = self._topic
        if topic is None or topic.topic_id != self._topic_id:
            self._start_over(b"" if topic is None else topic.topic_id)
        if topic is None:
            return
        count = len(topic.partitions)
        indexes = {metadata_partition(each.topic_id, each.partition, count) for each in wanted}
        leaders: dict[int, int] = {}
        for index, image in enumerate(topic.partitions):
            if index in indexes or image.leader == self._node.node_id:
                leaders[index] = image.leader
        for index in self.states.keys() - leaders.keys():
            del self.states[index]
        for index in leaders:
            if index not in self.states:
                self.states[index] = MetadataState(self._changed, self._node.report)
        self._read_here(leaders)
        self._fetch(leaders)

    def _start_over(self, topic_id: bytes) -> None:
        self._topic_id = topic_id
        self._read_here({})
        for _, fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self.states.clear()

    def _read_here(self, leaders: dict[int, int]) -> None:
        hosted = self._node.topics.by_id.get(self._topic_id)
        for index, (partition, reader) in list(self._local.items()):
            is_led = leaders.get(index) == self._node.node_id and not partition.removed
            if not is_led or partition.leader is None:
                reader.close()
                del self._local[index]
        for index, leader in leaders.items():
            if leader != self._node.node_id or hosted is None or index in self._local:
                continue
            found = hosted.partitions.get(index)
            if found is not None and found.leader is not None:
                reader = LocalReader(self._node, found, self.states[index])
                self._local[index] = found, reader

    def _fetch(self, leaders: dict[int, int]) -> None:
        elsewhere: dict[int, dict[int, MetadataState]] = {}
        for index, leader in leaders.items():
            if index not in self._local and leader >= 0 and leader != self._node.node_id:
                elsewhere.setdefault(leader, {})[index] = self.states[index]
        for broker_id, (address, fetcher) in list(self._fetchers.items()):
            if broker_id not in elsewhere or self._node.inter_broker_address(broker_id) != address:
                fetcher.close()
                del self._fetchers[broker_id]
        for broker_id, states in elsewhere.items():
            address_now = self._node.inter_broker_address(broker_id)
            if address_now is None:
                continue
            if broker_id not in self._fetchers:
                client_id = f"broker-{self._node.node_id}-tier-fetcher"
                peer = self._node.ports.network.connect(*address_now, client_id)
                fetcher = LeaderFetcher(self._node, peer, self._topic_id)
                self._fetchers[broker_id] = address_now, fetcher
            self._fetchers[broker_id][1].states = states
            self._fetchers[broker_id][1].fetch()

    # -- writing -------------------------------------------------------------------------

    def write(self, record: MetadataRecord, done: Callable[[ErrorCode], None]) -> None:
        """Write a record; `done` gets NONE once it is committed, or why it probably is not."""
        index, topic = self.index_of(record.partition), self._topic
        if index is None or topic is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        value = encode_metadata(record)
        batch = build_batch([(None, value, self._node.clock.wall_ms(), ())])
        leader = topic.partitions[index].leader
        if leader == self._node.node_id:
            self._append(topic, index, batch, done)
        else:
            self._produce(leader, index, batch, done)

    def _append(
        self, topic: TopicImage, index: int, batch: bytearray, done: Callable[[ErrorCode], None]
    ) -> None:
        hosted = self._node.topics.by_id.get(topic.topic_id)
        found = None if hosted is None else hosted.partitions.get(index)
        if found is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            self._node.append_internal(found, batch, done)
        except ApiError as error:
            done(error.code)
        except OSError as error:
            done(self._node.storage_failed(found, error)[0])

    def _produce(
        self, leader: int, index: int, batch: bytearray, done: Callable[[ErrorCode], None]
    ) -> None:
        peer = self._writer(leader)
        if peer is None:
            done(ErrorCode.LEADER_NOT_AVAILABLE)
            return
        data = PartitionProduceData(index=index, records=bytes(batch))
        topic = TopicProduceData(name=REMOTE_LOG_METADATA_TOPIC, partition_data=[data])
        request = ProduceRequest(acks=_ALL, timeout=_TIMEOUT_MS, topic_data=[topic])
        body = encoder(ProduceRequest, _PRODUCE_VERSION)(request)
        try:
            peer.send(
                ApiKey.PRODUCE, _PRODUCE_VERSION, body, 2 * _TIMEOUT_MS, partial(_answered, done)
            )
        except BlockingIOError:
            done(ErrorCode.REQUEST_TIMED_OUT)

    def _writer(self, broker_id: int) -> Peer | None:
        address = self._node.inter_broker_address(broker_id)
        known = self._writers.get(broker_id)
        if known is not None:
            if known[0] == address:
                return known[1]
            del self._writers[broker_id]
            known[1].close()
        if address is None:
            return None
        client_id = f"broker-{self._node.node_id}-tier-writer"
        peer = self._node.ports.network.connect(*address, client_id)
        self._writers[broker_id] = address, peer
        return peer


def _answered(done: Callable[[ErrorCode], None], result: Response | OSError) -> None:
    if isinstance(result, OSError):
        done(ErrorCode.REQUEST_TIMED_OUT)
        return
    view = result.view[result.start : result.end].toreadonly()
    response, _ = decoder(ProduceResponse, _PRODUCE_VERSION)(view, 0, len(view))
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    for topic in response.responses:
        for answer in topic.partition_responses:
            code = ErrorCode(answer.error_code)
    done(code)
