"""A consumer without a group: reads partitions of a topic from given offsets.

Each leader has its own connection with one fetch in flight, so a leader without new records
does not delay the others. If a leader changes or does not answer, the consumer looks it up
again, within the client's timeout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ottla.client.cluster import NO_NODE, Client
from ottla.client.connection import Connection, ready
from ottla.client.consumer.fetched_records import Fetched, read_fetched
from ottla.client.deadline import Deadline
from ottla.client.errors import (
    RETRIABLE,
    ConnectionLost,
    ProtocolViolation,
    Refused,
    Unreachable,
    check,
)
from ottla.client.topics.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from ottla.client.topics.route import TopicRoute, find_route
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, TopicPartition
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

MAX_BYTES = 16 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024
MAX_WAIT_MS = 500
NO_SESSION = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
_STALE_ROUTE = RETRIABLE | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}


class Consumer:
    """Reads partitions from `positions`. Calls `on_jump` for an offset that no longer exists.

    With `read_committed`, records of open and aborted transactions are left out.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        positions: Mapping[int, int],
        on_jump: Callable[[int, int, int], None],
        *,
        read_committed: bool = False,
    ) -> None:
        self.topic = topic
        self.positions = dict(positions)
        self._client = client
        self._on_jump = on_jump
        self._read_committed = read_committed
        self._route: TopicRoute | None = None
        self._connections: dict[int, Connection] = {}

    def close(self) -> None:
        """Close the connections of this consumer. The client stays open."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def poll(self, timeout_ms: float) -> list[Fetched]:
        """Return new records, or an empty list if none arrive within `timeout_ms`."""
        self._send_fetches()
        waiting = list(self._connections.values())
        arrived = ready(waiting, timeout_ms / 1000)
        return [fetched for connection in arrived for fetched in self._receive(connection)]

    def _send_fetches(self) -> None:
        """Send a fetch to every leader that has none in flight. Look leaders up as needed."""
        deadline = self._client.deadline(f"finding the leaders of {self.topic}")

        def ask() -> None:
            if self._route is None:
                self._route = find_route(self._client, self.topic, deadline)
            for leader, partitions in self._by_leader(self._route).items():
                self._send_fetch(leader, partitions, self._route, deadline)

        self._client.retry(self._forgetting_route(ask), deadline, harmless_twice=True)

    def _forgetting_route(self, ask: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                ask()
            except (Unreachable, ConnectionLost, Refused):
                self._forget_route()
                raise

        return guarded

    def _forget_route(self) -> None:
        self._route = None
        self.close()

    def _by_leader(self, route: TopicRoute) -> dict[int, list[int]]:
        by_leader: defaultdict[int, list[int]] = defaultdict(list)
        for partition in self.positions:
            leader = route.leaders.get(partition, NO_NODE)
            if leader == NO_NODE:
                raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{self.topic}-{partition}")
            by_leader[leader].append(partition)
        return by_leader

    def _send_fetch(
        self, leader: int, partitions: Iterable[int], route: TopicRoute, deadline: Deadline
    ) -> None:
        connection = self._connections.get(leader)
        if connection is None:
            connection = self._client.dedicated(leader, deadline)
            self._connections[leader] = connection
        if connection.pending == 0:
            request = self._fetch_request(partitions, route)
            connection.send(request, deadline, at_most=route.highest_version)

    def _fetch_request(self, partitions: Iterable[int], route: TopicRoute) -> FetchRequest:
        asked = [
            FetchPartition(
                partition=partition,
                fetch_offset=self.positions[partition],
                partition_max_bytes=PARTITION_MAX_BYTES,
            )
            for partition in partitions
        ]
        topic = FetchTopic(topic=self.topic, topic_id=route.topic_id, partitions=asked)
        return FetchRequest(
            max_wait=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=READ_COMMITTED if self._read_committed else READ_UNCOMMITTED,
            session_epoch=NO_SESSION,
            topics=[topic],
        )

    def _receive(self, connection: Connection) -> list[Fetched]:
        deadline = self._client.deadline(f"fetching from {self.topic}")
        try:
            response = connection.receive(FetchResponse, deadline)
        except ConnectionLost:
            self._forget_route()
            return []
        check(response.error_code, f"fetching from {self.topic}")
        found = [data for topic in response.responses for data in topic.partitions]
        fetched = [self._take(data) for data in found]
        # For fairness, ask last for the partitions that were returned first.
        for data in found:
            self.positions[data.partition_index] = self.positions.pop(data.partition_index)
        return [part for part in fetched if part is not None and part.records]

    def _take(self, data: PartitionData) -> Fetched | None:
        partition = data.partition_index
        if partition not in self.positions:
            raise ProtocolViolation(
                f"the broker sent partition {partition}, which was not requested"
            )
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._jump(partition)
            return None
        if data.error_code in _STALE_ROUTE:
            self._forget_route()
            return None
        check(data.error_code, f"{self.topic}-{partition}")
        fetched = read_fetched(
            data.records or b"",
            self.topic,
            partition,
            self.positions[partition],
            data.aborted_transactions or (),
        )
        self.positions[partition] = fetched.next_offset
        return fetched

    def _jump(self, partition: int) -> None:
        """Continue at the nearest offset: the log was truncated, or records expired."""
        deadline = self._client.deadline(f"finding offsets of {self.topic}")
        earliest = start_offsets(
            self._client, self.topic, [partition], EARLIEST_TIMESTAMP, deadline
        )
        latest = start_offsets(
            self._client,
            self.topic,
            [partition],
            LATEST_TIMESTAMP,
            deadline,
            read_committed=self._read_committed,
        )
        position = self.positions[partition]
        nearest = max(earliest[partition], min(position, latest[partition]))
        self.positions[partition] = nearest
        if nearest != position:
            self._on_jump(partition, position, nearest)


def start_offsets(
    client: Client,
    topic: str,
    partitions: Iterable[int],
    timestamp: int,
    deadline: Deadline,
    *,
    read_committed: bool = False,
) -> dict[int, int]:
    """Return the offset for `timestamp` in each partition; the end if no record is that late.

    With `read_committed`, the end is the last stable offset.
    """
    wanted = list(partitions)

    def ask() -> dict[int, int]:
        route = find_route(client, topic, deadline)
        leaders = {TopicPartition(topic, p): route.leaders.get(p, NO_NODE) for p in wanted}
        answers = list_offsets(client, leaders, timestamp, deadline, read_committed=read_committed)
        for partition, answer in answers.items():
            check(answer.error_code, str(partition))
        return {partition.partition: answer.offset for partition, answer in answers.items()}

    offsets = client.retry(ask, deadline, harmless_twice=True)
    late = [partition for partition, offset in offsets.items() if offset == NO_OFFSET]
    if late:
        offsets |= start_offsets(
            client, topic, late, LATEST_TIMESTAMP, deadline, read_committed=read_committed
        )
    return offsets
