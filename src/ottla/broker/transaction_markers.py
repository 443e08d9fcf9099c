"""Writes the markers that end transactions: WriteTxnMarkers, from other brokers or from this one.

Each marker is a control batch, appended with acks=all. The markers for one log are written with one
call. Those for many logs are written some with each step, because a write takes longer than an
append. The answer has a code for each partition, and comes when all markers are committed or
refused, or when the time is over.

A high watermark that advances ends all that waits for it in one wake-up. So a request with very
many markers waits for the first ones before it writes more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker.step_imports import GROUPS, import_in_steps
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import OFFSETS_TOPIC
from ottla.model.steps import Steps, Wait
from ottla.model.transactions import TransactionEnd
from ottla.records.control import ControlType, build_marker
from ottla.wire.lazy_list import LazyList
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

TIMEOUT_MS: Final = 30_000
MOST_OPEN: Final = 500
"""How many markers of a request may be uncommitted before it waits."""
_PARTITIONS_A_STEP: Final = 10

_Codes: TypeAlias = dict[int, ErrorCode]
MarkerResults: TypeAlias = dict[int, dict[str, _Codes]]
"""The results so far, by producer id, topic and partition."""
Done: TypeAlias = Callable[[MarkerResults], None]
MarkerWriter: TypeAlias = Callable[[int, TransactionEnd, Callable[[ErrorCode], None]], None]
"""Writes a marker to a partition of an internal topic, or raises ApiError or OSError."""


def write_markers(node: Node, request: WriteTxnMarkersRequest, done: Done) -> None:
    """Write markers to partitions that this broker leads; `done` is called once, or at once."""
    node.sliced_work.run(_MarkerWrites(node, done).write(request))


def append_marker(
    node: Node, topic: str, index: int, end: TransactionEnd, done: Callable[[ErrorCode], None]
) -> None:
    """Append a marker; `done` gets NONE once it is committed. Raise ApiError or OSError."""
    partition = node.topics.partition_named(topic, index)
    batch = build_marker(
        ControlType.COMMIT if end.is_commit else ControlType.ABORT,
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        coordinator_epoch=end.coordinator_epoch,
        timestamp=node.wall_ms,
    )
    node.append_transactional(partition, batch, done, transaction_version=end.transaction_version)


class _MarkerWrites:
    """The markers of one request."""

    def __init__(self, node: Node, done: Done) -> None:
        self._node = node
        self._done: Done | None = done
        self._results: MarkerResults = {}
        self._open = 1  # one more, until all are appended
        self._all_appended = False
        self._is_late = False
        self._is_large = False
        self._wait: Wait | None = None
        self._timer = node.timers.at(node.monotonic_ms + TIMEOUT_MS, self._time_out)

    def write(self, request: WriteTxnMarkersRequest) -> Steps[None]:
        number = 0
        if _has_many(request):
            self._is_large = True
            self._node.pause_collection(True)
        for marker in request.markers:
            end = _end_of(marker)
            for topic in marker.topics:
                if topic.name == OFFSETS_TOPIC and self._node.started_groups is None:
                    yield from import_in_steps(GROUPS)
                for index in dict.fromkeys(topic.partition_indexes):
                    self._write(topic.name, index, end)
                    number += 1
                    if not number % _PARTITIONS_A_STEP:
                        if len(self._node.appended) >= _PARTITIONS_A_STEP:
                            self._node.write_appended()
                        yield
                    if self._open > MOST_OPEN and not self._is_late:
                        self._wait = Wait()
                        yield self._wait
                yield
            yield
        self._all_appended = True
        self._close_one()
        if self._is_late:
            self._answer()

    def _write(self, topic: str, index: int, end: TransactionEnd) -> None:
        codes = self._results.setdefault(end.producer_id, {}).setdefault(topic, {})
        codes[index] = ErrorCode.REQUEST_TIMED_OUT  # as long as nothing else is known
        self._open += 1

        def written(code: ErrorCode) -> None:
            codes[index] = code
            self._close_one()

        node = self._node
        try:
            writer = _writer(node, topic)
            if writer is not None:
                writer(index, end, written)
            else:
                append_marker(node, topic, index, end, written)
        except ApiError as error:
            written(error.code)
        except OSError as problem:
            partition = node.topics.partition_named(topic, index)
            written(node.storage_failed(partition, problem)[0])

    def _close_one(self) -> None:
        self._open -= 1
        if not self._open:
            self._answer()
        elif self._wait is not None and self._open <= MOST_OPEN // 2:
            self._go_on()

    def _go_on(self) -> None:
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.end()

    def _time_out(self) -> None:
        """Answer with what is known, after the rest is appended too."""
        self._is_late = True
        if self._all_appended:
            self._answer()
        else:
            self._go_on()

    def _answer(self) -> None:
        self._timer.cancel()
        if self._is_large:
            self._is_large = False
            self._node.pause_collection(False)
        done, self._done = self._done, None
        if done is not None:
            done(self._results)


def _has_many(request: WriteTxnMarkersRequest) -> bool:
    """Return True if the logs get more new objects than a garbage collection should look at."""
    return sum(len(t.partition_indexes) for m in request.markers for t in m.topics) > MOST_OPEN


def _writer(node: Node, topic: str) -> MarkerWriter | None:
    if topic == OFFSETS_TOPIC:
        _ = node.groups  # which says who writes its markers
    return node.marker_writers.get(topic)


def _end_of(marker: WritableTxnMarker) -> TransactionEnd:
    return TransactionEnd(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )


def markers_response(results: MarkerResults) -> WriteTxnMarkersResponse:
    """Return the response with these results."""
    return WriteTxnMarkersResponse(markers=LazyList(_of_producer, list(results.items())))


def _of_producer(result: tuple[int, dict[str, _Codes]]) -> WritableTxnMarkerResult:
    producer_id, topics = result
    return WritableTxnMarkerResult(
        producer_id=producer_id, topics=LazyList(_of_topic, list(topics.items()))
    )


def _of_topic(result: tuple[str, _Codes]) -> WritableTxnMarkerTopicResult:
    topic, codes = result
    return WritableTxnMarkerTopicResult(
        name=topic, partitions=LazyList(_of_partition, list(codes.items()))
    )


def _of_partition(result: tuple[int, ErrorCode]) -> WritableTxnMarkerPartitionResult:
    index, code = result
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
