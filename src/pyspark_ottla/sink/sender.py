"""Sends batches to the leaders of their partitions until they are stored.

Each broker may have several requests in flight. There is one thread, with blocking sockets:
responses are read between sends, and waited for if too many bytes are not stored yet.
`send_queues` decides the order of batches and what to do after each result.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.cluster import NO_NODE
from ottla.client.connection import Connection, ready
from ottla.client.deadline import Deadline
from ottla.client.errors import ClientError, ConnectionLost, Refused, TimedOut, Unreachable
from ottla.client.producer.producer import check_codec, new_producer_id
from ottla.client.topics.route import TopicRoute, find_route
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.produce import ProduceResponse
from pyspark_ottla.options.sink_options import SinkSettings
from pyspark_ottla.sink.produce_request import (
    BatchResult,
    highest_version,
    produce_request,
    results_of,
)
from pyspark_ottla.sink.record_batch import Batch
from pyspark_ottla.sink.send_queues import TEMPORARY, PartitionQueue, SendQueues
from pyspark_ottla.sink.task_transaction import TaskTransaction

REFRESH_TIMEOUT_MS = 2_000
UNREACHABLE_PAUSE_S = 0.2
_NO_IDEMPOTENCE = "kafka.enable.idempotence=false needs none"


class _Request(NamedTuple):
    batches: list[Batch]
    deadline: Deadline


class _Node:
    """A broker: its connection, and the requests without a response yet."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.requests: deque[_Request] = deque()


class Sender:
    """Sends batches and keeps them until they are stored. It cannot be used after an error."""

    def __init__(self, settings: SinkSettings) -> None:
        self.queues = SendQueues(settings)
        self.client = settings.client.connect()
        self._settings = settings
        self._routes: dict[str, TopicRoute] = {}
        self._nodes: defaultdict[int, _Node] = defaultdict(_Node)
        self._unsent_bytes = 0
        self._transactional_id: str | None = None
        self.transaction: TaskTransaction | None = None
        """The open transaction. It begins with the first batch that is sent."""

    def begin_transaction(self, transactional_id: str) -> None:
        """Write everything from now on under a new transaction. All batches must be stored."""
        assert not self.queues.queued_bytes
        self._transactional_id = transactional_id
        self.transaction = None
        self.queues.must_renew = True

    def abort_transaction(self) -> None:
        """Abort the open transaction, if there is one and its coordinator answers."""
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            transaction.abort()

    def close(self) -> None:
        """Close every connection. Batches that are not stored may be lost."""
        for node in self._nodes.values():
            if node.connection is not None:
                node.connection.close()
        self._nodes.clear()
        self.client.close()

    def forget_routes(self) -> None:
        """Forget all topics, so that they are looked up again at the next use."""
        self._routes.clear()

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Brokers may create the topic."""
        if topic not in self._routes:
            self._routes[topic] = self._first_route(topic)
        return len(self._routes[topic].leaders)

    def _first_route(self, topic: str) -> TopicRoute:
        """Find a topic. While no broker answers, retry for max.block.ms."""
        deadline = Deadline(self._settings.max_block_ms, f"looking for topic {topic}")
        while True:
            try:
                return find_route(self.client, topic, deadline, create=True)
            except (Unreachable, ConnectionLost):
                if not deadline.allows(UNREACHABLE_PAUSE_S):
                    raise
            time.sleep(UNREACHABLE_PAUSE_S)

    def send(self, batch: Batch) -> None:
        """Queue a batch. Wait while the buffer is full.

        A send looks at every partition, so it is not done after every batch.
        """
        self.queues.add(batch)
        self._unsent_bytes += batch.size
        if not self.queues.in_flight or 2 * self._unsent_bytes > self._settings.max_request_bytes:
            self._unsent_bytes = 0
            self._send_ready(full_only=True)
        self._receive(0)
        while self.queues.queued_bytes > self._settings.buffer_bytes // 2:
            self._advance()

    def flush(self) -> None:
        """Wait until every batch is stored."""
        while self.queues.queued_bytes:
            self._advance()

    def _advance(self) -> None:
        self._send_ready(full_only=False)
        now = time.monotonic()
        pause_s = self.queues.resume_at(now) - now
        if self.queues.in_flight:
            self._receive(pause_s or None)
        else:
            time.sleep(pause_s)

    def _send_ready(self, *, full_only: bool) -> None:
        """Send batches. With `full_only`, send no small request to a busy broker."""
        if self.queues.must_renew and not self.queues.in_flight:
            self.queues.renew(*self._new_producer())
        by_leader: defaultdict[int, list[PartitionQueue]] = defaultdict(list)
        sendable = self.queues.sendable(time.monotonic())
        if self.transaction is not None:
            self.transaction.add(queue.partition for queue in sendable)
        for queue in sendable:
            leader = self._leader_of(queue)
            if leader != NO_NODE:
                by_leader[leader].append(queue)
        for leader, queues in by_leader.items():
            self._send_to(leader, queues, full_only)

    def _new_producer(self) -> tuple[int, int]:
        if self._transactional_id is None:
            deadline = Deadline(self._settings.delivery_timeout_ms, "asking for a producer id")
            return new_producer_id(self.client, deadline, _NO_IDEMPOTENCE)
        self.transaction = TaskTransaction(
            self.client, self._transactional_id, self._settings.transaction_timeout_ms
        )
        return self.transaction.producer.producer_id, self.transaction.producer.producer_epoch

    def _leader_of(self, queue: PartitionQueue) -> int:
        """Return the leader of a queue's partition. Pause the queue if there is none."""
        topic, partition = queue.partition
        reason = None
        if topic in self.queues.stale or topic not in self._routes:
            reason = self._refresh_route(topic)
        route = self._routes.get(topic)
        leader = NO_NODE if route is None else route.leaders.get(partition, NO_NODE)
        if leader != NO_NODE and reason is None:
            return leader
        result = BatchResult(ErrorCode.LEADER_NOT_AVAILABLE, reason)
        self.queues.postpone(queue, result, time.monotonic())
        return NO_NODE

    def _refresh_route(self, topic: str) -> str | None:
        """Look up the leaders of a topic. Return the reason if that failed for now."""
        deadline = Deadline(REFRESH_TIMEOUT_MS, f"looking for the leaders of {topic}")
        try:
            self._routes[topic] = find_route(self.client, topic, deadline)
        except (Unreachable, ConnectionLost, TimedOut) as error:
            return str(error)
        except Refused as error:
            if error.code not in TEMPORARY:
                raise
            return str(error)
        self.queues.stale.discard(topic)
        return None

    def _send_to(self, leader: int, queues: Sequence[PartitionQueue], full_only: bool) -> None:
        node = self._nodes[leader]
        enough = self._settings.max_request_bytes // 2 if full_only else 0
        while len(node.requests) < self._settings.max_in_flight:
            picked = self.queues.pick(queues)
            size = sum(batch.size for batch in picked)
            if not picked or (node.requests and size < enough):
                return
            self._send_request(leader, node, picked)

    def _send_request(self, leader: int, node: _Node, batches: list[Batch]) -> None:
        deadline = self.client.deadline(f"producing to broker {leader}")
        node.requests.append(_Request(batches, deadline))
        self.queues.mark_sent(batches)
        request = produce_request(self._settings, batches, self._routes, self._transactional_id)
        try:
            if node.connection is None:
                node.connection = self.client.dedicated(leader, deadline)
                check_codec(node.connection, self._settings.codec)
            node.connection.send(
                request,
                deadline,
                at_most=highest_version(
                    batches, self._routes, transactional=self._transactional_id is not None
                ),
                answered=self._settings.acks != 0,
            )
        except (Unreachable, ConnectionLost, TimedOut, Refused) as error:
            self._drop_connection(node, error)
            return
        if self._settings.acks == 0:
            self._handle_results(node.requests.pop(), {}, BatchResult(ErrorCode.NONE, None))

    def _receive(self, timeout_s: float | None) -> None:
        """Handle responses until `timeout_s`, by default until the oldest request times out."""
        nodes = {node.connection: node for node in self._nodes.values() if node.requests}
        connections = [connection for connection in nodes if connection is not None]
        if not connections:
            return
        left_s = min(_left_s(node.requests[0].deadline) for node in nodes.values())
        wait_s = left_s if timeout_s is None else min(left_s, timeout_s)
        for connection in ready(connections, wait_s):
            self._receive_from(connection, nodes[connection])
        for node in nodes.values():
            if node.requests and not node.requests[0].deadline.allows(0):
                late = node.requests[0].deadline
                error = TimedOut(f"{late.purpose} took longer than {late.timeout_ms / 1000:g} s")
                self._drop_connection(node, error)

    def _receive_from(self, connection: Connection, node: _Node) -> None:
        request = node.requests[0]
        try:
            response = connection.receive(ProduceResponse, request.deadline)
        except (ConnectionLost, TimedOut) as error:
            self._drop_connection(node, error)
            return
        node.requests.popleft()
        missing = BatchResult(ErrorCode.NETWORK_EXCEPTION, "the response has no result for it")
        self._handle_results(request, results_of(response, self._routes), missing)

    def _drop_connection(self, node: _Node, error: ClientError) -> None:
        """Close a connection. Batches in flight on it may or may not be stored, so retry them."""
        if node.connection is not None:
            node.connection.close()
            node.connection = None
        requests = list(node.requests)
        node.requests.clear()
        for request in requests:
            self._handle_results(request, {}, BatchResult(ErrorCode.NETWORK_EXCEPTION, str(error)))

    def _handle_results(
        self, request: _Request, results: dict[TopicPartition, BatchResult], otherwise: BatchResult
    ) -> None:
        now = time.monotonic()
        for batch in request.batches:
            self.queues.handle_result(batch, results.get(batch.partition, otherwise), now)


def _left_s(deadline: Deadline) -> float:
    return deadline.remaining_s() if deadline.allows(0) else 0.0
