"""confluent-kafka (librdkafka) in the common shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

import confluent_kafka as ck
from confluent_kafka import admin as cka

from tests.harness.model import (
    CREATE_TIME,
    EARLIEST,
    LATEST,
    LOG_APPEND_TIME,
    Ack,
    Admin,
    AdminError,
    Consumer,
    Headers,
    Message,
    Producer,
    TopicDescription,
)

ADMIN_TIMEOUT_S = 15.0
_SPECIAL = {EARLIEST: ck.OFFSET_BEGINNING, LATEST: ck.OFFSET_END}


def _quiet(error: ck.KafkaError) -> None:
    """Ignore errors of connections, which restarts cause; real failures reach the caller."""


R = TypeVar("R")


class ConfluentProducer(Producer):
    def __init__(self, config: dict[str, object]) -> None:
        self._producer = ck.Producer(config)
        self._acks: dict[int, Ack] = {}
        self._sent = 0

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        number = self._sent
        self._sent += 1

        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            offset = None if error else message.offset()
            code = error.code() if error else 0
            self._acks[number] = Ack(partition, -1 if offset is None else offset, code)

        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=delivered,
                    timestamp=timestamp_ms or 0,
                    headers=list(headers),
                )
                return
            except BufferError:
                self._producer.poll(0.1)
            except ck.KafkaException as error:
                self._acks[number] = Ack(partition, -1, error.args[0].code())
                return

    def flush(self, timeout_s: float = 30.0) -> list[Ack]:
        left = self._producer.flush(timeout_s)
        assert not left, f"{left} messages without an answer after {timeout_s} s"
        acks = [self._acks[number] for number in sorted(self._acks)]
        self._acks.clear()
        return acks

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(5)


class ConfluentConsumer(Consumer):
    def __init__(self, config: dict[str, object]) -> None:
        self._consumer = ck.Consumer(config)

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        self._consumer.assign(
            [
                ck.TopicPartition(topic, partition, _SPECIAL.get(offset, offset))
                for (topic, partition), offset in positions.items()
            ]
        )

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._consumer.seek(ck.TopicPartition(topic, partition, _SPECIAL.get(offset, offset)))

    def poll(self, timeout_s: float) -> list[Message]:
        messages = self._consumer.consume(500, 0)
        if not messages:
            messages = self._consumer.consume(1, timeout_s)
        for message in messages:
            if message.error():
                raise ck.KafkaException(message.error())
        return [_message(message) for message in messages]

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int | None]:
        asked = [
            ck.TopicPartition(topic, partition, time) for (topic, partition), time in times.items()
        ]
        found = self._consumer.offsets_for_times(asked, ADMIN_TIMEOUT_S)
        return {
            (each.topic, each.partition): each.offset if each.offset >= 0 else None
            for each in found
        }

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(
            ck.TopicPartition(topic, partition), ADMIN_TIMEOUT_S
        )
        return low, high

    def close(self) -> None:
        self._consumer.close()


def _message(message: ck.Message) -> Message:
    kind, timestamp = message.timestamp()
    kinds = {ck.TIMESTAMP_CREATE_TIME: CREATE_TIME, ck.TIMESTAMP_LOG_APPEND_TIME: LOG_APPEND_TIME}
    topic, partition, offset = place_of(message)
    return Message(
        topic,
        partition,
        offset,
        timestamp,
        kinds[kind],
        message.key(),
        message.value(),
        tuple(cast(list[tuple[str, bytes | None]], message.headers() or [])),
    )


class ConfluentAdmin(Admin):
    def __init__(self, bootstrap_servers: str) -> None:
        config: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 2}
        self._admin = cka.AdminClient(config | {"error_cb": _quiet})

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        *,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        if assignment is None:
            topic = cka.NewTopic(name, partitions, replication_factor, config=dict(configs or {}))
        else:
            topic = cka.NewTopic(
                name,
                len(assignment),
                config=dict(configs or {}),
                replica_assignment=[list(each) for each in assignment],
            )
        _result(self._admin.create_topics([topic], validate_only=validate_only)[name])

    def delete_topic(self, name: str) -> None:
        _result(self._admin.delete_topics([name])[name])

    def list_topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics)

    def describe_topic(self, name: str) -> TopicDescription:
        found = _result(self._admin.describe_topics(ck.TopicCollection([name]))[name])
        return TopicDescription(
            found.name,
            {
                each.id: (
                    each.leader.id,
                    [node.id for node in each.replicas],
                    [node.id for node in each.isr],
                )
                for each in found.partitions
            },
        )

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        new = cka.NewPartitions(topic, total)
        _result(self._admin.create_partitions([new], validate_only=validate_only)[topic])

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = cka.ConfigResource(cka.ConfigResource.Type.TOPIC, topic)
        entries = _result(self._admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in entries.items()}

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = cka.ConfigResource(
            cka.ConfigResource.Type.TOPIC,
            topic,
            incremental_configs=[
                cka.ConfigEntry(name, value, incremental_operation=cka.AlterConfigOpType.SET)
                for name, value in configs.items()
            ],
        )
        _result(self._admin.incremental_alter_configs([resource])[resource])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        asked = ck.TopicPartition(topic, partition, before_offset)
        return int(_result(self._admin.delete_records([asked])[asked]).low_watermark)

    def close(self) -> None:
        self._admin.poll(0)


def place_of(message: ck.Message) -> tuple[str, int, int]:
    """Return the topic, partition and offset of a message that a broker has stored."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def _result(future: Future[R]) -> R:
    try:
        return future.result(ADMIN_TIMEOUT_S)
    except ck.KafkaException as error:
        raise AdminError(error.args[0].code(), error.args[0].str()) from error


class Confluent:
    """The librdkafka client."""

    name = "confluent-kafka"

    def producer(
        self,
        bootstrap_servers: str,
        *,
        acks: int | str = "all",
        compression: str = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
        delivery_timeout_ms: int = 30_000,
    ) -> Producer:
        return ConfluentProducer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": acks,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "linger.ms": linger_ms,
                "error_cb": _quiet,
                "message.timeout.ms": delivery_timeout_ms,
                "message.max.bytes": 10_000_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 2,
            }
        )

    def consumer(
        self,
        bootstrap_servers: str,
        *,
        read_committed: bool = False,
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        reset: str = "earliest",
        max_partition_bytes: int = 1_048_576,
    ) -> Consumer:
        return ConfluentConsumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "assigned-by-hand",
                "enable.auto.commit": False,
                "auto.offset.reset": reset,
                "error_cb": _quiet,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                "fetch.wait.max.ms": max_wait_ms,
                "fetch.min.bytes": min_bytes,
                "max.partition.fetch.bytes": max_partition_bytes,
                "check.crcs": True,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 2,
            }
        )

    def admin(self, bootstrap_servers: str) -> Admin:
        return ConfluentAdmin(bootstrap_servers)
