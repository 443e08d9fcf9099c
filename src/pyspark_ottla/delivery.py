"""Delivering batches to the leaders of their partitions until they are stored.

Several requests are under way to each broker. One thread, blocking sockets: answers are read
between sends, and waited for when too many bytes are not stored. What an answer means, and
the order of batches, is decided in `queues`.
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
from pyspark_ottla.batches import Batch
from pyspark_ottla.produce_request import Answer, answers_of, highest_version, produce_request
from pyspark_ottla.queues import PASSING, Queue, Queues
from pyspark_ottla.sink_settings import SinkSettings

REFRESH_TIMEOUT_MS = 2_000
UNREACHABLE_PAUSE_S = 0.2
_NO_IDEMPOTENCE = "kafka.enable.idempotence=false needs none"


class _Request(NamedTuple):
    batches: list[Batch]
    deadline: Deadline


class _Node:
    """A broker: its connection, and the requests that wait for its answers."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.requests: deque[_Request] = deque()


class Delivery:
    """Sends batches and keeps them until they are stored; an error that it raises ends it."""

    def __init__(self, settings: SinkSettings) -> None:
        self.queues = Queues(settings)
        self._client = settings.client.connect()
        self._settings = settings
        self._routes: dict[str, TopicRoute] = {}
        self._nodes: defaultdict[int, _Node] = defaultdict(_Node)
        self._since_sent = 0  # bytes: with many partitions, not every batch is worth a look

    def close(self) -> None:
        """Close every connection; what is not stored is given up."""
        for node in self._nodes.values():
            if node.connection is not None:
                node.connection.close()
        self._nodes.clear()
        self._client.close()

    def forget_routes(self) -> None:
        """Look topics up again when they are next needed."""
        self._routes.clear()

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; it is created if the broker does that."""
        if topic not in self._routes:
            self._routes[topic] = self._first_route(topic)
        return len(self._routes[topic].leaders)

    def _first_route(self, topic: str) -> TopicRoute:
        """Find a topic, waiting for brokers that do not answer as long as max.block.ms allows."""
        deadline = Deadline(self._settings.max_block_ms, f"looking for topic {topic}")
        while True:
            try:
                return find_route(self._client, topic, deadline, create=True)
            except (Unreachable, ConnectionLost):
                if not deadline.allows(UNREACHABLE_PAUSE_S):
                    raise
            time.sleep(UNREACHABLE_PAUSE_S)

    def put(self, batch: Batch) -> None:
        """Take a batch for delivery; waits while too much is not stored yet."""
        self.queues.add(batch)
        self._since_sent += batch.size
        if not self.queues.under_way or 2 * self._since_sent > self._settings.max_request_bytes:
            self._since_sent = 0
            self._send(full_only=True)
        self._receive(0)
        while self.queues.kept_bytes > self._settings.buffer_bytes // 2:
            self._advance()

    def flush(self) -> None:
        """Wait until every batch is stored."""
        while self.queues.kept_bytes:
            self._advance()

    def _advance(self) -> None:
        self._send(full_only=False)
        now = time.monotonic()
        pause_s = self.queues.resume_at(now) - now
        if self.queues.under_way:
            self._receive(pause_s or None)
        else:
            time.sleep(pause_s)

    def _send(self, *, full_only: bool) -> None:
        """Send what may be sent; with `full_only`, no small request to a busy broker."""
        if self.queues.must_renew and not self.queues.under_way:
            deadline = Deadline(self._settings.delivery_timeout_ms, "asking for a producer id")
            self.queues.renew(*new_producer_id(self._client, deadline, _NO_IDEMPOTENCE))
        by_leader: defaultdict[int, list[Queue]] = defaultdict(list)
        for queue in self.queues.sendable(time.monotonic()):
            leader = self._leader_of(queue)
            if leader != NO_NODE:
                by_leader[leader].append(queue)
        for leader, queues in by_leader.items():
            self._send_to(leader, queues, full_only)

    def _leader_of(self, queue: Queue) -> int:
        """The leader of a queue's partition; a queue without one pauses."""
        topic, partition = queue.partition
        reason = None
        if topic in self.queues.stale or topic not in self._routes:
            reason = self._look_up(topic)
        route = self._routes.get(topic)
        leader = NO_NODE if route is None else route.leaders.get(partition, NO_NODE)
        if leader != NO_NODE and reason is None:
            return leader
        answer = Answer(ErrorCode.LEADER_NOT_AVAILABLE, reason)
        self.queues.postpone(queue, answer, time.monotonic())
        return NO_NODE

    def _look_up(self, topic: str) -> str | None:
        """Find the topic's leaders; why that failed, if it may succeed later."""
        deadline = Deadline(REFRESH_TIMEOUT_MS, f"looking for the leaders of {topic}")
        try:
            self._routes[topic] = find_route(self._client, topic, deadline)
        except (Unreachable, ConnectionLost, TimedOut) as error:
            return str(error)
        except Refused as error:
            if error.code not in PASSING:
                raise
            return str(error)
        self.queues.stale.discard(topic)
        return None

    def _send_to(self, leader: int, queues: Sequence[Queue], full_only: bool) -> None:
        node = self._nodes[leader]
        enough = self._settings.max_request_bytes // 2 if full_only else 0
        while len(node.requests) < self._settings.max_in_flight:
            picked = self.queues.pick(queues)
            size = sum(batch.size for batch in picked)
            if not picked or (node.requests and size < enough):
                return
            self._request(leader, node, picked)

    def _request(self, leader: int, node: _Node, batches: list[Batch]) -> None:
        deadline = self._client.deadline(f"producing to broker {leader}")
        node.requests.append(_Request(batches, deadline))
        self.queues.mark_sent(batches)
        request = produce_request(self._settings, batches, self._routes)
        try:
            if node.connection is None:
                node.connection = self._client.dedicated(leader, deadline)
                check_codec(node.connection, self._settings.codec)
            node.connection.send(
                request,
                deadline,
                at_most=highest_version(batches, self._routes),
                answered=self._settings.acks != 0,
            )
        except (Unreachable, ConnectionLost, TimedOut, Refused) as error:
            self._lose(node, error)
            return
        if self._settings.acks == 0:
            self._settle(node.requests.pop(), {}, Answer(ErrorCode.NONE, None))

    def _receive(self, timeout_s: float | None) -> None:
        """Handle what arrives within the time, by default that of the oldest request."""
        nodes = {node.connection: node for node in self._nodes.values() if node.requests}
        connections = [connection for connection in nodes if connection is not None]
        if not connections:
            return
        left_s = min(_left_s(node.requests[0].deadline) for node in nodes.values())
        wait_s = left_s if timeout_s is None else min(left_s, timeout_s)
        for connection in ready(connections, wait_s):
            self._take_answer(connection, nodes[connection])
        for node in nodes.values():
            if node.requests and not node.requests[0].deadline.allows(0):
                late = node.requests[0].deadline
                error = TimedOut(f"{late.purpose} took longer than {late.timeout_ms / 1000:g} s")
                self._lose(node, error)

    def _take_answer(self, connection: Connection, node: _Node) -> None:
        request = node.requests[0]
        try:
            response = connection.receive(ProduceResponse, request.deadline)
        except (ConnectionLost, TimedOut) as error:
            self._lose(node, error)
            return
        node.requests.popleft()
        missing = Answer(ErrorCode.NETWORK_EXCEPTION, "the broker did not answer for it")
        self._settle(request, answers_of(response, self._routes), missing)

    def _lose(self, node: _Node, error: ClientError) -> None:
        """Give up a connection; what was under way on it may or may not be stored."""
        if node.connection is not None:
            node.connection.close()
            node.connection = None
        requests = list(node.requests)
        node.requests.clear()
        for request in requests:
            self._settle(request, {}, Answer(ErrorCode.NETWORK_EXCEPTION, str(error)))

    def _settle(
        self, request: _Request, answers: dict[TopicPartition, Answer], otherwise: Answer
    ) -> None:
        now = time.monotonic()
        for batch in request.batches:
            self.queues.settle(batch, answers.get(batch.partition, otherwise), now)


def _left_s(deadline: Deadline) -> float:
    return deadline.remaining_s() if deadline.allows(0) else 0.0
