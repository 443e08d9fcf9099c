"""A copier with confluent-kafka: of one partition, or as a member of a group (KIP-447).

A member commits its offsets with the generation in which it was assigned the partitions. So the
broker refuses what it has read before a rebalance that it has not noticed. With the consumer
protocol the epoch may grow while the member keeps its partitions: it commits with the epoch in
which it has read.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.harness.copier.spec import FAILED, FENCED, STOPPED, CopierSpec
from tests.harness.copier.watchdog import Watchdog

CALL_TIMEOUT_S = 30
_FAST_RETRIES = {
    "socket.timeout.ms": 3_000,  # so long a paused broker is waited for
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "error_cb": lambda error: None,
    "log_level": 0,
}


def _session(spec: CopierSpec) -> dict[str, int]:
    """Return the settings of a member's session. With the consumer protocol the broker has them."""
    if spec.group_protocol == "consumer":
        return {}
    return {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}


class _Copier:
    def __init__(self, spec: CopierSpec) -> None:
        self._spec = spec
        self._producer = Producer(
            {
                "bootstrap.servers": spec.servers,
                "transactional.id": spec.transactional_id,
                "transaction.timeout.ms": spec.transaction_timeout_ms,
                "linger.ms": 2,
                **_FAST_RETRIES,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": spec.servers,
                "group.id": spec.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": 512,
                "group.protocol": spec.group_protocol,
                **_session(spec),
                **_FAST_RETRIES,
            }
        )
        self._group_metadata: object = None
        self._watchdog = Watchdog()

    def run(self, is_stopping: Callable[[], bool]) -> None:
        # The transaction of the copier before ends here. So its offsets are known afterwards.
        self._producer.init_transactions(CALL_TIMEOUT_S)
        if self._spec.partition is None:
            self._consumer.subscribe(
                [self._spec.source], on_assign=self._assigned, on_revoke=lambda *_: None
            )
        else:
            place = TopicPartition(self._spec.source, self._spec.partition)
            self._consumer.assign(self._committed([place]))
            self._group_metadata = self._consumer.consumer_group_metadata()
        while not is_stopping():
            self._watchdog.step()
            found = self._consumer.consume(self._spec.records, 0.2)
            if self._spec.group_protocol == "consumer":
                self._group_metadata = self._consumer.consumer_group_metadata()
            messages = [each for each in found if each.error() is None]
            if messages:
                self._copy(messages)
                time.sleep(self._spec.pause_s)
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._group_metadata = consumer.consumer_group_metadata()

    def _committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        found = self._consumer.committed(places, timeout=CALL_TIMEOUT_S)
        return [TopicPartition(each.topic, each.partition, max(0, each.offset)) for each in found]

    def _rewind(self) -> None:
        """Read again from the committed offsets."""
        places = self._consumer.assignment()
        for place in self._committed(places) if places else ():
            self._consumer.seek(place)

    def _copy(self, messages: list[Message]) -> None:
        try:
            self._try(messages)
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
            self._until_done(lambda: self._producer.abort_transaction(CALL_TIMEOUT_S))
            self._rewind()

    def _try(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self._producer.produce(
                self._spec.target, message.value(), key=message.key(), partition=partition
            )
            ends[partition] = offset + 1
        offsets = [TopicPartition(self._spec.source, *end) for end in ends.items()]
        self._until_done(
            lambda: self._producer.send_offsets_to_transaction(
                offsets, self._group_metadata, CALL_TIMEOUT_S
            )
        )
        self._until_done(lambda: self._producer.commit_transaction(CALL_TIMEOUT_S))

    def _until_done(self, call: Callable[[], None]) -> None:
        """Call again as long as the client says that this is right."""
        while True:
            try:
                call()
                return
            except KafkaException as problem:
                if not problem.args[0].retriable():
                    raise


def run(spec: CopierSpec, is_stopping: Callable[[], bool]) -> int:
    """Copy until it is told to stop, or cannot go on. Return the exit code."""
    try:
        _Copier(spec).run(is_stopping)
    except KafkaException as problem:
        error = problem.args[0]
        print(error, flush=True)
        is_fenced = error.fatal() and error.code() in (
            KafkaError._FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
        )
        return FENCED if is_fenced else FAILED
    return STOPPED
