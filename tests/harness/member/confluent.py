"""A member by confluent-kafka (librdkafka), in either protocol."""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.harness.confluent import place_of
from tests.harness.member.progress import Progress
from tests.harness.member.report import Key, Reporter
from tests.harness.member.spec import Spec

POLL_S = 0.05
COMMIT_ATTEMPTS = 20
# A commit may meet a rebalance or the bump of the member's epoch: it is then repeated.
REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH = 27, 113
METADATA_PREFIX = b"CGMDv2:"


def run(spec: Spec, reporter: Reporter, stop: Callable[[], bool]) -> None:
    Member(spec, reporter).run(stop)


def config_of(spec: Spec) -> dict[str, object]:
    config: dict[str, object] = {
        "bootstrap.servers": spec.bootstrap_servers,
        "group.id": spec.group,
        "group.protocol": spec.protocol,
        "client.id": spec.client_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": not spec.commits,
        "auto.commit.interval.ms": 100,
        "max.poll.interval.ms": spec.max_poll_interval_ms,
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 0,
    }
    if spec.instance_id is not None:
        config["group.instance.id"] = spec.instance_id
    if spec.protocol == "consumer":
        if spec.assignor is not None:
            config["group.remote.assignor"] = spec.assignor
        return config
    config["session.timeout.ms"] = spec.session_timeout_ms
    config["heartbeat.interval.ms"] = spec.heartbeat_interval_ms
    config["partition.assignment.strategy"] = spec.assignor or "range,roundrobin"
    return config


def generation_of(consumer: Consumer) -> int:
    """Return the generation or member epoch, which librdkafka tells in its own format."""
    metadata = consumer.consumer_group_metadata()
    assert metadata.startswith(METADATA_PREFIX)
    return int(struct.unpack_from("=i", metadata, len(METADATA_PREFIX))[0])


class Member:
    def __init__(self, spec: Spec, reporter: Reporter) -> None:
        self._spec = spec
        self._reporter = reporter
        self._progress = Progress()
        self._consumer = Consumer(config_of(spec))
        self._incremental = spec.protocol == "consumer" or spec.assignor == "cooperative-sticky"

    def run(self, stop: Callable[[], bool]) -> None:
        topics = list(self._spec.topics)
        if self._spec.pattern is not None:
            topics.append(self._spec.pattern)
        self._consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        while not stop():
            self._turn()
        self._consumer.close()
        self._reporter.closed()

    def _turn(self) -> None:
        offsets: defaultdict[Key, list[int]] = defaultdict(list)
        for message in self._consumer.consume(self._spec.batch, POLL_S):
            if message.error():
                self._reporter.failed("consume", message.error())
            else:
                topic, partition, offset = place_of(message)
                offsets[topic, partition].append(offset)
        if not offsets:
            return
        time.sleep(self._spec.work_ms / 1000)
        self._reporter.got(offsets)
        self._progress.processed(offsets)
        if self._spec.commits:
            self._commit(self._progress.to_commit(), attempts=1)

    def _commit(self, offsets: dict[Key, int], attempts: int) -> None:
        if not offsets:
            return
        wanted = [TopicPartition(*key, offset) for key, offset in offsets.items()]
        for _ in range(attempts):
            try:
                self._consumer.commit(offsets=wanted, asynchronous=False)
            except KafkaException as error:
                self._reporter.failed("commit", error.args[0])
                if error.args[0].code() not in (REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH):
                    return
                time.sleep(POLL_S)
            else:
                self._progress.committed(offsets)
                self._reporter.committed(offsets)
                return

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = _keys(partitions)
        # What is told first is told before the first message can be fetched.
        self._reporter.assigned(keys, generation_of(consumer))
        if self._incremental:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        keys = _keys(partitions)
        if self._spec.commits:
            self._commit(self._progress.to_commit(keys), COMMIT_ATTEMPTS)
        self._give_up(consumer, partitions, lost=False)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_up(consumer, partitions, lost=True)

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition], *, lost: bool) -> None:
        keys = _keys(partitions)
        self._progress.forget(keys)
        # Told before it is done: what is done may be given to another at once.
        self._reporter.revoked(keys, lost=lost)
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()


def _keys(partitions: list[TopicPartition]) -> list[Key]:
    return [(partition.topic, partition.partition) for partition in partitions]
