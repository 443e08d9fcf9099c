"""Fetches the raw batches of ranges from brokers (Fetch, KIP-74, KIP-392).

Each broker has at most one fetch in flight, for up to RANGES_PER_FETCH of its ranges. A response
is received a window at a time. Each window is decoded before the next one is received, while the
broker keeps sending. When the last window is here, the next fetch is sent before that window is
decoded. A request contains a partition once, so two ranges of one partition are fetched one after
the other.

A range is finished when a batch reaches its end, or when the log ends after it and the fetch
returned no records. After a temporary failure (a leader that moved, a broker that is down) the
fetch is retried for the client's request timeout. A response with records restarts that time.
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
from ottla.wire.messages.fetch import PartitionData
from pyspark_ottla.decode.aborted_transactions import AbortedFilter, AbortedTransaction
from pyspark_ottla.decode.decoder import FetchedBatches
from pyspark_ottla.fetch.fetch_request import fetch_request
from pyspark_ottla.fetch.fetch_response import FetchResponseReader
from pyspark_ottla.fetch.leaders import TEMPORARY, Leaders, without_leader
from pyspark_ottla.fetch.offset_range import OffsetRange
from pyspark_ottla.fetch.out_of_range import LostOffsets, find_lost, skip_or_fail
from pyspark_ottla.fetch.position import Position
from pyspark_ottla.fetch.window import Window
from pyspark_ottla.options.read_settings import ReadSettings

RANGES_PER_FETCH: Final = 64
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
_MOVED: Final = RETRIABLE | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}


class _InFlight:
    """A fetch without a response yet: its positions, by topic name or id, and when it was sent."""

    def __init__(self, positions: Sequence[Position], topic_ids: dict[str, bytes]) -> None:
        self.positions = positions
        self.sent_at = time.monotonic()
        self._by_name = {(p.range.topic, p.range.partition): p for p in positions}
        self._names = {topic_ids[p.range.topic]: p.range.topic for p in positions}

    def find(self, topic: str, topic_id: bytes, partition: int) -> Position:
        """Return the position of a partition. Raise ProtocolViolation if it was not asked for."""
        name = topic or self._names.get(topic_id, "")
        position = self._by_name.pop((name, partition), None)
        if position is None:
            raise ProtocolViolation(f"the broker sent partition {partition}, not asked for")
        return position


class RangeFetcher:
    """Fetches ranges until all of them are finished. It blocks, and uses one thread."""

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
        self._in_flight: dict[int, _InFlight] = {}
        self._window = Window()
        self._pause_s = FIRST_PAUSE_S
        self._look_up_at = 0.0

    def close(self) -> None:
        """Close the connections of fetches. The client stays open."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def fetch(self) -> Iterator[FetchedBatches]:
        """Yield fetched batches until every range is finished.

        Each item is valid until the next one is requested.
        """
        while True:
            self._send_all()
            if not self._positions:
                return
            node = self._next_ready()
            if node is not None:
                yield from self._receive(node)

    def _send_all(self) -> None:
        self._positions = [position for position in self._positions if not position.done]
        leaderless = without_leader(self._positions)
        if leaderless and time.monotonic() >= self._look_up_at:
            self._leaders.look_up(leaderless)
            self._pause(without_leader(leaderless))
        by_node: dict[int, list[Position]] = {}
        for position in self._positions:
            if position.node not in self._in_flight:
                by_node.setdefault(position.node, []).append(position)
        by_node.pop(NO_NODE, None)
        for node, positions in by_node.items():
            self._send(node, [p for p in positions if not p.done])

    def _pause(self, leaderless: Sequence[Position]) -> None:
        """Set the time of the next lookup: longer each time while positions have no leader."""
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if leaderless else FIRST_PAUSE_S
        self._look_up_at = time.monotonic() + (self._pause_s if leaderless else 0)

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
            request, at_most = fetch_request(self._settings, asked, self._leaders.topic_ids)
            self._connections[node].send(request, deadline, at_most=at_most)
            self._in_flight[node] = _InFlight(asked, self._leaders.topic_ids)
        except TEMPORARY as error:
            self._drop_node(node, asked, error)

    def _next_ready(self) -> int | None:
        """Wait for a response. Return its broker, or None if it is time to look up leaders."""
        now = time.monotonic()
        if not self._in_flight:
            if self._positions:
                time.sleep(max(0.0, min(self._look_up_at - now, LONGEST_PAUSE_S)))
            return None
        timeout_s = self._timeout_ms / 1000
        until = min(asked.sent_at for asked in self._in_flight.values()) + timeout_s
        if without_leader(self._positions):
            until = min(until, self._look_up_at)
        nodes = {self._connections[node]: node for node in self._in_flight}
        answering = [nodes[each] for each in ready(list(nodes), max(0.0, until - now))]
        if answering:
            # The oldest request first, so that a busy broker does not delay the others.
            return min(answering, key=lambda node: self._in_flight[node].sent_at)
        for node, asked in list(self._in_flight.items()):
            if time.monotonic() - asked.sent_at >= timeout_s:
                purpose = f"broker {node} did not answer a fetch within {timeout_s:g} s"
                self._drop_node(node, asked.positions, TimedOut(purpose))
        return None

    def _drop_node(self, node: int, positions: Iterable[Position], error: ClientError) -> None:
        """Close the connection to a broker, and look up the leaders of its partitions again."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()
        self._in_flight.pop(node, None)
        for position in positions:
            position.failed(error, self._timeout_ms)
            position.forget_leader()
        self._look_up_at = time.monotonic() + self._pause_s

    def _receive(self, node: int) -> Iterator[FetchedBatches]:
        asked = self._in_flight.pop(node)
        purpose = f"fetching from broker {node}"
        without_records: list[tuple[Position, PartitionData]] = []
        last_window: list[FetchedBatches] = []
        try:
            response = self._connections[node].receive_open(Deadline(self._timeout_ms, purpose))
            self._window.open(response, lambda: Deadline(self._timeout_ms, purpose))
            reader = FetchResponseReader(response, self._window)
            for topic, data in reader.partitions(purpose):
                position = asked.find(topic.topic, topic.topic_id, data.partition_index)
                _follow_preference(position, data)
                if data.error_code or not reader.has_records:
                    without_records.append((position, data))
                    continue
                for fetched in self._handle_records(position, data, reader):
                    if reader.is_complete:
                        last_window.append(fetched)
                    else:
                        yield fetched
        except TEMPORARY as error:
            self._drop_node(node, asked.positions, error)
        else:
            for position, data in without_records:
                is_empty = len(without_records) == reader.partition_count
                self._handle_empty(position, data, is_empty=is_empty)
        # The response is complete: send the next fetch, then decode the rest of this one.
        self._send_all()
        yield from last_window

    def _handle_empty(self, position: Position, data: PartitionData, *, is_empty: bool) -> None:
        """Handle a partition without records. `is_empty` means that no partition had records."""
        code = data.error_code
        name = f"{position.range.topic}-{position.range.partition}"
        if code == ErrorCode.NONE:
            if is_empty and not position.is_at_follower:
                self._no_records(position, data)
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

    def _handle_records(
        self, position: Position, data: PartitionData, reader: FetchResponseReader
    ) -> Iterator[FetchedBatches]:
        wanted = position.range
        aborted = data.aborted_transactions if self._settings.read_committed else None
        dropped = AbortedFilter(
            AbortedTransaction(a.first_offset, a.producer_id) for a in aborted or ()
        )
        for piece in reader.pieces():
            if piece.needed_bytes:
                _ask_for_more(position, piece.needed_bytes)
                return
            low = position.offset
            if not piece.is_valid:
                position.finish()  # the decoder raises the error, after the records before it
            elif piece.next_offset <= low:
                raise ProtocolViolation(
                    f"{wanted.topic}-{wanted.partition}: asked for offset {low},"
                    f" the broker sent records up to {piece.next_offset - 1}"
                )
            else:
                position.advance(piece.next_offset, len(piece.records))
            yield FetchedBatches(
                wanted.topic, wanted.partition, piece.records, low, wanted.end, dropped
            )
            if position.done:
                return

    def _no_records(self, position: Position, data: PartitionData) -> None:
        """Finish a range whose log has no more records, or wait for records that should follow."""
        wanted = position.range
        stable, end = data.last_stable_offset, data.high_watermark
        reached = stable if self._settings.read_committed and stable >= 0 else end
        if reached >= wanted.end:
            position.finish()
        elif position.has_waited(self._timeout_ms):
            if end >= wanted.end:
                raise ClientError(
                    f"{wanted.topic}-{wanted.partition}: a transaction that is still open blocks"
                    f" the offsets from {reached} on. Read after it has ended, or set"
                    " kafka.isolation.level=read_uncommitted"
                )
            reason = f"the log ends at {end}: it was truncated, or the range was never written"
            self._skip_or_fail(position, LostOffsets(wanted.end, reason))

    def _out_of_range(self, position: Position) -> None:
        try:
            lost = find_lost(self._client, position, self._timeout_ms)
        except TEMPORARY as error:
            position.failed(error, self._timeout_ms)
            position.forget_leader()
            return
        if lost is not None:
            self._skip_or_fail(position, lost)

    def _skip_or_fail(self, position: Position, lost: LostOffsets) -> None:
        skip_or_fail(position, lost, fail=self._settings.fail_on_data_loss)


def _follow_preference(position: Position, data: PartitionData) -> None:
    """Switch to the preferred replica if the leader named one (KIP-392).

    It may do so with or without records.
    """
    replica = data.preferred_read_replica
    if data.error_code == ErrorCode.NONE and replica not in (NO_NODE, position.node):
        position.prefer(replica)


def _ask_for_more(position: Position, size: int) -> None:
    """Ask for more bytes next time, because the first batch did not fit."""
    if size > MAX_RESPONSE_BYTES or position.least_bytes >= MAX_RESPONSE_BYTES // 2:
        raise ProtocolViolation(
            f"{position.range}: the broker announced a batch of {size} bytes at offset"
            f" {position.offset}, too large for a response"
        )
    position.least_bytes = max(size, 2 * position.least_bytes)
