"""Fetches raw batches of ranges from the brokers that have them (Fetch, KIP-74, KIP-392).

One fetch per broker is under way at any time, for as many of its ranges as the request's limit
of bytes may serve. A response is received a window at a time, each decoded before the next is
received, while the broker goes on sending; with the last of them the next fetch is sent, before
anyone looks at the records in it. A partition stands in a request once, so two ranges of one
partition are fetched one after the other.

A range is covered when a batch reached its end, or when the log's end is past it and there was
nothing. What may pass (a leader that moved, a broker that went away) is tried again for as long
as the client's request timeout; an answer with records starts that time anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ottla.client.cluster import NO_NODE, Client
from ottla.client.connection import MAX_RESPONSE_BYTES, Connection, ready
from ottla.client.deadline import Deadline
from ottla.client.errors import (
    RETRIABLE,
    ClientError,
    ProtocolViolation,
    Refused,
    TimedOut,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from pyspark_ottla.fetch_response import FetchResponseReader
from pyspark_ottla.leaders import PASSING, Leaders, without_leader
from pyspark_ottla.lost import lose
from pyspark_ottla.out_of_range import find_loss
from pyspark_ottla.position import Position
from pyspark_ottla.ranges import OffsetRange
from pyspark_ottla.read_settings import ReadSettings
from pyspark_ottla.section import Section
from pyspark_ottla.transactions import Aborted, AbortedFilter
from pyspark_ottla.window import Window

NO_SESSION: Final = -1
READ_COMMITTED: Final = 1
LAST_VERSION_WITH_NAMES: Final = 12
RANGES_PER_FETCH: Final = 64
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
_MOVED: Final = RETRIABLE | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}


class _Asked:
    """A fetch under way: what it asked for, by topic name or id, and when."""

    def __init__(self, positions: Sequence[Position], topic_ids: dict[str, bytes]) -> None:
        self.positions = positions
        self.since = time.monotonic()
        self._by_name = {(p.range.topic, p.range.partition): p for p in positions}
        self._names = {topic_ids[p.range.topic]: p.range.topic for p in positions}

    def find(self, topic: str, topic_id: bytes, partition: int) -> Position:
        """The position an answer is about; ProtocolViolation if it was not asked for."""
        name = topic or self._names.get(topic_id, "")
        position = self._by_name.pop((name, partition), None)
        if position is None:
            raise ProtocolViolation(f"the broker sent partition {partition}, not asked for")
        return position


class RangeFetcher:
    """Fetches ranges until all of them are covered; blocking, one thread."""

    def __init__(
        self, client: Client, ranges: Iterable[OffsetRange], settings: ReadSettings
    ) -> None:
        self._client = client
        self._settings = settings
        self._positions = [Position(wanted) for wanted in ranges]
        self._timeout_ms = settings.client.request_timeout_ms
        self._leaders = Leaders(
            client, timeout_ms=self._timeout_ms, fail_on_data_loss=settings.fail_on_data_loss
        )
        self._connections: dict[int, Connection] = {}
        self._asked: dict[int, _Asked] = {}
        self._window = Window()
        self._pause_s = FIRST_PAUSE_S
        self._look_up_at = 0.0

    def close(self) -> None:
        """Close the connections that fetch; the client stays open."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def sections(self) -> Iterator[Section]:
        """What comes, until every range is covered; each is good until the next is asked for."""
        while True:
            self._send_all()
            if not self._positions:
                return
            node = self._next_ready()
            if node is not None:
                yield from self._receive(node)

    def _send_all(self) -> None:
        self._positions = [position for position in self._positions if not position.done]
        lost = without_leader(self._positions)
        if lost and time.monotonic() >= self._look_up_at:
            self._leaders.look_up(lost)
            self._pause(without_leader(lost))
        by_node: dict[int, list[Position]] = {}
        for position in self._positions:
            if position.node not in self._asked:
                by_node.setdefault(position.node, []).append(position)
        by_node.pop(NO_NODE, None)
        for node, positions in by_node.items():
            self._send(node, [p for p in positions if not p.done])

    def _pause(self, without: Sequence[Position]) -> None:
        """Wait before the next look-up, longer each time one leaves somebody without leader."""
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if without else FIRST_PAUSE_S
        self._look_up_at = time.monotonic() + (self._pause_s if without else 0)

    def _send(self, node: int, positions: Sequence[Position]) -> None:
        chosen: dict[tuple[str, int], Position] = {}
        for position in positions:
            chosen.setdefault((position.range.topic, position.range.partition), position)
            if len(chosen) == RANGES_PER_FETCH:
                break
        if not chosen:
            return
        asked = list(chosen.values())
        deadline = Deadline(self._timeout_ms, f"fetching from broker {node}")
        try:
            if node not in self._connections:
                self._connections[node] = self._client.dedicated(node, deadline)
            request, at_most = self._request(asked)
            self._connections[node].send(request, deadline, at_most=at_most)
            self._asked[node] = _Asked(asked, self._leaders.topic_ids)
        except PASSING as error:
            self._lose_node(node, asked, error)

    def _request(self, positions: Sequence[Position]) -> tuple[FetchRequest, int | None]:
        limit = min(self._settings.max_partition_fetch_bytes, self._settings.fetch_max_bytes)
        topics: dict[str, list[FetchPartition]] = {}
        for position in positions:
            asked = FetchPartition(
                partition=position.range.partition,
                fetch_offset=position.offset,
                partition_max_bytes=position.bytes_to_ask(limit),
            )
            topics.setdefault(position.range.topic, []).append(asked)
        ids = self._leaders.topic_ids
        request = FetchRequest(
            max_wait=self._settings.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=max(self._settings.fetch_max_bytes, *(p.least_bytes for p in positions), 1),
            isolation_level=READ_COMMITTED if self._settings.read_committed else 0,
            session_epoch=NO_SESSION,
            rack_id=self._settings.client.client_rack,
            topics=[
                FetchTopic(topic=name, topic_id=ids[name], partitions=asked)
                for name, asked in topics.items()
            ],
        )
        named = any(ids[name] == ZERO_UUID for name in topics)
        return request, LAST_VERSION_WITH_NAMES if named else None

    def _next_ready(self) -> int | None:
        """A broker whose response begins to arrive; None when it is time to look leaders up."""
        now = time.monotonic()
        if not self._asked:
            if self._positions:
                time.sleep(max(0.0, min(self._look_up_at - now, LONGEST_PAUSE_S)))
            return None
        timeout_s = self._timeout_ms / 1000
        until = min(asked.since for asked in self._asked.values()) + timeout_s
        if without_leader(self._positions):
            until = min(until, self._look_up_at)
        nodes = {self._connections[node]: node for node in self._asked}
        answering = [nodes[each] for each in ready(list(nodes), max(0.0, until - now))]
        if answering:
            # The one that waits longest: a busy broker must not keep others from being heard.
            return min(answering, key=lambda node: self._asked[node].since)
        for node, asked in list(self._asked.items()):
            if time.monotonic() - asked.since >= timeout_s:
                purpose = f"broker {node} did not answer a fetch within {timeout_s:g} s"
                self._lose_node(node, asked.positions, TimedOut(purpose))
        return None

    def _lose_node(self, node: int, positions: Iterable[Position], error: ClientError) -> None:
        """A broker cannot be asked: look up who has its partitions."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()
        self._asked.pop(node, None)
        for position in positions:
            position.failed(error, self._timeout_ms)
            position.forget_leader()
        self._look_up_at = time.monotonic() + self._pause_s

    def _receive(self, node: int) -> Iterator[Section]:
        asked = self._asked.pop(node)
        purpose = f"fetching from broker {node}"
        others: list[tuple[Position, PartitionData]] = []
        held: list[Section] = []
        try:
            response = self._connections[node].receive_open(Deadline(self._timeout_ms, purpose))
            self._window.open(response, lambda: Deadline(self._timeout_ms, purpose))
            reader = FetchResponseReader(response, self._window)
            for topic, data in reader.partitions(purpose):
                position = asked.find(topic.topic, topic.topic_id, data.partition_index)
                _follow_preference(position, data)
                if data.error_code or not reader.has_records:
                    others.append((position, data))
                    continue
                for section in self._take_records(position, data, reader):
                    if reader.is_here:
                        held.append(section)
                    else:
                        yield section
        except PASSING as error:
            self._lose_node(node, asked.positions, error)
        else:
            for position, data in others:
                self._take(position, data, is_empty=len(others) == reader.answers)
        # All is here: the broker goes on with the next while these are decoded.
        self._send_all()
        yield from held

    def _take(self, position: Position, data: PartitionData, *, is_empty: bool) -> None:
        """An answer without records."""
        code = data.error_code
        name = f"{position.range.topic}-{position.range.partition}"
        if code == ErrorCode.NONE:
            if is_empty and not position.is_at_follower:
                self._nothing_there(position, data)
        elif position.is_at_follower:
            position.back_to_leader()
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(position)
        elif code in _MOVED:
            position.failed(Refused(code, name), self._timeout_ms)
            position.forget_leader()
            self._look_up_at = time.monotonic() + self._pause_s
        else:
            raise Refused(code, f"reading {name} at offset {position.offset}")

    def _take_records(
        self, position: Position, data: PartitionData, reader: FetchResponseReader
    ) -> Iterator[Section]:
        wanted = position.range
        aborted = data.aborted_transactions if self._settings.read_committed else None
        dropped = AbortedFilter(Aborted(a.first_offset, a.producer_id) for a in aborted or ())
        for piece in reader.pieces():
            if piece.cut:
                _ask_for_more(position, piece.cut)
                return
            low = position.offset
            if not piece.is_sound:
                position.finish()  # the decoder says why, when what is before it is through
            elif piece.reached <= low:
                raise ProtocolViolation(
                    f"{wanted.topic}-{wanted.partition}: asked for offset {low},"
                    f" the broker sent records up to {piece.reached - 1}"
                )
            else:
                position.advance(piece.reached, len(piece.records))
            yield Section(wanted.topic, wanted.partition, piece.records, low, wanted.end, dropped)
            if position.done:
                return

    def _nothing_there(self, position: Position, data: PartitionData) -> None:
        """Nothing at the position although the broker looked: covered, or not there yet."""
        wanted = position.range
        stable, end = data.last_stable_offset, data.high_watermark
        reached = stable if self._settings.read_committed and stable >= 0 else end
        if reached >= wanted.end:
            position.finish()
        elif position.has_waited(self._timeout_ms):
            if end >= wanted.end:
                raise ClientError(
                    f"{wanted.topic}-{wanted.partition}: a transaction that is still open holds"
                    f" back the offsets from {reached} on; read when it has ended, or with"
                    " kafka.isolation.level=read_uncommitted"
                )
            why = f"the log ends at {end}: it was truncated, or the range was never written"
            lose(position, wanted.end, why, fail=self._settings.fail_on_data_loss)

    def _out_of_range(self, position: Position) -> None:
        try:
            loss = find_loss(self._client, position, self._timeout_ms)
        except PASSING as error:
            position.failed(error, self._timeout_ms)
            position.forget_leader()
            return
        if loss is not None:
            lose(position, loss.up_to, loss.why, fail=self._settings.fail_on_data_loss)


def _follow_preference(position: Position, data: PartitionData) -> None:
    """The leader may name a follower to read from, with records or without (KIP-392)."""
    replica = data.preferred_read_replica
    if data.error_code == ErrorCode.NONE and replica not in (NO_NODE, position.node):
        position.prefer(replica)


def _ask_for_more(position: Position, size: int) -> None:
    """The first batch did not fit in what was asked for."""
    if size > MAX_RESPONSE_BYTES or position.least_bytes >= MAX_RESPONSE_BYTES // 2:
        raise ProtocolViolation(
            f"{position.range}: a batch of {size} bytes at offset {position.offset}"
        )
    position.least_bytes = max(size, 2 * position.least_bytes)
