"""Markers on their way to the partitions of decided transactions.

The markers of a wake-up that go to one broker travel together, in one WriteTxnMarkers. While a
broker has not answered, more markers for it are collected. A marker is sent again until its
partition has it, to whoever leads the partition then. That ends only if the topic is deleted, or
this broker no longer coordinates the transaction: its successor sends the markers again.

Thousands of transactions may end at once, and one may have thousands of partitions. So all work on
many markers is done in slices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeAlias

from ottla.coordinator.runtime.broker import Broker
from ottla.coordinator.transactions.broker import MarkerCodes, MarkerRoutes
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.steps import Steps
from ottla.ports import Response
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

RETRY_MS: Final = 50
"""The pause before a marker is sent again."""

REQUEST_TIMEOUT_MS: Final = 30_000
MAX_PARTITIONS: Final = 500
"""How many partitions one request names."""

_MARKERS_A_STEP: Final = 20

NO_LEADER: Final = -1

_DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        # The partition cannot have batches of a transaction.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        # The producer has a later epoch there. It got that after this transaction had ended.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Answers after which a partition needs no marker any more."""


class Markers:
    """The markers of one transaction: all that is needed to write them, and where they lack.

    `is_wanted` says whether this broker still coordinates the transaction. `complete` is called
    when every partition has its marker.
    """

    __slots__ = (
        "committed",
        "complete",
        "coordinator_epoch",
        "is_wanted",
        "left",
        "producer_epoch",
        "producer_id",
        "transaction_version",
    )

    def __init__(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        transaction_version: int,
        coordinator_epoch: Callable[[], int],
        partitions: Iterable[TopicPartition],
        is_wanted: Callable[[], bool],
        complete: Callable[[], None],
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.committed = committed
        self.transaction_version = transaction_version
        self.coordinator_epoch = coordinator_epoch
        self.left = set(partitions)
        self.is_wanted = is_wanted
        self.complete = complete


_Marker: TypeAlias = tuple[Markers, TopicPartition]


class MarkerSender:
    """Sends the markers of all transactions that this broker coordinates."""

    def __init__(self, broker: Broker, routes: MarkerRoutes) -> None:
        self._broker = broker
        self.routes = routes
        self._queues: dict[int, deque[_Marker]] = {}
        """What is to be sent to each broker."""
        self._in_flight: dict[int, list[_Marker]] = {}
        """What brokers have not answered yet."""
        self._delayed: list[_Marker] = []
        """What is sent again after a pause, or when the metadata changes."""
        self._is_retry_due = False
        self._is_flush_due = False

    def send(self, markers: Markers) -> None:
        """Send the markers of a transaction. With none it is complete at once."""
        if not markers.left:
            markers.complete()
            return
        self._enqueue_all([(markers, partition) for partition in sorted(markers.left)])

    def metadata_changed(self) -> None:
        """Look for the leaders again: of partitions that had none, or have another one now."""
        self._retry()
        for broker_id, part in self._in_flight.items():
            moved = [each for each in part if self._leader(each[1]) != broker_id]
            if moved:
                part[:] = [each for each in part if self._leader(each[1]) == broker_id]
                self._enqueue_all(moved)
            if self._is_fenced(broker_id):  # it may never answer, and its queue waits for that
                self._enqueue_all(list(self._queues.pop(broker_id, ())))

    def _is_fenced(self, broker_id: int) -> bool:
        broker = self._broker.image.brokers.get(broker_id)
        return broker is None or broker.fenced

    # -- queues --------------------------------------------------------------------------

    def _enqueue_all(self, found: list[_Marker]) -> None:
        """Queue the markers that are still wanted."""
        self._run(len(found), self._enqueue_steps(found))

    def _run(self, count: int, steps: Steps[None]) -> None:
        """Do something with this many markers: at once if they are few, else in slices."""
        if count < _MARKERS_A_STEP:
            for _ in steps:
                pass
        else:
            self._broker.sliced_work.run(steps)

    def _enqueue_steps(self, found: list[_Marker]) -> Steps[None]:
        for number, (markers, partition) in enumerate(found, 1):
            if markers.is_wanted():
                self._enqueue(markers, partition)
            if not number % _MARKERS_A_STEP:
                yield

    def _enqueue(self, markers: Markers, partition: TopicPartition) -> None:
        """Queue a marker for the leader of its partition."""
        leader = self._leader(partition)
        if leader is None:
            self._have(markers, partition)  # the topic is deleted
        elif leader == NO_LEADER:
            self._delay(markers, partition)
        else:
            self._queues.setdefault(leader, deque()).append((markers, partition))
            if not self._is_flush_due:
                self._is_flush_due = True
                self._broker.before_write.append(self._flush)

    def _leader(self, partition: TopicPartition) -> int | None:
        """Return the leader of a partition, NO_LEADER without one, None if it does not exist."""
        topic = self._broker.image.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        return topic.partitions[partition.partition].leader

    def _delay(self, markers: Markers, partition: TopicPartition) -> None:
        self._delayed.append((markers, partition))
        if not self._is_retry_due:
            self._is_retry_due = True
            broker = self._broker
            broker.timers.at(broker.monotonic_ms + RETRY_MS, self._retry_timer)

    def _retry_timer(self) -> None:
        self._is_retry_due = False
        self._retry()

    def _retry(self) -> None:
        delayed, self._delayed = self._delayed, []
        if delayed:
            self._enqueue_all(delayed)

    def _have(self, markers: Markers, partition: TopicPartition) -> None:
        """Note that a partition has its marker."""
        if partition in markers.left:
            markers.left.remove(partition)
            if not markers.left and markers.is_wanted():
                markers.complete()

    # -- requests ------------------------------------------------------------------------

    def _flush(self) -> None:
        self._is_flush_due = False
        for broker_id in list(self._queues):
            self._send_to(broker_id)

    def _send_to(self, broker_id: int) -> None:
        """Send what is queued for a broker, unless it has not answered yet."""
        if broker_id in self._in_flight:
            return
        queue = self._queues.get(broker_id, deque())
        part: list[_Marker] = []
        while queue and len(part) < MAX_PARTITIONS:
            marker = queue.popleft()
            if marker[0].is_wanted():
                part.append(marker)
        if not queue:
            self._queues.pop(broker_id, None)
        if not part:
            return
        self._in_flight[broker_id] = part
        request = _request(part)
        if broker_id == self._broker.node_id:
            self.routes.write_here(request, partial(self._answered, broker_id, part))
        else:
            self._ask(broker_id, part, request)

    def _ask(
        self,
        broker_id: int,
        part: list[_Marker],
        request: WriteTxnMarkersRequest,
    ) -> None:
        version = self.routes.version(broker_id)

        def done(result: Response | OSError) -> None:
            codes = {} if isinstance(result, OSError) else dict(_codes(_decode(result, version)))
            self._answered(broker_id, part, codes)

        peer = self.routes.peer(broker_id)
        if peer is None:
            self._answered(broker_id, part, {})
            return
        body = encoder(WriteTxnMarkersRequest, version)(request)
        try:
            peer.send(WriteTxnMarkersRequest.API_KEY, version, body, REQUEST_TIMEOUT_MS, done)
        except BlockingIOError:
            self._answered(broker_id, part, {})

    def _answered(self, broker_id: int, part: list[_Marker], codes: MarkerCodes) -> None:
        """Take the answer of a broker. Without codes there was none."""
        del self._in_flight[broker_id]
        self._run(len(part), self._take(part, codes))
        self._send_to(broker_id)

    def _take(self, part: list[_Marker], codes: MarkerCodes) -> Steps[None]:
        """Note what the answer says about each partition."""
        for number, (markers, partition) in enumerate(part, 1):
            if codes.get((markers.producer_id, partition)) in _DONE:
                self._have(markers, partition)
            elif markers.is_wanted():
                self._delay(markers, partition)
            if not number % _MARKERS_A_STEP:
                yield


def _request(part: Iterable[_Marker]) -> WriteTxnMarkersRequest:
    """Return the request with the markers of several transactions."""
    by_transaction: dict[int, tuple[Markers, dict[str, list[int]]]] = {}
    for markers, (topic, index) in part:
        _, topics = by_transaction.setdefault(id(markers), (markers, {}))
        topics.setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                transaction_result=markers.committed,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
                coordinator_epoch=markers.coordinator_epoch(),
                transaction_version=markers.transaction_version,
            )
            for markers, topics in by_transaction.values()
        ]
    )


def _decode(result: Response, version: int) -> WriteTxnMarkersResponse:
    view = result.view[result.start : result.end].toreadonly()
    response, _ = decoder(WriteTxnMarkersResponse, version)(view, 0, len(view))
    return response


def _codes(
    response: WriteTxnMarkersResponse,
) -> Iterator[tuple[tuple[int, TopicPartition], int]]:
    """Iterate over the code of each producer and partition."""
    for marker in response.markers:
        for topic in marker.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                yield (marker.producer_id, partition), result.error_code
