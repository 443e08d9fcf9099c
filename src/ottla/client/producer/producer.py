"""A producer for one topic. It is idempotent if the broker supports it (KIP-98).

Each partition has one batch in flight. A batch keeps its sequence when it is sent again, so
messages stay in order and an idempotent batch is stored only once. If the broker says that a
batch is too large, the producer splits it in two, down to single messages.

Without idempotence, a batch may be stored twice if its acknowledgement is lost.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import FIRST_PAUSE_S, LONGEST_PAUSE_S, MAX_ATTEMPTS, NO_NODE, Client
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import (
    RETRIABLE,
    ConnectionLost,
    Refused,
    Unreachable,
    UnsupportedByBroker,
    check,
)
from ottla.client.producer.partitioner import Partitioner
from ottla.client.topics.route import check_partition, find_route
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.records.compression import ZSTD
from ottla.records.record import Headers, NewRecord, build_batch
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ACKS_ALL = -1
BATCH_BYTES = 512 * 1024
PENDING_BYTES = 8 * 1024 * 1024
RECORD_OVERHEAD = 24
REQUEST_TIMEOUT_MS = 30_000
FIRST_VERSION_WITH_ZSTD = 7
SEQUENCE_MASK = 0x7FFFFFFF
STALE_ROUTE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def new_producer_id(client: Client, deadline: Deadline, advice: str) -> tuple[int, int]:
    """Get a producer id and epoch from the cluster. `advice` is added to the error message."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout=60_000)

    def ask() -> InitProducerIdResponse:
        connection = client.any(deadline)
        response = client.call(connection, request, InitProducerIdResponse, deadline)
        check(response.error_code, f"a producer id ({advice})")
        return response

    response = client.retry(ask, deadline, harmless_twice=True)
    return response.producer_id, response.producer_epoch


def check_codec(connection: Connection, codec: int) -> None:
    """Raise UnsupportedByBroker if the broker does not accept this compression codec."""
    version = connection.version_of(ProduceRequest)
    if codec == ZSTD and version < FIRST_VERSION_WITH_ZSTD:
        raise UnsupportedByBroker("this broker is older than Kafka 2.1 and does not support zstd")


class _Batch(NamedTuple):
    partition: int
    base_sequence: int
    records: list[NewRecord]
    data: bytes


class _Answer(NamedTuple):
    error_code: int
    message: str | None


class Producer:
    """Collects messages for one topic. Call `flush` to send them."""

    def __init__(self, client: Client, topic: str, *, acks: int = ACKS_ALL, codec: int = 0) -> None:
        self.topic = topic
        self.acknowledged = 0
        self._client = client
        self._acks = acks
        self._codec = codec
        deadline = client.deadline(f"looking for topic {topic}")
        self._route = find_route(client, topic, deadline, create=True)
        check_codec(client.any(deadline), codec)
        self._partitioner = Partitioner(len(self._route.leaders))
        self._producer_id, self._producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._sequences: defaultdict[int, int] = defaultdict(int)
        self._pending: defaultdict[int, list[NewRecord]] = defaultdict(list)
        self._sizes: defaultdict[int, int] = defaultdict(int)
        self._pending_bytes = 0
        if acks == ACKS_ALL:
            self._become_idempotent(deadline)

    @property
    def is_idempotent(self) -> bool:
        """True if a batch that is sent twice is stored once."""
        return self._producer_id != NO_PRODUCER_ID

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Add a message to its partition's batch. If the batch is full, send all batches first."""
        if partition is None:
            partition = self._partitioner.partition_for(key)
        else:
            check_partition(self._route, partition)
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(RECORD_OVERHEAD + len(name) + len(content or b"") for name, content in headers)
        if (
            self._sizes[partition] + size > BATCH_BYTES
            or self._pending_bytes + size > PENDING_BYTES
        ):
            self.flush()
        self._pending[partition].append((key, value, timestamp_ms, headers))
        self._sizes[partition] += size
        self._pending_bytes += size

    def flush(self) -> None:
        """Send all batches and wait for acknowledgements. Raise Refused if one is refused."""
        queues = {
            partition: deque(
                [self._seal(partition, self._next_sequence(partition, records), records)]
            )
            for partition, records in self._pending.items()
        }
        self._pending.clear()
        self._sizes.clear()
        self._pending_bytes = 0
        self._deliver(queues)
        self._partitioner.switch()

    def _become_idempotent(self, deadline: Deadline) -> None:
        if not self._client.any(deadline).supports(InitProducerIdRequest):
            return
        self._producer_id, self._producer_epoch = new_producer_id(
            self._client, deadline, "--acks 1 needs none"
        )

    def _next_sequence(self, partition: int, records: list[NewRecord]) -> int:
        if not self.is_idempotent:
            return NO_SEQUENCE
        sequence = self._sequences[partition]
        self._sequences[partition] = (sequence + len(records)) & SEQUENCE_MASK
        return sequence

    def _seal(self, partition: int, base_sequence: int, records: list[NewRecord]) -> _Batch:
        data = build_batch(
            records,
            codec=self._codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=base_sequence,
        )
        return _Batch(partition, base_sequence, records, bytes(data))

    def _deliver(self, queues: dict[int, deque[_Batch]]) -> None:
        deadline = self._client.deadline(f"delivering messages to {self.topic}")
        pause, failures = FIRST_PAUSE_S, 0
        while queues:
            refused = self._send_heads([queue[0] for queue in queues.values()], queues, deadline)
            queues = {partition: queue for partition, queue in queues.items() if queue}
            if refused is None:
                pause, failures = FIRST_PAUSE_S, 0
                continue
            failures += 1
            if failures == MAX_ATTEMPTS or not deadline.allows(pause):
                raise refused
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
            self._route = find_route(self._client, self.topic, deadline)

    def _send_heads(
        self, heads: Iterable[_Batch], queues: Mapping[int, deque[_Batch]], deadline: Deadline
    ) -> Refused | None:
        """Send one batch of each partition. Return the last error that can be retried, if any."""
        by_leader: defaultdict[int, list[_Batch]] = defaultdict(list)
        for batch in heads:
            by_leader[self._route.leaders.get(batch.partition, NO_NODE)].append(batch)
        refused = None
        for leader, batches in by_leader.items():
            answers = self._ask(leader, batches, deadline)
            for batch in batches:
                answer = answers.get(batch.partition, _Answer(ErrorCode.NETWORK_EXCEPTION, None))
                refused = self._settle(queues[batch.partition], answer) or refused
        return refused

    def _ask(self, leader: int, batches: list[_Batch], deadline: Deadline) -> dict[int, _Answer]:
        if leader == NO_NODE:
            return dict.fromkeys(
                (batch.partition for batch in batches),
                _Answer(ErrorCode.LEADER_NOT_AVAILABLE, None),
            )
        data = [
            PartitionProduceData(index=batch.partition, records=batch.data) for batch in batches
        ]
        topic = TopicProduceData(
            name=self.topic, topic_id=self._route.topic_id, partition_data=data
        )
        request = ProduceRequest(acks=self._acks, timeout=REQUEST_TIMEOUT_MS, topic_data=[topic])
        try:
            return self._exchange(leader, request, deadline)
        except (Unreachable, ConnectionLost) as error:
            return dict.fromkeys(
                (batch.partition for batch in batches),
                _Answer(ErrorCode.NETWORK_EXCEPTION, str(error)),
            )

    def _exchange(
        self, leader: int, request: ProduceRequest, deadline: Deadline
    ) -> dict[int, _Answer]:
        connection = self._client.node(leader, deadline)
        highest = self._route.highest_version
        if self._acks == 0:
            connection.send(request, deadline, at_most=highest, answered=False)
            sent = request.topic_data[0].partition_data
            return {data.index: _Answer(ErrorCode.NONE, None) for data in sent}
        response = self._client.call(
            connection, request, ProduceResponse, deadline, at_most=highest
        )
        return {
            found.index: _Answer(found.error_code, found.error_message)
            for topic in response.responses
            for found in topic.partition_responses
        }

    def _settle(self, queue: deque[_Batch], answer: _Answer) -> Refused | None:
        """Remove the batch if it was stored, split it if it is too large, or return the error."""
        batch = queue[0]
        if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.acknowledged += len(batch.records)
            queue.popleft()
            return None
        if answer.error_code in TOO_LARGE and len(batch.records) > 1:
            self._cut(queue)
            return None
        refused = Refused(answer.error_code, f"{self.topic}-{batch.partition}", answer.message)
        if answer.error_code not in RETRIABLE | STALE_ROUTE:
            raise refused
        return refused

    def _cut(self, queue: deque[_Batch]) -> None:
        partition, sequence, records, _ = queue.popleft()
        middle = len(records) // 2
        second = NO_SEQUENCE if sequence == NO_SEQUENCE else (sequence + middle) & SEQUENCE_MASK
        queue.appendleft(self._seal(partition, second, records[middle:]))
        queue.appendleft(self._seal(partition, sequence, records[:middle]))
